"""Message rules of POST /message, for the service and its clients alike: fields are checked in a
fixed order, and normalised.

Pure, and without any package besides the standard library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import milepost_net as net
from milepost_net.hidden_urls import url_in_key

REQUIRED = ("messageId", "timestamp", "senderId", "targetUrl")
KEY = ("messageId", "senderId", "timestamp", "targetUrl")
"""The fields of a message's key, in the order of the table's keys on AWS: pk = messageId#senderId,
sk = timestamp#targetUrl."""
KEY_FORMS = {"targetUrl": url_in_key}
"""The forms of these fields in the key: a target URL may hold a secret, and a key is shown
everywhere."""
METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"})
WITHOUT_BODY = frozenset({"GET", "HEAD"})
INLINE_BODY = 262_144
"""The largest body, in bytes, that a service accepts unless its setting `largest_body` says
otherwise."""
LARGEST_HEADERS = 49_152
"""Bytes of a sender's headers; a request may have 65,536 with those that the service adds."""
LONGEST_ID = 256
LONGEST_URL = 1_024
"""Characters of a part of a key."""
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?=[Tt])", re.ASCII)
RESERVED = frozenset(
    {
        "x-message-id", "x-sender-id", "x-correlation-id", "x-delivery-attempt", "x-previous-outcome",
        "webhook-id", "webhook-timestamp", "webhook-signature",
    }
)  # fmt: skip
"""Headers that every delivery sets itself; a sender's are left out."""
FOR_PROXIES = frozenset({"proxy-authenticate", "proxy-authorization"})
"""Headers between a client and its proxy. Others that are hop-by-hop no request can have
(`milepost_net`)."""
JSON_TYPE, TEXT_TYPE = "application/json", "text/plain; charset=utf-8"

Encode = Callable[[Any], bytes]
"""JSON as bytes."""


