"""The content of an item is removed over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.http.live_server import LiveServer, running_server, sample_route

FORGET = "/api/v1/routes/parcels/forget"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with running_server(tmp_path, sample_route()) as visitor:
        visitor.milepost.submit("parcels", {"id": "Jane-Roe", "weigh": "reject"}, {"id": "P-2"})
        visitor.milepost.run(until_idle=True)
        yield visitor


def test_an_ended_item_is_forgotten(server: LiveServer) -> None:
    asked = {"key": "Jane-Roe", "reason": "asked by letter", "for": "ops"}
    preview = server.call("POST", FORGET, {"key": "Jane-Roe", "dry_run": True}).body
    assert (preview["dry_run"], preview["lines"], preview["status"]) == (True, 2, "REJECTED")
    done = server.call("POST", FORGET, asked).body
    assert (done["lines"], done["before"]) == (2, False)
    assert done["name"].startswith("forgotten:")
    assert "what partners and subscribers were given" in done["stays"]
    shown = server.call("GET", "/api/v1/routes/parcels/items/Jane-Roe").body
    assert (shown["sealed"], shown["forgotten"], shown["input"]) == (True, True, None)
    assert server.call("POST", FORGET, asked).body["before"] is True


def test_what_cannot_be_forgotten_is_a_problem(server: LiveServer) -> None:
    live = server.call("POST", FORGET, {"key": "P-2", "reason": "asked", "for": "ops"})
    assert (live.status, live.body["code"]) == (409, "refused")
    unknown = server.call("POST", FORGET, {"key": "P-9", "reason": "asked", "for": "ops"})
    assert (unknown.status, unknown.body["code"]) == (404, "not-found")
    assert server.call("POST", FORGET, {"key": "Jane-Roe", "for": "ops"}).status == 400
