"""Forecast over HTTP: what moves, when it is completed, and what waits for something else."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from milepost.core.errors import UsageError
from milepost.engine.views.forecast import forecast_view, list_progress, route_forecast, scope_of
from milepost.http.protocol.endpoint import Call, endpoint
from milepost.http.protocol.problems import problem_error
from milepost.http.state.state import ServerState


class ForecastQuery(Struct, frozen=True, kw_only=True):
    """A stage, a lane of that stage, or a list by its name or id; without these the whole route."""

    stage: str | None = None
    lane: str | None = None
    list_: str | None = field(default=None, name="list")


class ListCounts(Struct, frozen=True):
    """The items that a list brought, whose rows are still in the ledger."""

    completed: int
    failed: int
    cancelled: int
    in_progress: int


class ForecastAnswer(Struct, frozen=True):
    """`text`: the forecast in words. `moving`: items that a worker has, or that are due now.
    `waiting`: items that wait for a pause, an open breaker, a partner or a date, which the forecast
    does not promise; null: how many is not known. `completed_at`: when those that move are
    completed, at the pace at which the slowest stage has completed items lately; null: there is no
    forecast, and `text` says why. `stages`: for each, its pace in items an hour, when those that
    move there are through it, and what the others wait for. `list`: of a list alone."""

    route: str
    as_of: str | None
    moving: int
    waiting: int | None
    completed_at: str | None
    text: str
    stages: list[dict[str, Any]]
    list_: ListCounts | None = field(default=None, name="list")


@endpoint(
    "GET",
    "/api/v1/routes/{route}/forecast",
    scope="read",
    query=ForecastQuery,
    problems=("lacking",),
    summary="When the items in progress are completed, and which wait for something else",
)
def forecast(state: ServerState, call: Call) -> ForecastAnswer:
    """Of the route, a stage, a lane or a list. Only completions count as pace, no failures. On a
    ledger that cannot count by lane and list (AWS), only the route and its stages have a
    forecast."""
    route, wanted, ctx = state.plan(call).name, call.query, state.ctx
    try:
        scope = scope_of(ctx, route, stage=wanted.stage, lane=wanted.lane, list_=wanted.list_)
    except UsageError as error:
        name = next(
            name
            for name, value in (
                ("list", wanted.list_),
                ("lane", wanted.lane),
                ("stage", wanted.stage),
            )
            if value is not None
        )
        raise problem_error("wrong-value", str(error), field=name) from None
    found = route_forecast(ctx, route, scope)
    if found is None:
        raise problem_error(
            "lacking",
            "this ledger does not count items by lane or list",
            expected="a forecast of the route or of a stage",
        )
    progress = list_progress(ctx, route, scope.lists) if scope.lists else None
    counts = (
        None
        if progress is None
        else ListCounts(
            progress.completed, progress.failed, progress.cancelled, progress.in_progress
        )
    )
    return ForecastAnswer(**forecast_view(route, found, ctx.clock.now()), list_=counts)
