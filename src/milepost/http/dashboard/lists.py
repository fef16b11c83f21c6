"""Lists: handing one over, and those that were."""

from __future__ import annotations

from milepost.engine.observe import list_view, lists
from milepost.http.calls import Answer, Call, Endpoints
from milepost.http.dashboard.rendering import page, seen_routes
from milepost.http.desk import Desk

ENDPOINTS = Endpoints(pages=True)
SHOWN = 100


@ENDPOINTS.add("GET", "/lists", scope="read", summary="Lists that were handed over")
def all_lists(desk: Desk, call: Call) -> Answer:
    routes = seen_routes(desk, call)
    found = [list_view(record) for record in reversed(lists(desk.ctx)) if record.route in routes]
    return Answer(
        page(desk, call, "lists.html", here="/lists", routes=[route for route in routes if route in desk.ctx.plans], lists=found[:SHOWN])
    )
