"""One damaged document stops nothing but what it is about, and doctor names it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.engine.world import ROUTE, World

from milepost.core.admission.controls import Limit
from milepost.engine.act_log import all_acts
from milepost.engine.acts.controls import limit, pause, resume
from milepost.engine.alerts.rule import AlertRule
from milepost.engine.alerts.watch import AlertWatch
from milepost.engine.auth import all_keys
from milepost.engine.events.cursors import delivered
from milepost.engine.events.parked_events import parked_for, release
from milepost.engine.health.doctor import doctor
from milepost.engine.old_documents import ACT_AGE_MS
from milepost.engine.presence import Heartbeat
from milepost.engine.resend import ACTS_MS, Resender
from milepost.engine.views.items import processes
from milepost.ports.documents import (
    ACT,
    ALERT,
    BACK_FILL,
    BREAKER,
    CURSOR,
    HOLD,
    KEY,
    LIMIT,
    LIST,
    PARKED,
    PROCESS,
    PROGRESS,
    Act,
    Cursor,
    Parked,
)
from milepost.ports.documents import ROUTE as ROUTES

DAMAGED = {"at": "no time", "done": "none", "failures": "none"}
"""A value that is no document of any kind."""


def named(world: World) -> list[str]:
    return [finding.what for finding in doctor(world.ctx).findings if finding.about == "documents"]


@pytest.mark.parametrize(
    "kind", [ACT, BACK_FILL, HOLD, LIMIT, PROGRESS, BREAKER, PROCESS, LIST, CURSOR, ALERT]
)
def test_the_resender_goes_on_and_doctor_names_the_document(world: World, kind: str) -> None:
    resender = Resender(world.ctx)
    name = "stages" if kind == PROGRESS else "letters/stamp"
    world.ledger.write(kind, name, DAMAGED)
    world.add("a")
    world.work("weigh")
    world.work("stamp")
    world.ledger.write(ACT, "old", Act("old", "pause", ROUTE, "ops", "test", 1, finished_at=1))
    world.clock.advance(timedelta(milliseconds=ACT_AGE_MS + ACTS_MS + 1))
    assert resender.run_once().resent == 1
    assert world.ledger.read_one(ACT, "old") is None, "its work after the documents is done too"
    assert len(named(world)) == (kind != PROGRESS)
    assert all(f"kind {kind!r} is damaged" in what and name in what for what in named(world))


def test_a_damaged_act_is_left_out_of_the_list_of_acts(world: World) -> None:
    world.ledger.write(ACT, "damaged", DAMAGED)
    pause(world.ctx, ROUTE, by="ops", reason="test")
    assert [act.verb for act in all_acts(world.ctx)] == ["pause"]


def test_a_damaged_pause_holds_until_an_operator_resumes_it(world: World) -> None:
    world.add("a")
    world.ledger.write(HOLD, f"{ROUTE}/weigh", DAMAGED)
    assert world.claim("weigh") == []
    assert resume(world.ctx, ROUTE, "weigh", by="ops", reason="test")
    assert [item.key for item in world.claim("weigh")] == ["a"]
    assert named(world) == []


def test_a_damaged_limit_pauses_what_it_limits_until_it_is_set_anew(world: World) -> None:
    world.add("a")
    world.ledger.write(LIMIT, f"{ROUTE}/weigh", DAMAGED)
    world.ledger.write(LIMIT, f"{ROUTE}/stamp", Limit(concurrency=3))
    assert world.claim("weigh") == []
    limit(world.ctx, ROUTE, "weigh", concurrency=2, by="ops", reason="test")
    assert [item.key for item in world.claim("weigh")] == ["a"]


def test_a_damaged_breaker_and_a_damaged_record_of_another_route_stop_no_claim(
    world: World,
) -> None:
    world.add("a")
    world.ledger.write(BREAKER, f"{ROUTE}/weigh/", DAMAGED)
    world.ledger.write(ROUTES, "letters", DAMAGED)
    assert [item.key for item in world.claim("weigh")] == ["a"]
    assert len(named(world)) == 2


def test_nothing_counts_as_delivered_to_a_subscriber_whose_cursor_is_damaged(world: World) -> None:
    world.add("a")
    world.ledger.write(CURSOR, "log", Cursor(world.ledger.last_seq(), world.clock.now()))
    world.ledger.write(CURSOR, "topic", DAMAGED)
    assert delivered(world.ctx).up_to == 0


def test_a_damaged_parked_item_stays_parked_and_a_release_sends_it_again(world: World) -> None:
    subscriber = "https://hooks.example/a"
    world.ledger.write(CURSOR, subscriber, Cursor(5, world.clock.now()))
    world.ledger.write(PARKED, f"{subscriber}/{ROUTE}/a/b", DAMAGED)
    world.ledger.write(
        PARKED, f"{subscriber}/{ROUTE}/c", Parked(subscriber, ROUTE, "c", 3, 1, 1, 0, "refused")
    )
    assert parked_for(world.ctx, subscriber).keys() == {(ROUTE, "a/b"), (ROUTE, "c")}
    assert delivered(world.ctx).parked == {(ROUTE, "a/b"), (ROUTE, "c")}
    assert release(world.ctx, subscriber, by="ops", reason="test") == 2
    assert named(world) == []


def test_a_damaged_alert_stops_no_other_alert(world: World) -> None:
    rule = AlertRule(name="desk", to=["log"], route=ROUTE, failures=False, pauses_by=["ops"])
    world.ledger.write(ALERT, "desk/damaged", DAMAGED)
    pause(world.ctx, ROUTE, "weigh", by="ops", reason="test")
    watch = AlertWatch(world.ctx, rule, [], "p1")
    watch.run_once()
    assert len(world.ledger.read(ALERT)) == 2


def test_damaged_processes_and_keys_stop_no_other_process_and_no_login(world: World) -> None:
    world.ledger.write(PROCESS, "damaged", DAMAGED)
    world.ledger.write(KEY, "damaged", DAMAGED)
    Heartbeat(world.ctx, "p1", dict[str, Any]).turn()
    assert [process.holder for process in processes(world.ctx)] == ["p1"]
    assert all_keys(world.ctx) == []
