"""Parked events: an item with a refused event waits, for that subscriber only, and its later events
wait behind it."""

from __future__ import annotations

from msgspec.structs import replace

from milepost.core.clocks import still_ahead
from milepost.core.errors import EventRefused, LedgerDamaged, LedgerReadOnly, UsageError
from milepost.core.routes.backoff import Backoff
from milepost.core.values.redaction import redacted_text
from milepost.engine.act_log import record, signed
from milepost.engine.context import Context
from milepost.engine.events.feed import FeedEvent, Ref, feed_events
from milepost.engine.events.records import NEVER, cursor_records, parked_records
from milepost.ports.documents import (
    CURSOR,
    PARKED,
    PARKED_CHANGE,
    Cursor,
    Parked,
    read_versioned,
    update,
)

RETRY = Backoff(base="1s", factor=2, cap="1h", jitter=0.25)
LONGEST_RETRY_MS = 3_600_000


ParkedItems = dict[Ref, tuple[Parked, int]]
"""Parked items, each with the version of its document."""


def parked_for(ctx: Context, subscriber: str) -> ParkedItems:
    """Items parked for one subscriber."""
    found = parked_records(ctx).values()
    return {
        (parked.route, parked.key): (parked, version)
        for parked, version in found
        if parked.subscriber == subscriber
    }


def is_due(parked: Parked, now: int) -> bool:
    """Whether the event is to be retried now."""
    return parked.retry_at != NEVER and not still_ahead(parked.retry_at, now, LONGEST_RETRY_MS)


def parked_one(ctx: Context, subscriber: str, ref: Ref) -> tuple[Parked, int] | None:
    """One parked item, with the version of its document; None: it is not parked."""
    name = f"{subscriber}/{ref[0]}/{ref[1]}"
    try:
        parked, version = read_versioned(ctx.ledger, PARKED, name, Parked)
    except LedgerDamaged:
        return parked_records(ctx).get(name)
    return None if parked is None else (parked, version)


def change_number(ctx: Context, subscriber: str) -> int | None:
    """A number that rises when parked items of the subscriber change. None: the role of this
    process, as an earlier version of the stack has made it, may not read it."""
    try:
        document = ctx.ledger.read_one(PARKED_CHANGE, subscriber)
    except LedgerReadOnly:
        return None
    return 0 if document is None else document.version


def note_change(ctx: Context, subscriber: str, expect: int | None = None) -> bool:
    """Let relays that hold the subscriber's parked items in memory read them again. False: the
    number is not as expected, or may not be written."""
    try:
        return ctx.ledger.write(PARKED_CHANGE, subscriber, {}, expect=expect)
    except LedgerReadOnly:
        return False


def wait_behind(
    ctx: Context, parked: Parked, version: int, newest: int
) -> tuple[Parked, int] | None:
    """Record that the item's lines up to this position wait behind the parked event; returns the
    current parking. None: it is no longer parked, so these lines must be delivered.

    Without this record a relay that has lost its lease could remove the parking after delivering
    the events it knew of; the cursor has passed the new lines and would never return to them.
    """

    def behind(present: Parked | None) -> Parked | None:
        if present is None or present.behind >= newest:
            return present
        return replace(present, behind=newest)

    name = _name(parked)
    waiting = update(ctx.ledger, PARKED, name, Parked, behind, known=(parked, version))
    if waiting.after is None:
        return None
    version = waiting.version + 1 if waiting.written else waiting.version
    return waiting.after, version


def park(ctx: Context, subscriber: str, entry: FeedEvent, error: Exception) -> Parked:
    """Park the item at this event. An item that is already parked stays at the earlier of the two
    events. Returns its parking."""
    now = ctx.clock.now()
    parked = Parked(
        subscriber,
        *entry.ref,
        entry.event.sequence,
        now,
        1,
        _retry_at(ctx, 0, error),
        error_text(error),
    )

    def earlier(present: Parked | None) -> Parked:
        if present is not None and present.version <= parked.version:
            return present
        return parked

    return update(ctx.ledger, PARKED, _name(parked), Parked, earlier, known=(None, 0)).after


