"""Lanes as operators see them: paused or not, breaker, limits, backlog and the oldest due time."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from shlex import quote
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.admission.controls import NO_LIMIT, Controls, Hold, Limit, lanes_above, scope
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Stage
from milepost.core.status import LIVE, Status
from milepost.core.values.durations import iso
from milepost.engine.breakers import BreakerView, breaker_views
from milepost.engine.context import Context
from milepost.engine.views.blocks import pauses_over
from milepost.engine.views.items import SIGNED
from milepost.ports.documents import HOLD, LIMIT, read_each
from milepost.ports.items import Query, QueryPage

T = TypeVar("T")

NEAR, NEAR_ENOUGH = 3, 0.5
"""Most lanes that are named for one without items, and how similar they must be."""
COUNTED = 1_000
"""Waiting items of a lane that are counted; above it, `more` is true."""


class PauseView(Struct, frozen=True):
    """A pause in force. `scope` is `route`, `route/stage` or `route/stage/lane`; times are ISO
    8601, UTC."""

    scope: str
    by: str
    reason: str
    since: str | None
    until: str | None = None
    """When it ends by itself; None: when it is resumed."""
    drain: str | float | None = None
    """The rate for the items that have waited, when it ends."""
    waiting: int | None = None
    """How many items wait there, as the call that pauses counts them. None: they were not counted;
    a ledger on AWS has no index for it."""
    near: list[str] = []
    """If none waits in the lane: lanes with similar names that have items or are known
    otherwise."""


class WaitingCount(Struct, frozen=True):
    """How many items wait in a scope, and for a lane without any the known lanes of its stage with
    the most similar names."""

    n: int
    near: list[str]


def count_waiting(
    ctx: Context, route: str, stage: str | None, lane: str | None
) -> WaitingCount | None:
    """The items of a route, a stage or a lane that have not ended and that no worker has; None:
    this ledger has no index for it."""
    counts = ctx.ledger.lane_counts(route, ctx.clock.now())
    if counts is None:
        return None
    n = sum(
        one.waiting
        for one in counts
        if stage in (None, one.stage) and lane in (None, *lanes_above(one.lane))
    )
    if n or lane is None or stage is None:
        return WaitingCount(n, [])
    # Lanes of the stages before, too: their items may come here.
    known = {name for one in counts for name in lanes_above(one.lane) if name} | {
        name for name in ctx.plan(route).by_name[stage].lanes if name
    }
    if lane in known:
        return WaitingCount(0, [])
    return WaitingCount(0, get_close_matches(lane, sorted(known), NEAR, NEAR_ENOUGH))


class LaneView(Struct, frozen=True):
    """The state of one lane. Times are ISO 8601, UTC."""

    route: str
    stage: str
    lane: str
    paused: PauseView | None
    """The widest pause that holds it back: of the route, of the stage, or its own."""
    breaker: BreakerView | None
    """Its breaker, if that is open or half-open."""
    rate: float | None
    """Calls per second; None: no limit. Within a wider lane the lower one of its own and of that
    lane, which all lanes within share."""
    concurrency: int | None
    draining: bool
    """The backlog of a pause is being worked off at a set pace."""
    waiting: int | None
    """Items in it that have not ended and are not being worked on, counted up to 1,000. None: no
    index of this ledger serves the count, as on AWS; then the next three are empty too."""
    more: bool
    in_progress: int | None
    oldest_due_at: str | None
    """The earliest time since which a waiting item, of those counted, is due; None: none is due."""


def in_route(ctx: Context, route: str, kind: str, form: type[T]) -> list[tuple[str, T]]:
    """The controls of a kind that are set in a route, by scope."""
    found = read_each(ctx.ledger, kind, form)
    return [
        (name, found[name])
        for name in sorted(found)
        if name == route or name.startswith(f"{route}/")
    ]


def pauses(ctx: Context, route: str) -> list[PauseView]:
    """The pauses in force in a route, by scope."""
    return [pause_view(name, hold) for name, hold in in_route(ctx, route, HOLD, Hold)]


def pause_view(name: str, hold: Hold, waiting: WaitingCount | None = None) -> PauseView:
    """The pause of this scope."""
    view = PauseView(name, hold.by, hold.reason, iso(hold.at), iso(hold.until), hold.drain)
    return view if waiting is None else replace(view, waiting=waiting.n, near=waiting.near)


def resume_command(name: str) -> str:
    """The command that ends the pause of a scope."""
    route, *rest = name.split("/", 2)
    where = " ".join(
        [
            route,
            *(
                f"--{option} {quote(value)}"
                for option, value in zip(("stage", "lane"), rest, strict=False)
            ),
        ]
    )
    return f"milepost resume {where} {SIGNED}"


def lane_views(ctx: Context, plan: Plan, stage: str, lanes: Iterable[str]) -> list[LaneView]:
    """The state of these lanes of a stage, and of all others that have a pause, a limit or an open
    breaker."""
    paused = {one.scope: one for one in pauses(ctx, plan.name)}
    limits = read_each(ctx.ledger, LIMIT, Limit)
    breakers = {one.scope: one for one in breaker_views(ctx, plan.name)}
    above = scope(plan.name, stage, "")
    marked = {
        name.removeprefix(above) for name in (*paused, *limits, *breakers) if name.startswith(above)
    }
    names = dict.fromkeys([*lanes, *plan.by_name[stage].lanes, *sorted(marked)])
    controls = Controls(paused, limits, {})
    return [
        _view(ctx, plan, plan.by_name[stage], lane, controls, paused, breakers) for lane in names
    ]


def _view(
    ctx: Context,
    plan: Plan,
    stage: Stage,
    lane: str,
    controls: Controls,
    paused: dict[str, PauseView],
    breakers: dict[str, BreakerView],
) -> LaneView:
    name, now = scope(plan.name, stage.name, lane), ctx.clock.now()
    found = Query(
        route=plan.name,
        stages=frozenset({stage.name}),
        within=lane,
        statuses=LIVE - {Status.PROCESSING},
        limit=COUNTED,
    )
    counted = ctx.ledger.cost_of(found) is None
    page = ctx.ledger.find(found) if counted else QueryPage([])
    busy = (
        ctx.ledger.find(replace(found, statuses=frozenset({Status.PROCESSING})))
        if counted
        else QueryPage([])
    )
    due = min((item.row.due_at for item in page.items if item.row.due_at is not None), default=None)
    rates = [rate.per_second for _, rate in controls.lane_rates(plan.name, stage, lane)]
    caps = [
        controls.cap(plan.name, stage, lane),
        *controls.joint_caps(plan.name, stage, [lane]).values(),
    ]
    limits = [
        controls.limits.get(scope(plan.name, stage.name, above), NO_LIMIT)
        for above in lanes_above(lane)
    ]
    return LaneView(
        plan.name,
        stage.name,
        lane,
        next((pause for _, pause in pauses_over(paused, plan.name, stage.name, lane)), None),
        breakers.get(name),
        min(rates, default=None),
        min((cap for cap in caps if cap is not None), default=None),
        any(limit.drains is not None for limit in limits),
        len(page.items) if counted else None,
        page.next is not None,
        len(busy.items) if counted else None,
        iso(due) if due is not None and due <= now else None,
    )
