"""Overview page: health, and every route as a funnel. Made from counters of the ledger, so it costs
the same with a million items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, tzinfo
from functools import cache
from typing import Any

from markupsafe import Markup
from msgspec import Struct

from milepost.core.admission.controls import Hold, scope
from milepost.core.counters import HOUR
from milepost.core.routes.route import Stage
from milepost.core.status import FAILED, LIVE, Status
from milepost.engine.context import Context
from milepost.engine.health.checks import run_checks
from milepost.engine.health.findings import OK, OVERVIEW, CheckResult, CheckRun
from milepost.engine.left_counts import LeftCount, left_counts
from milepost.engine.views.caches import TtlCache
from milepost.engine.views.forecast import route_forecast, sentence_views
from milepost.engine.views.items import own_route
from milepost.engine.views.lanes import PauseView, pause_view
from milepost.engine.views.snapshot import Snapshot, StageView, by_route, snapshots
from milepost.http.dashboard.charts import Chart, hours_chart, minutes_chart, stack
from milepost.http.dashboard.render import page, seen_routes, viewer_zone
from milepost.http.protocol.endpoint import Answer, Call, endpoint
from milepost.http.state.pace import Sample, Samples, by_hour, by_minute
from milepost.http.state.state import ServerState
from milepost.ports.documents import HOLD, read_each
from milepost.ports.feed import Count, Group
from milepost.ports.items import Query

CAUSES = 8
FAILED_ROWS = 500
"""Maximum rows of a stage that are read, if the counters cannot say which have failed."""
FRESH = 24 * HOUR
"""How long a cause without items stays on the page: causes that come and go with every attempt must
not make the page jump."""
PARTS = (
    ("queued", "todo", (Status.PENDING, Status.QUEUED)),
    ("processing", "work", (Status.PROCESSING,)),
    ("waiting", "wait", (Status.WAITING,)),
    ("retrying", "retry", (Status.RETRY_SCHEDULED,)),
    ("failed", "fail", tuple(sorted(FAILED))),
)


class FunnelStage(Struct, frozen=True):
    """A stage in the funnel. It has all its parts, even if they are zero, so that it keeps its
    shape: label, class of the style sheet, number, and the statuses that find the items."""

    seen: StageView
    parts: list[tuple[str, str, int, list[str]]]
    bar: Markup
    paused: PauseView | None
    lanes: list[tuple[str, PauseView]]
    """The lanes that are paused by themselves, with their pauses."""
    tag: tuple[str, str] | None
    """The kind of the stage, if it is not one for Milepost's own workers, and what that means."""


class FailureCause(Struct, frozen=True):
    """A cause at a stage. At least `least` and at most `most` of the items with this error have
    failed; the others are retried automatically, or were cancelled. `filter` finds the failed
    ones."""

    of: Group
    least: int
    most: int
    filter: dict[str, Any]

    @property
    def failed(self) -> str:
        return f"{self.most:,}" if self.least == self.most else f"up to {self.most:,}"


class RouteView(Struct, frozen=True):
    """A route. `known`: its route file is loaded here, so that its items can be viewed and acted
    on."""

    seen: Snapshot
    known: bool
    steps: list[FunnelStage]
    causes: list[FailureCause]
    more_causes: int
    """Number of causes that are not shown."""
    hours: Chart
    minutes: Chart
    forecast: list[dict[str, Any]]
    """Its sentences, each with the time that ends it, if any."""
    paused: PauseView | None
    left: LeftCount | None
    """Failed items whose rows have left; None: there are none."""


class HealthPanel(Struct, frozen=True):
    """The problems, the worst first; and the line that is shown if there are none."""

    notices: list[CheckResult]
    calm: str


@endpoint("GET", "/", scope="read", page=True, summary="The overview")
def overview(state: ServerState, call: Call) -> Answer:
    found = snapshots(state.ctx)
    seen = [found[name] for name in seen_routes(state, call) if name in found]
    # Milepost's own routes take no submits, and are hidden while they are healthy.
    seen = [one for one in seen if not own_route(state.ctx, one.route) or one.failed or one.live]
    well = health(state.ctx, seen, all_seen=call.caller.routes is None, ttl_cache=state.ttl_cache)
    left = left_counts(state.ctx, [one.route for one in seen], state.ttl_cache.once)
    return page(
        state,
        call,
        "home.html",
        routes=home(state.ctx, seen, state.samples, viewer_zone(call), left),
        health=well,
        live=LIVE,
    )


def home(
    ctx: Context,
    found: Iterable[Snapshot],
    samples: Samples,
    zone: tzinfo = UTC,
    left: Mapping[str, LeftCount] | None = None,
) -> list[RouteView]:
    """These routes as funnels; Milepost's own are last. `zone`: that of the viewer. `left`: failed
    items that have left, by route."""
    counts, groups = by_route(ctx.ledger.counts()), by_route(ctx.ledger.groups())
    pauses = {
        name: pause_view(name, hold) for name, hold in read_each(ctx.ledger, HOLD, Hold).items()
    }
    routes = sorted(found, key=lambda seen: own_route(ctx, seen.route))
    gone = left or {}
    return [
        _route(
            ctx,
            seen,
            counts.get(seen.route, []),
            groups.get(seen.route, []),
            pauses,
            samples,
            zone,
            gone.get(seen.route),
        )
        for seen in routes
    ]


