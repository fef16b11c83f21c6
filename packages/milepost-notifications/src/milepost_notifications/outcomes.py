"""Outcomes of a try: which answers and errors complete a message, which repeat it, and which end
it. Pure rules."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http.client import responses
from typing import Any
from urllib.parse import unquote, unquote_plus, unquote_to_bytes

from msgspec import Struct

import milepost as mp
import milepost.application as mpa
import milepost_net as net
from milepost_notifications.destinations import ASK_TO_WAIT, Destination

NETWORK_ERROR = "NETWORK_ERROR"
HIDDEN = "…".encode()
INVALID_TARGET = "INVALID_TARGET"
INVALID_MESSAGE = "INVALID_MESSAGE"
GONE = 410
REDIRECTS = frozenset({301, 302, 303, 307, 308})
NOT_FOLLOWED = ": the redirect is not followed (setting redirects, for GET and HEAD); send to the URL that it names"
TEXT_LIMIT = 500
"""Characters of a text answer that are recorded as the error's details."""
LARGEST_INTEGER = 2**53
DEEPEST = 8
DECODED_BYTES = 65_536
"""Bytes of a body that are decoded: a small one may become very large."""
LOOKUP_WAITS = "lookup-waits"
"""Kind of the client's error for a host that was not even looked up, because of other names."""
LOOKUP_WAIT_S = 5
"""Pause before the next look at a message whose host could not even be looked up."""
HEADER_BYTES = 8_192
"""Bytes of an answer's headers that are recorded, with each try."""
SHORTEST_SECRET = 6
"""Characters of the shortest text of a sender that is taken for a secret: shorter ones are part of
many answers."""
HeaderPairs = tuple[tuple[str, str], ...]
"""Names and values of headers."""
_ESCAPE = re.compile(rb'\\(?:u(00[0-7][0-9A-Fa-f])|([/"\\]))')

STATUS_TEXTS = responses | {
    413: "Request Entity Too Large",
    414: "Request-URI Too Long",
    416: "Requested Range Not Satisfiable",
    422: "Unprocessable Entity",
}
"""Words of each HTTP status. Python 3.13 has new words for these four: failures would then be in
other groups than before."""

_NETWORK = {
    "name-not-resolved": "DNS_FAILURE",
    "connection-refused": "CONNECTION_REFUSED",
    "unreachable": "UNREACHABLE",
    "connect-timeout": "CONNECT_TIMEOUT",
    "tls-failed": "TLS_FAILURE",
    "certificate-refused": "CERTIFICATE_REFUSED",
    "no-connection-free": "NO_CONNECTION_FREE",
    "closed": "CONNECTION_RESET",
    "cut": "INVALID_ANSWER",
    "silent": "READ_TIMEOUT",
    "timeout": "TIMEOUT",
    "malformed": "INVALID_ANSWER",
}
"""Categories of network errors by the client's own kinds; each belongs to the family
NETWORK_ERROR."""


class DeliveryVerdict(Struct, frozen=True):
    """Result of one attempt for the message; `gone`: its destination wants no more requests, and is
    to be paused."""

    outcome: mp.Outcome
    gone: bool = False


def category_of(status: int) -> str:
    """Category of a status, as stored with a try."""
    if 200 <= status < 300:
        return "SUCCESS"
    return (
        "CLIENT_ERROR"
        if 400 <= status < 500
        else "SERVER_ERROR"
        if 500 <= status < 600
        else "UNKNOWN_STATUS"
    )


def status_text(status: object) -> str | None:
    """The usual text of an HTTP status; None: there is none. (An outcome that an operator has
    confirmed may name anything as its status.)"""
    return (
        None if status is None else STATUS_TEXTS.get(status, "") if isinstance(status, int) else ""
    )


def response_ms(facts: Mapping[str, Any]) -> float | None:
    """The partner's response time in the facts of a try; None: they have none."""
    took = facts.get("responseTime")
    return took if isinstance(took, (int, float)) else None


def status_line(status: object) -> str:
    """A status as people read it, such as "HTTP 404 Not Found". Its words keep the groups of
    failures apart: they ignore numbers."""
    return f"HTTP {status} {status_text(status)}".rstrip()


def failure_line(status: int) -> str:
    """The same for a status that does not complete a message; it says what to do about a
    redirect."""
    return status_line(status) + (NOT_FOLLOWED if status in REDIRECTS else "")


