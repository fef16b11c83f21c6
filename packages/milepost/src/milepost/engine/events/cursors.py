"""Subscriber cursors: views, the lines that all or some subscribers have received, silent
subscribers, and removal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nsmallest

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.values.durations import iso
from milepost.engine.act_log import record, signed
from milepost.engine.context import Context
from milepost.engine.events.parked_events import note_change, parked_for
from milepost.engine.events.records import NEVER, cursor_records, parked_items, parked_records
from milepost.ports.documents import CURSOR, PARKED, Cursor, Parked, update
from milepost.ports.retention import DeliveredLines

SILENT_MS = 30 * 86_400_000
SHOWN = 100
"""Number of parked items in the view of a subscriber; the others come by page."""
LONG_LAG_MS, LONG_LAG_LINES = 600_000, 100_000
"""A lag from which `milepost doctor` warns: by the age of the first line, or by the number of
lines."""


class SubscriberLag(Struct, frozen=True):
    """What a subscriber has not received yet: the number of lines, and when the first of them was
    written (None: there is none)."""

    lines: int
    since: int | None

    def age_ms(self, now: int) -> int:
        return 0 if self.since is None else max(0, now - self.since)

    def is_long(self, now: int) -> bool:
        """Whether that deserves a warning."""
        return self.since is not None and (
            self.age_ms(now) >= LONG_LAG_MS or self.lines >= LONG_LAG_LINES
        )


class ParkedView(Struct, frozen=True):
    """An item whose event a subscriber refuses; the item's later events wait behind it. `retry_at`
    null: retried only after a release."""

    subscriber: str
    route: str
    key: str
    version: int
    since: str | None
    tries: int
    retry_at: str | None
    error: str | None


class SubscriberView(Struct, frozen=True):
    """A subscriber: time of its last event, lines behind, and parked events. `retry_at`: it accepts
    nothing and is retried then. `silent`: nothing delivered for 30 days although events were
    waiting. Fields about all routes (`last_event_at`, `behind`, `waiting_since`, `error`) are null
    for a caller who may see only some routes."""

    name: str
    last_event_at: str | None
    behind: int | None
    waiting_since: str | None
    """When its first undelivered line was written."""
    failures: int
    error: str | None
    retry_at: str | None
    silent: bool
    parked: list[ParkedView]
    """The first hundred, the longest parked first."""
    parked_count: int = 0


class ParkedPage(Struct, frozen=True):
    """Parked items of a subscriber, by route and key. `next`: give it as `after` for the next page;
    null: this is the last."""

    parked: list[ParkedView]
    count: int
    next: str | None


def subscribers(ctx: Context, sees: Callable[[str], bool] | None = None) -> list[SubscriberView]:
    """All subscribers as views. `sees` limits them to the routes that the caller may see."""
    newest, quiet = ctx.ledger.last_seq(), set(silent(ctx))
    by_name = _parked_by_subscriber(ctx, sees)
    found = []
    for name, cursor in sorted(live_cursors(ctx).items()):
        parked_items = by_name.get(name, [])
        lag = lag_of(ctx, cursor, newest)
        found.append(
            SubscriberView(
                name,
                iso(cursor.told_at or None) if sees is None else None,
                lag.lines if sees is None else None,
                iso(lag.since) if sees is None else None,
                cursor.failures,
                (cursor.error or None) if sees is None else None,
                iso(cursor.retry_at or None),
                name in quiet,
                [_parked_view(parked) for parked in nsmallest(SHOWN, parked_items, key=_by_age)],
                len(parked_items),
            )
        )
    return found


def lag_of(ctx: Context, cursor: Cursor, newest: int) -> SubscriberLag:
    """The lag of one subscriber; `newest` is the position of the newest line."""
    first = ctx.ledger.feed(cursor.seq, 1) if newest > cursor.seq else []
    return SubscriberLag(max(0, newest - cursor.seq), first[0].line.at if first else None)


def parked_page(
    ctx: Context,
    name: str,
    after: str | None,
    limit: int,
    sees: Callable[[str], bool] | None = None,
) -> ParkedPage:
    """A page of the parked items of one subscriber."""
    of_subscriber = _parked_by_subscriber(ctx, sees).get(name, [])
    later = [parked for parked in of_subscriber if after is None or _place(parked) > after]
    page = nsmallest(limit, later, key=_place)
    return ParkedPage(
        [_parked_view(parked) for parked in page],
        len(of_subscriber),
        _place(page[-1]) if len(page) < len(later) else None,
    )


def _parked_by_subscriber(
    ctx: Context, sees: Callable[[str], bool] | None
) -> dict[str, list[Parked]]:
    by_name: dict[str, list[Parked]] = {}
    for parked in parked_items(ctx):
        if sees is None or sees(parked.route):
            by_name.setdefault(parked.subscriber, []).append(parked)
    return by_name


def _by_age(parked: Parked) -> tuple[int, str, str]:
    return parked.since, parked.route, parked.key


def _place(parked: Parked) -> str:
    return f"{parked.route}/{parked.key}"


def _parked_view(parked: Parked) -> ParkedView:
    return ParkedView(
        parked.subscriber,
        parked.route,
        parked.key,
        parked.version,
        iso(parked.since),
        parked.tries,
        iso(parked.retry_at or None),
        parked.error or None,
    )


def delivered(ctx: Context) -> DeliveredLines:
    """The lines that every active subscriber has received; items that are parked for a subscriber
    are listed separately."""
    # Read the cursors first: an event is parked before the cursor passes it, so a passed but
    # undelivered event is found as parked.
    cursors = live_cursors(ctx)
    lowest = min((cursor.seq for cursor in cursors.values()), default=ctx.ledger.last_seq())
    return DeliveredLines(
        lowest,
        frozenset((one.route, one.key) for one in parked_items(ctx) if one.subscriber in cursors),
    )


def silent(ctx: Context) -> list[str]:
    """Subscribers that received nothing for 30 days although events were waiting all that time."""
    long_ago = ctx.clock.now() - SILENT_MS
    found = []
    for name, cursor in live_cursors(ctx).items():
        waiting = ctx.ledger.feed(cursor.seq, 1) if cursor.told_at <= long_ago else []
        if waiting and waiting[0].line.at <= long_ago:
            found.append(name)
    return sorted(found)


def forget_subscriber(ctx: Context, name: str, *, by: str, reason: str) -> bool:
    """Remove a subscriber and its parked events. False if it is unknown. If it is configured again,
    it starts from this point."""
    signed(by, reason)

    def removed(cursor: Cursor | None) -> Cursor | None:
        if cursor is None:
            return None
        return replace(
            cursor,
            removed=True,
            lease="",
            until=0,
            failures=0,
            retry_at=0,
            error="",
            refused=0,
            refusal="",
        )

    if update(ctx.ledger, CURSOR, name, Cursor, removed).after is None:
        return False
    for parked_name, (parked, _) in parked_records(ctx).items():
        if parked.subscriber == name:
            ctx.ledger.write(PARKED, parked_name, None)
    note_change(ctx, name)
    record(ctx, "forget", "", by, reason, {"subscriber": name})
    return True


def all_delivered(ctx: Context, subscribers: Iterable[str], horizon: int) -> bool:
    """Whether each subscriber has received all events, except those that are retried only after
    `horizon`."""
    cursors = {name: cursor for name, (cursor, _) in cursor_records(ctx).items()}
    last = ctx.ledger.last_seq()
    for name in subscribers:
        cursor = cursors.get(name)
        if cursor is None or (cursor.seq < last and cursor.retry_at <= horizon):
            return False
        retries = (parked.retry_at for parked, _ in parked_for(ctx, name).values())
        if any(NEVER < at <= horizon for at in retries):
            return False
    return True


def live_cursors(ctx: Context) -> dict[str, Cursor]:
    """Cursors of all active subscribers, by name."""
    return {name: cursor for name, (cursor, _) in cursor_records(ctx).items() if not cursor.removed}