def _route(
    ctx: Context,
    seen: Snapshot,
    counts: list[Count],
    groups: list[Group],
    pauses: dict[str, PauseView],
    samples: Samples,
    zone: tzinfo,
    left: LeftCount | None,
) -> RouteView:
    now, plan = seen.at, ctx.plans.get(seen.route)
    hours = by_hour(counts, now)
    watched = samples.seen(seen.route, Sample(now, seen.done, seen.failed))
    steps = [
        _step(stage, seen, None if plan is None else plan.by_name.get(stage.name), pauses)
        for stage in seen.stages
    ]
    paused = pauses.get(seen.route)

    @cache
    def free() -> bool:
        """Whether reading rows costs nothing. The check itself may cost a little."""
        return ctx.ledger.cost_of(Query(route=seen.route, statuses=LIVE)) is None

    return RouteView(
        seen,
        plan is not None,
        steps,
        *causes(ctx, seen, groups, free),
        hours_chart(hours, now, zone),
        minutes_chart(*by_minute(watched, now), watched[0].at, now, zone),
        sentence_views(route_forecast(ctx, seen.route, counts=counts)),
        paused,
        left,
    )


def _step(
    stage: StageView, seen: Snapshot, declared: Stage | None, pauses: dict[str, PauseView]
) -> FunnelStage:
    parts = [
        (label, kind, stage.among(*statuses), [status.value for status in statuses])
        for label, kind, statuses in PARTS
    ]
    whole = max(1, seen.total)
    title = ", ".join(
        [*(f"{n:,} {label}" for label, _, n, _ in parts if n), f"{stage.past:,} completed"]
    )
    bar = stack(
        [*((kind, n / whole) for _, kind, n, _ in parts), ("done", stage.past / whole)], title
    )
    above = scope(seen.route, stage.name)
    lanes = [
        (lane, pauses[name])
        for name in sorted(pauses)
        if name.startswith(f"{above}/") and (lane := name.removeprefix(f"{above}/"))
    ]
    tag = None
    if declared is not None and not declared.ours:
        tag = (
            ("external", "a partner does it")
            if declared.external
            else ("remote", "remote workers claim it over HTTP")
        )
    return FunnelStage(stage, parts, bar, pauses.get(above), lanes, tag)


def causes(
    ctx: Context, seen: Snapshot, groups: Sequence[Group], free: Callable[[], bool]
) -> tuple[list[FailureCause], int]:
    """The causes with the most failures, these first, and the number of the others. `free`: reading
    rows costs nothing."""
    bounds = failed_by_group({stage.name: stage.among(*FAILED) for stage in seen.stages}, groups)
    present = [group for group in groups if group.now > 0 or seen.at - group.last_at < FRESH]
    shown = sorted(
        present, key=lambda group: (-bounds[_key(group)][1], -group.now, -group.total, _key(group))
    )[:CAUSES]
    for stage in sorted(
        {group.stage for group in shown if bounds[_key(group)][0] < bounds[_key(group)][1]}
    ):
        if free():
            bounds |= _looked_at(
                ctx,
                seen.route,
                stage,
                {key: bound for key, bound in bounds.items() if key[0] == stage},
            )
    # Sorted by the total, not by the present number: that changes with every attempt.
    shown.sort(key=lambda group: (-bounds[_key(group)][1], -group.total, _key(group)))
    listed = [
        FailureCause(
            group,
            *bounds[_key(group)],
            {"group": group.group, "stage": [group.stage], "status": ["failed"]},
        )
        for group in shown
    ]
    return listed, len(present) - len(listed)


def failed_by_group(
    failed: dict[str, int], groups: Sequence[Group]
) -> dict[tuple[str, str], tuple[int, int]]:
    """Minimum and maximum number of failed items with each error, by (stage, group): derived from
    the number of failed items of each stage, and the number of items with each error there. Every
    failed item has an error."""
    having: Counter[str] = Counter()
    for group in groups:
        having[group.stage] += max(0, group.now)
    found = {}
    for group in groups:
        now, here = max(0, group.now), failed.get(group.stage, 0)
        most = min(now, here)
        found[_key(group)] = (min(most, max(0, here - (having[group.stage] - now))), most)
    return found


def _key(group: Group) -> tuple[str, str]:
    return group.stage, group.group


def _looked_at(
    ctx: Context, route: str, stage: str, bounds: dict[tuple[str, str], tuple[int, int]]
) -> dict[tuple[str, str], tuple[int, int]]:
    """The same after reading the failed rows of a stage; if there are many, the first of them."""
    found = ctx.ledger.find(
        Query(route=route, stages=frozenset({stage}), statuses=FAILED, limit=FAILED_ROWS)
    )
    seen = Counter(
        (stage, item.row.error.group) for item in found.items if item.row.error is not None
    )
    if found.next is None:
        return {key: (seen[key], seen[key]) for key in bounds}
    return {key: (max(least, min(most, seen[key])), most) for key, (least, most) in bounds.items()}


def health(
    ctx: Context, routes: Iterable[Snapshot], *, all_seen: bool, ttl_cache: TtlCache
) -> HealthPanel:
    """Health of these routes. Problems that belong to no route are only for callers who see all
    routes."""
    look = CheckRun(ctx, routes=routes, everything=all_seen, thorough=False, once=ttl_cache.once)
    shown = [result for result in run_checks(look, OVERVIEW) if result.headline]
    notices = [one for one in shown if one.finding.level != OK]
    calm = ", ".join(one.headline for one in shown if one.finding.level == OK)
    return HealthPanel(
        sorted(notices, key=lambda notice: notice.finding.level), f"All is well: {calm}."
    )