def of_response(
    response: net.Response,
    destination: Destination,
    response_ms: int,
    received_at: float,
    secrets: Collection[str] = (),
) -> DeliveryVerdict:
    """The verdict on a whole answer, received at this time (seconds since 1970). `secrets` are not
    recorded, even if the partner repeats them in its answer."""
    status, body = response.status, without(readable(response), secrets)
    succeeded = status in destination.success_statuses
    facts: dict[str, Any] = (
        {"success": True, "category": "SUCCESS", "retryEligible": False} if succeeded else {}
    )
    facts["statusCode"] = status
    facts["responseTime"] = response_ms
    facts["httpResponseReceivedAt"] = mpa.iso(round(received_at * 1000))
    facts["response"] = recorded(response, body, destination.response_bytes, secrets)
    if succeeded:
        return DeliveryVerdict(mp.Done(facts))
    category, what = category_of(status), failure_line(status)
    if category == "SUCCESS":
        category = "UNKNOWN_STATUS"  # a 2xx that this destination does not count as success
    details = {**error_details(body), **facts}
    if status in destination.retry_statuses:
        after = retry_after_s(response, destination.retry_after_cap_ms, received_at)
        counted = status not in ASK_TO_WAIT
        return DeliveryVerdict(
            mp.Retry(
                what,
                after=after,
                category=category,
                details=details,
                http_status=status,
                breaker=counted,
            )
        )
    gone = status == GONE and destination.gone == "pause"
    return DeliveryVerdict(
        mp.Reject(what, category=category, details=details, http_status=status), gone
    )


def of_error(
    error: net.NetError,
    destination: Destination,
    response_ms: int,
    received_at: float,
    secrets: Collection[str] = (),
    *,
    doubtful: bool = False,
) -> DeliveryVerdict:
    """The verdict on a try without a whole answer. `doubtful`: the outcome of the try before is
    unknown; so it stays if nothing was sent now."""
    if isinstance(error, net.AnswerTooLarge) and error.response is not None:
        # The partner has answered; what is too much of the body is not recorded.
        return of_response(error.response, destination, response_ms, received_at, secrets)
    details: dict[str, Any] = {
        "message": str(error),
        "kind": error.kind,
        "responseTime": response_ms,
    }
    if isinstance(error, (net.AddressRefused, net.InvalidRequest)):
        return DeliveryVerdict(mp.Reject(str(error), category=INVALID_TARGET, details=details))
    if isinstance(error, net.RedirectRefused):
        return DeliveryVerdict(
            mp.Reject(
                str(error),
                category="UNKNOWN_STATUS",
                details=details,
                http_status=error.http_status,
            )
        )
    if error.kind == LOOKUP_WAITS:
        # Names of other messages are slow: neither the partner nor this message has to do with it.
        return DeliveryVerdict(
            mp.NotYet(after=LOOKUP_WAIT_S, note=str(error), unknown=doubtful, asked=False)
        )
    category = _NETWORK.get(error.kind, NETWORK_ERROR)
    details["family"] = NETWORK_ERROR
    unknown = error.unknown or doubtful
    return DeliveryVerdict(
        mp.Retry(
            str(error),
            category=category,
            details=details,
            http_status=error.http_status,
            unknown=unknown,
        )
    )


def retry_after_s(response: net.Response, cap_ms: int, now: float) -> float | None:
    """The partner's minimum delay in seconds, capped; None: it gave none, or one that has passed. A
    date counts from the answer's own Date, or, if it has none, from now (seconds since 1970)."""
    given = response.retry_after
    if given is None and "Date" not in response.headers:
        try:
            given = (
                parsedate_to_datetime(response.headers.get("Retry-After") or "").timestamp() - now
            )
        except (TypeError, ValueError, OverflowError):
            return None
    return None if given is None or given <= 0 else min(given, cap_ms / 1000)


def readable(response: net.Response) -> bytes:
    """The body as text can be read from it: without its gzip or deflate coding. What cannot be
    decoded, or is cut, is given as far as it goes."""
    if (response.headers.get("Content-Encoding") or "").strip().lower() not in ("gzip", "deflate"):
        return response.body
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(response.body, DECODED_BYTES)
    except zlib.error:
        return response.body


def error_details(body: bytes) -> dict[str, Any]:
    """Error details of a partner's answer: message, code and details of a JSON answer, or the first
    characters of a text."""
    text = body.decode("utf-8", "replace").strip()
    try:
        found = json.loads(text)
        details = _named_details(found) if isinstance(found, dict) else {}
    except (ValueError, RecursionError):
        details = {}
    return details or ({"message": text[:TEXT_LIMIT]} if text else {})


