"""Forecast of a route, a stage, a lane or a list, as pages, API and command line show it.
Everything here only reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from milepost.core.admission.controls import scope
from milepost.core.errors import UsageError
from milepost.core.forecast import (
    Forecast,
    LaneCount,
    Sentence,
    StageLoad,
    counted_load,
    forecast,
    stage_load,
)
from milepost.core.status import LIVE, Status
from milepost.core.values.durations import iso
from milepost.engine.breakers import open_breakers
from milepost.engine.context import Context
from milepost.engine.progress import read_paces
from milepost.engine.views.items import check_route, stage_names
from milepost.engine.views.queries import list_ids
from milepost.ports.documents import HOLD, ROUTE, RouteVersion, read_versioned
from milepost.ports.feed import Count


class Scope(Struct, frozen=True):
    """What a forecast is for: a stage, a lane of it, or lists by their ids; without these the whole
    route."""

    stage: str | None = None
    lane: str | None = None
    lists: tuple[str, ...] = ()


WHOLE = Scope()


class ListProgress(Struct, frozen=True):
    """The items that a list brought, whose rows are still in the ledger."""

    completed: int
    failed: int
    cancelled: int
    in_progress: int


class _Controls(Struct, frozen=True):
    """The pauses and open breakers of a route, by scope."""

    holds: frozenset[str]
    breakers: frozenset[str]
    external: frozenset[str]

    def of(self, route: str, stage: str) -> dict[str, Any]:
        """The arguments of a stage's load."""
        above = scope(route, stage, "")
        return {
            "external": stage in self.external,
            "paused": route in self.holds or scope(route, stage) in self.holds,
            "paused_lanes": {
                name.removeprefix(above) for name in self.holds if name.startswith(above)
            },
            "open_lanes": {
                name.removeprefix(above) for name in self.breakers if name.startswith(above)
            },
        }


def scope_of(
    ctx: Context,
    route: str,
    *,
    stage: str | None = None,
    lane: str | None = None,
    list_: str | None = None,
) -> Scope:
    """The scope that these name; UsageError if the route has no such stage or list, or a lane has
    no stage."""
    check_route(ctx, route)
    if stage is not None and stage not in (names := stage_names(ctx, route)):
        raise UsageError(
            f"route {route!r} has no stage {stage!r}; its stages are {', '.join(names)}"
        )
    if lane is not None and stage is None:
        raise UsageError("name the stage of the lane too")
    return Scope(stage, lane, () if list_ is None else tuple(sorted(list_ids(ctx, route, list_))))


def route_forecast(
    ctx: Context, route: str, wanted: Scope = WHOLE, counts: Sequence[Count] | None = None
) -> Forecast | None:
    """When the items of this scope are completed, or have passed its stage, and which of them wait
    for something else. None: the ledger cannot count the items of a lane or list."""
    now, stages = ctx.clock.now(), stage_names(ctx, route)
    counts = ctx.ledger.counts(route) if counts is None else counts
    controls = _controls(ctx, route)
    every = ctx.ledger.lane_counts(route, now)
    if every is None and (wanted.lane is not None or wanted.lists):
        return None
    chosen = ctx.ledger.lane_counts(route, now, wanted.lists) if wanted.lists else every
    loads = _loads(route, stages, counts, every, controls)
    theirs = (
        loads
        if wanted == WHOLE
        else _loads(route, _only(stages, wanted), counts, _only_lane(chosen, wanted), controls)
    )
    moving = {load.stage: load.moving for load in loads}
    others = {load.stage: max(0, moving[load.stage] - load.moving) for load in theirs}
    goal = (
        f"through {wanted.stage}"
        if wanted.stage is not None and wanted.stage != stages[-1]
        else "completed"
    )
    paces = read_paces(ctx, route, stages, counts)
    return forecast(
        theirs, paces, now, others=others, goal=goal, whole_route_paused=route in controls.holds
    )


