"""/metrics: what others can read, to the letter, and with the figures that are true."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.http.api.exposition_reader import Exposition
from tests.http.guarded_server import guarded
from tests.http.live_server import Visitor

ITEMS = "/api/v1/routes/parcels/items"


def read(door: Visitor, key: str | None = None) -> Exposition:
    answer = door.call("GET", "/metrics", key=key)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return Exposition(answer.raw.decode())


def test_the_figures_are_those_of_what_happened(door: Visitor) -> None:
    for body in ({"id": "a"}, {"id": "a"}, {"id": "a", "other": 1}, {"id": "b", "weigh": "reject"}, {"none": 1}):
        door.call("POST", ITEMS, body)
    door.call("GET", "/no/such/thing")
    door.call("GET", "/api/v1/routes/nowhere/items/a")
    door.work()
    found = read(door)
    place = {"route": "parcels", "stage": "weigh"}
    for answer in ("new", "known", "changed", "malformed"):
        assert found.value("milepost_submits_total", route="parcels", answer=answer) == (2 if answer == "new" else 1)
    assert found.value("milepost_items", route="parcels", stage="deliver", status="QUEUED") == 1
    assert found.value("milepost_items", status="REJECTED", **place) == 1
    assert found.value("milepost_items", route="letters", stage="weigh", status="QUEUED") == 0
    assert found.value("milepost_claims_total", **place) == 2
    assert found.value("milepost_attempts_total", outcome="done", **place) == 1
    assert found.value("milepost_attempts_total", outcome="reject", **place) == 1
    assert found.value("milepost_attempt_duration_seconds_count", **place) == 2
    assert found.value("milepost_stage_duration_seconds_count", **place) == 1
    assert found.value("milepost_outcomes_total", result="written") == 2
    assert found.value("milepost_lines_total") == door.ctx.ledger.last_seq() == 4
    requests = {"method": "POST", "path": "/api/v1/routes/{route}/items"}
    for status, n in (("201", 2), ("200", 1), ("409", 1), ("422", 1)):
        assert found.value("milepost_http_requests_total", status=status, **requests) == n
    assert found.value("milepost_http_requests_total", method="other", path="other", status="404") == 1
    assert found.value("milepost_http_request_duration_seconds_count", **requests) == 5
    assert found.value("milepost_role_last_run_seconds", role="resender") >= 0
    assert found.value("milepost_build_info", version="0.1.0", python=dict(next(iter(found.samples["milepost_build_info"])))["python"]) == 1


def test_keys_and_routes_that_nobody_knows_make_no_labels(door: Visitor) -> None:
    before = len(door.call("GET", "/metrics").raw.splitlines())
    for number in range(20):
        door.call("GET", f"/api/v1/routes/route-{number}/items/key-{number}")
        door.call("GET", f"/path-{number}")
    raw = door.call("GET", "/metrics").raw
    assert b"route-1" not in raw
    assert b"key-1" not in raw
    assert b"path-1" not in raw
    # One path that was not called before, one that there is not, and this one itself, in two families each.
    assert len(raw.splitlines()) - before <= 3 * (1 + 12) + 6


def test_openmetrics_is_given_to_those_who_ask_for_it(door: Visitor) -> None:
    door.call("POST", ITEMS, {"id": "a"})
    answer = door.call("GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0, text/plain;q=0.5"})
    assert answer.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    found = Exposition(answer.raw.decode(), openmetrics=True)
    assert found.kinds["milepost_submits"] == "counter"
    assert found.value("milepost_submits_total", route="parcels", answer="new") == 1


def test_a_key_for_one_route_sees_figures_of_that_route_only(tmp_path: Path) -> None:
    with guarded(f"sqlite:///{tmp_path}/ledger.db") as door:
        door.milepost.submit("parcels", {"id": "a"})
        door.milepost.submit("letters", {"id": "b"})
        limited, whole = door.key("read", name="one", routes=["letters"]), door.key("read", name="all")
        found = read(door, limited)
        assert found.value("milepost_items", route="letters", stage="weigh", status="QUEUED") == 1
        assert {dict(labels)["route"] for series in found.samples.values() for labels in series} == {"letters"}
        assert read(door, whole).value("milepost_items", route="parcels", stage="weigh", status="QUEUED") == 1
        assert door.call("GET", "/metrics", key=door.key("submit", name="other")).status == 403


def test_looking_often_asks_the_ledger_once(door: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door.door.state.observability.gauges, "_monotonic", lambda: 1.0)
    assert read(door).value("milepost_items", route="parcels", stage="weigh", status="QUEUED") == 0
    door.call("POST", ITEMS, {"id": "a"})
    found = read(door)
    # What the process itself counts is always fresh.
    assert found.value("milepost_items", route="parcels", stage="weigh", status="QUEUED") == 0
    assert found.value("milepost_submits_total", route="parcels", answer="new") == 1
    monkeypatch.setattr(door.door.state.observability.gauges, "_monotonic", lambda: 2.0)
    assert read(door).value("milepost_items", route="parcels", stage="weigh", status="QUEUED") == 1


def test_figures_of_a_ledger_on_aws(aws_door: Visitor) -> None:
    aws_door.milepost.submit("parcels", {"id": "a"})
    aws_door.work()
    found = read(aws_door)
    assert found.value("milepost_attempts_total", route="parcels", stage="weigh", outcome="done") == 1
    assert found.value("milepost_items", route="parcels", stage="deliver", status="QUEUED") in (0, 1)
