"""Refused rows: rows that DynamoDB refuses to write, and rows that cannot be read, from the error
to the quarantine and back.

1. Error. `requests.client` raises RowRefused where DynamoDB refuses one row (too large, or an
   invalid value). Building a write raises one of UNWRITABLE, reading a damaged row or blob one of
   UNREADABLE. `concerns_one_row` tells them from a problem with AWS.
2. Answer. `apply`, `intake` and the reads here return `ports.items.Refused` in the row's place. The
   other rows are not affected.
3. Failure. The engine (`engine.apply.count_refused`) and `claim` count a failure of the item, in a
   form that fits (`core.failures`).
4. Quarantine. If even that cannot be written, `quarantine_row` puts a copy into the quarantine
   queue and takes the row out of the index of due rows. The relay quarantines a stream record in
   the same way, and the repair scan each row that it cannot handle.
5. Return. An operator corrects the row and replays the entry, or discards it (`quarantine`); the
   repair scan judges a changed row anew.

Two writes need no answer: a lease that cannot be extended counts as ended, and a row that cannot be
marked as finished is left to the repair scan.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import msgspec
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from milepost.core.errors import LedgerDamaged, LedgerError
from milepost.core.item import Item, Row, digest_of
from milepost.core.status import Status
from milepost.ports.documents import read_as, sort_out
from milepost.ports.items import Refused
from milepost_aws.ledger.names import ms
from milepost_aws.ledger.requests.client import RowRefused
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.tables.conditional_write import Update
from milepost_aws.ledger.tables.item_rows import content_of, is_ours, row_of
from milepost_aws.ledger.tables.keys import FULL_KEY, Image, Layout
from milepost_aws.ledger.tables.values import is_blob, plain

UNREADABLE = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    FileNotFoundError,
    RecursionError,
    LedgerDamaged,
)
"""Exceptions that mean one item is unreadable. Any other is a problem with AWS and concerns all
items."""
UNWRITABLE = (
    RowRefused,
    msgspec.MsgspecError,
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
)
"""Exceptions for a row that DynamoDB refuses, and those raised while its write is built, if a value
in it cannot be stored."""
QUARANTINED = "aside#"
"""Kind of the control documents of quarantined rows, followed by the route's name. A document is
named after the item's key."""
LONGEST = 4_000
"""Characters shown of one attribute of a quarantined row."""

TYPES = {
    "S": "text (S)", "N": "a number (N)", "B": "binary (B)", "BOOL": "true or false (BOOL)", "NULL": "null (NULL)", "M": "a map (M)",
    "L": "a list (L)", "SS": "a set of texts (SS)", "NS": "a set of numbers (NS)", "BS": "a set of binaries (BS)",
}  # fmt: skip
REQUIRED = ("queue", "status", "version", "head", "createdAt", "lastUpdatedAt", "inputDigest")
MOMENTS = frozenset({
    "createdAt", "lastUpdatedAt", "enteredAt", "dueAt", "lookAt", "overdueAt", "claimedAt", "notBefore", "firstQueued", "lastQueued",
})  # fmt: skip
NUMBERS = frozenset(
    {"version", "copied", "attempts", "totalAttempts", "looks", "losses", "round", "pass"}
)
DIGESTS = frozenset({"head", "inputDigest", "contentDigest"})
TEXTS = frozenset(
    {"queue", "status", "lease", "holder", "listId", "note", "lane", "correlationId", "dueShard"}
)
JSON = frozenset({"lastError", "undecided", "kept"})
EXPECTED = {
    **dict.fromkeys(MOMENTS | TEXTS | JSON, "S"), **dict.fromkeys(NUMBERS, "N"), **dict.fromkeys(DIGESTS, "B"),
    "trail": "L", "retryHistory": "L", "through": "SS",
}  # fmt: skip
"""The type of each attribute of Milepost's own."""

log = logging.getLogger(__name__)


def concerns_one_row(error: Exception) -> bool:
    """Whether an error concerns one row alone. Any other is a problem with AWS or with the route:
    the caller must raise it."""
    return not isinstance(error, LedgerError) or isinstance(error, (LedgerDamaged, RowRefused))


def unwritable(error: Exception, key: str) -> Refused:
    """The answer for a row whose write failed with one of UNWRITABLE."""
    return Refused(
        str(error) if isinstance(error, RowRefused) else f"{type(error).__name__}: {error}", key
    )


# Reading ------------------------------------------------------------------------------------------
def readable(store: AwsStore, layout: Layout, image: Image) -> Row | None:
    """The row, if Milepost wrote it and it is readable. Relay and repair put an unreadable one into
    quarantine."""
    row = row_or_refused(store, layout, image)
    return row if isinstance(row, Row) else None


