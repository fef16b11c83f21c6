"""Idle check for `--until-idle`; paused and external items do not count."""

from __future__ import annotations

from collections.abc import Container, Iterable

from milepost.engine.context import Context
from milepost.engine.events import parked_events
from milepost.ports.documents import CURSOR, Cursor, read_all


def nothing_due(ctx: Context, horizon: int, outdated: Container[str] = ()) -> bool:
    """Whether no item that workers of this process could claim is due by `horizon`. Routes that are outdated here are ignored."""
    due = ctx.ledger.next_due([plan for plan in ctx.plans.values() if plan.name not in outdated])
    return due is None or due > horizon


def all_delivered(ctx: Context, subscribers: Iterable[str], horizon: int) -> bool:
    """Whether each subscriber has received all events, except those that are retried only after `horizon`."""
    cursors = read_all(ctx.ledger, CURSOR, Cursor)
    last = ctx.ledger.last_seq()
    for name in subscribers:
        cursor = cursors.get(name)
        if cursor is None or (cursor.seq < last and cursor.retry_at <= horizon):
            return False
        retries = (parked.retry_at for parked, _ in parked_events.parked_for(ctx, name).values())
        if any(parked_events.NEVER < at <= horizon for at in retries):
            return False
    return True
