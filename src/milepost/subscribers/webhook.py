"""A URL as a subscriber: each event is one POST."""

from __future__ import annotations

import hmac
import socket
import string
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import quote, urlsplit

import msgspec

from milepost.core.errors import EventRefused, MilepostError, UsageError
from milepost.core.events import Envelope

LONGEST = 14.0
"""Seconds: less than the relay's lease has left at the beginning of a call."""

DRAINED = 65_536
CLOUD_EVENT = "application/cloudevents+json"
PLAIN = "application/json"

# Answers that say nothing about the event: they pass when the server, its keys or its limits are put right.
_OF_THE_SERVER = frozenset({401, 403, 408, 425, 429})
# As CloudEvents has it for headers: printable ASCII but for the space, '"' and '%'; all else percent-encoded.
_HEADER_SAFE = "".join(c for c in string.punctuation if c not in '"%')
_CURE = "'milepost subscribers release'"


class WebhookSubscriber:
    """POSTs each event to `url`: its envelope as JSON, with the event's id in `Milepost-Event-Id`, so that a repeat can be recognised.

    With a `secret`, `Milepost-Signature: t=SECONDS,v1=HEX` lets the receiver see who sent it: see `signature`. What is answered 2xx is
    taken; 410 and most other 4xx mean that this event will never be; all else, and a silence of `timeout` seconds, means "not now".
    Redirects are not followed. The cursor's name is made of the host and the URL's digest unless `name` is given, since a URL's path
    may be a secret; `clock` gives the seconds since 1970.
    """

    batch = 1

    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        secret: str | bytes | None = None,
        timeout: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not 0 < timeout <= LONGEST:
            raise UsageError(f"WebhookSubscriber(timeout={timeout!r}): give seconds, {LONGEST:g} at most")
        for header, value in (headers or {}).items():
            if not (header.isascii() and header.isprintable() and value.isascii() and value.isprintable()):
                raise UsageError(f"WebhookSubscriber(headers=…): {header!r} or its value is not plain ASCII on one line")
        self._connection, self._target = _address(url, timeout)
        self._host = self._connection.host
        self._timeout = timeout
        self.name = name or f"{_plain(self._host)[:50]}-{sha256(url.encode()).hexdigest()[:8]}"
        self._headers = dict(headers or {})
        self._secret = secret.encode() if isinstance(secret, str) else secret
        self._clock = clock

    def __repr__(self) -> str:
        return f"<WebhookSubscriber {self.name}>"

    def tell(self, envelopes: Sequence[Envelope]) -> None:
        for envelope in envelopes:
            self._post(envelope)

    def close(self) -> None:
        """Close idle connections; the next event connects anew."""
        self._connection.close()

    def _post(self, envelope: Envelope) -> None:
        body = _body(envelope)
        kind = CLOUD_EVENT if envelope.get("specversion") and envelope.get("id") and envelope.get("type") else PLAIN
        headers = {**self._headers, "Content-Type": kind, "Milepost-Event-Id": quote(envelope.event.id, safe=_HEADER_SAFE)}
        if self._secret is not None:
            headers["Milepost-Signature"] = signature(self._secret, int(self._clock()), body)
        status = self._status(headers, body)
        if 200 <= status < 300:
            return
        if 400 <= status < 500 and status not in _OF_THE_SERVER:
            raise EventRefused(f"{self._host} will not take this event ({status}); when that is put right, {_CURE}")
        raise MilepostError(f"{self._host} has not taken this event ({status})")

    def _status(self, headers: Mapping[str, str], body: bytes) -> int:
        """What is answered to a POST, within the time; no word of it in an error, since headers may be secrets."""
        late, until = threading.Event(), time.monotonic() + self._timeout
        watch = threading.Timer(self._timeout, self._cut, (late,))
        watch.start()
        try:
            if self._connection.sock is not None:
                # It may have been closed while it was idle: then nothing was answered, and a new one is asked.
                with suppress(ConnectionError):
                    return self._exchange(headers, body, late, until)
                self._connection.close()
            return self._exchange(headers, body, late, until)
        except (OSError, HTTPException) as error:
            self._connection.close()
            slow = late.is_set() or isinstance(error, TimeoutError)
            said = f"no answer within {self._timeout:g} s" if slow else type(error).__name__
            raise MilepostError(f"{self._host} has not taken this event ({said})") from None
        finally:
            watch.cancel()

    def _exchange(self, headers: Mapping[str, str], body: bytes, late: threading.Event, until: float) -> int:
        if self._connection.sock is None:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._connection.timeout = left
            self._connection.connect()
        if late.is_set():
            raise TimeoutError
        self._connection.request("POST", self._target, body, dict(headers))
        response = self._connection.getresponse()
        if late.is_set():
            # What was cut off in the middle of its head reads like an answer all the same.
            response.close()
            raise TimeoutError
        try:
            # Only to keep the connection: what counts is the status, and that is known.
            whole = response.length is not None and len(response.read(DRAINED)) < DRAINED and not response.length
        except (OSError, HTTPException):
            whole = False
        if not whole:
            response.close()
            self._connection.close()
        return response.status

    def _cut(self, late: threading.Event) -> None:
        """A wait on a socket begins anew with each byte that drips in; this ends it for good."""
        late.set()
        sock = self._connection.sock
        if sock is not None:
            with suppress(OSError):
                # Not TLS's own farewell, which may not be said while another thread reads.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


def signature(secret: bytes, at: int, body: bytes) -> str:
    """What `Milepost-Signature` says: HMAC-SHA256 of the seconds, a full stop and the body. A receiver makes it again with the `t`
    that it was given, compares, and takes nothing whose `t` is long past."""
    return f"t={at},v1={hmac.new(secret, b'%d.' % at + body, sha256).hexdigest()}"


def _body(envelope: Envelope) -> bytes:
    """Keys sorted, so that a repeat is the same bytes."""
    try:
        return msgspec.json.encode(msgspec.to_builtins(envelope, str_keys=True), order="deterministic")
    except Exception as error:
        raise EventRefused(f"this event is no JSON ({error}); mend the form of route {envelope.event.route!r}, then {_CURE}") from error


def _plain(host: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in host)


def _address(url: str, timeout: float) -> tuple[HTTPConnection, str]:
    """Where a URL leads: a connection that is not made yet, and what to ask for there."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"this is no URL ({error}); one looks like https://office.example/events") from None
    if parts.scheme not in ("https", "http") or not host:
        raise UsageError("a webhook's URL begins with https:// or http:// and must name a host, as in https://office.example/events")
    if "@" in parts.netloc or not url.isascii() or not url.isprintable() or " " in url:
        raise UsageError("a webhook's URL is plain ASCII without spaces, and without a user and password in it: use headers=…")
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    return kind(host, port, timeout=timeout), (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