def list_progress(ctx: Context, route: str, lists: Iterable[str]) -> ListProgress | None:
    """How far the items of these lists are; None: this ledger cannot count them without reading
    rows."""
    found = ctx.ledger.lane_counts(route, ctx.clock.now(), tuple(lists))
    if found is None:
        return None
    return ListProgress(
        sum(one.completed for one in found),
        sum(one.failed for one in found),
        sum(one.cancelled for one in found),
        sum(one.claimed + one.waiting for one in found),
    )


def forecast_view(route: str, found: Forecast, now: int) -> dict[str, Any]:
    """A forecast as JSON."""
    return {
        "route": route,
        "as_of": iso(now),
        "moving": found.moving,
        "waiting": found.waiting,
        "completed_at": iso(found.completed_at),
        "text": in_words(found.sentences),
        "stages": [
            {
                "stage": stage.stage,
                "moving": stage.moving,
                "per_hour": stage.per_hour,
                "through_at": iso(stage.through_at),
                "waiting": [
                    {
                        "for": wait.what.value,
                        "n": wait.n,
                        "lanes": list(wait.lanes),
                        "none_before": iso(wait.next_at),
                    }
                    for wait in stage.waits
                ],
            }
            for stage in found.stages
        ],
    }


def utc_minute(at: int) -> str:
    """'2026-03-01 14:03 UTC'."""
    text = iso(at) or ""
    return f"{text[:10]} {text[11:16]} UTC"


def in_words(sentences: Sequence[Sentence], form: Callable[[int], str] = utc_minute) -> str:
    """The sentences as one text; `form` writes a time."""
    return " ".join(
        f"{one.text}{'' if one.at is None else ' ' + form(one.at)}." for one in sentences
    )


def sentence_views(found: Forecast | None) -> list[dict[str, Any]]:
    """The sentences for a page, which shows times in the zone of its viewer; none without a
    forecast."""
    return (
        [] if found is None else [{"text": one.text, "at": iso(one.at)} for one in found.sentences]
    )


def _only(stages: Sequence[str], wanted: Scope) -> list[str]:
    return [stage for stage in stages if wanted.stage in (None, stage)]


def _only_lane(counts: list[LaneCount] | None, wanted: Scope) -> list[LaneCount] | None:
    return None if counts is None else [one for one in counts if wanted.lane in (None, one.lane)]


def _controls(ctx: Context, route: str) -> _Controls:
    plan = ctx.plans.get(route)
    if plan is not None:
        external = frozenset(stage.name for stage in plan.stages if stage.external)
    else:
        version, _ = read_versioned(ctx.ledger, ROUTE, route, RouteVersion)
        external = frozenset(
            name
            for name, kind in (version.shape if version is not None else [])
            if kind == "external"
        )
    return _Controls(
        frozenset(ctx.ledger.read(HOLD)), frozenset(open_breakers(ctx, route)), external
    )


def _loads(
    route: str,
    stages: Sequence[str],
    counts: Iterable[Count],
    lanes: list[LaneCount] | None,
    controls: _Controls,
) -> list[StageLoad]:
    if lanes is not None:
        return [
            stage_load(
                stage, [one for one in lanes if one.stage == stage], **controls.of(route, stage)
            )
            for stage in stages
        ]
    sums: dict[tuple[str, Status], int] = {}
    for count in counts:
        if count.status in LIVE:
            sums[count.stage, count.status] = sums.get((count.stage, count.status), 0) + max(
                0, count.n
            )

    def number(stage: str, *statuses: Status) -> int:
        return sum(sums.get((stage, status), 0) for status in statuses)

    return [
        counted_load(
            stage,
            claimed=number(stage, Status.PROCESSING),
            queued=number(stage, Status.PENDING, Status.QUEUED),
            waiting=number(stage, Status.WAITING),
            retrying=number(stage, Status.RETRY_SCHEDULED),
            **controls.of(route, stage),
        )
        for stage in stages
    ]
