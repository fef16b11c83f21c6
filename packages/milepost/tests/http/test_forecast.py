"""The forecast at every door: overview, list page, API and command line say the same, and promise
only what moves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.http.guarded_server import GuardedServer, guarded_server
from tests.http.page_text import text_of
from tests.http.servers_on_ledgers import new_aws_ledger, server_over

import milepost as mp
from milepost.engine.acts.controls import pause, resume
from milepost.engine.resend import Resender
from milepost_testing import VirtualClock

SIGNED = {"by": "ops", "reason": "the partner moves"}
FORECAST = "/api/v1/routes/orders/forecast"


def orders() -> mp.Route:
    """Every second item is looked at again in 55 minutes; those of lane `bad` fail."""
    route = mp.Route("orders", key="id")

    @route.stage(
        "ship",
        checks=mp.Checks(every="55m", up_to="55m"),
        lane=lambda content: content.get("lane", ""),
    )
    def ship(item: mp.Item) -> mp.Outcome:
        if item.input.get("lane") == "bad":
            return mp.Reject("no such street")
        return mp.NotYet(after=3300, note="not delivered") if int(item.key) % 2 else mp.Done()

    return route


@pytest.fixture
def at(tmp_path: Path, clock: VirtualClock) -> Iterator[GuardedServer]:
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db", [orders()], clock) as opened:
        yield opened


def submit(at: GuardedServer, first: int, n: int, **content: Any) -> None:
    at.milepost.submit(
        "orders", *({"id": str(number), **content} for number in range(first, first + n))
    )


def seen(at: GuardedServer, path: str = "/") -> str:
    return text_of(at.call("GET", path))


def test_items_that_wait_for_their_next_check_are_not_promised(
    at: GuardedServer, clock: VirtualClock
) -> None:
    resender = Resender(at.ctx)
    resender.run_once()
    submit(at, 0, 600)
    clock.advance("30s")
    resender.run_once()
    at.work()
    clock.advance("3m")
    resender.run_once()
    answer = at.call("GET", FORECAST).body
    assert (answer["moving"], answer["waiting"], answer["completed_at"]) == (0, 300, None)
    assert (
        answer["text"]
        == "300 wait at ship for a date, none before 2033-11-14 23:08 UTC. Nothing else is in progress."
    )
    assert (
        "300 wait at ship for a date, none before 2033-11-14T23:08:50.000Z . Nothing else is in progress."
        in seen(at)
    )
    [stage] = answer["stages"]
    assert stage["waiting"] == [
        {"for": "date", "n": 300, "lanes": [], "none_before": "2033-11-14T23:08:50.000Z"}
    ]


def test_what_moves_is_forecast_at_the_pace_of_completions_and_what_is_paused_is_named(
    at: GuardedServer, clock: VirtualClock
) -> None:
    resender = Resender(at.ctx)
    submit(at, 0, 100, lane="north")
    submit(at, 1000, 40, lane="bad")
    pause(at.ctx, "orders", "ship", "north", **SIGNED)
    at.work()
    resender.run_once()
    for start in range(2000, 2100, 20):
        clock.advance("1m")
        at.milepost.submit(
            "orders", *({"id": str(number)} for number in range(start, start + 20, 2))
        )
        submit(at, 1000 + start, 20, lane="bad")
        at.work()
        resender.run_once()
    assert "Nothing else is in progress." in at.call("GET", FORECAST).body["text"]
    at.milepost.submit("orders", *({"id": str(number)} for number in range(5000, 5060, 2)))
    answer = at.call("GET", FORECAST).body
    assert answer["text"] == (
        "100 wait in lane north of ship, which is paused. 30 move. At the pace of the last 5 min (ship: 600 an hour) they are completed in"
        " about 3 min, at about 2033-11-14 22:22 UTC."
    )
    assert answer["completed_at"] == "2033-11-14T22:22:00.000Z"
    assert (
        "100 wait in lane north of ship, which is paused. 30 move. At the pace of the last 5 min (ship: 600 an hour)"
        in seen(at)
    )
    lane = at.call("GET", f"{FORECAST}?stage=ship&lane=north").body
    assert (
        lane["text"]
        == "100 wait in lane north of ship, which is paused. Nothing else is in progress."
    )
    resume(at.ctx, "orders", "ship", "north", **SIGNED)
    assert (
        "100 move. At the pace" in at.call("GET", f"{FORECAST}?stage=ship&lane=north").body["text"]
    )
    assert "in about 13 min" in at.call("GET", f"{FORECAST}?stage=ship&lane=north").body["text"], (
        "130 need their turn"
    )


def test_a_list_says_what_became_of_its_items(at: GuardedServer, clock: VirtualClock) -> None:
    body = (
        "".join(f'{{"id": "{number}"}}\n' for number in range(10)) + '{"id": "99", "lane": "bad"}\n'
    )
    answer = at.call(
        "POST",
        "/api/v1/routes/orders/items?name=march.jsonl",
        body.encode(),
        headers={"Content-Type": "application/x-ndjson"},
    )
    submit(at, 100, 50)
    at.work()
    found = at.call("GET", f"{FORECAST}?list=march.jsonl").body
    assert found["list"] == {"completed": 5, "failed": 1, "cancelled": 0, "in_progress": 5}
    assert found["text"].startswith(
        "5 wait at ship for a date, none before 2033-11-14 23:08 UTC. Nothing else is in progress."
    )
    page = seen(at, f"/lists/{answer.body['id']}")
    for words in (
        "those in progress: 5",
        "those that failed: 1",
        "those that completed: 5",
        "5 wait at ship for a date",
    ):
        assert words in page


def test_a_forecast_of_an_unknown_stage_lane_or_list_is_a_problem(at: GuardedServer) -> None:
    for question, field in (
        ("stage=nowhere", "stage"),
        ("lane=north", "lane"),
        ("list=april", "list"),
    ):
        answer = at.call("GET", f"{FORECAST}?{question}")
        assert (answer.status, answer.body["code"], answer.body["field"]) == (
            400,
            "wrong-value",
            field,
        )


def test_on_aws_the_route_has_a_forecast_from_the_counters_and_lanes_have_none(
    clock: VirtualClock,
) -> None:
    with new_aws_ledger() as ledger, server_over(ledger, orders(), clock) as at:
        at.milepost.submit("orders", {"id": "2"})
        assert at.call("GET", FORECAST).status == 200
        lane = at.call("GET", f"{FORECAST}?stage=ship&lane=north")
        assert (lane.status, lane.body["code"]) == (501, "lacking")


def test_python_says_the_same_as_the_api(at: GuardedServer) -> None:
    submit(at, 0, 3)
    at.work()
    view = at.milepost.forecast("orders")
    assert view is not None
    answer = at.call("GET", FORECAST).body
    assert (view["text"], view["stages"]) == (answer["text"], answer["stages"])
    assert json.dumps(view)
