"""/metrics: the exposition format, and correct figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.http.api.exposition_reader import Exposition
from tests.http.guarded_server import guarded_server
from tests.http.live_server import LiveServer

ITEMS = "/api/v1/routes/parcels/items"


def read(live_server: LiveServer, key: str | None = None) -> Exposition:
    answer = live_server.call("GET", "/metrics", key=key)
    assert (answer.status, answer.headers["content-type"]) == (
        200,
        "text/plain; version=0.0.4; charset=utf-8",
    )
    return Exposition(answer.raw.decode())


def test_the_figures_are_those_of_what_happened(live_server: LiveServer) -> None:
    for body in (
        {"id": "a"},
        {"id": "a"},
        {"id": "a", "other": 1},
        {"id": "b", "weigh": "reject"},
        {"none": 1},
    ):
        live_server.call("POST", ITEMS, body)
    live_server.call("GET", "/no/such/thing")
    live_server.call("GET", "/api/v1/routes/nowhere/items/a")
    live_server.work()
    found = read(live_server)
    place = {"route": "parcels", "stage": "weigh"}
    for answer in ("new", "known", "changed", "malformed"):
        assert found.value("milepost_submits_total", route="parcels", answer=answer) == (
            2 if answer == "new" else 1
        )
    assert found.value("milepost_items", route="parcels", stage="deliver", status="QUEUED") == 1
    assert found.value("milepost_items", status="REJECTED", **place) == 1
    assert found.value("milepost_items", route="letters", stage="weigh", status="QUEUED") == 0
    assert found.value("milepost_claims_total", **place) == 2
    assert found.value("milepost_attempts_total", outcome="done", **place) == 1
    assert found.value("milepost_attempts_total", outcome="reject", **place) == 1
    assert found.value("milepost_attempt_duration_seconds_count", **place) == 2
    assert found.value("milepost_stage_duration_seconds_count", **place) == 1
    assert found.value("milepost_outcomes_total", result="written") == 2
    assert found.value("milepost_lines_total") == live_server.ctx.ledger.last_seq() == 4
    requests = {"method": "POST", "path": "/api/v1/routes/{route}/items"}
    for status, n in (("201", 2), ("200", 1), ("409", 1), ("422", 1)):
        assert found.value("milepost_http_requests_total", status=status, **requests) == n
    assert (
        found.value("milepost_http_requests_total", method="other", path="other", status="404") == 1
    )
    assert found.value("milepost_http_request_duration_seconds_count", **requests) == 5
    assert found.value("milepost_role_last_run_seconds", role="resender") >= 0
    assert (
        found.value(
            "milepost_build_info",
            version="0.1.0",
            python=dict(next(iter(found.samples["milepost_build_info"])))["python"],
        )
        == 1
    )


def test_keys_and_routes_that_nobody_knows_make_no_labels(live_server: LiveServer) -> None:
    before = len(live_server.call("GET", "/metrics").raw.splitlines())
    for number in range(20):
        live_server.call("GET", f"/api/v1/routes/route-{number}/items/key-{number}")
        live_server.call("GET", f"/path-{number}")
    raw = live_server.call("GET", "/metrics").raw
    assert b"route-1" not in raw
    assert b"key-1" not in raw
    assert b"path-1" not in raw
    # One path that was not called before, one that there is not, and this one itself, in two
    # families each.
    assert len(raw.splitlines()) - before <= 3 * (1 + 12) + 6


def test_openmetrics_is_given_to_those_who_ask_for_it(live_server: LiveServer) -> None:
    live_server.call("POST", ITEMS, {"id": "a"})
    answer = live_server.call(
        "GET",
        "/metrics",
        headers={"Accept": "application/openmetrics-text; version=1.0.0, text/plain;q=0.5"},
    )
    assert (
        answer.headers["content-type"]
        == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    )
    found = Exposition(answer.raw.decode(), openmetrics=True)
    assert found.kinds["milepost_submits"] == "counter"
    assert found.value("milepost_submits_total", route="parcels", answer="new") == 1


def test_a_key_for_one_route_sees_figures_of_that_route_only(tmp_path: Path) -> None:
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db") as live_server:
        live_server.milepost.submit("parcels", {"id": "a"})
        live_server.milepost.submit("letters", {"id": "b"})
        limited, whole = (
            live_server.key("read", name="one", routes=["letters"]),
            live_server.key("read", name="all"),
        )
        found = read(live_server, limited)
        assert found.value("milepost_items", route="letters", stage="weigh", status="QUEUED") == 1
        assert {
            dict(labels)["route"] for series in found.samples.values() for labels in series
        } == {"letters"}
        assert (
            read(live_server, whole).value(
                "milepost_items", route="parcels", stage="weigh", status="QUEUED"
            )
            == 1
        )
        assert (
            live_server.call("GET", "/metrics", key=live_server.key("submit", name="other")).status
            == 403
        )


def test_looking_often_asks_the_ledger_once(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_server.opened.state.gauges._cache, "_ticks", lambda: 1.0)
    assert (
        read(live_server).value("milepost_items", route="parcels", stage="weigh", status="QUEUED")
        == 0
    )
    live_server.call("POST", ITEMS, {"id": "a"})
    found = read(live_server)
    # What the process itself counts is always fresh.
    assert found.value("milepost_items", route="parcels", stage="weigh", status="QUEUED") == 0
    assert found.value("milepost_submits_total", route="parcels", answer="new") == 1
    monkeypatch.setattr(live_server.opened.state.gauges._cache, "_ticks", lambda: 2.0)
    assert (
        read(live_server).value("milepost_items", route="parcels", stage="weigh", status="QUEUED")
        == 1
    )


def test_figures_of_a_ledger_on_aws(aws_server: LiveServer) -> None:
    aws_server.milepost.submit("parcels", {"id": "a"})
    aws_server.work()
    found = read(aws_server)
    assert (
        found.value("milepost_attempts_total", route="parcels", stage="weigh", outcome="done") == 1
    )
    assert found.value("milepost_items", route="parcels", stage="deliver", status="QUEUED") in (
        0,
        1,
    )