def item_or_refused(store: AwsStore, layout: Layout, image: Image) -> Item | Refused | None:
    """The row with its content; Refused: unreadable; None: not a row of Milepost."""
    row = row_or_refused(store, layout, image)
    if not isinstance(row, Row):
        return row
    try:
        return Item(row, content_of(image, layout, store.values))
    except UNREADABLE as error:
        return _refused("content", error, layout, image, row)


def row_or_refused(store: AwsStore, layout: Layout, image: Image) -> Row | Refused | None:
    """The row; Refused: unreadable; None: not a row of Milepost."""
    if not is_ours(image):
        return None
    try:
        return row_of(image, layout, store.values)
    except UNREADABLE as error:
        return _refused("row", error, layout, image)


def _refused(
    part: str, error: Exception, layout: Layout, image: Image, row: Row | None = None
) -> Refused:
    key, why = layout.key_of(image), why_unreadable(error, image, layout)
    log.warning("cannot read a row of %s, key %s: %s", layout.table, key, why)
    return Refused(f"its {part} cannot be read: {why}", key, row)


# Explanation --------------------------------------------------------------------------------------
def why_unreadable(error: Exception, image: Image | None, layout: Layout | None) -> str:
    """A sentence for people. The exception is quoted only where no attribute is wrong by itself."""
    if isinstance(error, LedgerDamaged):
        return str(error)
    found = None if image is None else fault_in(image, layout)
    return found or f"{type(error).__name__}: {error}"


def fault_in(image: Image, layout: Layout | None = None) -> str | None:
    """The first wrong attribute of a row, its value and the expected one; None if no attribute is
    wrong by itself."""
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
        if name in JSON and is_blob(image.get(name, {})):
            continue
        if name in image and (
            fault := _type_fault(name, image[name], wanted)
            or _value_fault(name, image[name][wanted])
        ):
            return f"the {fault}"
    return None


def _type_fault(name: str, attribute: dict[str, Any], wanted: str) -> str | None:
    kind = next(iter(attribute), "")
    return (
        None
        if kind == wanted
        else f"attribute {name!r} is {TYPES.get(kind, kind or 'empty')} and must be {TYPES[wanted]}"
    )


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


# Quarantine ---------------------------------------------------------------------------------------
class QuarantinedRow(Struct, frozen=True):
    """Control document: the row was quarantined in this state. The stream delivers each change
    once, but the repair scan meets the row every day."""

    digest: str
    """Digest of the whole row: after a change the row is judged again."""
    reason: str
    at: int
    seen_at: int


def quarantine_row(store: AwsStore, layout: Layout, image: Image, reason: str, now: int) -> None:
    """Quarantine a row that can be neither used nor written, and remove it from the due index, so
    that it is not found again at once. The repair scan and an operator's replay put it back and try
    again."""
    if known_in_quarantine(store, layout, image, now) is None:
        quarantine_copy(store, layout, image, reason, now)
    update = Update(layout, layout.key_of(image))
    update.remove("dueShard")
    update.unchanged(image, "version", "lease", "dueShard")
    update.written(
        store.requests
    )  # False: another process has changed the row, so that it can be written after all


def quarantine_copy(store: AwsStore, layout: Layout, image: Image, reason: str, now: int) -> None:
    """Put a copy of the row with the reason into quarantine, and remember that. Long values are
    cut: the part that identifies the row must fit into a message."""
    row = plain({"M": image})
    names = (*layout.key, FULL_KEY)
    shown = {name: value if name in names else _cut(value) for name, value in row.items()}
    store.queues.set_aside(
        "row", {"route": layout.route, "table": layout.table, "row": shown}, reason
    )
    document = QuarantinedRow(digest_of(row).hex(), reason, now, now)
    store.control.write(QUARANTINED + layout.route, layout.key_of(image), to_builtins(document))


def known_in_quarantine(
    store: AwsStore, layout: Layout, image: Image, now: int
) -> QuarantinedRow | None:
    """The document of this row, if it was quarantined in exactly this state; also records that the
    row still exists."""
    kind, key = QUARANTINED + layout.route, layout.key_of(image)
    held = store.control.read_one(kind, key)
    if held is None:
        return None
    try:
        document = read_as(QuarantinedRow, held.value)
    except LedgerDamaged:
        return None  # it is put into quarantine anew
    if document.digest != digest_of(plain({"M": image})).hex():
        return None
    store.control.write(kind, key, to_builtins(replace(document, seen_at=now)), held.version)
    return document


def forget_absent(store: AwsStore, route: str, before: int) -> None:
    """Remove documents of rows not seen since then: they are gone or were corrected."""
    sound, _ = sort_out(store.control.read(QUARANTINED + route), QUARANTINED, QuarantinedRow)
    for key, (row, version) in sound.items():
        if row.seen_at < before:
            store.control.write(QUARANTINED + route, key, None, version)


def _cut(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return value if len(text) <= LONGEST else f"{text[:LONGEST]}… (cut: {len(text):,} characters)"
