"""Replay: set a subscriber's cursor back, so that all later events are delivered again with the
same ids."""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import UsageError
from milepost.core.values.durations import iso, span_ms
from milepost.engine.act_log import record, signed
from milepost.engine.context import Context
from milepost.engine.events.parked_events import cursor_of, no_subscriber
from milepost.engine.views.items import unreadable
from milepost.ports.documents import CURSOR, Cursor, update
from milepost.ports.feed import HistoryEntry

PROBE = 100
"""Lines read to find one that exists and can be read: the first ones may have been pruned or
damaged."""
PAGE, PAGES = 500, 50
DISORDER_MS = 60_000
"""Lines are in the order in which they were recorded, by several processes at once: a line may be
older than its predecessor by this much. If it is more, a few extra lines are replayed."""


class Replay(Struct, frozen=True):
    """Result of a replay; with `dry_run`, the result it would have."""

    subscriber: str
    lines: int
    """Upper bound: pruned lines in between are included. 0: nothing to replay, and nothing was
    changed."""
    since: str | None
    """When the first of these lines was written."""
    after: int
    """The position to which the cursor is set back."""
    was: int
    """The position of the cursor before."""
    pruned: int
    """Requested lines before these that have been pruned and cannot be replayed."""
    dry_run: bool = False


def replay(
    ctx: Context,
    name: str,
    *,
    since: int | None = None,
    after: int | None = None,
    by: str,
    reason: str,
    dry_run: bool = False,
) -> Replay:
    """Deliver to a subscriber again all lines written at or after the time `since`, or after the
    position `after`.

    Each event keeps its id, and events keep their order per item; a parked item stays parked. A
    cursor is only ever set back. A dry run needs no name and reason.
    """
    if (since is None) == (after is None):
        raise UsageError("give the start: either a time (since) or a position in the feed (after)")
    if not dry_run:
        signed(by, reason)
    reached = cursor_of(ctx, name)[0].seq
    if after is not None and not 0 <= after <= reached:
        raise UsageError(
            f"the position is {after}; it must be from 0 to {reached}, the position of {name!r}: a cursor set forward would skip events"
        )
    place = place_before(ctx, since, reached) if since is not None else after or 0
    first = _first(ctx, place, reached)
    if first is None or dry_run:
        return _report(name, cursor_of(ctx, name)[0].seq, place, first, dry_run)
    set_to = first.seq - 1

    def set_back(cursor: Cursor | None) -> Cursor:
        if cursor is None or cursor.removed:
            raise no_subscriber(ctx, name)
        if cursor.seq <= set_to:
            return cursor
        # Keep the lease: the current holder notices at its next save and continues from here. If
        # another process took over at once, two would deliver at the same time for a while.
        return replace(cursor, seq=set_to, failures=0, retry_at=0, error="")

    setting = update(ctx.ledger, CURSOR, name, Cursor, set_back)
    was = setting.before or setting.after
    report = _report(name, was.seq, place, first, dry_run)
    if setting.written:
        about = {"subscriber": name, "after": report.after, "was": report.was, "since": iso(since)}
        record(ctx, "replay", "", by, reason, about, report.lines)
    return report


def _report(name: str, was: int, place: int, first: HistoryEntry | None, dry_run: bool) -> Replay:
    """The report of a replay from this line on, of a cursor that is at `was`."""
    if first is None or was < first.seq:
        # Also if another replay has just set it back further: that includes this one.
        return Replay(name, 0, None, was, was, 0, dry_run)
    after = first.seq - 1
    lines = was - after
    return Replay(name, lines, iso(first.line.at), after, was, after - place, dry_run)


def place_before(ctx: Context, since: int, up_to: int) -> int:
    """The position after which everything was written at or after that time, at most `up_to`. Reads
    few lines, however long the feed is."""
    old = since - DISORDER_MS

    def late_enough(place: int) -> bool:
        line = _first(ctx, place, up_to)
        return line is None or line.line.at >= old

    return _walk(ctx, since, bisect_left(range(up_to), True, key=late_enough), up_to)


def _walk(ctx: Context, since: int, place: int, up_to: int) -> int:
    """Walk from an early position to just before the first line written at or after the time."""
    for _ in range(PAGES):
        lines = ctx.ledger.feed(place, PAGE)
        if not lines:
            return up_to
        for written in lines:
            if written.seq > up_to:
                return up_to
            if written.line.at >= since:
                return place
            place = written.seq
    return place


def _first(ctx: Context, after: int, up_to: int) -> HistoryEntry | None:
    """The first existing and readable line in the range."""
    lines = ctx.ledger.feed(after, PROBE)
    return next(
        (
            written
            for written in lines
            if written.seq <= up_to and not (written.removed or unreadable(written.line))
        ),
        None,
    )


def moment_ms(text: str, now: int, subject: str) -> int:
    """Parse a time: a span before now ("2d"), or ISO-8601 (UTC by default)."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    try:
        if moment is not None and "-" in text:
            return max(
                0,
                round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000),
            )
        return max(0, now - span_ms(text, subject))
    except (UsageError, OverflowError, ValueError):
        raise UsageError(
            f"{subject} is {text!r}; write how long ago, such as '6h' or '2d', or a time such as '2026-03-01T12:00Z'"
        ) from None
