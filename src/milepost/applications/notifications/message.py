"""Message: the JSON of a request, read and checked by the rules that clients use too (`milepost.client`)."""

from __future__ import annotations

import msgspec

from milepost.client import Message, MessageRefused, check_message


def read_message(data: bytes, largest_body: int) -> Message:
    """Check a request's body; raises MessageRefused for the first thing that is wrong, in the order of the seed: JSON, required fields,
    messageId, timestamp, senderId, targetUrl, method, headers, body."""
    try:
        given = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise MessageRefused("INVALID_JSON", "Request body is not valid JSON") from None
    if not isinstance(given, dict):
        raise MessageRefused("INVALID_JSON", "Request body must be a JSON object")
    return check_message(given, largest_body, msgspec.json.encode)
