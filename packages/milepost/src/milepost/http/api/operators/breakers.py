"""Circuit breakers over HTTP: list the open ones, and close them."""

from __future__ import annotations

from msgspec import Struct

from milepost.engine.acts.controls import close_breakers
from milepost.engine.breakers import BreakerView, breaker_views
from milepost.http.api.operators.controls import Signed
from milepost.http.auth.author import named
from milepost.http.protocol.endpoint import Call, endpoint, endpoint_at_each
from milepost.http.state.state import ServerState

BREAKERS = "/api/v1/routes/{route}/breakers"
CLOSINGS = {
    "close_stage": (
        f"{BREAKERS}/{{stage}}",
        "Close the breakers of a stage",
        "The items of all its lanes can be claimed again at once. A breaker opens again if tries still fail.",
    ),
    "close_lane": (
        f"{BREAKERS}/{{stage}}/{{lane:path}}",
        "Close the breaker of a lane",
        "As for a stage; the breakers of its other lanes stay as they are.",
    ),
}


class OpenBreakers(Struct, frozen=True):
    breakers: list[BreakerView]


class ClosedBreakers(Struct, frozen=True):
    """The scopes of the breakers that were closed; empty if none was open."""

    closed: list[str]


@endpoint("GET", BREAKERS, scope="read", summary="Breakers that are open")
def breakers(state: ServerState, call: Call) -> OpenBreakers:
    """The breakers of a route that are open or half-open, one for each lane. A breaker that is
    closed is not listed."""
    return OpenBreakers(breaker_views(state.ctx, state.plan(call).name))


@endpoint_at_each("DELETE", CLOSINGS, scope="operate", query=Signed)
def close(state: ServerState, call: Call) -> ClosedBreakers:
    plan, stage = state.stage(call)
    closed = close_breakers(
        state.ctx,
        plan.name,
        stage.name,
        call.path.get("lane"),
        by=named(call, call.query.for_),
        reason=call.query.reason,
    )
    return ClosedBreakers(closed)
