"""Controls: the pauses, limits and breakers that say whether a route, a stage or a lane may be
worked on, and how fast.

A scope names what a control applies to: "route", "route/stage" or "route/stage/lane".
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from msgspec import Struct

from milepost.core.admission.breakers import BreakerRecord
from milepost.core.admission.rates import CallRate, claim_rate
from milepost.core.routes.route import Stage
from milepost.core.values.durations import rate_per_second


class Hold(Struct, frozen=True):
    """A pause."""

    at: int
    by: str
    reason: str
    until: int | None = None
    """When it ends by itself; None: when an operator resumes."""
    drain: str | float | None = None
    """The rate at which the items that have waited are worked on afterwards; None: as fast as
    usual."""


class Limit(Struct, frozen=True):
    """Limits set while running; they win over the route file's."""

    rate: str | float | None = None
    concurrency: int | None = None
    by: str = ""
    reason: str = ""
    at: int = 0
    drains: int | None = None
    """Set if this limit drains the backlog of a pause: the time since when. It ends when the items
    that waited then have been claimed."""
    normal_rate: str | float | None = None
    """The rate that was set before, and holds again after the draining."""


NO_LIMIT = Limit()


def scope(route: str, stage: str | None = None, lane: str | None = None) -> str:
    """The name under which a control of a route, stage or lane is kept."""
    if stage is None:
        return route
    return f"{route}/{stage}" if lane is None else f"{route}/{stage}/{lane}"


def lanes_above(lane: str) -> tuple[str, ...]:
    """The lane itself, and the wider lane within which it lies: a lane named `A@B` lies within the
    lane `B`."""
    wider = wider_lane(lane)
    return (lane,) if wider is None else (lane, wider)


def wider_lane(lane: str) -> str | None:
    """The wider lane within which it lies; None: there is none."""
    _, within, wider = lane.rpartition("@")
    return wider if within else None


def by_wider_lane(lanes: Iterable[str]) -> dict[str, list[str]]:
    """Those of these lanes that lie within a wider lane, by that lane."""
    found: dict[str, list[str]] = {}
    for lane in lanes:
        wider = wider_lane(lane)
        if wider is not None:
            found.setdefault(wider, []).append(lane)
    return found


def is_held(holds: Container[str], route: str, stage: str, lane: str) -> bool:
    """Whether this lane, the wider lane within which it lies, its stage or its route is paused."""
    return (
        route in holds
        or scope(route, stage) in holds
        or any(scope(route, stage, one) in holds for one in lanes_above(lane))
    )


class LaneItems:
    """Numbers of items by lane. A wider lane also counts those of the lanes within it."""

    __slots__ = ("by_lane", "wider")

    def __init__(self, by_lane: Mapping[str, int]) -> None:
        self.by_lane = dict(by_lane)
        self.wider: dict[str, int] = {}
        """By wider lane, the items of the lanes within it."""
        for lane, number in by_lane.items():
            self._count_within(lane, number)

    def add(self, lane: str, number: int) -> None:
        self.by_lane[lane] = self.by_lane.get(lane, 0) + number
        self._count_within(lane, number)

    def within(self, wider: str) -> int:
        """The items of this lane and of the lanes within it."""
        return self.by_lane.get(wider, 0) + self.wider.get(wider, 0)

    def _count_within(self, lane: str, number: int) -> None:
        wider = wider_lane(lane) if "@" in lane else None
        if wider is not None:
            self.wider[wider] = self.wider.get(wider, 0) + number


