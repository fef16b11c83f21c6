"""The cursors of all subscribers: up to where everybody has been told, who has not been told for long, and who is told no more."""

from __future__ import annotations

from msgspec.structs import replace

from milepost.engine import parking
from milepost.engine.acts import record, signed
from milepost.engine.context import Context
from milepost.ports.documents import CURSOR, PARKED, Cursor, read_as


def floor(ctx: Context) -> int:
    """Up to which line everybody has been told everything: the lowest of the cursors, and of what is parked."""
    cursors = live_cursors(ctx)
    lowest = min((cursor.seq for cursor in cursors.values()), default=ctx.ledger.last_seq())
    for space in parking.all_parked(ctx):
        if space.parked.subscriber in cursors:
            seq = parking.first_seq(ctx, space.parked)
            lowest = lowest if seq is None else min(lowest, seq - 1)
    return lowest


def silent(ctx: Context, days: int = 30) -> list[str]:
    """Subscribers that have not been told for so long, though something has been waiting for them all that time."""
    long_ago = ctx.clock.now() - days * 86_400_000
    found = []
    for name, cursor in live_cursors(ctx).items():
        waiting = ctx.ledger.feed(cursor.seq, 1) if cursor.told_at <= long_ago else []
        if waiting and waiting[0].line.at <= long_ago:
            found.append(name)
    return sorted(found)


def forget_subscriber(ctx: Context, name: str, *, by: str, reason: str) -> bool:
    """It is told no more, and nothing is kept for it. False: nobody knows it. If it is started again, it goes on from here."""
    signed(by, reason)
    while True:
        document = ctx.ledger.read(CURSOR).get(name)
        if document is None:
            return False
        gone = replace(read_as(Cursor, document.value), removed=True, lease="", until=0, failures=0, retry_at=0, error="")
        if ctx.ledger.write(CURSOR, name, gone, expect=document.version):
            break
    for parked_name, parked in ctx.ledger.read(PARKED).items():
        if parked.value["subscriber"] == name:
            ctx.ledger.write(PARKED, parked_name, None)
    record(ctx, "forget", "", by, reason, {"subscriber": name})
    return True


def live_cursors(ctx: Context) -> dict[str, Cursor]:
    """By subscriber: the cursors of all who are told."""
    cursors = {name: read_as(Cursor, document.value) for name, document in ctx.ledger.read(CURSOR).items()}
    return {name: cursor for name, cursor in cursors.items() if not cursor.removed}
