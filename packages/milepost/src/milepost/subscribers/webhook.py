"""Webhook subscriber: each event is one POST to a URL, signed as Standard Webhooks requires."""

from __future__ import annotations

import os
import string
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from urllib.parse import parse_qsl, quote

from milepost.core.errors import EventRefused, MilepostError, UsageError
from milepost.core.events import Envelope
from milepost.net_errors import translated_net_errors
from milepost.subscribers.route_formats import CURE, event_json
from milepost_net import (
    Client,
    NetError,
    NetUsageError,
    Timeouts,
    checked_headers,
    merged_headers,
    parse_url,
)
from milepost_net.response import NOT_NOW
from milepost_net.signatures import Secrets, secret_keys, signed_headers

LONGEST = 14.0
"""Seconds: less than the relay's lease has left at the beginning of a call."""

READ = 65_536
"""Bytes of an answer that are read, to keep the connection; only its status counts."""
CLOUD_EVENT = "application/cloudevents+json"
PLAIN = "application/json"

# Answers that say nothing about the event: it can be delivered once the server, its keys or its
# limits are corrected. The event relay retries these (see `engine.events.deliver`), a 429 too; this
# client sends each request once.
_OF_THE_SERVER = frozenset({401, 403}) | NOT_NOW
# Printable ASCII but for the space, '"' and '%'; all else is percent-encoded, and so is the dot,
# which separates what is signed.
_ID_SAFE = "".join(c for c in string.punctuation if c not in '"%.')


class WebhookSubscriber:
    """POSTs each event to `url`: its envelope as JSON, with the event's id in `webhook-id`, so that
    a receiver recognises a repeat.

    With a `secret` (`whsec_…`, see `milepost_net.new_secret`; several while one is being replaced)
    each request is signed as Standard Webhooks requires, and `milepost_net.verify` checks it. An
    answer of 2xx accepts the event; 410 and most other 4xx refuse it for good; everything else, and
    no answer within `timeout` seconds, means "not now". Redirects are not followed. The URL may
    lead to public addresses only, unless `allow_cidrs` has the network. The cursor's name is made
    of the host and the URL's digest unless `name` is given, because a URL's path may be a secret;
    `clock` gives the seconds since 1970.
    """

    batch = 1

    @translated_net_errors()
    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        secret: Secrets | None = None,
        timeout: float = 10.0,
        allow_cidrs: Iterable[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not 0 < timeout <= LONGEST:
            raise UsageError(
                f"WebhookSubscriber(timeout={timeout!r}): give seconds, {LONGEST:g} at most"
            )
        self._url = url
        self._host = parse_url(url).host
        try:
            self._headers = checked_headers(headers or {})
            self._keys = () if secret is None else secret_keys(secret)
        except NetUsageError as error:
            raise UsageError(f"WebhookSubscriber: {error}") from None
        plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in self._host)
        self.name = name or f"{plain[:50]}-{sha256(url.encode()).hexdigest()[:8]}"
        self._client = Client(
            allow_cidrs=allow_cidrs, timeouts=Timeouts(timeout, timeout, timeout), largest=READ
        )
        self._clock = clock

    def __repr__(self) -> str:
        return f"<WebhookSubscriber {self.name}>"

    @translated_net_errors()
    def tell(self, envelopes: Sequence[Envelope]) -> None:
        for envelope in envelopes:
            self._post(envelope)

    def close(self) -> None:
        """Close idle connections; the next event connects anew."""
        self._client.close()

    def _post(self, envelope: Envelope) -> None:
        body = event_json(envelope)
        kind = (
            CLOUD_EVENT
            if envelope.get("specversion") and envelope.get("id") and envelope.get("type")
            else PLAIN
        )
        own = {
            "Content-Type": kind,
            **signed_headers(self._keys, webhook_id(envelope.event.id), body, self._clock()),
        }
        status = self._status(merged_headers(self._headers, own), body)
        if 200 <= status < 300:
            return
        if 400 <= status < 500 and status not in _OF_THE_SERVER:
            raise EventRefused(
                f"{self._host} refuses this event for good ({status}); when the cause is corrected, {CURE}"
            )
        raise MilepostError(f"{self._host} has not accepted this event ({status})")

    def _status(self, headers: Mapping[str, str], body: bytes) -> int:
        """The status of the answer; raises MilepostError if there is none, without the URL and the
        headers, which may be secrets."""
        try:
            # A repeat does no harm: the receiver recognises it by its id.
            return self._client.request(
                "POST", self._url, headers=headers, body=body, repeatable=True
            ).status
        except NetError as error:
            if error.response is not None:
                # The rest of the answer was too long, too slow or cut off, but its status is known.
                return error.response.status
            raise MilepostError(f"this event was not delivered: {error}") from None


def webhook_subscriber(address: str, allow_cidrs: Iterable[str] = ()) -> WebhookSubscriber:
    """The subscriber of a URL whose fragment may have options:
    `https://office.example/events#secret_env=OFFICE_SECRET&name=office`. `secret_env` names the
    environment variable of a signing secret, and may stand twice while one is being replaced."""
    url, _, fragment = address.partition("#")
    name, secrets = None, list[str]()
    for option, value in parse_qsl(fragment, keep_blank_values=True):
        if option == "secret_env":
            secret = os.environ.get(value, "").strip()
            if not secret:
                raise UsageError(
                    f"the environment variable {value} is not set; it has the signing secret, whsec_…"
                )
            secrets.append(secret)
        elif option == "name":
            name = value
        else:
            raise UsageError(f"unknown option {option!r} after '#'; known are secret_env and name")
    if fragment and not name and not secrets:
        raise UsageError("write options after '#' as secret_env=VARIABLE and name=NAME")
    return WebhookSubscriber(url, name=name, secret=secrets or None, allow_cidrs=allow_cidrs)


def webhook_id(event_id: str) -> str:
    """An event's id as it stands in the header `webhook-id`: percent-encoded where the header or
    the signature needs it."""
    return quote(event_id, safe=_ID_SAFE).replace(".", "%2E")
