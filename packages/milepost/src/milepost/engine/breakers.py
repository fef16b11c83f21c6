"""Circuit breakers as operators see them: which are open, since when and why."""

from __future__ import annotations

from msgspec import Struct

from milepost.core.admission.breakers import BreakerRecord, BreakerState
from milepost.core.admission.controls import scope
from milepost.core.item import Row
from milepost.core.values.durations import iso
from milepost.engine.context import Context
from milepost.ports.documents import BREAKER, read_each, read_versioned


class BreakerView(Struct, frozen=True):
    """A breaker that is open or half-open. Times are ISO 8601, UTC."""

    scope: str
    route: str
    stage: str
    lane: str
    state: str
    """`open`: its items wait until `retry_at`. `half-open`: the next items are let through as
    probes."""
    since: str | None
    retry_at: str | None
    trips: int
    """How often it has opened since it was closed last."""
    probes: list[str]
    """Keys of the items that were let through and have no outcome yet."""
    error: str
    """The latest failure that it counted."""

    @property
    def text(self) -> str:
        """One sentence, without the times."""
        again = "" if self.trips == 1 else f", and has opened {self.trips} times in a row"
        return f"the breaker of {self.scope} is {self.state}{again}; the last failure: {self.error}"


def open_breakers(ctx: Context, route: str | None = None) -> dict[str, BreakerRecord]:
    """The records of breakers that are open or half-open, by scope; of one route, if it is
    given."""
    return {
        name: one
        for name, one in sorted(read_each(ctx.ledger, BREAKER, BreakerRecord).items())
        if not one.closed
        and (route is None or name.startswith(f"{route}/"))
        and _declared(ctx, name)
    }


def breaker_views(ctx: Context, route: str | None = None) -> list[BreakerView]:
    """The breakers that are open or half-open now."""
    now = ctx.clock.now()
    return [_view(name, one, now) for name, one in open_breakers(ctx, route).items()]


def breaker_of(ctx: Context, row: Row) -> BreakerView | None:
    """The open or half-open breaker of the lane that an item is in."""
    name = scope(row.route, row.stage, row.lane)
    one, _ = (
        read_versioned(ctx.ledger, BREAKER, name, BreakerRecord)
        if _declared(ctx, name)
        else (None, 0)
    )
    return None if one is None or one.closed else _view(name, one, ctx.clock.now())


def _view(name: str, one: BreakerRecord, now: int) -> BreakerView:
    route, stage, lane = name.split("/", 2)
    state = one.state(now)
    retry_at = iso(one.retry_at) if state is BreakerState.OPEN else None
    probes = [probe.key for probe in one.probes if now < probe.until]
    return BreakerView(
        name,
        route,
        stage,
        lane,
        state.value,
        iso(one.opened_at),
        retry_at,
        one.trips,
        probes,
        one.error,
    )


def _declared(ctx: Context, name: str) -> bool:
    """Whether the route file gives the lane a breaker; True if this process does not have the
    route. The record of a breaker that the route no longer declares has no effect."""
    route, stage, lane = name.split("/", 2)
    plan = ctx.plans.get(route)
    return plan is None or (
        stage in plan.by_name and plan.by_name[stage].breaker_of(lane) is not None
    )
