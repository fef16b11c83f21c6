"""Controls: the pauses, limits and breakers that say whether a route, a stage or a lane may be worked on, and how fast.

A scope names what a control applies to: "route", "route/stage" or "route/stage/lane".
"""

from __future__ import annotations

from collections.abc import Container, Mapping

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
    """The rate at which the items that have waited are worked on afterwards; None: as fast as usual."""


class Limit(Struct, frozen=True):
    """Limits set while running; they win over the route file's."""

    rate: str | float | None = None
    concurrency: int | None = None
    by: str = ""
    reason: str = ""
    at: int = 0
    drains: int | None = None
    """Set if this limit drains the backlog of a pause: the time since when. It ends when the items that waited then have been claimed."""
    normal_rate: str | float | None = None
    """The rate that was set before, and holds again after the draining."""


NO_LIMIT = Limit()


def scope(route: str, stage: str | None = None, lane: str | None = None) -> str:
    """The name under which a control of a route, stage or lane is kept."""
    if stage is None:
        return route
    return f"{route}/{stage}" if lane is None else f"{route}/{stage}/{lane}"


def lanes_above(lane: str) -> tuple[str, ...]:
    """The lane itself, and the wider lane within which it lies: a lane named `A@B` lies within the lane `B`."""
    _, within, wider = lane.rpartition("@")
    return (lane, wider) if within else (lane,)


def is_held(holds: Container[str], route: str, stage: str, lane: str) -> bool:
    """Whether this lane, the wider lane within which it lies, its stage or its route is paused."""
    return route in holds or scope(route, stage) in holds or any(scope(route, stage, one) in holds for one in lanes_above(lane))


class Controls:
    """The controls in force, as one claim reads them: pauses, limits set while running, and breakers with a record, by scope."""

    __slots__ = ("breakers", "holds", "limits")

    def __init__(self, holds: Container[str], limits: Mapping[str, Limit], breakers: Mapping[str, BreakerRecord]) -> None:
        self.holds = holds
        self.limits = limits
        self.breakers = breakers

    def held(self, route: str, stage: str, lane: str) -> bool:
        """Whether this lane, the wider lane within which it lies, its stage or its route is paused."""
        return is_held(self.holds, route, stage, lane)

    def rate(self, route: str, stage: Stage, lane: str | None) -> CallRate | None:
        """The rate of a lane's calls (None: of the whole stage's); a limit set while running wins over the route file's."""
        name = scope(route, stage.name, lane)
        rate: str | float | None = self.limits.get(name, NO_LIMIT).rate
        if rate is None:
            own = None if lane is None else stage.lanes.get(lane)
            rate = stage.rate if lane is None else None if own is None else own.rate
        return None if rate is None else claim_rate(rate_per_second(rate, f"the rate of {name}"))

    def rates(self, route: str, stage: Stage, lane: str) -> list[tuple[str, CallRate]]:
        """The scopes whose rates a call in this lane uses up, each with its rate."""
        both = ((scope(route, stage.name, of), self.rate(route, stage, of)) for of in (None, lane))
        return [(name, rate) for name, rate in both if rate is not None]

    def cap(self, route: str, stage: Stage, lane: str) -> int | None:
        """Maximum calls of this lane at a time in one process: at this number the lane is full. None: the stage's limit applies."""
        limit = self.limits.get(scope(route, stage.name, lane), NO_LIMIT).concurrency
        own = stage.lanes.get(lane)
        return limit if limit is not None or own is None else own.concurrency

    def opens_at(self, route: str, stage: Stage, lane: str) -> int:
        """The earliest time at which the lane's breaker lets items through again; 0: it is not open."""
        record = self.breakers.get(scope(route, stage.name, lane)) if self.breakers else None
        return 0 if record is None or record.closed or stage.breaker_of(lane) is None else record.retry_at

    def unlimited(self, route: str, stage: Stage) -> bool:
        """Whether no control limits a stage without lanes, so that its items can be claimed as they arrive."""
        breaker_open, held = self.opens_at(route, stage, "") > 0, self.held(route, stage.name, "")
        return not (breaker_open or held or self.rates(route, stage, "") or self.cap(route, stage, "") is not None)
