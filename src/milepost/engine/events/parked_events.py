"""Parking: an item whose event a subscriber does not take waits, for that subscriber only, and its later events behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import EventRefused, UsageError
from milepost.core.events import Event, events_of
from milepost.core.routes.backoff import Backoff
from milepost.core.values.redaction import redacted_text
from milepost.engine.act_log import record, signed
from milepost.engine.context import Context
from milepost.ports.documents import CURSOR, PARKED, Cursor, Parked, read_as
from milepost.ports.ledger import HistoryEntry

RETRY = Backoff(base="1s", factor=2, cap="1h", jitter=0.25)
NEVER = 0
"""As a `retry_at`: not tried again until an operator releases it."""

Ref = tuple[str, str]
"""(route, key)"""


class EventEntry(Struct, frozen=True):
    """One event on its way to a subscriber, with the place of its line."""

    seq: int
    event: Event

    @property
    def ref(self) -> Ref:
        return (self.event.route, self.event.key)


class Space(Struct, frozen=True):
    """One parked item, and the version of its document, by which it is changed."""

    parked: Parked
    version: int


def entries_of(written: HistoryEntry) -> list[EventEntry]:
    """The events of one line."""
    events = events_of(written.line, written.route, written.key, written.correlation_id, written.payload)
    return [EventEntry(written.seq, event) for event in events]


def parked_for(ctx: Context, subscriber: str) -> dict[Ref, Space]:
    """What is parked for one subscriber, by item."""
    return {(space.parked.route, space.parked.key): space for space in all_parked(ctx) if space.parked.subscriber == subscriber}


def all_parked(ctx: Context) -> Iterator[Space]:
    for document in ctx.ledger.read(PARKED).values():
        yield Space(read_as(Parked, document.value), document.version)


def waits(spaces: Mapping[Ref, Space], entry: EventEntry) -> bool:
    """Is the event's item parked at it, or before it? What came before the parked one is only met again if a cursor was set back,
    and is then told again as everything is."""
    space = spaces.get(entry.ref)
    return space is not None and entry.event.sequence >= space.parked.version


def wait_behind(ctx: Context, space: Space, newest: int) -> Space | None:
    """Record that the item's lines up to this place wait behind the parked event; the parking as it is now. None: it is not parked
    any more, so these lines must be told.

    Without this record a relay that has lost its lease could remove the parking after it told the events that it knew of, and
    the cursor, which has passed these lines, would never come to them again.
    """
    while space.parked.behind < newest:
        name, waiting = _name(space.parked), replace(space.parked, behind=newest)
        if ctx.ledger.write(PARKED, name, waiting, expect=space.version):
            return Space(waiting, space.version + 1)
        held = ctx.ledger.read_one(PARKED, name)
        if held is None:
            return None
        space = Space(read_as(Parked, held.value), held.version)
    return space


def park(ctx: Context, subscriber: str, entry: EventEntry, error: Exception) -> None:
    """Park the item at this event. If it is parked already, it stays parked at whichever of the two events came first."""
    now = ctx.clock.now()
    parked = Parked(subscriber, *entry.ref, entry.event.sequence, now, 1, _retry_at(ctx, 0, error), error_text(error))
    name, expect = _name(parked), 0
    while not ctx.ledger.write(PARKED, name, parked, expect=expect):
        held = ctx.ledger.read_one(PARKED, name)
        if held is not None and read_as(Parked, held.value).version <= parked.version:
            return
        expect = 0 if held is None else held.version


def park_again(ctx: Context, space: Space, entry: EventEntry, error: Exception) -> None:
    """The parked item was tried again, came as far as this event, and failed there."""
    parked = space.parked
    tries = parked.tries if entry.event.sequence == parked.version else 0
    changed = replace(
        parked, version=entry.event.sequence, tries=tries + 1, retry_at=_retry_at(ctx, tries, error), error=error_text(error)
    )  # fmt: skip
    ctx.ledger.write(PARKED, _name(parked), changed, expect=space.version)


def unpark(ctx: Context, space: Space) -> None:
    """All that waited has been told."""
    ctx.ledger.write(PARKED, _name(space.parked), None, expect=space.version)


def pending(ctx: Context, parked: Parked, up_to: int) -> list[EventEntry] | None:
    """The events that wait, oldest first: those of the item's lines from the parked one up to the subscriber's cursor. The row need
    not be there any more. None: its lines are gone, and nothing of it can be told."""
    lines = ctx.ledger.history(parked.route, parked.key, payloads=True)
    if not lines:
        return None
    waiting = [written for written in lines if written.seq <= up_to and written.line.version >= parked.version]
    return [entry for written in waiting for entry in entries_of(written)]


def release(ctx: Context, subscriber: str, route: str | None = None, key: str | None = None, *, by: str, reason: str) -> int:
    """Have parked items tried again now: all of the subscriber's, a route's, or one. How many there were.

    Without route and key, a subscriber that is backed off as a whole is tried again now, too.
    """
    signed(by, reason)
    cursor, version = cursor_of(ctx, subscriber)
    now, released = ctx.clock.now(), 0
    for space in parked_for(ctx, subscriber).values():
        parked = space.parked
        if (route is None or parked.route == route) and (key is None or parked.key == key):
            # If the relay has changed it meanwhile, it has just been tried again: that is what was asked for.
            ctx.ledger.write(PARKED, _name(parked), replace(parked, retry_at=now, tries=0), expect=space.version)
            released += 1
    if route is None and key is None and cursor.retry_at:
        ctx.ledger.write(CURSOR, subscriber, replace(cursor, retry_at=0), expect=version)
    record(ctx, "release", route or "", by, reason, {"subscriber": subscriber, "key": key}, released)
    return released


def cursor_of(ctx: Context, subscriber: str) -> tuple[Cursor, int]:
    """How far one that is told has been told, and the version of that document; an error that names who there is, if it is none."""
    documents = ctx.ledger.read(CURSOR)
    cursors = {name: (read_as(Cursor, document.value), document.version) for name, document in documents.items()}
    found = cursors.get(subscriber)
    if found is None or found[0].removed:
        known = ", ".join(sorted(name for name, (cursor, _) in cursors.items() if not cursor.removed))
        told = f"there are {known}" if known else "nobody is told yet: name subscribers in milepost.toml and start 'milepost up'"
        raise UsageError(f"there is no subscriber {subscriber!r}; {told}")
    return found


def error_text(error: Exception) -> str:
    return redacted_text(f"{type(error).__name__}: {error}")[:500]


def _retry_at(ctx: Context, tries_before: int, error: Exception) -> int:
    if isinstance(error, EventRefused):
        return NEVER
    return ctx.clock.now() + RETRY.delay(tries_before, ctx.chance.jitter()).ms


def _name(parked: Parked) -> str:
    return f"{parked.subscriber}/{parked.route}/{parked.key}"
