"""What the pages are made of: style sheets, scripts and the icon."""

from __future__ import annotations

from milepost.http.calls import Answer, Call, Endpoints
from milepost.http.dashboard.rendering import static
from milepost.http.desk import Desk
from milepost.http.problems import trouble

ENDPOINTS = Endpoints(pages=True)


@ENDPOINTS.add("GET", "/static/{name}", scope=None, summary="What the pages are made of")
def file(desk: Desk, call: Call) -> Answer:
    found = static(call.path["name"])
    if found is None:
        raise trouble("unknown-path", f"there is no file {call.path['name']!r}")
    return Answer(found)
