"""The doctor: findings, their level, and what to do about them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.aws.ledger.synchronous_ledger import open_synchronous_ledger
from tests.engine.views.viewed_ledger import World, parcels
from tests.standins import REGION

from milepost.blobs.memory import MemoryBlobs
from milepost.composition import open_ledger
from milepost.core.admission.controls import Hold
from milepost.core.outcome import Done, Reject, Retry
from milepost.engine.context import Context
from milepost.engine.events.cursors import LONG_LAG_LINES, LONG_LAG_MS, SubscriberLag
from milepost.engine.health.doctor import doctor
from milepost.engine.health.findings import Finding
from milepost.engine.metrics import ledger_families
from milepost.engine.presence import processes_view
from milepost.ports.documents import (
    CURSOR,
    HOLD,
    PARKED,
    PROCESS,
    ROUTE,
    Cursor,
    Parked,
    Process,
    read_all,
)
from milepost.station import Every, Station
from milepost_testing.clock import SeededChance
from milepost_testing.contract.world import World as ContractWorld


@pytest.fixture
def world() -> World:
    made = World()
    made.process()
    return made


def _found(world: World, about: str, level: str | None = None) -> list[Finding]:
    return [
        found
        for found in doctor(world.ctx).findings
        if found.about == about and level in (None, found.level)
    ]


def test_all_is_well(world: World) -> None:
    world.add("A")
    report = doctor(world.ctx)
    assert report.level == "ok"
    assert report.ledger == {
        **world.ledger.describe(),
        "lacks": sorted(world.ledger.missing_capabilities),
    }
    assert {finding.about for finding in report.findings} == {
        "route",
        "process",
        "clock",
        "role",
        "chain",
    }


def test_a_ledger_that_fails_its_own_check_is_bad(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.ledger, "describe", lambda: {"sound": False})
    assert doctor(world.ctx).level == "bad"


def test_roles_that_never_ran_or_not_for_long(world: World) -> None:
    assert [found.level for found in _found(World(), "role")] == ["warn", "warn"]
    world.clock.advance("10m")
    [found] = [found for found in _found(world, "role") if "resender" in found.what]
    assert found.level == "warn"
    assert "10 min ago" in found.what
    assert found.next == "milepost up"


def test_beside_a_process_without_workers_only_a_worker_is_to_be_started() -> None:
    world = World()
    world.process(
        holder="up --no-work", roles={"resender": world.clock.now(), "relay": world.clock.now()}
    )
    cures = {found.what: found.next for found in _found(world, "role", "warn")}
    assert cures == {"worker: no successful run yet": "milepost work"}
    world.add("A")
    assert [found.next for found in _found(world, "process", "warn")] == ["milepost work"]


def test_processes_that_went_silent_with_work_in_hand_overrun_or_are_outdated(world: World) -> None:
    world.process(holder="gone", ago_ms=300_000, in_hand=3)
    world.process(holder="left", ago_ms=600_000)
    slow = {"route": "parcels", "stage": "weigh", "key": "A", "seconds": 42.0}
    world.process(holder="slow", overrunning=[slow], outdated=["parcels"])
    warned = {found.what for found in _found(world, "process", "warn")}
    assert any(
        what.startswith("gone has been silent, last heartbeat 5 min ago") and "3 items" in what
        for what in warned
    )
    assert any(what.startswith("slow stands by") for what in warned)
    assert not any("left" in what for what in warned)
    [overrun] = _found(world, "handler")
    assert "parcels/weigh/A, 42.0 s so far" in overrun.what


def test_only_processes_at_work_are_listed(world: World) -> None:
    for n in range(30):
        world.process(holder=f"old-{n}", ago_ms=15_000 + n * 3_600_000, in_hand=n if n > 20 else 0)
    assert [found.what.split()[0] for found in _found(world, "process")] == ["host-a:1"]
    world.clock.advance("15s")
    [found] = _found(world, "process")
    assert (
        found.level,
        found.what.startswith(
            "it is not known whether host-a:1 is running: last heartbeat 15 s ago"
        ),
    ) == ("warn", True)
    assert found.next.startswith(
        "it has died, hangs or is suspended, or its machine's clock is behind: look there"
    )
    world.process(ago_ms=15_000, stopped=True)
    world.clock.advance("1h")
    [found] = _found(world, "process")
    assert (
        found.level,
        found.what.startswith("no process is running; the last to stop was host-a:1, 60 min ago"),
    ) == ("ok", True)


def test_a_process_that_is_proved_dead_is_no_live_one(world: World) -> None:
    world.process(in_hand=2)
    world.ledger.sign_on("host-a:1")
    world.ledger.kill("host-a:1")
    warned, ok = _found(world, "process")
    assert warned.level == "warn"
    assert warned.what.startswith("host-a:1 has died, last heartbeat now")
    assert warned.what.endswith("it held 2 items")
    assert ok.what.startswith("no process is running")


def test_pauses_name_the_command_that_ends_them(world: World) -> None:
    world.ledger.write(HOLD, "parcels/weigh/far west", Hold(world.clock.now(), "ops", "flood"))
    [found] = _found(world, "pause")
    assert "paused by ops" in found.what
    assert (
        found.next
        == "milepost resume parcels --stage weigh --lane 'far west' --by YOU --reason '…'"
    )


def test_failed_items_point_to_their_kinds(world: World) -> None:
    world.add("A")
    world.settle("weigh", Reject("torn"))
    [found] = _found(world, "failed")
    assert (found.what, found.next) == ("1 item of parcels failed", "milepost groups parcels")


def test_expired_leases_and_late_work(world: World) -> None:
    world.add("A", "B", "C")
    world.claim("weigh")
    world.settle("weigh", Retry("busy"))
    assert _found(world, "lease") == []
    assert _found(world, "late") == []
    world.clock.advance("20m")
    assert _found(world, "lease")[0].what == "the leases of 1 item of parcels have expired"
    [late] = _found(world, "late")
    assert "parcels/weigh has been due for 20 min" in late.what
    world.ledger.write(HOLD, "parcels/weigh", Hold(world.clock.now(), "ops", "flood"))
    assert _found(world, "late") == []


def test_a_changed_route_and_items_at_stages_that_are_gone(world: World) -> None:
    world.add("A")
    changed = {
        "version": 2,
        "digest": "other",
        "shape": [["stamp", "handler"]],
        "at": world.clock.now(),
    }
    world.ledger.write(ROUTE, "parcels", changed)
    assert "the route file differs from version 2" in _found(world, "route", "bad")[0].what
    [gone] = _found(world, "stage")
    assert (gone.level, gone.next) == (
        "bad",
        "milepost routes apply parcels --map weigh=STAGE --by YOU --reason '…'",
    )
    world.ledger.write(ROUTE, "parcels", {**changed, "moves": {"weigh": "stamp"}})
    assert "items are still at weigh" in _found(world, "route", "bad")[0].what


def test_what_one_subscriber_refuses_is_one_finding_with_three_examples(world: World) -> None:
    for number in range(50):
        parked = Parked(
            "hook",
            "parcels",
            f"k{number:02}",
            1,
            world.clock.now() + number,
            1,
            0,
            "EventRefused: 404",
        )
        world.ledger.write(PARKED, f"hook/parcels/k{number:02}", parked)
    [found] = _found(world, "parked")
    assert found.what.startswith("hook refuses events of 50 items, the first since now")
    assert found.what.endswith(
        "such as parcels/k00: EventRefused: 404; parcels/k01: EventRefused: 404; parcels/k02: EventRefused: 404"
    )
    assert found.next == "correct it, then milepost subscribers release hook --by YOU --reason '…'"


def test_subscribers_that_lag_fail_or_are_silent_and_what_is_parked_for_them(world: World) -> None:
    world.add("A")
    now = world.clock.now()
    world.ledger.write(CURSOR, "log", Cursor(world.ledger.last_seq(), now))
    world.ledger.write(
        CURSOR, "hook", Cursor(0, now, failures=3, retry_at=now + 60_000, error="502")
    )
    world.ledger.write(CURSOR, "old", Cursor(0, now, removed=True))
    world.ledger.write(
        PARKED, "p", Parked("hook", "parcels", "A 1", 1, now, 2, now + 1000, "no such address")
    )
    levels = {found.what.split()[0]: found.level for found in _found(world, "subscriber")}
    assert levels == {"log:": "ok", "hook": "warn"}
    assert (
        _found(world, "parked")[0].next
        == "milepost subscribers release hook parcels 'A 1' --by YOU --reason '…'"
    )
    world.clock.advance("31d")
    [silent] = _found(world, "subscriber", "bad")
    assert "hook has been silent" in silent.what
    assert silent.next.endswith("milepost subscribers forget hook --by YOU --reason '…'")


@pytest.mark.parametrize("kind", ["memory", "sqlite", "aws"])
def test_a_subscriber_that_is_far_behind_is_named(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Its events come, but ever later: nothing has failed."""
    if kind == "aws":
        opened: Any = open_synchronous_ledger(
            request.getfixturevalue("endpoint"), request.getfixturevalue("prefix"), REGION
        )
    else:
        opened, _ = open_ledger(
            "memory:" if kind == "memory" else f"sqlite:///{tmp_path}/ledger.db"
        )
    with closing(opened):
        world = ContractWorld(opened, parcels())
        ctx = Context(opened, {"parcels": world.plan}, world.clock, SeededChance(), MemoryBlobs())
        world.add("A", "B")
        opened.write(CURSOR, "hook", Cursor(0, world.now))
        levels = []
        for _ in range(2):
            [found] = [found for found in doctor(ctx).findings if found.about == "subscriber"]
            levels.append(found.level)
            world.clock.advance("10m")
        assert levels == ["ok", "warn"]
        assert found.what.startswith("hook is 2 lines behind, the first of them written 10 min ago")
        assert "milepost subscribers" in found.next
        gauges = {family.name: family.samples for family in ledger_families(ctx)}
        assert gauges["milepost_subscriber_lag_seconds"] == {("hook",): 1200.0}
        assert gauges["milepost_subscriber_lag_lines"] == {("hook",): 2}