class Controls:
    """The controls in force, as one claim reads them: pauses, limits set while running, and
    breakers with a record, by scope."""

    __slots__ = ("breakers", "holds", "limits")

    def __init__(
        self,
        holds: Container[str],
        limits: Mapping[str, Limit],
        breakers: Mapping[str, BreakerRecord],
    ) -> None:
        self.holds = holds
        self.limits = limits
        self.breakers = breakers

    def held(self, route: str, stage: str, lane: str) -> bool:
        """Whether this lane, the wider lane within which it lies, its stage or its route is
        paused."""
        return is_held(self.holds, route, stage, lane)

    def rate(self, route: str, stage: Stage, lane: str | None) -> CallRate | None:
        """The rate of a lane's own calls (None: of the whole stage's); a limit set while running
        wins over the route file's."""
        if lane is None:
            return self._rate_in_force(scope(route, stage.name), stage.rate)
        declared = stage.lanes.get(lane)
        return self._rate_in_force(
            scope(route, stage.name, lane), None if declared is None else declared.rate
        )

    def joint_rate(self, route: str, stage: Stage, wider: str) -> CallRate | None:
        """The rate that holds for the calls of all lanes within a wider lane together. Of the route
        file's limits those of a lane that it names: a mapping that has limits for every name means
        each lane alone."""
        declared = stage.lanes[wider].rate if wider in stage.lanes else None
        return self._rate_in_force(scope(route, stage.name, wider), declared)

    def rates(self, route: str, stage: Stage, lane: str) -> list[tuple[str, CallRate]]:
        """The scopes whose rates a call in this lane uses up, each with its rate: its stage's, its
        own, the wider lane's within which it lies."""
        rates = [(scope(route, stage.name, of), self.rate(route, stage, of)) for of in (None, lane)]
        wider = wider_lane(lane) if "@" in lane else None
        if wider is not None:
            rates.append((scope(route, stage.name, wider), self.joint_rate(route, stage, wider)))
        return [(name, rate) for name, rate in rates if rate is not None]

    def lane_rates(self, route: str, stage: Stage, lane: str) -> list[tuple[str, CallRate]]:
        """As `rates`, without the stage's own."""
        whole = scope(route, stage.name)
        return [(name, rate) for name, rate in self.rates(route, stage, lane) if name != whole]

    def _rate_in_force(self, name: str, declared: str | float | None) -> CallRate | None:
        limit = self.limits.get(name, NO_LIMIT)
        rate = declared if limit.rate is None else limit.rate
        in_force = (
            None if rate is None else claim_rate(rate_per_second(rate, f"the rate of {name}"))
        )
        usual = declared if limit.normal_rate is None else limit.normal_rate
        if limit.drains is None or in_force is None or usual is None:
            return in_force
        # A drain slows down what is faster, and speeds up nothing.
        return min(
            in_force,
            claim_rate(rate_per_second(usual, f"the rate of {name}")),
            key=lambda rate: rate.per_second,
        )

    def cap(self, route: str, stage: Stage, lane: str) -> int | None:
        """Maximum calls of this lane at a time in one process: at this number the lane is full.
        None: the stage's limit applies."""
        limit = self.limits.get(scope(route, stage.name, lane), NO_LIMIT).concurrency
        declared = stage.lanes.get(lane)
        return limit if limit is not None or declared is None else declared.concurrency

    def joint_cap(self, route: str, stage: Stage, wider: str) -> int | None:
        """Maximum calls at a time in one process of all lanes within a wider lane together (see
        `joint_rate`). None: no such limit."""
        limit = self.limits.get(scope(route, stage.name, wider), NO_LIMIT).concurrency
        return (
            limit
            if limit is not None or wider not in stage.lanes
            else stage.lanes[wider].concurrency
        )

    def joint_caps(self, route: str, stage: Stage, lanes: Iterable[str]) -> dict[str, int | None]:
        """The `joint_cap` of each wider lane within which one of these lanes lies."""
        return {wider: self.joint_cap(route, stage, wider) for wider in by_wider_lane(lanes)}

    def room(
        self, route: str, stage: Stage, lane: str, batch: int, held: LaneItems, ahead: LaneItems
    ) -> int | None:
        """How many more items of this lane a process may hold, by the maximum calls of the lane and
        of the wider lane. `held`: the items that it holds; `ahead`: those that may wait there
        beyond the calls. None: any number."""
        own = self.cap(route, stage, lane)
        room = (
            None
            if own is None
            else own * batch + ahead.by_lane.get(lane, 0) - held.by_lane.get(lane, 0)
        )
        wider = lane if lane in held.wider else None
        if "@" in lane:
            wider = wider_lane(lane)
        joint = None if wider is None else self.joint_cap(route, stage, wider)
        if wider is None or joint is None:
            return room
        joint_room = joint * batch + ahead.within(wider) - held.within(wider)
        return joint_room if room is None else min(room, joint_room)

    def opens_at(self, route: str, stage: Stage, lane: str) -> int:
        """The earliest time at which the lane's breaker lets items through again; 0: it is not
        open."""
        record = self.breakers.get(scope(route, stage.name, lane)) if self.breakers else None
        return (
            0
            if record is None or record.closed or stage.breaker_of(lane) is None
            else record.retry_at
        )

    def unlimited(self, route: str, stage: Stage) -> bool:
        """Whether no control limits a stage without lanes, so that its items can be claimed as they
        arrive."""
        breaker_open, held = self.opens_at(route, stage, "") > 0, self.held(route, stage.name, "")
        return not (
            breaker_open
            or held
            or self.rates(route, stage, "")
            or self.cap(route, stage, "") is not None
        )
