"""What happened last, and who has been told of it."""

from __future__ import annotations

from milepost.core.durations import iso
from milepost.http.calls import Answer, Call, Endpoints
from milepost.http.dashboard import seeing
from milepost.http.dashboard.rendering import page, seen_routes
from milepost.http.desk import Desk

ENDPOINTS = Endpoints(pages=True)
LATEST = 60


@ENDPOINTS.add("GET", "/events", scope="read", summary="What happened last, and who has been told")
def events(desk: Desk, call: Call) -> Answer:
    routes = set(seen_routes(desk, call))
    latest = desk.ctx.ledger.feed(max(0, desk.ctx.ledger.last_seq() - LATEST), LATEST)
    shown = [
        {"at": iso(one.line.at), "route": one.route, "key": one.key, "kind": one.line.reason.value, "stage": one.line.stage}
        for one in reversed(latest)
        if one.route in routes
    ]
    return Answer(page(desk, call, "events.html", here="/events", subscribers=seeing.health(desk.ctx)["subscribers"], events=shown))
