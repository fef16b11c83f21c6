"""Helpers for tests of a route: process everything at once, and check the state of an item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from milepost.core.history import Line
from milepost.core.item import Item
from milepost.core.status import LIVE, Status
from milepost.core.values.durations import Span, iso, short_span, span_ms
from milepost.engine.context import Context
from milepost.engine.events.cursors import all_delivered
from milepost.ports.items import Query, Refused
from milepost.ports.subscriber import Subscriber
from milepost.station import Station
from milepost_testing.clock import VirtualClock
from milepost_testing.seeded_runner import SimRunner

if TYPE_CHECKING:
    from milepost.app import Milepost


def drain(
    system: Context | Milepost,
    clock: VirtualClock,
    *,
    subscribers: Sequence[Subscriber] = (),
    at_most: Span = "366d",
    seed: int = 0,
) -> int:
    """Run workers, resender and relays, in this thread and without real time, until nothing is due
    and every subscriber has all events; the clock jumps over every wait, so that a week of retries
    takes a moment. Returns the virtual time at the end.

    `clock` is the one with which the context (or Milepost) was opened. As with `--until-idle`,
    items that are paused or at an external stage are not waited for. Raises AssertionError if
    something is still due after `at_most` (an item that is always NotYet).
    """
    ctx, subscribed = _parts(system)
    until = clock.now() + span_ms(at_most, "at_most")
    left = run_until_rest(ctx, clock, [*subscribed, *subscribers], until, seed)
    if left is not None:
        span = short_span(span_ms(at_most, "at_most"))
        waiting = (
            "\n  ".join(_shown(item) for item in _live(ctx))
            or "no item; a subscriber has not received all events"
        )
        raise AssertionError(
            f"not idle after {span}; the next due time is {iso(left)}:\n  {waiting}"
        )
    return clock.now()


def run_until_rest(
    ctx: Context, clock: VirtualClock, subscribers: Sequence[Subscriber], until: int, seed: int = 0
) -> int | None:
    """Run until nothing is due up to `until`; None, or the next due time after `until`."""
    runner = SimRunner(clock, seed)
    station = Station(
        ctx, subscribers=subscribers, runner=runner, holder=f"drain-{ctx.chance.token()}"
    )
    station.heartbeat.start()
    runner.enlist(station.roles)
    try:
        while True:
            _let_settle(ctx, runner)
            at = _next_moment(ctx, station, runner, [subscriber.name for subscriber in subscribers])
            if at is None or at > until:
                return at
            clock.advance_to(at)
    finally:
        assert station.worker is not None
        station.worker.abandon()
        station.heartbeat.stop()
        runner.close()


def _let_settle(ctx: Context, runner: SimRunner) -> None:
    """Run turns at the present time, until two rounds have changed nothing (fragile items wait for
    one quiet round)."""
    quiet = 0
    while quiet < 2:
        before, ended = ctx.ledger.change_counter(), runner.next_end()
        runner.everybody()
        quiet = (
            quiet + 1 if (ctx.ledger.change_counter(), runner.next_end()) == (before, ended) else 0
        )


def _next_moment(
    ctx: Context, station: Station, runner: SimRunner, subscribed: Sequence[str]
) -> int | None:
    """The next due time, if nothing happens outside."""
    now = ctx.clock.now()
    assert station.worker is not None
    if station.worker.outdated:
        return None
    due = ctx.ledger.next_due(ctx.plans.values())
    moments = [runner.next_end(), due]
    if due is not None and due <= now:
        # Due, but not claimed: a rate delays it, and the worker knows until when.
        moments += [desk.next_at for desk in station.worker.all_slots]
    if not all_delivered(ctx, subscribed, now + 10 * 366 * 86_400_000):
        moments.append(runner.next_turn("relay-"))
    return min((moment for moment in moments if moment is not None and moment > now), default=None)


def assert_item(
    system: Context | Milepost,
    route: str,
    key: str,
    *,
    stage: str | None = None,
    status: Status | str | None = None,
    attempts: int | None = None,
) -> Item:
    """The item, if it is as described (fields that are not given are not checked); otherwise
    AssertionError with the actual state."""
    ctx, _ = _parts(system)
    item = ctx.ledger.get([(route, key)])[0]
    if item is None:
        known = ctx.ledger.peek(route, [key])[0]
        what = (
            "it was never submitted" if known is None else f"it ended {known.status} and was pruned"
        )
        raise AssertionError(f"{route}/{key} has no row: {what}")
    if isinstance(item, Refused):
        raise AssertionError(f"{route}/{key}: its row cannot be read: {item.reason}")
    expected = {"stage": stage, "status": status, "attempts": attempts}
    found = {
        "stage": item.row.stage,
        "status": item.row.status.value,
        "attempts": item.row.attempts,
    }
    wrong = [f"{name} is {found[name]!r}, not {str(value) if name == 'status' else value!r}" for name, value in expected.items()
             if value is not None and found[name] != value]  # fmt: skip
    if wrong:
        lines = [written.line for written in ctx.ledger.history(route, key)]
        story = "\n  ".join(_told(line) for line in lines)
        raise AssertionError(f"{_shown(item)}\n{'; '.join(wrong)}; its history:\n  {story}")
    return item


def _parts(system: Context | Milepost) -> tuple[Context, tuple[Subscriber, ...]]:
    return (system, ()) if isinstance(system, Context) else (system.context, system._subscribers)


def _live(ctx: Context, limit: int = 5) -> list[Item]:
    items = []
    for plan in ctx.plans.values():
        ours = frozenset(stage.name for stage in plan.stages if stage.ours)
        items += ctx.ledger.find(
            Query(route=plan.name, statuses=LIVE, stages=ours, limit=limit)
        ).items
    return items[:limit]


def _shown(item: Item) -> str:
    row = item.row
    error = "" if row.error is None else f"; last error {row.error.category}: {row.error.message}"
    due = "" if row.due_at is None else f", due {iso(row.due_at)}"
    return (
        f"{row.route}/{row.key}: {row.status} at {row.stage!r}, attempts {row.attempts}{due}{error}"
    )


def _told(line: Line) -> str:
    attempt = (
        ""
        if line.attempt is None
        else f" (attempt {line.attempt.number}, {line.attempt.category}: {line.attempt.message})"
    )
    return f"{iso(line.at)} {line.reason.value} at {line.stage!r}: {line.status.value}{attempt}"
