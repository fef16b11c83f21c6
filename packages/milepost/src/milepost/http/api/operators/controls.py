"""Controls over HTTP: pauses of a route, a stage or a lane, and limits of a stage or a lane."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from milepost.core.admission.controls import Hold, Limit, scope
from milepost.engine.acts import controls
from milepost.engine.acts.controls import (
    Limited,
    Paused,
    Resumed,
    limited_view,
    paused_view,
    resumed_view,
)
from milepost.engine.views.lanes import count_waiting, in_route
from milepost.http.auth.author import named
from milepost.http.protocol.endpoint import Call, endpoint, endpoint_at_each
from milepost.http.state.state import ServerState
from milepost.ports.documents import HOLD, LIMIT

HOLDS, LIMITS = "/api/v1/routes/{route}/holds", "/api/v1/routes/{route}/limits"
HOLD_STAGE, HOLD_LANE = f"{HOLDS}/{{stage}}", f"{HOLDS}/{{stage}}/{{lane:path}}"
LIMIT_STAGE, LIMIT_LANE = f"{LIMITS}/{{stage}}", f"{LIMITS}/{{stage}}/{{lane:path}}"
# The endpoints of each act on a control: by name their path, summary and description.
PAUSES = {
    "pause_route": (
        HOLDS,
        "Pause a route",
        """No item of the route is claimed or sent again until the route is resumed, and no attempt is counted. Items that are being processed
        are finished. A pause that is already in force stays as it is, with its name and reason, unless `until` or `drain` is given.""",
    ),
    "pause_stage": (
        HOLD_STAGE,
        "Pause a stage",
        "As for a route. At an external stage nothing is sent again; an item that arrives is still offered once, and confirmations count.",
    ),
    "pause_lane": (
        HOLD_LANE,
        "Pause a lane",
        "As for a stage; its other lanes continue. `waiting` says how many items wait there; if none, `near` names lanes with similar names.",
    ),
}
RESUMPTIONS = {
    "resume_route": (
        HOLDS,
        "Resume a route",
        "Lift the pause of the route; those of its stages and lanes stay.",
    ),
    "resume_stage": (HOLD_STAGE, "Resume a stage", "Lift the pause of the stage, and no other."),
    "resume_lane": (HOLD_LANE, "Resume a lane", "Lift the pause of the lane, and no other."),
}
LIMIT_CHANGES = {
    "limit_stage": (
        LIMIT_STAGE,
        "Limit a stage",
        "Set the limits of the stage; every process applies them within five seconds.",
    ),
    "limit_lane": (
        LIMIT_LANE,
        "Limit a lane",
        "Set the limits of the lane, in addition to those of its stage.",
    ),
}
LIMIT_REMOVALS = {
    "clear_stage": (
        LIMIT_STAGE,
        "Remove the limits of a stage",
        "The route file's limits apply again.",
    ),
    "clear_lane": (
        LIMIT_LANE,
        "Remove the limits of a lane",
        "The route file's limits apply again.",
    ),
}

Why = Annotated[str, Meta(min_length=1, max_length=1000, pattern=r"\S")]


class Signed(Struct, frozen=True, forbid_unknown_fields=True):
    """The reason, and the person for whom the caller acts, if any."""

    reason: Why
    for_: str | None = field(default=None, name="for")


class LimitRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """`rate`: calls for the whole ledger, such as `50/s`. `concurrency`: calls at a time in each
    process, or at each worker of a remote stage. A field that is not given stays as it is."""

    reason: Why
    rate: str | float | None = None
    concurrency: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    for_: str | None = field(default=None, name="for")


class PauseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """`until`: when the pause ends by itself, a time such as `2027-01-31T18:00:00Z`, or a span from
    now such as `2h`. `drain`: the rate at which the items that have waited are worked on
    afterwards, such as `10/s`."""

    reason: Why
    until: str | None = None
    drain: str | float | None = None
    for_: str | None = field(default=None, name="for")


class Resumption(Struct, frozen=True, forbid_unknown_fields=True):
    """Why, and for whom; `drain` is the rate at which the items that have waited are worked on, if
    not the one that the pause has."""

    reason: Why
    drain: str | None = None
    for_: str | None = field(default=None, name="for")


class Holds(Struct, frozen=True):
    holds: list[Paused]


class LimitsAnswer(Struct, frozen=True):
    limits: list[Limited]


@endpoint("GET", HOLDS, scope="read", summary="Pauses in force")
def holds(state: ServerState, call: Call) -> Holds:
    """The pauses in force in a route: of all of it, of stages, of lanes. A scope is `route`,
    `route/stage` or `route/stage/lane`."""
    return Holds(
        [
            paused_view(name, hold)
            for name, hold in in_route(state.ctx, state.plan(call).name, HOLD, Hold)
        ]
    )


@endpoint_at_each("PUT", PAUSES, scope="operate", body=PauseRequest)
def pause(state: ServerState, call: Call) -> Paused:
    route, stage, lane = _place(state, call)
    body: PauseRequest = call.body
    by = named(call, body.for_)
    hold = controls.pause(
        state.ctx, route, stage, lane, by=by, reason=body.reason, until=body.until, drain=body.drain
    )
    return paused_view(
        scope(route, stage, lane), hold, count_waiting(state.ctx, route, stage, lane)
    )


@endpoint_at_each("DELETE", RESUMPTIONS, scope="operate", query=Resumption)
def resume(state: ServerState, call: Call) -> Resumed:
    route, stage, lane = _place(state, call)
    asked: Resumption = call.query
    done = controls.resume(
        state.ctx,
        route,
        stage,
        lane,
        by=named(call, asked.for_),
        reason=asked.reason,
        drain=asked.drain,
    )
    return resumed_view(state.ctx, scope(route, stage, lane), done)


@endpoint("GET", LIMITS, scope="read", summary="Limits set while running")
def limits(state: ServerState, call: Call) -> LimitsAnswer:
    """Limits set by operators; they take precedence over the route file's. Scopes that are not
    listed have the limits of the route file."""
    return LimitsAnswer(
        [
            limited_view(name, limit)
            for name, limit in in_route(state.ctx, state.plan(call).name, LIMIT, Limit)
        ]
    )


@endpoint_at_each("PUT", LIMIT_CHANGES, scope="operate", body=LimitRequest)
def limit(state: ServerState, call: Call) -> Limited:
    route, stage, lane = _place(state, call)
    body: LimitRequest = call.body
    by = named(call, body.for_)
    now = controls.limit(
        state.ctx,
        route,
        stage or "",
        lane,
        rate=body.rate,
        concurrency=body.concurrency,
        by=by,
        reason=body.reason,
    )
    return limited_view(scope(route, stage, lane), now)


@endpoint_at_each("DELETE", LIMIT_REMOVALS, scope="operate", query=Signed)
def clear(state: ServerState, call: Call) -> Limited:
    route, stage, lane = _place(state, call)
    controls.limit(
        state.ctx,
        route,
        stage or "",
        lane,
        clear=True,
        by=named(call, call.query.for_),
        reason=call.query.reason,
    )
    return limited_view(scope(route, stage, lane), None)


def _place(state: ServerState, call: Call) -> tuple[str, str | None, str | None]:
    """The route, stage and lane that the URL names."""
    if "stage" not in call.path:
        return state.plan(call).name, None, None
    plan, stage = state.stage(call)
    return plan.name, stage.name, call.path.get("lane")
