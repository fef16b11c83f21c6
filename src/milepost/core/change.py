"""A change: the row before, the row after, the history line between them and the content that goes with it.

It may be written only while the ledger still holds `before` (see `holds`): that is its precondition.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.history import Attempt, Line, encode_line, link
from milepost.core.item import Failure, Put, Row
from milepost.core.routes.breaker import Breaker
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
    breaker: Breaker | None = None
    """Set where a try failed in a way that its lane's breaker counts: that breaker (see `core.consequences.breaker_after`)."""


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


class Author(Struct, frozen=True, gc=False):
    """Who says so: a worker since its claim, a person with a reason, a bulk act."""

    by: str | None = None
    since: int | None = None
    why: str | None = None
    act: str | None = None
    claim: str | None = None
    """Digest of the lease that this ends, or is about."""


NOBODY = Author()

Fields = dict[str, Any]

FREE: Fields = {"lease": None, "holder": None, "claimed_at": None}
"""What every write that takes an item out of a worker's hands sets."""


def next_line(
    row: Row,
    reason: Reason,
    now: int,
    status: Status,
    author: Author,
    to: str | None,
    attempt: Attempt | None,
    output: str | None,
    offered: str | None,
    note: Any,
) -> tuple[Line, bytes, bytes]:
    """The line that follows the row's last one, as it is written, and the head of the chain with it: the version rises by one."""
    line = Line(
        row.version + 1, now, reason, row.stage, status, to, author.by, author.since, author.why, author.act, attempt, output, offered,
        note, author.claim, row.life,
    )  # fmt: skip
    body = encode_line(line)
    return line, body, link(row.head, body)


def change(
    row: Row,
    reason: Reason,
    now: int,
    status: Status,
    fields: Fields,
    author: Author = NOBODY,
    *,
    to: str | None = None,
    attempt: Attempt | None = None,
    output: str | None = None,
    offered: str | None = None,
    note: Any = None,
    puts: tuple[Put, ...] = (),
) -> Change:
    """One write with its line; `fields` of the row are set. Keeps `fields` for itself: nothing is copied that need not be."""
    line, body, head = next_line(row, reason, now, status, author, to, attempt, output, offered, note)
    fields["version"] = line.version
    fields["head"] = head
    fields["updated_at"] = now
    fields["status"] = status
    return Change(row, replace(row, **fields), line, body, puts)


def end(
    row: Row,
    reason: Reason,
    now: int,
    status: Status,
    author: Author,
    error: Failure | None,
    *,
    attempt: Attempt | None = None,
    output: str | None = None,
    note: Any = None,
    puts: tuple[Put, ...] = (),
) -> Change:
    """The item ends where it is: nothing is due any more, and nobody holds it. `error` is the one that it ends with, if any."""
    line, body, head = next_line(row, reason, now, status, author, None, attempt, output, None, note)
    after = replace(
        row,
        status=status,
        version=line.version,
        head=head,
        updated_at=now,
        entered_at=now,
        look_at=None,
        overdue_at=None,
        lease=None,
        holder=None,
        claimed_at=None,
        handed_over=False,
        error=error,
        undecided=None,
        settled=None,
    )
    return Change(row, after, line, body, puts)


def also(change: Change, **fields: Any) -> Change:
    """The same change, with these fields of its row set as well."""
    return replace(change, after=replace(change.after, **fields))