def test_many_lines_are_a_long_lag_whatever_their_age() -> None:
    assert not SubscriberLag(LONG_LAG_LINES - 1, 0).is_long(LONG_LAG_MS - 1)
    assert SubscriberLag(LONG_LAG_LINES, 0).is_long(1)
    assert not SubscriberLag(LONG_LAG_LINES, None).is_long(1), (
        "only places of removed lines are left"
    )


def test_a_changed_history_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add("A", "B")
    world.settle("weigh", Done())
    lines = world.ledger.history("parcels", "A")
    real = world.ledger.history
    monkeypatch.setattr(
        world.ledger, "history", lambda route, key: lines[1:] if key == "A" else real(route, key)
    )
    [broken] = _found(world, "chain", "bad")
    assert (
        "the history of parcels/A was changed after it was written: the chain is broken at line 1"
        in broken.what
    )


def test_a_line_that_cannot_be_read_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add("A")
    world.settle("weigh", Done())
    world.settle("stamp", Done())
    lines = world.ledger.history("parcels", "A")
    spoilt = [lines[0], replace(lines[1], body=b"\x00nothing"), lines[2]]
    monkeypatch.setattr(world.ledger, "history", lambda route, key: spoilt)
    [broken] = _found(world, "chain", "bad")
    assert broken.what.endswith("the chain is broken at line 2: it cannot be read")
    spoilt = [*lines[:2], replace(lines[2], body=lines[2].body.replace(b"stamp", b"stump"))]
    [broken] = _found(world, "chain", "bad")
    assert "the chain is broken after line 3" in broken.what