def park_again(
    ctx: Context, parked: Parked, version: int, entry: FeedEvent, error: Exception
) -> Parked:
    """A retry of the parked item failed at this event: park it there."""
    tries = parked.tries if entry.event.sequence == parked.version else 0
    retry_at = _retry_at(ctx, tries, error)
    changed = replace(
        parked,
        version=entry.event.sequence,
        tries=tries + 1,
        retry_at=retry_at,
        error=error_text(error),
    )
    ctx.ledger.write(PARKED, _name(parked), changed, expect=version)
    return changed


def unpark(ctx: Context, parked: Parked, version: int) -> None:
    """Remove the parking after all waiting events have been delivered."""
    ctx.ledger.write(PARKED, _name(parked), None, expect=version)


def pending(ctx: Context, parked: Parked, up_to: int) -> list[FeedEvent] | None:
    """The waiting events, oldest first: those of the item's lines from the parked one up to the
    cursor. The row may be gone. None: the lines have been pruned, and nothing can be delivered."""
    lines = ctx.ledger.history(parked.route, parked.key, payloads=True)
    if not lines:
        return None
    return feed_events(
        [
            written
            for written in lines
            if written.seq <= up_to and written.line.version >= parked.version
        ]
    )


def release(
    ctx: Context,
    subscriber: str,
    route: str | None = None,
    key: str | None = None,
    *,
    by: str,
    reason: str,
) -> int:
    """Retry parked items now: all of the subscriber, of a route, or one; returns their number.

    Without route and key, a subscriber that is backing off is retried now, too.
    """
    signed(by, reason)
    cursor, cursor_version = cursor_of(ctx, subscriber)
    now, released = ctx.clock.now(), 0
    for parked, version in parked_for(ctx, subscriber).values():
        if (route is None or parked.route == route) and (key is None or parked.key == key):
            # A conflict means that the relay has just retried it, which is what was requested.
            ctx.ledger.write(
                PARKED, _name(parked), replace(parked, retry_at=now, tries=0), expect=version
            )
            released += 1
    note_change(ctx, subscriber)
    if route is None and key is None and cursor.retry_at:
        ctx.ledger.write(CURSOR, subscriber, replace(cursor, retry_at=0), expect=cursor_version)
    record(
        ctx, "release", route or "", by, reason, {"subscriber": subscriber, "key": key}, released
    )
    return released


def cursor_of(ctx: Context, subscriber: str) -> tuple[Cursor, int]:
    """The cursor of a subscriber and its version; UsageError that lists the subscribers if it is
    unknown."""
    stored = cursor_records(ctx).get(subscriber)
    if stored is None or stored[0].removed:
        raise no_subscriber(ctx, subscriber)
    return stored


def no_subscriber(ctx: Context, subscriber: str) -> UsageError:
    """The error that lists the subscribers."""
    cursors = cursor_records(ctx)
    known = ", ".join(sorted(name for name, (cursor, _) in cursors.items() if not cursor.removed))
    hint = (
        f"there are {known}"
        if known
        else "there are none yet: name them in milepost.toml and start 'milepost up'"
    )
    return UsageError(f"there is no subscriber {subscriber!r}; {hint}")


def error_text(error: Exception) -> str:
    """An error for storage: redacted and cut."""
    return redacted_text(f"{type(error).__name__}: {error}")[:500]


def _retry_at(ctx: Context, tries_before: int, error: Exception) -> int:
    if isinstance(error, EventRefused):
        return NEVER
    return ctx.clock.now() + RETRY.delay(tries_before, ctx.chance.jitter()).ms


def _name(parked: Parked) -> str:
    return f"{parked.subscriber}/{parked.route}/{parked.key}"
