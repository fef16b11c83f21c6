"""The overview: every route as a funnel, and who is at work."""

from __future__ import annotations

from milepost.http.calls import Answer, Call, Endpoints
from milepost.http.dashboard import seeing
from milepost.http.dashboard.rendering import page, seen_routes
from milepost.http.desk import Desk

ENDPOINTS = Endpoints(pages=True)


@ENDPOINTS.add("GET", "/", scope="read", summary="The overview")
def overview(desk: Desk, call: Call) -> Answer:
    routes = seeing.home(desk.ctx, seen_routes(desk, call))
    return Answer(page(desk, call, "home.html", here="/", routes=routes, health=seeing.health(desk.ctx)))