class MessageRefused(Exception):
    """A message that cannot be accepted: `code` is the service's error code, `text` names the
    field, `status` is that of the HTTP answer."""

    permanent = True

    def __init__(
        self,
        code: str,
        text: str,
        *,
        status: int = 400,
        sender: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(text)
        self.code, self.text, self.status, self.sender, self.retry_after = (
            code,
            text,
            status,
            sender,
            retry_after,
        )


@dataclass(frozen=True)
class Message:
    """A checked message. `content` is what the ledger stores; it holds no time of delivery, so that
    a repeat with another one is known."""

    content: dict[str, Any]
    deliver_at: str | None = None

    @property
    def message_id(self) -> str:
        """Its messageId."""
        return str(self.content["messageId"])

    @property
    def sender_id(self) -> str:
        """Its senderId."""
        return str(self.content["senderId"])

    @property
    def key(self) -> str:
        """Its key: one message has it, however often it is sent."""
        return joined_key(KEY_FORMS.get(field, str)(str(self.content[field])) for field in KEY)


def joined_key(parts: Iterable[str]) -> str:
    """Parts of a key as one text, escaped. A copy of the rule in `milepost.core.values.key_text`,
    since the client has nothing of Milepost; a test of notifications compares the two."""
    return "#".join(part.replace("%", "%25").replace("#", "%23") for part in parts)


def plain_json(value: Any) -> bytes:
    """JSON without spaces; raises ValueError for what JSON does not have, such as NaN."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def check_message(
    given: Mapping[str, Any], largest_body: int = INLINE_BODY, encode: Encode = plain_json
) -> Message:
    """Check a message's fields; raises MessageRefused for the first thing that is wrong, in this
    order: required fields, messageId, timestamp, senderId, targetUrl, method, headers, body.
    `encode` serialises a body that is an object."""
    sender = given.get("senderId")
    try:
        return _checked(given, largest_body, encode)
    except MessageRefused as refused:
        refused.sender = sender if isinstance(sender, str) else None
        raise


def _checked(given: Mapping[str, Any], largest_body: int, encode: Encode) -> Message:
    for field in REQUIRED:
        if given.get(field) is None or given[field] == "":
            raise _wrong(f"Missing required field: {field}")
    content: dict[str, Any] = {"messageId": _id(given["messageId"], "messageId")}
    content["timestamp"] = normalised_time(given["timestamp"], "timestamp")
    content["senderId"] = _id(given["senderId"], "senderId")
    content["targetUrl"] = target_url(given["targetUrl"])
    content["method"] = method = _method(given.get("method"))
    content["headers"] = headers = _headers(given.get("headers", {}))
    body, kind = _body(given.get("body"), method, largest_body, encode)
    content["body"] = body
    if kind is not None and not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = kind
    deliver_at = (
        None if given.get("deliverAt") is None else normalised_time(given["deliverAt"], "deliverAt")
    )
    return Message(content, deliver_at)


def normalised_time(value: Any, field: str) -> str:
    """An ISO 8601 time with a zone as YYYY-MM-DDTHH:MM:SS.mmmZ; digits beyond milliseconds are cut
    off."""
    example = "an ISO 8601 time such as 2023-12-28T12:00:00.000Z"
    if not isinstance(value, str) or len(value) > 64 or "T" not in value.upper():
        raise _wrong(f"Invalid {field}: must be {example}")
    try:
        found = datetime.fromisoformat(value.strip().upper())
    except ValueError:
        day = _DAY.match(value.strip())
        wrong = (
            f"must be {example}" if day is None or _is_day(day[0]) else f"there is no day {day[0]}"
        )
        raise _wrong(f"Invalid {field}: {wrong}") from None
    if found.tzinfo is None:
        raise _wrong(f"Invalid {field}: the time zone is missing; must be {example}")
    try:
        utc = found.astimezone(UTC)
    except OverflowError:
        raise _wrong(f"Invalid {field}: must be {example}") from None
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z".rjust(24, "0")


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def target_url(value: Any) -> str:
    """A target URL that can be called: http or https, a host, no user and password, no control
    characters."""
    if not isinstance(value, str):
        raise _wrong("Invalid targetUrl: must be a string")
    try:
        net.parse_url(value)
    except net.InvalidRequest as error:
        raise _wrong(f"Invalid targetUrl: {error}") from None
    if len(value) > LONGEST_URL:
        raise _wrong(f"Invalid targetUrl: must have at most {LONGEST_URL:,} characters")
    return value


def _id(value: Any, field: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _wrong(f"Invalid {field}: must be a non-empty string")
    text = value.strip()
    if len(text) > LONGEST_ID or not text.isprintable():
        raise _wrong(f"Invalid {field}: must be printable text of at most {LONGEST_ID} characters")
    return text


def _method(value: Any) -> str:
    if value is None:
        return "POST"
    method = value.upper() if isinstance(value, str) else ""
    if method not in METHODS:
        raise _wrong(f"Invalid method: must be one of {', '.join(sorted(METHODS))}")
    return method


def _headers(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _wrong("Invalid headers: must be an object of header names and text values")
    named: dict[str, tuple[str, Any]] = {}
    for name, text in value.items():
        named[name.lower()] = (name, text)  # of names that differ in case alone the last one holds
    try:
        found = net.checked_headers(dict(named.values()))
    except net.InvalidRequest as error:
        raise _wrong(f"Invalid headers: {error}") from None
    if not FOR_PROXIES.isdisjoint(named):
        raise _wrong(
            f"Invalid headers: {', '.join(sorted(FOR_PROXIES.intersection(named)))} is for a proxy, not for the partner"
        )
    if sum(len(name) + len(text) + 4 for name, text in found.items()) > LARGEST_HEADERS:
        raise _wrong(f"Invalid headers: they are larger than {LARGEST_HEADERS:,} bytes")
    return {name: text for name, text in found.items() if name.lower() not in RESERVED}


def _body(value: Any, method: str, largest: int, encode: Encode) -> tuple[str | None, str | None]:
    """The body as text, serialised once, and its usual Content-Type."""
    if value is None or value == "":
        return None, None
    if method in WITHOUT_BODY:
        raise _wrong(f"Invalid body: a {method} request has none")
    if isinstance(value, str):
        text, kind = value, JSON_TYPE if _is_json(value) else TEXT_TYPE
    elif isinstance(value, (dict, list)):
        text, kind = _encoded(value, encode), JSON_TYPE
    else:
        raise _wrong("Invalid body: must be a string or an object")
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > largest:
        raise MessageRefused(
            "PAYLOAD_TOO_LARGE",
            f"Invalid body: it has {size:,} bytes; at most {largest:,} are accepted (setting largest_body)",
            status=413,
        )
    return text, kind


def _encoded(value: Any, encode: Encode) -> str:
    try:
        return encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        raise _wrong("Invalid body: it cannot be written as JSON") from None


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_no_constant)
        text.encode()
    except (ValueError, RecursionError):
        return False
    return True


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _wrong(text: str) -> MessageRefused:
    return MessageRefused("VALIDATION_ERROR", text)
