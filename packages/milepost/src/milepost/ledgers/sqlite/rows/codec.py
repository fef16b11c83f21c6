"""Conversion between the core's rows and content and SQLite's columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from milepost.core.item import Content, Failure, Item, Row
from milepost.core.status import Status
from milepost.ledgers.sqlite.rows.names import NameNumbers, Transaction
from milepost.ports.items import Refused

STATUSES: tuple[Status, ...] = tuple(Status)
CODES: dict[Status, int] = {status: code for code, status in enumerate(STATUSES)}

LIMIT = 2**48
"""Every count, and every time in milliseconds of the next 8,000 years, is below this. In SQLite any
text is above it."""
Number = Annotated[int, Meta(ge=0, lt=LIMIT)]


class RowColumns(Struct, array_like=True, gc=False):
    """The columns of a row, with the values that they may have: another program may have written
    others, and SQLite takes any."""

    id: int
    place: int
    key: str
    status: Number
    version: Number
    head: bytes
    created_at: Number
    updated_at: Number
    entered_at: Number
    correlation_id: str
    input_digest: bytes
    due_at: Number | None
    look_at: Annotated[int, Meta(ge=-1, lt=LIMIT)] | None
    overdue_at: Number | None
    lease: str | None
    holder: str | None
    claimed_at: Number | None
    attempts: Number
    total_attempts: Number
    looks: Number
    losses: Number
    round: Number
    pass_no: Number
    flags: Number
    list_id: str | None
    rest: bytes | None
    life: Number


_ALL_COLUMNS = list[RowColumns]
COLUMNS = ", ".join(RowColumns.__struct_fields__)
REST = RowColumns.__struct_fields__.index("rest")
"""The position of that column."""
UNKNOWN, ALONE, HANDED_OVER, AGAIN = 1, 2, 4, 8


class Rest(Struct, omit_defaults=True):
    """Columns that few rows have."""

    note: str | None = None
    error: Failure | None = None
    kept: dict[str, Any] = {}
    undecided: Any = None
    not_before: int | None = None
    content_digest: bytes | None = None
    settled: str | None = None


UNREADABLE = (msgspec.MsgspecError, KeyError, IndexError, TypeError, ValueError, AttributeError)
"""Exceptions that mean one row is damaged. Any other is a problem with the whole file."""

encode = msgspec.json.Encoder().encode
decode = msgspec.json.decode


def json_text(value: Any) -> str:
    """JSON to bind, as text: some versions of SQLite read JSON in bytes as their own binary
    form."""
    return encode(value).decode()


decode_rest = msgspec.json.Decoder(Rest).decode


def row_of(columns: Sequence[Any], names: NameNumbers) -> Row:
    """The row in these columns (see COLUMNS)."""
    (
        number, place_id, key, status, version, head, created_at, updated_at, entered_at, correlation_id, input_digest,
        due_at, look_at, overdue_at, lease, holder, claimed_at, attempts, total_attempts, looks, losses, round_no, pass_no,
        flags, list_id, rest, life,
    ) = columns  # fmt: skip
    place = names.by_id[place_id]
    more = NO_REST if rest is None else decode_rest(rest)
    return Row(
        place.route, key, place.stage, STATUSES[status], version, head, created_at, updated_at, entered_at, correlation_id,
        input_digest, place.lane, look_at_of(due_at, look_at), overdue_at, lease, holder, claimed_at,
        attempts, total_attempts, looks, losses, round_no, pass_no, bool(flags & UNKNOWN), bool(flags & ALONE), bool(flags & HANDED_OVER),
        bool(flags & AGAIN), list_id, more.note, more.error, more.kept, more.undecided, number, more.not_before, more.content_digest,
        more.settled, life, names.epoch,
    )  # fmt: skip


NO_REST = Rest()


def sound_rows(found: list[tuple[Any, ...]], names: NameNumbers) -> list[Row]:
    """The rows in these columns; raises one of UNREADABLE if a row is damaged."""
    if found:
        msgspec.convert(found, _ALL_COLUMNS, builtin_types=(bytes,))
    return [row_of(columns, names) for columns in found]


def rows_of(found: Iterable[tuple[Any, ...]], names: NameNumbers) -> Sequence[Row | Refused]:
    """The rows in these columns; Refused in place of an unreadable one."""
    found = list(found)
    try:
        return sound_rows(found, names)
    except UNREADABLE:
        return [_row_or_refused(columns, names) for columns in found]


def _row_or_refused(columns: tuple[Any, ...], names: NameNumbers) -> Row | Refused:
    try:
        return sound_rows([columns], names)[0]
    except UNREADABLE as error:
        column = _COLUMN.search(str(error))
        where = "" if column is None else f"{RowColumns.__struct_fields__[int(column[1])]}: "
        reason = f"its row is damaged: {where}{type(error).__name__}: {error}"
    try:
        # Without the rare columns it may be readable: enough to cancel the item.
        return Refused(
            reason,
            str(columns[2]),
            sound_rows([(*columns[:REST], None, *columns[REST + 1 :])], names)[0],
        )
    except UNREADABLE:
        return Refused(reason, str(columns[2]))


_COLUMN = re.compile(r"at `\$\[0\]\[(\d+)\]`")


UPDATE = (
    "UPDATE item SET place = ?, status = ?, due_at = ?, look_at = ?, overdue_at = ?, version = ?, head = ?, updated_at = ?, entered_at = ?,"
    " attempts = ?, total_attempts = ?, looks = ?, losses = ?, round = ?, pass_no = ?, flags = ?, lease = ?, holder = ?,"
    " claimed_at = ?, error_group = ?, rest = ? WHERE id = ?"
)


LOOK_AT = "due_at = CASE WHEN overdue_at < :at THEN overdue_at ELSE :at END, look_at = CASE WHEN overdue_at < :at THEN :at END"
"""SQL that sets the next look to :at, as in `clock_of`."""


def look_at_of(due_at: int | None, look_at: int | None) -> int | None:
    """The next look from these two columns."""
    return due_at if look_at is None else look_at if look_at >= 0 else None


def clock_of(row: Row) -> tuple[int | None, int | None]:
    """The columns due_at and look_at; the latter only where it differs (-1: no next look)."""
    look_at, overdue_at = row.look_at, row.overdue_at
    if overdue_at is None:
        return look_at, None
    if look_at is None:
        return overdue_at, -1
    return (overdue_at, look_at) if overdue_at < look_at else (look_at, None)


def shared(row: Row, place: int) -> tuple[Any, ...]:
    """The columns that a write may change, except the head, which differs in each row. In the order
    of UPDATE and of `row_groups.UPDATE_GROUP`."""
    due_at, kept_look = clock_of(row)
    error = row.error
    rest = None
    if (
        error is not None
        or row.note is not None
        or row.kept
        or row.undecided is not None
        or row.not_before is not None
        or row.content_digest is not None
        or row.settled is not None
    ):
        rest = encode(
            Rest(
                row.note,
                error,
                row.kept,
                row.undecided,
                row.not_before,
                row.content_digest,
                row.settled,
            )
        )
    return (
        place, CODES[row.status], due_at, kept_look, row.overdue_at, row.version, row.updated_at, row.entered_at,
        row.attempts, row.total_attempts, row.looks, row.losses, row.round, row.pass_no,
        row.unknown * UNKNOWN | row.alone * ALONE | row.handed_over * HANDED_OVER | row.again * AGAIN,
        row.lease, row.holder, row.claimed_at, None if error is None else error.group, rest,
    )  # fmt: skip


INPUT, PAYLOAD, RESULT = 0, 1, 2
EVERY_KIND = f"kind IN ({INPUT}, {PAYLOAD}, {RESULT})"
"""Contents are stored by kind, then by item: without this condition, a query for those of one item
scans the whole table."""
CONTENT_OF = "WITH wanted (item) AS (SELECT value FROM json_each(?))" + " UNION ALL".join(
    # One kind after the other: with `EVERY_KIND` SQLite would make the list of items anew for each
    # of them.
    f" SELECT item, kind, stage, body FROM content WHERE kind = {kind} AND item IN wanted"
    for kind in (INPUT, PAYLOAD, RESULT)
)


def contents_of(tx: Transaction, numbers: Sequence[int]) -> dict[int, Content | str]:
    """The content of each of these items; a reason in place of an unreadable one."""
    found: dict[int, Content | str] = {}
    for number, kind, stage, body in tx.execute(CONTENT_OF, (json_text(numbers),)):
        try:
            value = decode(body)
            content = found.get(number)
            if content is None:
                content = found[number] = Content(None, {}, {})
            elif isinstance(content, str):
                continue
            if kind == INPUT:
                content.input = value
            else:
                (content.payloads if kind == PAYLOAD else content.results)[
                    tx.names.stage_names[stage][1]
                ] = value
        except UNREADABLE as error:
            found[number] = (
                f"its {('input', 'payload', 'result')[kind]} is damaged: {type(error).__name__}: {error}"
            )
    return found


def items_of(tx: Transaction, rows: Iterable[Row]) -> list[Item | Refused]:
    """These rows with their content; Refused in place of one whose content is unreadable."""
    rows = list(rows)
    contents = contents_of(tx, [row.handle for row in rows])
    items: list[Item | Refused] = []
    for row in rows:
        content = contents.get(row.handle)
        items.append(
            Refused(content, row.key, row)
            if isinstance(content, str)
            else Item(row, content or Content())
        )
    return items
