"""Forecast: which items move, at which pace their stage completes, and which wait for something
that no pace says anything about.

Pure. Only what moves is promised anything, and only where the pace of its stages was measured. What
waits for a pause, an open breaker, a partner or a date is named apart, with its number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from enum import StrEnum

from msgspec import Struct

from milepost.core.admission.controls import lanes_above
from milepost.core.counters import HOUR
from milepost.core.values.durations import short_span

MINUTE = 60_000
NAMED_LANES = 3
"""Up to this many lanes of a stage are named one by one."""


class LaneCount(Struct, frozen=True):
    """The items of a lane, each counted once, in the first number that applies."""

    stage: str
    lane: str
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    claimed: int = 0
    """A worker has them."""
    with_partner: int = 0
    """Handed over to a partner, whose answer is awaited."""
    ready: int = 0
    """Due now."""
    later: int = 0
    """Due later: the next check, the next attempt, or the start."""
    next_at: int | None = None
    """The earliest time at which one of these is due."""

    @property
    def waiting(self) -> int:
        """Those that have not ended and are not claimed."""
        return self.with_partner + self.ready + self.later


class WaitFor(StrEnum):
    PAUSE = "pause"
    BREAKER = "breaker"
    PARTNER = "partner"
    DATE = "date"
    DATE_OR_PARTNER = "date-or-partner"
    """The ledger's counters do not tell the two apart."""


class Wait(Struct, frozen=True):
    """Items that wait for something else than a worker. `lanes`: their lanes, if not the whole
    stage."""

    what: WaitFor
    stage: str
    n: int | None
    """None: how many is not known."""
    lanes: tuple[str, ...] = ()
    next_at: int | None = None
    """The earliest date, if it is known."""


class StageLoad(Struct, frozen=True):
    """The items of a stage that have not ended: those that move, and those that wait."""

    stage: str
    moving: int
    waits: tuple[Wait, ...] = ()
    closed: WaitFor | None = None
    """No item gets through: the stage is paused, or a partner has to confirm it."""


class StagePace(Struct, frozen=True):
    """Items that completed a stage within a span of time. Failures are none."""

    completed: int
    span_ms: int

    @property
    def per_hour(self) -> float:
        return self.completed * HOUR / self.span_ms


class Sentence(Struct, frozen=True):
    """A sentence without its full stop; with `at`, a time in milliseconds since 1970 ends it."""

    text: str
    at: int | None = None


class StageForecast(Struct, frozen=True):
    """A stage: how many items move there, at which pace the stage is completed, and when these are
    through it at that pace."""

    stage: str
    moving: int
    waits: tuple[Wait, ...]
    per_hour: float | None
    """None: it was not measured."""
    through_at: int | None
    """None: there is no forecast."""


class Forecast(Struct, frozen=True):
    """When the items that move are completed. `completed_at`: None if there is no forecast, or they
    come to a stage that nothing gets through."""

    stages: list[StageForecast]
    moving: int
    waiting: int | None
    """None: how many is not known."""
    completed_at: int | None
    sentences: list[Sentence]


def stage_load(
    stage: str,
    counts: Sequence[LaneCount],
    *,
    external: bool = False,
    paused: bool = False,
    paused_lanes: Set[str] = frozenset(),
    open_lanes: Collection[str] = (),
) -> StageLoad:
    """The load of a stage, from the exact counts of its lanes. `paused`: the whole stage;
    `open_lanes`: the lanes whose breaker is open."""
    claimed = sum(one.claimed for one in counts)
    if paused:
        return _closed(stage, claimed, WaitFor.PAUSE, sum(one.waiting for one in counts))
    in_paused = [one for one in counts if not paused_lanes.isdisjoint(lanes_above(one.lane))]
    not_paused = [one for one in counts if paused_lanes.isdisjoint(lanes_above(one.lane))]
    in_open = [one for one in not_paused if one.lane in open_lanes]
    others = [one for one in not_paused if one.lane not in open_lanes]
    waits = [
        _lane_wait(WaitFor.PAUSE, stage, in_paused),
        _lane_wait(WaitFor.BREAKER, stage, in_open),
    ]
    if external:
        waits.append(Wait(WaitFor.PARTNER, stage, sum(one.waiting for one in others)))
        return StageLoad(stage, claimed, _some(waits), WaitFor.PARTNER)
    waits.append(Wait(WaitFor.PARTNER, stage, sum(one.with_partner for one in others)))
    dates = [one.next_at for one in others if one.later and one.next_at is not None]
    waits.append(
        Wait(WaitFor.DATE, stage, sum(one.later for one in others), (), min(dates, default=None))
    )
    moving = claimed + sum(one.ready for one in others)
    whole_open = "" in open_lanes and {one.lane for one in counts} <= {""}
    return StageLoad(stage, moving, _some(waits), WaitFor.BREAKER if whole_open else None)


