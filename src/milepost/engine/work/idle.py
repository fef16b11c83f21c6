"""Idle check for `--until-idle`; paused and external items do not count."""

from __future__ import annotations

from collections.abc import Container, Iterable

from milepost.engine.context import Context
from milepost.engine.events import parked_events
from milepost.ports.documents import CURSOR, Cursor, read_as


def nothing_due(ctx: Context, horizon: int, outdated: Container[str] = ()) -> bool:
    """Does nothing that our workers could claim become due by then? Routes that are outdated here are ignored."""
    due = ctx.ledger.next_due([plan for plan in ctx.plans.values() if plan.name not in outdated])
    return due is None or due > horizon


def all_delivered(ctx: Context, subscribers: Iterable[str], horizon: int) -> bool:
    """Has each subscriber received everything, except events that are retried only after then?"""
    cursors = ctx.ledger.read(CURSOR)
    last = ctx.ledger.last_seq()
    for name in subscribers:
        document = cursors.get(name)
        if document is None:
            return False
        cursor = read_as(Cursor, document.value)
        if cursor.seq < last and cursor.retry_at <= horizon:
            return False
        if any(parked_events.NEVER < space.parked.retry_at <= horizon for space in parked_events.parked_for(ctx, name).values()):
            return False
    return True
