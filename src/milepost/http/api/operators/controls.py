"""Controls over HTTP: pauses of a route, a stage or a lane, and limits of a stage or a lane."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from milepost.core.admission.controls import Hold, Limit, scope
from milepost.engine.acts import controls
from milepost.engine.acts.controls import Limited, Paused, Resumed, limited_view, paused_view, resumed_view
from milepost.engine.views.lanes import in_route
from milepost.http.auth.author import named
from milepost.http.protocol.endpoint import Answer, Call, Endpoints
from milepost.http.state.state import ServerState
from milepost.ports.documents import HOLD, LIMIT

ENDPOINTS = Endpoints()
HOLDS, LIMITS = "/api/v1/routes/{route}/holds", "/api/v1/routes/{route}/limits"
HOLD_STAGE, HOLD_LANE = f"{HOLDS}/{{stage}}", f"{HOLDS}/{{stage}}/{{lane:path}}"
LIMIT_STAGE, LIMIT_LANE = f"{LIMITS}/{{stage}}", f"{LIMITS}/{{stage}}/{{lane:path}}"

Why = Annotated[str, Meta(min_length=1, max_length=1000, pattern=r"\S")]


class Signed(Struct, frozen=True, forbid_unknown_fields=True):
    """The reason, and the person for whom the caller acts, if any."""

    reason: Why
    for_: str | None = field(default=None, name="for")


class LimitRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """`rate`: calls for the whole ledger, such as `50/s`. `concurrency`: calls at a time in each process, or at each worker of a remote
    stage. A field that is not given stays as it is."""

    reason: Why
    rate: str | float | None = None
    concurrency: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    for_: str | None = field(default=None, name="for")


class PauseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """`until`: when the pause ends by itself, a time such as `2027-01-31T18:00:00Z`, or a span from now such as `2h`. `drain`: the rate at
    which the items that have waited are worked on afterwards, such as `10/s`."""

    reason: Why
    until: str | None = None
    drain: str | float | None = None
    for_: str | None = field(default=None, name="for")


class Resumption(Struct, frozen=True, forbid_unknown_fields=True):
    """Why, and for whom; `drain` is the rate at which the items that have waited are worked on, if not the one that the pause has."""

    reason: Why
    drain: str | None = None
    for_: str | None = field(default=None, name="for")


class Holds(Struct, frozen=True):
    holds: list[Paused]


class LimitsAnswer(Struct, frozen=True):
    limits: list[Limited]


@ENDPOINTS.add("GET", HOLDS, scope="read", answers={200: Holds}, summary="Pauses in force")
def holds(state: ServerState, call: Call) -> Answer:
    """The pauses in force in a route: of all of it, of stages, of lanes. A scope is `route`, `route/stage` or `route/stage/lane`."""
    return Answer(Holds([paused_view(name, hold) for name, hold in in_route(state.ctx, state.plan(call).name, HOLD, Hold)]))


@ENDPOINTS.add("PUT", HOLDS, scope="operate", body=PauseRequest, answers={200: Paused}, summary="Pause a route")
def pause_route(state: ServerState, call: Call) -> Answer:
    """No item of the route is claimed or sent again until the route is resumed, and no attempt is counted. Items that are being processed
    are finished. A pause that is already in force stays as it is, with its name and reason, unless `until` or `drain` is given."""
    return _pause(state, call)


@ENDPOINTS.add("PUT", HOLD_STAGE, scope="operate", body=PauseRequest, answers={200: Paused}, summary="Pause a stage")
def pause_stage(state: ServerState, call: Call) -> Answer:
    """As for a route. At an external stage nothing is sent again; an item that arrives is still offered once, and confirmations count."""
    return _pause(state, call)


@ENDPOINTS.add("PUT", HOLD_LANE, scope="operate", body=PauseRequest, answers={200: Paused}, summary="Pause a lane")
def pause_lane(state: ServerState, call: Call) -> Answer:
    """As for a stage; its other lanes continue."""
    return _pause(state, call)


@ENDPOINTS.add("DELETE", HOLDS, scope="operate", query=Resumption, answers={200: Resumed}, summary="Resume a route")
def resume_route(state: ServerState, call: Call) -> Answer:
    """Lift the pause of the route; those of its stages and lanes stay."""
    return _resume(state, call)


@ENDPOINTS.add("DELETE", HOLD_STAGE, scope="operate", query=Resumption, answers={200: Resumed}, summary="Resume a stage")
def resume_stage(state: ServerState, call: Call) -> Answer:
    """Lift the pause of the stage, and no other."""
    return _resume(state, call)


@ENDPOINTS.add("DELETE", HOLD_LANE, scope="operate", query=Resumption, answers={200: Resumed}, summary="Resume a lane")
def resume_lane(state: ServerState, call: Call) -> Answer:
    """Lift the pause of the lane, and no other."""
    return _resume(state, call)


@ENDPOINTS.add("GET", LIMITS, scope="read", answers={200: LimitsAnswer}, summary="Limits set while running")
def limits(state: ServerState, call: Call) -> Answer:
    """Limits set by operators; they take precedence over the route file's. Scopes that are not listed have the limits of the route file."""
    return Answer(LimitsAnswer([limited_view(name, limit) for name, limit in in_route(state.ctx, state.plan(call).name, LIMIT, Limit)]))


