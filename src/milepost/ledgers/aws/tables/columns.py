"""Columns: attributes that a row has for people and other programs that read the table; the code never reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from milepost.ledgers.aws.tables.keys import OWN, Image, Layout

RETRY_ENTRY = 1024
"""Most bytes of an entry of retryHistory, as JSON."""
SHORT_DETAILS = 300
"""Characters of an error's message in an entry that would be larger."""
LONGEST_COLUMN = 2_048
"""Characters of a field of the input that is a column; the input itself has all of it."""
USUAL: Image = {
    "attempts": {"N": "0"},
    "maxRetriesExceeded": {"BOOL": False},
    "maxRetriesExceededAt": {"NULL": True},
    "nextRetryAt": {"NULL": True},
}
"""Values of Milepost's own attributes while there is nothing to say, written where the route asks for the column."""
_encode = msgspec.json.Encoder().encode


def with_columns(image: Image, layout: Layout) -> Image:
    """The row's attributes, with those columns of the route that have their usual value."""
    for name in layout.columns:
        if name in USUAL:
            image.setdefault(name, USUAL[name])
    return image


def column_values(content: Any, layout: Layout) -> Image:
    """The columns of a new row that come from its input, and an empty retryHistory if the route asks for it."""
    found: Image = {}
    for name in layout.columns:
        if name == "retryHistory":
            found[name] = {"L": []}
        elif name not in OWN and isinstance(content, Mapping) and content.get(name) is not None:
            value = content[name]
            text = value if isinstance(value, str) else _encode(value).decode()
            found[name] = {"S": text[:LONGEST_COLUMN]}
    return found


def retry_entry(attempt: Mapping[str, Any]) -> dict[str, Any]:
    """A failed attempt as an entry of retryHistory, in the names of the design document."""
    if len(_encode(attempt)) > RETRY_ENTRY:
        message = str(attempt["error_details"].get("message", ""))[:SHORT_DETAILS]
        attempt = {**attempt, "error_details": {"message": message, "cut": "see the history"}}
    return {"M": {_camel(name): _typed(value) for name, value in attempt.items()}}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _typed(value: Any) -> dict[str, Any]:
    """A JSON value as a typed attribute."""
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, (int, float)):
        return {"N": _encode(value).decode()}
    if isinstance(value, Mapping):
        return {"M": {str(name): _typed(inner) for name, inner in value.items()}}
    if isinstance(value, (list, tuple)):
        return {"L": [_typed(inner) for inner in value]}
    return {"S": str(value)}
