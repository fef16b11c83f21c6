"""Overview page: health, and every route as a funnel."""

from __future__ import annotations

from milepost.engine.views.snapshot import snapshots
from milepost.http.dashboard.health import health
from milepost.http.dashboard.overview_data import home, worth_seeing
from milepost.http.dashboard.render import page, seen_routes
from milepost.http.protocol.endpoint import Answer, Call, Endpoints
from milepost.http.state.state import ServerState

ENDPOINTS = Endpoints(pages=True)


@ENDPOINTS.add("GET", "/", scope="read", summary="The overview")
def overview(state: ServerState, call: Call) -> Answer:
    found = snapshots(state.ctx)
    seen = [found[name] for name in seen_routes(state, call) if name in found and worth_seeing(state.ctx, found[name])]
    well = health(state.ctx, seen, all_seen=call.caller.routes is None, ttl_cache=state.ttl_cache)
    return page(state, call, "home.html", here="/", routes=home(state.ctx, seen, state.samples), health=well)
