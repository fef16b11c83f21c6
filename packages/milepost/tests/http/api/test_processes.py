"""Processes, health and error groups over HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.http.guarded_server import GuardedServer, guarded_server
from tests.http.live_server import LiveServer

from milepost.engine.acts.controls import pause
from milepost.ports.documents import PROCESS, Process
from milepost_testing.clock import VirtualClock

PROCESSES, DOCTOR = "/api/v1/processes", "/api/v1/doctor"


@pytest.fixture
def at(tmp_path: Path, clock: VirtualClock) -> Iterator[GuardedServer]:
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db", clock=clock) as opened:
        yield opened


def heard_of(at: GuardedServer, holder: str, **facts: Any) -> None:
    now = at.ctx.clock.now()
    sheet = Process(holder, "depot", 7, now - 60_000, facts.pop("seen_at", now), **facts)
    at.ctx.ledger.write(PROCESS, holder, msgspec.to_builtins(sheet))


def test_processes_are_told_apart_by_whether_they_are_at_work_have_stopped_or_are_silent(
    at: GuardedServer, clock: VirtualClock
) -> None:
    now = clock.now()
    heard_of(at, "at-work", roles={"worker": now, "resender": now - 5_000}, in_hand=3)
    heard_of(at, "stopped", seen_at=now - 2_000, stopped=True)
    heard_of(
        at,
        "silent",
        seen_at=now - 30_000,
        roles={"resender": now - 30_000, "relay-log": now - 31_000},
    )
    found = at.call("GET", PROCESSES).body
    shown = [
        (one["holder"], one["alive"], one["stopped"], one["in_hand"]) for one in found["processes"]
    ]
    assert shown == [
        ("at-work", True, False, 3),
        ("stopped", False, True, 0),
        ("silent", False, False, 0),
    ]
    first = found["processes"][0]
    assert (
        first["host"],
        first["pid"],
        first["started_at"] < first["seen_at"],
        sorted(first["roles"]),
    ) == (
        "depot",
        7,
        True,
        ["resender", "worker"],
    )
    assert [(role["role"], role["holder"]) for role in found["roles"]] == [
        ("relay-log", "silent"),
        ("resender", "at-work"),
        ("worker", "at-work"),
    ]
    assert found["roles"][2]["at"] == first["roles"]["worker"]


def test_a_key_for_one_route_sees_what_overruns_and_is_outdated_of_that_route_alone(
    at: GuardedServer,
) -> None:
    slow = [
        {"route": route, "stage": "weigh", "key": f"{route}-1", "seconds": 90}
        for route in ("parcels", "letters")
    ]
    heard_of(at, "one", overrunning=slow, outdated=["letters", "parcels"], in_hand=2)
    [whole] = at.call("GET", PROCESSES).body["processes"]
    assert (whole["overrunning"], whole["outdated"], whole["in_hand"]) == (
        slow,
        ["letters", "parcels"],
        2,
    )
    [part] = at.call("GET", PROCESSES, key=at.key("read", routes=["parcels"])).body["processes"]
    assert (part["overrunning"], part["outdated"], part["in_hand"]) == (slow[:1], ["parcels"], None)


def test_the_doctor_answers_those_who_see_all_routes(at: GuardedServer) -> None:
    pause(at.ctx, "parcels", by="ops", reason="the scale is away")
    found = at.call("GET", DOCTOR).body
    assert (found["level"], found["ledger"]["kind"], found["at"][-1]) == ("warn", "sqlite", "Z")
    # Whoever reads this may be anywhere.
    assert re.search(
        r"paused by .* \(\d{4}-\d\d-\d\dT[\d:.]+Z\): the scale is away", str(found["findings"])
    )
    [paused] = [finding for finding in found["findings"] if finding["about"] == "pause"]
    assert (paused["level"], paused["next"]) == (
        "warn",
        "milepost resume parcels --by YOU --reason '…'",
    )
    refused = at.call("GET", DOCTOR, key=at.key("admin", routes=["parcels"]))
    assert (refused.status, refused.body["code"]) == (403, "not-allowed")


def test_failures_are_counted_by_cause(live_server: LiveServer) -> None:
    live_server.milepost.submit(
        "parcels", *({"id": key, "weigh": "reject"} for key in "ab"), {"id": "c", "weigh": "retry"}
    )
    live_server.work()
    found = live_server.call("GET", "/api/v1/routes/parcels/groups").body["groups"]
    assert [(group["now"], group["sample"]) for group in found] == [
        (2, "too heavy"),
        (1, "the scale is away"),
    ]
    chosen = live_server.call(
        "GET", f"/api/v1/routes/parcels/items?group={found[0]['group']}"
    ).body["items"]
    assert [item["key"] for item in chosen] == ["b", "a"]
    assert live_server.call("GET", "/api/v1/routes/letters/groups").body == {"groups": []}
    assert live_server.call("GET", "/api/v1/routes/nowhere/groups").body["code"] == "unknown-route"
