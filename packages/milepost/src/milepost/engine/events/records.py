"""Records of subscribers: their cursors and parked items, where some of the documents may be
damaged.

A damaged record stands for the most that it may have said, so that no line is taken for delivered
because of it: a cursor for one at the beginning, a parked item for one that is parked until an
operator releases it.
"""

from __future__ import annotations

from milepost.engine.context import Context
from milepost.ports.documents import CURSOR, PARKED, Cursor, Parked, log_damage, sort_out

NEVER = 0
"""Retry time of an item that only an operator releases."""
DAMAGED = "its record in the ledger is damaged"


def cursor_records(ctx: Context) -> dict[str, tuple[Cursor, int]]:
    """All cursors by subscriber, each with the version of its document."""
    documents = ctx.ledger.read(CURSOR)
    records, damaged = sort_out(documents, CURSOR, Cursor)
    log_damage(damaged)
    return records | {
        name: (Cursor(0, ctx.clock.now(), error=DAMAGED), documents[name].version)
        for name in damaged
    }


def parked_records(ctx: Context) -> dict[str, tuple[Parked, int]]:
    """All parked items by the name of their document, each with its version."""
    documents = ctx.ledger.read(PARKED)
    records, damaged = sort_out(documents, PARKED, Parked)
    if damaged:
        log_damage(damaged)
        subscribers = list(ctx.ledger.read(CURSOR))
        for name in damaged:
            for parked in _stand_in(ctx, name, subscribers):
                records[name] = parked, documents[name].version
    return records


def parked_items(ctx: Context) -> list[Parked]:
    return [parked for parked, _ in parked_records(ctx).values()]


def _stand_in(ctx: Context, name: str, subscribers: list[str]) -> list[Parked]:
    """The parked item that the name of its document tells: SUBSCRIBER/ROUTE/KEY. Names of
    subscribers may have "/" in them."""
    subscriber = max(
        (one for one in subscribers if name.startswith(f"{one}/")), key=len, default=None
    )
    if subscriber is None:
        return []
    route, _, key = name.removeprefix(f"{subscriber}/").partition("/")
    return [Parked(subscriber, route, key, 0, ctx.clock.now(), 0, NEVER, DAMAGED)]
