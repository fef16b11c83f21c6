"""Parked events: an item with a refused event waits, for that subscriber only, and its later events wait behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import EventRefused, UsageError
from milepost.core.routes.backoff import Backoff
from milepost.core.values.redaction import redacted_text
from milepost.engine.act_log import record, signed
from milepost.engine.context import Context
from milepost.engine.events.feed import FeedEvent, Ref, feed_events
from milepost.ports.documents import CURSOR, PARKED, Cursor, Parked, read_as, read_versioned

RETRY = Backoff(base="1s", factor=2, cap="1h", jitter=0.25)
NEVER = 0
"""`retry_at` of an event that is not retried until an operator releases it."""


class ParkedItem(Struct, frozen=True):
    """A parked item with the version of its document."""

    parked: Parked
    version: int


def parked_for(ctx: Context, subscriber: str) -> dict[Ref, ParkedItem]:
    """Items parked for one subscriber."""
    return {
        (parked_item.parked.route, parked_item.parked.key): parked_item
        for parked_item in all_parked(ctx)
        if parked_item.parked.subscriber == subscriber
    }


def all_parked(ctx: Context) -> Iterator[ParkedItem]:
    """Items parked for any subscriber."""
    for document in ctx.ledger.read(PARKED).values():
        yield ParkedItem(read_as(Parked, document.value), document.version)


def waits(parked_items: Mapping[Ref, ParkedItem], entry: FeedEvent) -> bool:
    """Whether the event's item is parked at this event or before it. Events before the parked one come only if the cursor was set back;
    they are then delivered again like all others."""
    parked_item = parked_items.get(entry.ref)
    return parked_item is not None and entry.event.sequence >= parked_item.parked.version


def wait_behind(ctx: Context, parked_item: ParkedItem, newest: int) -> ParkedItem | None:
    """Record that the item's lines up to this position wait behind the parked event; returns the current parking. None: it is no longer
    parked, so these lines must be delivered.

    Without this record a relay that has lost its lease could remove the parking after delivering the events it knew of; the cursor has
    passed the new lines and would never return to them.
    """
    while parked_item.parked.behind < newest:
        name, waiting = _name(parked_item.parked), replace(parked_item.parked, behind=newest)
        if ctx.ledger.write(PARKED, name, waiting, expect=parked_item.version):
            return ParkedItem(waiting, parked_item.version + 1)
        held, version = read_versioned(ctx.ledger, PARKED, name, Parked)
        if held is None:
            return None
        parked_item = ParkedItem(held, version)
    return parked_item


def park(ctx: Context, subscriber: str, entry: FeedEvent, error: Exception) -> None:
    """Park the item at this event. An item that is already parked stays at the earlier of the two events."""
    now = ctx.clock.now()
    parked = Parked(subscriber, *entry.ref, entry.event.sequence, now, 1, _retry_at(ctx, 0, error), error_text(error))
    name, expect = _name(parked), 0
    while not ctx.ledger.write(PARKED, name, parked, expect=expect):
        held, expect = read_versioned(ctx.ledger, PARKED, name, Parked)
        if held is not None and held.version <= parked.version:
            return


def park_again(ctx: Context, parked_item: ParkedItem, entry: FeedEvent, error: Exception) -> None:
    """A retry of the parked item failed at this event: park it there."""
    parked = parked_item.parked
    tries = parked.tries if entry.event.sequence == parked.version else 0
    retry_at = _retry_at(ctx, tries, error)
    changed = replace(parked, version=entry.event.sequence, tries=tries + 1, retry_at=retry_at, error=error_text(error))
    ctx.ledger.write(PARKED, _name(parked), changed, expect=parked_item.version)


def unpark(ctx: Context, parked_item: ParkedItem) -> None:
    """Remove the parking after all waiting events have been delivered."""
    ctx.ledger.write(PARKED, _name(parked_item.parked), None, expect=parked_item.version)


def pending(ctx: Context, parked: Parked, up_to: int) -> list[FeedEvent] | None:
    """The waiting events, oldest first: those of the item's lines from the parked one up to the cursor. The row may be gone. None: the
    lines have been pruned, and nothing can be delivered."""
    lines = ctx.ledger.history(parked.route, parked.key, payloads=True)
    if not lines:
        return None
    return feed_events([written for written in lines if written.seq <= up_to and written.line.version >= parked.version])


def release(ctx: Context, subscriber: str, route: str | None = None, key: str | None = None, *, by: str, reason: str) -> int:
    """Retry parked items now: all of the subscriber, of a route, or one; returns their number.

    Without route and key, a subscriber that is backing off is retried now, too.
    """
    signed(by, reason)
    cursor, version = cursor_of(ctx, subscriber)
    now, released = ctx.clock.now(), 0
    for parked_item in parked_for(ctx, subscriber).values():
        parked = parked_item.parked
        if (route is None or parked.route == route) and (key is None or parked.key == key):
            # A conflict means that the relay has just retried it, which is what was requested.
            ctx.ledger.write(PARKED, _name(parked), replace(parked, retry_at=now, tries=0), expect=parked_item.version)
            released += 1
    if route is None and key is None and cursor.retry_at:
        ctx.ledger.write(CURSOR, subscriber, replace(cursor, retry_at=0), expect=version)
    record(ctx, "release", route or "", by, reason, {"subscriber": subscriber, "key": key}, released)
    return released


def cursor_of(ctx: Context, subscriber: str) -> tuple[Cursor, int]:
    """The cursor of a subscriber and its version; UsageError that lists the subscribers if it is unknown."""
    documents = ctx.ledger.read(CURSOR)
    cursors = {name: (read_as(Cursor, document.value), document.version) for name, document in documents.items()}
    found = cursors.get(subscriber)
    if found is None or found[0].removed:
        known = ", ".join(sorted(name for name, (cursor, _) in cursors.items() if not cursor.removed))
        hint = f"there are {known}" if known else "there are none yet: name them in milepost.toml and start 'milepost up'"
        raise UsageError(f"there is no subscriber {subscriber!r}; {hint}")
    return found


def error_text(error: Exception) -> str:
    """An error for storage: redacted and cut."""
    return redacted_text(f"{type(error).__name__}: {error}")[:500]


def _retry_at(ctx: Context, tries_before: int, error: Exception) -> int:
    if isinstance(error, EventRefused):
        return NEVER
    return ctx.clock.now() + RETRY.delay(tries_before, ctx.chance.jitter()).ms


def _name(parked: Parked) -> str:
    return f"{parked.subscriber}/{parked.route}/{parked.key}"