def counted_load(
    stage: str,
    *,
    claimed: int,
    queued: int,
    waiting: int,
    retrying: int,
    external: bool = False,
    paused: bool = False,
    paused_lanes: Collection[str] = (),
    open_lanes: Collection[str] = (),
) -> StageLoad:
    """The load of a stage on a ledger that knows the numbers by status alone. If one of its lanes
    is paused or has an open breaker, how many of its queued items move is not known."""
    if paused:
        return _closed(stage, claimed, WaitFor.PAUSE, queued + waiting + retrying)
    if external:
        return _closed(stage, claimed, WaitFor.PARTNER, queued + waiting + retrying)
    waits = [Wait(WaitFor.DATE_OR_PARTNER, stage, waiting), Wait(WaitFor.DATE, stage, retrying)]
    waits += [
        Wait(what, stage, None, tuple(sorted(lanes)))
        for what, lanes in ((WaitFor.PAUSE, paused_lanes), (WaitFor.BREAKER, open_lanes))
        if lanes and queued + waiting + retrying
    ]
    return StageLoad(stage, claimed + queued, _some(waits))


def _closed(stage: str, claimed: int, what: WaitFor, n: int) -> StageLoad:
    return StageLoad(stage, claimed, _some([Wait(what, stage, n)]), what)


def _lane_wait(what: WaitFor, stage: str, counts: Sequence[LaneCount]) -> Wait:
    held = [one for one in counts if one.waiting]
    return Wait(
        what, stage, sum(one.waiting for one in held), tuple(sorted(one.lane for one in held))
    )


def _some(waits: Sequence[Wait]) -> tuple[Wait, ...]:
    return tuple(one for one in waits if one.n != 0)


# The forecast -------------------------------------------------------------------------------------
class _Group:
    """Items that move, up to the next stage that nothing gets through. `ahead` counts the others
    with them, which need their turn too; others at stages before the first of these items come
    after them."""

    def __init__(self) -> None:
        self.moving = self.ahead = 0
        self.longest_ms = 0.0
        self.slowest: StagePace | None = None
        self.slowest_stage = ""
        self.unknown: list[str] = []
        """Why there is no forecast, by stage."""

    def add(self, load: StageLoad, others: int, pace: StagePace | None) -> None:
        self.moving += load.moving
        if not self.moving:
            return
        self.ahead += load.moving + others
        uncounted = [wait for wait in load.waits if wait.n is None]
        if uncounted:
            what = "paused" if uncounted[0].what is WaitFor.PAUSE else "held back by their breakers"
            self.unknown.append(
                f"how many of them are in lanes of {load.stage} that are {what} is not known"
            )
        elif pace is None:
            self.unknown.append(f"the pace of {load.stage} has not been measured yet")
        elif not pace.completed:
            self.unknown.append(
                f"nothing has completed {load.stage} in the last {short_span(pace.span_ms)}"
            )
        else:
            took = self.ahead / pace.per_hour * HOUR
            if took >= self.longest_ms:
                self.longest_ms, self.slowest, self.slowest_stage = took, pace, load.stage


def forecast(
    loads: Sequence[StageLoad],
    paces: Mapping[str, StagePace],
    now: int,
    *,
    others: Mapping[str, int] | None = None,
    goal: str = "completed",
    whole_route_paused: bool = False,
) -> Forecast:
    """The forecast for these items, by the stages of their route in order. `others`: items by stage
    that move too and are not among these, such as those of other lists: they need their turn at the
    same stages. `goal`: where they are after the last of these stages."""
    aside = others or {}
    sentences = _waits_in_words([wait for load in loads for wait in load.waits], whole_route_paused)
    stages: list[StageForecast] = []
    group, completed_at, moving = _Group(), None, 0
    for load in loads:
        if load.closed is not None and group.moving:
            sentences.append(_group_sentence(group, now, load, goal)[0])
            group = _Group()
        pace = paces.get(load.stage)
        group.add(load, aside.get(load.stage, 0), pace)
        moving += load.moving
        stages.append(_stage_forecast(load, aside.get(load.stage, 0), pace, now))
    if group.moving:
        sentence, completed_at = _group_sentence(group, now, None, goal)
        sentences.append(sentence)
        completed_at = completed_at if group.moving == moving else None
    numbers = [wait.n for load in loads for wait in load.waits]
    waiting = None if None in numbers else sum(n for n in numbers if n is not None)
    if not moving:
        sentences.append(
            Sentence("Nothing else is in progress" if sentences else "No items are in progress")
        )
    return Forecast(stages, moving, waiting, completed_at, sentences)