def _named_details(found: dict[str, Any]) -> dict[str, Any]:
    details: dict[str, Any] = {}
    for name, names in (
        ("message", ("message", "error")),
        ("code", ("code", "errorCode")),
        ("details", ("details", "errors")),
    ):
        value = next((found[one] for one in names if found.get(one) is not None), None)
        if value is not None:
            details[name] = (
                _storable(value)
                if len(str(value)) <= TEXT_LIMIT
                else str(_storable(value))[:TEXT_LIMIT]
            )
    return details


def _storable(value: Any, depth: int = 0) -> Any:
    """A value of a partner's JSON as every ledger can store it: numbers and text of the usual kind,
    and not nested deeply."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > LARGEST_INTEGER:
        return str(value)
    if isinstance(value, (dict, list)) and depth >= DEEPEST:
        return "…"
    if isinstance(value, dict):
        return {_storable(name): _storable(held, depth + 1) for name, held in value.items()}
    return [_storable(held, depth + 1) for held in value] if isinstance(value, list) else value


def recorded(
    response: net.Response, body: bytes, limit: int, secrets: Collection[str]
) -> dict[str, Any]:
    """The recorded part of an answer: its headers and its body, each up to its limit; cookies and
    apparent secrets are hidden."""
    headers, shown, cut = _recorded_headers(tuple(response.headers))
    found: dict[str, Any] = {
        "headers": mpa.redacted(_without_secrets(headers, secrets)) if secrets else shown,
        "body": mpa.redacted(body[:limit].decode("utf-8", "replace")),
        "size": response.size,
    }
    if cut or response.size > len(response.body) or len(body) > limit:
        found["cut"] = True
    return found


def without(data: bytes, secrets: Collection[str]) -> bytes:
    """The same bytes without these secrets, also where JSON or percent-encoding writes them with
    escapes: then the escapes are undone."""
    if not secrets:
        return data
    for undo in (bytes, _unescaped, unquote_to_bytes):
        read = undo(data)
        for secret in secrets:
            if secret.encode() in read:
                data = read = read.replace(secret.encode(), HIDDEN)
    return data


def secret_values(headers: Mapping[str, str]) -> Sequence[str]:
    """The values of a sender's headers that look like secrets."""
    return _secret_values(tuple(headers.items()))


@lru_cache(256)
def url_secrets(url: str) -> tuple[str, ...]:
    """The texts of a target URL that look like secrets, also as a partner reads them, the longest
    first: one may be a part of another."""
    texts = mpa.secrets_of_url(url)
    forms = dict.fromkeys(
        [
            *texts,
            *(unquote(text, errors="replace") for text in texts),
            *(unquote_plus(text, errors="replace") for text in texts),
        ]
    )
    return tuple(
        sorted((text for text in forms if len(text) >= SHORTEST_SECRET), key=len, reverse=True)
    )


@lru_cache(256)
def _secret_values(headers: HeaderPairs) -> tuple[str, ...]:
    shown = mpa.redacted(dict(headers))
    found = [
        value.removeprefix("Bearer ").removeprefix("Basic ")
        for name, value in headers
        if shown[name] != value
    ]
    return tuple(value for value in found if len(value) >= SHORTEST_SECRET)


def _within(headers: HeaderPairs, limit: int) -> HeaderPairs:
    """The first headers that have together at most this many bytes."""
    for number, (name, value) in enumerate(headers):
        limit -= len(name) + len(value)
        if limit < 0:
            return headers[:number]
    return headers


def _without_secrets(headers: HeaderPairs, secrets: Collection[str]) -> dict[str, str]:
    return {
        name: without(value.encode(), secrets).decode("utf-8", "replace") for name, value in headers
    }


@lru_cache(256)
def _recorded_headers(headers: HeaderPairs) -> tuple[HeaderPairs, Mapping[str, str], bool]:
    """The headers within their limit; the same with apparent secrets hidden; and whether some are
    left out. Callers must not change the result: answers with equal headers, as those of one second
    mostly are, share it."""
    kept = _within(headers, HEADER_BYTES)
    return kept, mpa.redacted(dict(kept)), len(kept) < len(headers)


def _unescaped(data: bytes) -> bytes:
    """JSON without the escapes that an ASCII character can have."""
    return _ESCAPE.sub(
        lambda found: chr(int(found[1], 16)).encode() if found[1] else found[2], data
    )
