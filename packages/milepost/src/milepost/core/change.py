"""A change: the row before and after, the history line between them, and the content written with
it.

It may be written only while the ledger still holds `before` (see `holds`): that is its
precondition.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.history import Attempt, Line, claim_digest, encode_line, link
from milepost.core.item import Failure, Put, Row
from milepost.core.routes.breaker import Breaker
from milepost.core.status import Reason, Status


class Change(Struct, frozen=True, gc=False):
    """One write that a rule has decided on. Without a `line` it leaves the history as it is."""

    before: Row
    after: Row
    line: Line | None = None
    body: bytes = b""
    """The line as stored and hashed, byte for byte."""
    puts: tuple[Put, ...] = ()
    expired_at: int | None = None
    """The lease expiry that this change was decided by: a different one means that the worker has
    extended its lease."""
    breaker: Breaker | None = None
    """The breaker of the lane, if it counts this failed try (see
    `core.admission.breakers.breaker_after`)."""
    party: str = ""
    """Digest of the item's party, if the breaker counts this failed try and the stage tells parties
    apart."""
    asked: bool = True
    """False: the lane's partner was not asked, so that this change says nothing about it."""


def holds(change: Change, current: Row) -> bool:
    """Whether this change may be written over `current`.

    The head tells two lives of one key apart, the stage shows a rename, and the status shows a
    change without a line.
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
    """Whether this change leaves the item with its worker, as a note does. Then the ledger keeps
    the present lease expiry: the worker may have extended it since `before` was read."""
    before, after = change.before, change.after
    return (
        after.lease is not None and after.lease == before.lease and after.look_at == before.look_at
    )


class Author(Struct, frozen=True, gc=False):
    """The author of a change: a worker since its claim, an operator with a reason, a bulk act."""

    by: str | None = None
    since: int | None = None
    why: str | None = None
    act: str | None = None
    claim: str | None = None
    """Digest of the lease that this change ends or concerns."""
    kept: bool = False
    """Of an answer that had been kept for the item."""


NO_AUTHOR = Author()


def worker_of(row: Row, why: str | None = None) -> Author:
    """The worker that has claimed the item, with the digest of its claim; empty if there is
    none."""
    return Author(
        row.holder,
        row.claimed_at,
        why,
        claim=None if row.lease is None else claim_digest(row.lease),
    )


Fields = dict[str, Any]

FREE: Fields = {"lease": None, "holder": None, "claimed_at": None}
"""Fields set by every write that ends a worker's claim."""


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
    """The next history line as stored, and the new head of the chain: the version rises by one."""
    line = Line(
        row.version + 1, now, reason, row.stage, status, to, author.by, author.since, author.why, author.act, attempt, output, offered,
        note, author.claim, row.life, row.epoch, author.kept,
    )  # fmt: skip
    body = encode_line(line)
    return line, body, link(row.head, body)


def change(
    row: Row,
    reason: Reason,
    now: int,
    status: Status,
    fields: Fields,
    author: Author = NO_AUTHOR,
    *,
    to: str | None = None,
    attempt: Attempt | None = None,
    output: str | None = None,
    offered: str | None = None,
    note: Any = None,
    puts: tuple[Put, ...] = (),
) -> Change:
    """One write with its line; sets `fields` of the row. Takes ownership of `fields`, to avoid a
    copy."""
    line, body, head = next_line(
        row, reason, now, status, author, to, attempt, output, offered, note
    )
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
    """End the item at its stage: nothing is due, and no worker has claimed it. `error` is the one
    it ends with, if any."""
    line, body, head = next_line(
        row, reason, now, status, author, None, attempt, output, None, note
    )
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
    """The same change with more fields of its row set."""
    return replace(change, after=replace(change.after, **fields))