def _stage_forecast(
    load: StageLoad, others: int, pace: StagePace | None, now: int
) -> StageForecast:
    per_hour = None if pace is None else pace.per_hour
    uncounted = any(wait.n is None for wait in load.waits)
    through_at = None
    if load.moving and per_hour and not uncounted:
        through_at = now + round((load.moving + others) / per_hour * HOUR)
    return StageForecast(load.stage, load.moving, load.waits, per_hour, through_at)


def _group_sentence(
    group: _Group, now: int, before: StageLoad | None, goal: str
) -> tuple[Sentence, int | None]:
    """What becomes of the items of a group; `before`: the stage that nothing gets through, to which
    they come."""
    n = group.moving
    begin = f"{n:,} {'moves' if n == 1 else 'move'}"
    end = (
        ""
        if before is None
        else f"; then {'it waits' if n == 1 else 'they wait'} at {before.stage}, {_CLOSED[before.closed]}"
    )
    if group.unknown:
        return Sentence(f"{begin}{end}. There is no forecast: {group.unknown[0]}"), None
    assert group.slowest is not None
    rate = group.slowest.per_hour
    pace = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
    base = f"At the pace of the last {short_span(group.slowest.span_ms)} ({group.slowest_stage}: {pace} an hour)"
    they = "it is" if n == 1 else "they are"
    goal = goal if before is None else "there"
    if group.longest_ms < MINUTE:
        return Sentence(f"{begin}{end}. {base} {they} {goal} in less than a minute"), now + round(
            group.longest_ms
        )
    # To the minute: it is only an estimate.
    at = -(-(now + round(group.longest_ms)) // MINUTE) * MINUTE
    return Sentence(
        f"{begin}{end}. {base} {they} {goal} in about {short_span(group.longest_ms)}, at about", at
    ), at


_CLOSED = {
    WaitFor.PAUSE: "which is paused",
    WaitFor.PARTNER: "which a partner confirms",
    WaitFor.BREAKER: "whose breaker is open",
    None: "",
}


def _waits_in_words(waits: Sequence[Wait], whole_route_paused: bool) -> list[Sentence]:
    if whole_route_paused and waits:
        n = sum(wait.n or 0 for wait in waits if wait.what is WaitFor.PAUSE)
        return [Sentence(f"{_n_wait(n)} for the route, which is paused")] if n else []
    return [_wait_in_words(wait) for wait in waits]


def _wait_in_words(wait: Wait) -> Sentence:
    begin = _n_wait(wait.n)
    if wait.what is WaitFor.PARTNER:
        return Sentence(f"{begin} for a partner at {wait.stage}")
    if wait.what is WaitFor.DATE_OR_PARTNER:
        return Sentence(f"{begin} at {wait.stage} for a date or for a partner")
    if wait.what is WaitFor.DATE:
        return Sentence(
            f"{begin} at {wait.stage} for a date"
            + ("" if wait.next_at is None else ", none before"),
            wait.next_at,
        )
    lanes = [lane for lane in wait.lanes if lane]
    many = len(lanes) > 1
    if wait.what is WaitFor.PAUSE:
        why = "which are paused" if many else "which is paused"
    else:
        why = "whose breakers are open" if many else "whose breaker is open"
    return Sentence(f"{begin} {_where(wait.stage, lanes)}, {why}")


def _where(stage: str, lanes: Sequence[str]) -> str:
    if not lanes:
        return f"at {stage}"
    if len(lanes) == 1:
        return f"in lane {lanes[0]} of {stage}"
    if len(lanes) <= NAMED_LANES:
        return f"in lanes {', '.join(lanes[:-1])} and {lanes[-1]} of {stage}"
    return f"in {len(lanes):,} lanes of {stage}"


def _n_wait(n: int | None) -> str:
    if n is None:
        return "An unknown number waits"
    return f"{n:,} {'waits' if n == 1 else 'wait'}"
