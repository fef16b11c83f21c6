"""Telling again: a subscriber's cursor is set back, and everything from there on is told once more, with the same ids."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import UsageError
from milepost.core.values.durations import iso, span_ms
from milepost.engine.act_log import record, signed
from milepost.engine.context import Context
from milepost.engine.events.parked_events import cursor_of
from milepost.engine.views.items import unreadable
from milepost.ports.documents import CURSOR
from milepost.ports.ledger import HistoryEntry

PROBE = 100
"""Lines read for one look at a place: the first of them may have been pruned, or cannot be read."""
PAGE, PAGES = 500, 50
DISORDER_MS = 60_000
"""Lines stand in the order in which they were recorded, and several processes record at once: by so much a line may be older than
one before it. Where one is out of place by more, a few others are told again with it."""


class Replay(Struct, frozen=True):
    """What is told again; after a preview (`dry_run`), what would be."""

    subscriber: str
    lines: int
    """At most so many: lines that have been pruned between these are not counted out. 0: there is nothing to tell again, and nothing
    was changed."""
    since: str | None
    """When the first of these lines was written."""
    after: int
    """The place in the feed that it goes back to."""
    was: int
    """The place up to which it had been told."""
    pruned: int
    """So many lines before these were asked for and have been pruned: they cannot be told again."""
    dry_run: bool = False


def replay(
    ctx: Context, name: str, *, since: int | None = None, after: int | None = None, by: str, reason: str, dry_run: bool = False
) -> Replay:
    """Tell a subscriber again all that was written at or after the moment `since`, or that is behind the place `after`.

    Each event has the id that it had, and each item's come in their order; an item that is parked stays parked where it is. A cursor
    is only ever set back. A preview need not be signed.
    """
    if (since is None) == (after is None):
        raise UsageError("say from where on to tell again: either a moment (since) or a place in the feed (after)")
    if not dry_run:
        signed(by, reason)
    told = cursor_of(ctx, name)[0].seq
    if after is not None and not 0 <= after <= told:
        raise UsageError(
            f"the place to go back to is {after}; it must be from 0 to {told}, up to where {name!r} has been told: "
            "set forward, it would miss events"
        )
    place = place_before(ctx, since, told) if since is not None else after or 0
    first = _first(ctx, place, told)
    while True:
        cursor, version = cursor_of(ctx, name)
        if first is None or cursor.seq < first.seq:
            # Also when somebody else has just set it back further: all this is told again anyway.
            return Replay(name, 0, None, cursor.seq, cursor.seq, 0, dry_run)
        report = Replay(name, cursor.seq - first.seq + 1, iso(first.line.at), first.seq - 1, cursor.seq, first.seq - 1 - place, dry_run)
        if dry_run:
            return report
        # Its lease stays: whoever tells it now finds out at the next save, and goes on from here. If another took over at once, the two
        # would be telling at the same time for a while.
        if ctx.ledger.write(CURSOR, name, replace(cursor, seq=report.after, failures=0, retry_at=0, error=""), expect=version):
            break
    about = {"subscriber": name, "after": report.after, "was": report.was, "since": iso(since)}
    record(ctx, "replay", "", by, reason, about, report.lines)
    return report


def place_before(ctx: Context, since: int, up_to: int) -> int:
    """The place behind which all is that was written at or after that moment; `up_to`, if nothing before that place was. Found by
    looking at few lines, however many there are."""
    old = since - DISORDER_MS
    low, high, step = 0, up_to, PROBE
    # Back in growing steps: mostly the last days are asked for, and the far past may be one great gap.
    while high > 0:
        middle = max(0, high - step)
        line = _first(ctx, middle, high)
        if line is not None and line.line.at < old:
            low = line.seq
            break
        high, step = middle, 2 * step
    while low < high:
        middle = (low + high) // 2
        line = _first(ctx, middle, high)
        if line is None or line.line.at >= old:
            high = middle
        else:
            low = line.seq
    return _walk(ctx, since, low, up_to)


def _walk(ctx: Context, since: int, place: int, up_to: int) -> int:
    """From a place that is early enough to the line before the first that was written then."""
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
    """The first line behind a place, and not behind another, that is there and can be read."""
    lines = ctx.ledger.feed(after, PROBE)
    return next((written for written in lines if written.seq <= up_to and not unreadable(written.line)), None)


def moment_ms(text: str, now: int, subject: str) -> int:
    """A moment as people write it: how long ago ("2d"), or a time as ISO-8601 (UTC, where it does not say)."""
    try:
        then = datetime.fromisoformat(text.strip())
    except ValueError:
        then = None
    try:
        if then is not None and "-" in text:
            return max(0, round((then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp() * 1000))
        return max(0, now - span_ms(text, subject))
    except (UsageError, OverflowError, ValueError):
        raise UsageError(
            f"{subject} is {text!r}; write how long ago, such as '6h' or '2d', or a time such as '2026-03-01T12:00Z'"
        ) from None
