"""Explanation of why a stored row cannot be read: the wrong attribute, its value, and the expected one."""

from __future__ import annotations

from typing import Any

import msgspec

from milepost.core.errors import LedgerDamaged
from milepost.core.status import Status
from milepost.ledgers.aws.names import ms
from milepost.ledgers.aws.tables.keys import Image, Layout

TYPES = {
    "S": "text (S)", "N": "a number (N)", "B": "binary (B)", "BOOL": "true or false (BOOL)", "NULL": "null (NULL)", "M": "a map (M)",
    "L": "a list (L)", "SS": "a set of texts (SS)", "NS": "a set of numbers (NS)", "BS": "a set of binaries (BS)",
}  # fmt: skip
REQUIRED = ("queue", "status", "version", "head", "createdAt", "lastUpdatedAt", "inputDigest")
MOMENTS = frozenset({
    "createdAt", "lastUpdatedAt", "enteredAt", "dueAt", "lookAt", "overdueAt", "claimedAt", "notBefore", "firstQueued", "lastQueued",
})  # fmt: skip
NUMBERS = frozenset({"version", "copied", "attempts", "totalAttempts", "looks", "losses", "round", "pass"})
DIGESTS = frozenset({"head", "inputDigest", "contentDigest"})
TEXTS = frozenset({"queue", "status", "lease", "holder", "listId", "note", "lane", "correlationId", "dueShard"})
JSON = frozenset({"lastError", "undecided", "kept"})
EXPECTED = {
    **dict.fromkeys(MOMENTS | TEXTS | JSON, "S"), **dict.fromkeys(NUMBERS, "N"), **dict.fromkeys(DIGESTS, "B"),
    "trail": "L", "retryHistory": "L", "through": "SS",
}  # fmt: skip
"""The type of each attribute of Milepost's own."""


def why_unreadable(error: Exception, image: Image | None, layout: Layout | None) -> str:
    """A sentence for people. The exception is quoted only where no attribute is wrong by itself."""
    if isinstance(error, LedgerDamaged):
        return str(error)
    found = None if image is None else row_fault(image, layout)
    return found or f"{type(error).__name__}: {error}"


def row_fault(image: Image, layout: Layout | None = None) -> str | None:
    """The first fault in a row's attributes; None if no attribute is wrong by itself."""
    for name in layout.key if layout is not None else ():
        if name not in image:
            return f"the key attribute {name!r} is missing"
        if fault := _type_fault(name, image[name], "S"):
            return f"the key {fault}"
    if "version" not in image:
        return None  # a row of another program: only its key must match
    for name in REQUIRED:
        if name not in image:
            return f"the attribute {name!r} is missing; it is {TYPES[EXPECTED[name]]} on every row that Milepost has taken in"
    for name, wanted in EXPECTED.items():
        if name in JSON and "blob" in image.get(name, {}).get("M", {}):
            continue  # stored in a blob
        if name in image and (fault := _type_fault(name, image[name], wanted) or _value_fault(name, image[name][wanted])):
            return f"the {fault}"
    return None


def _type_fault(name: str, attribute: dict[str, Any], wanted: str) -> str | None:
    kind = next(iter(attribute), "")
    return None if kind == wanted else f"attribute {name!r} is {TYPES.get(kind, kind or 'empty')} and must be {TYPES[wanted]}"


def _value_fault(name: str, value: Any) -> str | None:
    shown = repr(value if len(str(value)) <= 40 else f"{str(value)[:40]}…")
    if name == "status" and value not in list(Status):
        return f"attribute 'status' is {shown} and must be one of {', '.join(Status)}"
    if name in MOMENTS and not _parses(ms, value):
        return f"attribute {name!r} is {shown} and must be a time such as 2026-01-31T12:00:00.000Z"
    if name in NUMBERS and not _parses(int, value):
        return f"attribute {name!r} is {shown} and must be a whole number"
    if name in DIGESTS and len(value) != 32:
        return f"attribute {name!r} has {len(value)} bytes and must have 32 (a SHA-256 digest)"
    if name in JSON and not _parses(msgspec.json.decode, value):
        return f"attribute {name!r} is {shown} and must be JSON"
    return None


def _parses(read: Any, value: Any) -> bool:
    try:
        read(value)
    except (ValueError, TypeError):
        return False
    return True
