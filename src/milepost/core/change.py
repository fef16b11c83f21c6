"""A change: the row before, the row after, the history line between them and the content that goes with it.

It may be written only while the ledger still holds `before` (see `holds`): that is its precondition.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.history import Attempt, Line, encode_line, link
from milepost.core.item import Put, Row
from milepost.core.status import Reason, Status


class Change(Struct, frozen=True, gc=False):
    before: Row
    after: Row
    line: Line | None = None
    body: bytes = b""
    """The line as written: exactly these bytes are stored and hashed."""
    puts: tuple[Put, ...] = ()


def holds(before: Row, current: Row) -> bool:
    """May a change that was decided on `before` be written over `current`?

    The head tells items apart that share a number, the stage tells a renaming, the status a look that made no line.
    """
    return (
        before.version == current.version
        and before.lease == current.lease
        and before.head == current.head
        and before.status is current.status
        and before.stage == current.stage
    )


class Teller(Struct, frozen=True, gc=False):
    """Who says so: a worker since its claim, a person with a reason, a bulk act."""

    by: str | None = None
    since: int | None = None
    why: str | None = None
    act: str | None = None


NOBODY = Teller()

Fields = dict[str, Any]

FREE: Fields = {"lease": None, "holder": None, "claimed_at": None}
"""What every write that takes an item out of a worker's hands sets."""


def change(
    row: Row,
    reason: Reason,
    now: int,
    status: Status,
    fields: Fields | None = None,
    teller: Teller = NOBODY,
    *,
    to: str | None = None,
    attempt: Attempt | None = None,
    output: str | None = None,
    offered: str | None = None,
    note: Any = None,
    puts: tuple[Put, ...] = (),
) -> Change:
    """One write with its line: the version rises by one, the chain grows by one link, and `fields` of the row are set.

    Keeps `fields` for itself: it is on every item's way, so nothing is copied that need not be.
    """
    version = row.version + 1
    line = Line(
        version, now, reason, row.stage, status, to, teller.by, teller.since, teller.why, teller.act, attempt, output, offered, note
    )
    body = encode_line(line)
    if fields is None:
        fields = {}
    fields["version"] = version
    fields["head"] = link(row.head, body)
    fields["updated_at"] = now
    fields["status"] = status
    return Change(row, replace(row, **fields), line, body, puts)
