"""The overview: is all well, and every route as a funnel."""

from __future__ import annotations

from milepost.engine.views.snapshot import snapshots
from milepost.http.dashboard.health import health
from milepost.http.dashboard.overview_data import home, worth_seeing
from milepost.http.dashboard.render import page, seen_routes
from milepost.http.protocol.endpoint import Answer, Call, Endpoints
from milepost.http.state.state import ServerState

ENDPOINTS = Endpoints(pages=True)


@ENDPOINTS.add("GET", "/", scope="read", summary="The overview")
def overview(desk: ServerState, call: Call) -> Answer:
    found = snapshots(desk.ctx)
    seen = [found[name] for name in seen_routes(desk, call) if name in found and worth_seeing(desk.ctx, found[name])]
    well = health(desk.ctx, seen, all_seen=call.caller.routes is None, seldom=desk.seldom)
    return Answer(page(desk, call, "home.html", here="/", routes=home(desk.ctx, seen, desk.samples), health=well))