@ENDPOINTS.add("PUT", LIMIT_STAGE, scope="operate", body=LimitRequest, answers={200: Limited}, summary="Limit a stage")
def limit_stage(state: ServerState, call: Call) -> Answer:
    """Set the limits of the stage; every process applies them within five seconds."""
    return _limit(state, call)


@ENDPOINTS.add("PUT", LIMIT_LANE, scope="operate", body=LimitRequest, answers={200: Limited}, summary="Limit a lane")
def limit_lane(state: ServerState, call: Call) -> Answer:
    """Set the limits of the lane, in addition to those of its stage."""
    return _limit(state, call)


@ENDPOINTS.add("DELETE", LIMIT_STAGE, scope="operate", query=Signed, answers={200: Limited}, summary="Remove the limits of a stage")
def clear_stage(state: ServerState, call: Call) -> Answer:
    """The route file's limits apply again."""
    return _clear(state, call)


@ENDPOINTS.add("DELETE", LIMIT_LANE, scope="operate", query=Signed, answers={200: Limited}, summary="Remove the limits of a lane")
def clear_lane(state: ServerState, call: Call) -> Answer:
    """The route file's limits apply again."""
    return _clear(state, call)


def _pause(state: ServerState, call: Call) -> Answer:
    route, stage, lane = _place(state, call)
    body: PauseRequest = call.body
    by = named(call, body.for_)
    hold = controls.pause(state.ctx, route, stage, lane, by=by, reason=body.reason, until=body.until, drain=body.drain)
    return Answer(paused_view(scope(route, stage, lane), hold))


def _resume(state: ServerState, call: Call) -> Answer:
    route, stage, lane = _place(state, call)
    asked: Resumption = call.query
    done = controls.resume(state.ctx, route, stage, lane, by=named(call, asked.for_), reason=asked.reason, drain=asked.drain)
    return Answer(resumed_view(state.ctx, scope(route, stage, lane), done))


def _limit(state: ServerState, call: Call) -> Answer:
    route, stage, lane = _place(state, call)
    body: LimitRequest = call.body
    by = named(call, body.for_)
    now = controls.limit(state.ctx, route, stage or "", lane, rate=body.rate, concurrency=body.concurrency, by=by, reason=body.reason)
    return Answer(limited_view(scope(route, stage, lane), now))


def _clear(state: ServerState, call: Call) -> Answer:
    route, stage, lane = _place(state, call)
    controls.limit(state.ctx, route, stage or "", lane, clear=True, by=named(call, call.query.for_), reason=call.query.reason)
    return Answer(limited_view(scope(route, stage, lane), None))


def _place(state: ServerState, call: Call) -> tuple[str, str | None, str | None]:
    """The route, stage and lane that the URL names."""
    if "stage" not in call.path:
        return state.plan(call).name, None, None
    plan, stage = state.stage(call)
    return plan.name, stage.name, call.path.get("lane")