def test_a_route_that_only_the_ledger_knows_is_looked_at_too(world: World) -> None:
    world.add("A")
    world.ctx.plans.clear()
    assert doctor(world.ctx).level == "ok"
    assert parcels().name in _found(world, "route")[0].what


def test_a_service_is_late_by_its_own_interval(world: World) -> None:
    """It runs every 15 minutes, and has said when it runs next."""
    now = world.clock.now()
    world.process(
        holder="up",
        roles={"deposits-digest": now, "resender": now},
        next_runs={"deposits-digest": now + 900_000, "resender": now + 5_000},
    )
    world.clock.advance("14m")
    late = [found.what for found in _found(world, "role", "warn")]
    assert not [what for what in late if what.startswith("deposits-digest")]
    assert [what for what in late if what.startswith("resender")]
    assert {one.role: one.late for one in processes_view(world.ctx).roles}[
        "deposits-digest"
    ] is False
    world.clock.advance("4m")
    assert [
        what
        for what in (found.what for found in _found(world, "role", "warn"))
        if what.startswith("deposits-digest: last successful run 18 min ago")
    ]


def test_a_station_says_when_each_of_its_services_runs_next(world: World) -> None:
    calls: list[int] = []
    station = Station(world.ctx, services=[Every("digest", 900.0, lambda: calls.append(1))])
    station.run(until_idle_s=0)
    [process] = [
        one
        for one in read_all(world.ledger, PROCESS, Process).values()
        if "digest" in one.next_runs
    ]
    assert process.next_runs["digest"] - process.roles["digest"] == 900_000
