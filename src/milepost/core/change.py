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
    expired_at: int | None = None
    """The lease expiry that this change was decided by: it must still stand, or the worker has extended its lease meanwhile."""


def holds(change: Change, current: Row) -> bool:
    """May this change be written over `current`?

    The head tells items apart that share a number, the stage tells a renaming, the status a look that made no line.
    """
    before = change.before
    return (
        (change.expired_at is None or change.expired_at == current.look_at)
        and before.version == current.version
        and before.lease == current.lease
        and before.head == current.head
        and before.status is current.status
        and before.stage == current.stage
    )


def keeps_lease(change: Change) -> bool:
    """Does this change leave the item with its worker, such as a note does? Then the ledger leaves the lease's expiry as it is now:
    the worker may have extended it since `before` was read."""
    before, after = change.before, change.after
    return after.lease is not None and after.lease == before.lease and after.look_at == before.look_at


class Teller(Struct, frozen=True, gc=False):
    """Who says so: a worker since its claim, a person with a reason, a bulk act."""

    by: str | None = None
    since: int | None = None
    why: str | None = None
    act: str | None = None
    claim: str | None = None
    """Digest of the lease that this ends, or is about."""


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
        version, now, reason, row.stage, status, to, teller.by, teller.since, teller.why, teller.act, attempt, output, offered, note,
        teller.claim, row.life,
    )  # fmt: skip
    body = encode_line(line)
    if fields is None:
        fields = {}
    fields["version"] = version
    fields["head"] = link(row.head, body)
    fields["updated_at"] = now
    fields["status"] = status
    return Change(row, replace(row, **fields), line, body, puts)
