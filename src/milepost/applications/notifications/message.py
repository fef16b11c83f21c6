"""Message: the request that a sender hands over, checked field by field in the order of the seed, and made ready to be stored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from milepost import net

REQUIRED = ("messageId", "timestamp", "senderId", "targetUrl")
KEY = ("messageId", "senderId", "timestamp", "targetUrl")
"""The fields of an item's key, in the order of the seed's table: pk = messageId#senderId, sk = timestamp#targetUrl."""
METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"})
WITHOUT_BODY = frozenset({"GET", "HEAD"})
LONGEST_ID = 256
LONGEST_URL = 1_024
"""Characters of a part of a key."""
RESERVED = frozenset(
    {
        "x-message-id", "x-sender-id", "x-correlation-id", "x-delivery-attempt", "x-previous-outcome",
        "webhook-id", "webhook-timestamp", "webhook-signature",
    }
)  # fmt: skip
"""Headers that every delivery sets itself; a sender's are left out."""
JSON_TYPE, TEXT_TYPE = "application/json", "text/plain; charset=utf-8"


class MessageRefused(Exception):
    """A message that cannot be accepted: the answer's status, the seed's error code, and a text that names the field."""

    def __init__(self, code: str, text: str, *, status: int = 400, sender: str | None = None, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.code, self.text, self.status, self.sender, self.retry_after = code, text, status, sender, retry_after


class Message(Struct, frozen=True, kw_only=True):
    """A checked message. `content` is what the ledger stores; it holds no time of delivery, so that a repeat with another one is known."""

    content: dict[str, Any]
    deliver_at: str | None = None

    @property
    def message_id(self) -> str:
        return str(self.content["messageId"])

    @property
    def sender_id(self) -> str:
        return str(self.content["senderId"])


def read_message(data: bytes, largest_body: int) -> Message:
    """Check a request's body; raises MessageRefused for the first thing that is wrong, in the order of the seed: JSON, required fields,
    messageId, timestamp, senderId, targetUrl, method, headers, body."""
    given = _object(data)
    sender = given.get("senderId") if isinstance(given.get("senderId"), str) else None
    try:
        return _read(given, largest_body)
    except MessageRefused as refused:
        refused.sender = sender
        raise


def _object(data: bytes) -> dict[str, Any]:
    try:
        given = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise MessageRefused("INVALID_JSON", "Request body is not valid JSON") from None
    if not isinstance(given, dict):
        raise MessageRefused("INVALID_JSON", "Request body must be a JSON object")
    return given


def _read(given: Mapping[str, Any], largest_body: int) -> Message:
    for field in REQUIRED:
        if given.get(field) is None or given[field] == "":
            raise _wrong(f"Missing required field: {field}")
    content: dict[str, Any] = {"messageId": _id(given["messageId"], "messageId")}
    content["timestamp"] = normalised_time(given["timestamp"], "timestamp")
    content["senderId"] = _id(given["senderId"], "senderId")
    content["targetUrl"] = target_url(given["targetUrl"])
    content["method"] = method = _method(given.get("method"))
    content["headers"] = headers = _headers(given.get("headers", {}))
    body, kind = _body(given.get("body"), method, largest_body)
    content["body"] = body
    if kind is not None and not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = kind
    deliver_at = None if given.get("deliverAt") is None else normalised_time(given["deliverAt"], "deliverAt")
    return Message(content=content, deliver_at=deliver_at)


def normalised_time(value: Any, field: str) -> str:
    """An ISO 8601 time with a zone as YYYY-MM-DDTHH:MM:SS.mmmZ; digits beyond milliseconds are cut off."""
    example = "an ISO 8601 time such as 2023-12-28T12:00:00.000Z"
    if not isinstance(value, str) or len(value) > 64 or "T" not in value.upper():
        raise _wrong(f"Invalid {field}: must be {example}")
    try:
        found = datetime.fromisoformat(value.strip().upper())
    except ValueError:
        raise _wrong(f"Invalid {field}: must be {example}") from None
    if found.tzinfo is None:
        raise _wrong(f"Invalid {field}: the time zone is missing; must be {example}")
    try:
        utc = found.astimezone(UTC)
    except OverflowError:
        raise _wrong(f"Invalid {field}: must be {example}") from None
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z".rjust(24, "0")


def target_url(value: Any) -> str:
    """A target URL that can be called: http or https, a host, no user and password, no control characters."""
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
    return {name: text for name, text in found.items() if name.lower() not in RESERVED}


def _body(value: Any, method: str, largest: int) -> tuple[str | None, str | None]:
    """The body as text, serialised once, and its usual Content-Type."""
    if value is None or value == "":
        return None, None
    if method in WITHOUT_BODY:
        raise _wrong(f"Invalid body: a {method} request has none")
    if isinstance(value, str):
        text, kind = value, JSON_TYPE if _is_json(value) else TEXT_TYPE
    elif isinstance(value, (dict, list)):
        text, kind = msgspec.json.encode(value).decode(), JSON_TYPE
    else:
        raise _wrong("Invalid body: must be a string or an object")
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > largest:
        raise MessageRefused(
            "PAYLOAD_TOO_LARGE", f"Invalid body: it has {size:,} bytes; at most {largest:,} are accepted (setting largest_body)", status=413
        )
    return text, kind


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def _wrong(text: str) -> MessageRefused:
    return MessageRefused("VALIDATION_ERROR", text)
