"""Retention: rows leave after their time, history lines when no subscriber waits for them, and
seals stay."""

from __future__ import annotations

import pytest
from tests.engine.events.recording_subscribers import RecordingSubscriber, cursor, refuses
from tests.engine.world import ROUTE, Interrupted, World, dies, parcels

from milepost.blobs.memory import MemoryBlobs
from milepost.core.decide import decide
from milepost.core.due import Lease
from milepost.core.errors import EventRefused, UsageError
from milepost.core.outcome import Done, Reject
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import Status
from milepost.engine import retention as prune_module
from milepost.engine.act_log import act_view, all_acts, select
from milepost.engine.acts.bulk import act, confirm_outside
from milepost.engine.acts.verbs import CancelVerb
from milepost.engine.context import Context
from milepost.engine.events.cursors import forget_subscriber
from milepost.engine.events.deliver import EventRelay
from milepost.engine.events.parked_events import release
from milepost.engine.intake import submit
from milepost.engine.retention import PruneReport, prune
from milepost.ports.items import ClaimRequest
from milepost.ports.ledger import Ledger
from milepost_testing.clock import SeededChance, VirtualClock

DAY = 86_400_000
SIGNED = {"by": "ops", "reason": "housekeeping"}


FAILED_TOO = frozenset({Status.COMPLETED, Status.REJECTED})


def ended(world: World, *keys: str) -> None:
    world.add(*keys)
    world.work("weigh", Reject("no"))


def completed(world: World, *keys: str) -> None:
    world.add(*keys)
    for stage in ("weigh", "stamp"):
        world.work(stage)
    for key in keys:
        confirm_outside(world.ctx, ROUTE, key, "Delivered", Done(True), "courier")


def lines_of(world: World, *keys: str) -> set[str]:
    return {line.key for line in world.ledger.feed(0, 1000) if line.key in keys}


def test_old_rows_go_and_their_keys_stay_known(world: World) -> None:
    ended(world, "old1", "old2")
    world.clock.advance("10d")
    ended(world, "young")
    world.add("open")
    report = prune(world.ctx, ROUTE, 5 * DAY, statuses=FAILED_TOO, **SIGNED)
    assert (report.items, report.forgotten, report.kept_back) == (2, 0, 0)
    known = world.ledger.peek(ROUTE, ["old1", "old2", "young", "open"])
    assert [one is not None and one.sealed for one in known] == [True, True, False, False]
    assert world.row("young").status is Status.REJECTED


def test_in_batches_with_progress(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune_module, "BATCH", 2)
    ended(world, *(f"k{n}" for n in range(5)))
    world.clock.advance("10d")
    world.add("newest")
    seen: list[int] = []
    assert (
        prune(world.ctx, ROUTE, DAY, statuses=FAILED_TOO, on_progress=seen.append, **SIGNED).items
        == 5
    )
    assert seen == [2, 4, 5]


def test_a_preview_lets_nothing_go(world: World) -> None:
    ended(world, "a", "b")
    world.clock.advance("10d")
    before = world.ledger.change_counter()
    report = prune(world.ctx, ROUTE, DAY, statuses=FAILED_TOO, by="", reason="", dry_run=True)
    assert (report.items, report.dry_run, str(report)) == (
        2,
        True,
        "2 rows would be removed (2 REJECTED)",
    )
    assert world.ledger.change_counter() == before
    assert prune(world.ctx, ROUTE, DAY, statuses=FAILED_TOO, **SIGNED).items == 2


def test_failed_and_cancelled_rows_stay_unless_their_status_is_named(world: World) -> None:
    completed(world, "done1", "done2")
    ended(world, "failed")
    world.add("cancelled")
    act(world.ctx, select(world.ctx, ROUTE, keys=["cancelled"]), CancelVerb(), **SIGNED)
    world.clock.advance("10d")
    preview = prune(world.ctx, ROUTE, DAY, by="", reason="", dry_run=True)
    assert (preview.items, preview.statuses, preview.others) == (
        2,
        {"COMPLETED": 2},
        {"REJECTED": 1, "CANCELLED": 1},
    )
    assert str(preview) == (
        "2 rows would be removed (2 COMPLETED); 1 CANCELLED, 1 REJECTED would stay: name a status with --status to prune such rows"
    )
    report = prune(world.ctx, ROUTE, DAY, **SIGNED)
    assert (report.items, report.statuses) == (2, {"COMPLETED": 2})
    assert (world.row("failed").status, world.row("cancelled").status) == (
        Status.REJECTED,
        Status.CANCELLED,
    )
    report = prune(world.ctx, ROUTE, DAY, statuses=frozenset({Status.CANCELLED}), **SIGNED)
    assert str(report) == "1 row removed (1 CANCELLED), 0 seals forgotten"
    with pytest.raises(UsageError, match="QUEUED: only ended items can be pruned"):
        prune(world.ctx, ROUTE, DAY, statuses=frozenset({Status.QUEUED}), **SIGNED)


def test_it_is_signed_and_on_record(world: World) -> None:
    ended(world, "a")
    world.clock.advance("10d")
    world.add("newest")
    with pytest.raises(UsageError, match="a name and a reason"):
        prune(world.ctx, ROUTE, DAY, statuses=FAILED_TOO, by="", reason="x")
    assert all_acts(world.ctx) == []
    prune(world.ctx, ROUTE, DAY, statuses=FAILED_TOO, **SIGNED)
    [entry] = all_acts(world.ctx, ROUTE)
    assert (entry.verb, entry.by, entry.reason, entry.done, entry.finished_at) == (
        "prune",
        "ops",
        "housekeeping",
        1,
        world.clock.now(),
    )


def test_one_that_was_cut_off_says_how_to_go_on(faulty: World) -> None:
    ended(faulty, "a")
    faulty.clock.advance("10d")
    faulty.add("newest")
    faulty.ledger.before("prune", dies)  # type: ignore[attr-defined]
    with pytest.raises(Interrupted):
        prune(faulty.ctx, ROUTE, DAY, statuses=FAILED_TOO, **SIGNED)
    view = act_view(all_acts(faulty.ctx)[0])
    assert (view["finished_at"], view["go_on"]) == (
        None,
        "milepost prune parcels --older-than 86400000ms --status COMPLETED --status REJECTED --by YOU --reason '…'",
    )


def test_a_subscriber_that_is_away_keeps_its_lines_and_no_rows(world: World) -> None:
    completed(world, "told")
    ear = RecordingSubscriber()
    relay = EventRelay(world.ctx, ear, "p1")
    relay.run_once()
    completed(world, "untold")
    waiting = world.ledger.last_seq() - cursor(world).seq
    world.clock.advance("10d")
    report = prune(world.ctx, ROUTE, DAY, **SIGNED)
    assert (report.items, report.kept_back) == (2, waiting)
    assert str(report) == (
        f"2 rows removed (2 COMPLETED), 0 seals forgotten; the last {waiting} lines of all routes stay, with the content"
        " that belongs to them, until every subscriber has received them"
    )
    assert lines_of(world, "told", "untold") == {"untold"}
    relay.run_once()
    assert ear.of("untold") == ["accepted", "advanced", "advanced", "offered", "confirmed"]
    offered = next(
        one
        for one in ear.heard
        if one["subject"] == "untold" and one["data"]["reason"] == "offered"
    )
    assert offered["data"]["payload"] == {"id": "untold"}
    world.add("newest")
    prune(world.ctx, ROUTE, DAY, **SIGNED)
    assert lines_of(world, "told", "untold") == set()


def test_a_forgotten_subscriber_keeps_nothing(world: World) -> None:
    EventRelay(world.ctx, RecordingSubscriber(), "p1").run_once()
    completed(world, "a")
    world.clock.advance("10d")
    world.add("newest")
    prune(world.ctx, ROUTE, DAY, **SIGNED)
    assert lines_of(world, "a") == {"a"}
    forget_subscriber(world.ctx, "ear", **SIGNED)
    prune(world.ctx, ROUTE, DAY, **SIGNED)
    assert lines_of(world, "a") == set()


def test_a_parked_item_keeps_its_own_lines_and_is_told_after_its_row_has_left(world: World) -> None:
    ear = RecordingSubscriber()
    relay = EventRelay(world.ctx, ear, "p1")
    completed(world, "first", "parked")
    ear.takes = refuses("parked", error=EventRefused)
    relay.run_once()
    completed(world, "later")
    world.add("newest")
    relay.run_once()
    world.clock.advance("10d")
    report = prune(world.ctx, ROUTE, DAY, **SIGNED)
    assert (report.items, report.kept_back, report.parked) == (3, 0, 1)
    assert "lines and content of 1 parked item stay until the lines are delivered" in str(report)
    assert lines_of(world, "first", "parked", "later") == {"parked"}
    ear.takes = refuses()
    release(world.ctx, "ear", **SIGNED)
    relay.run_once()
    assert ear.of("parked") == ear.of("later")
    payloads = [
        one["data"].get("payload") for one in ear.heard if one["data"]["reason"] == "offered"
    ]
    assert payloads == [{"id": "first"}, {"id": "later"}, {"id": "parked"}]
    prune(world.ctx, ROUTE, DAY, **SIGNED)
    assert lines_of(world, "first", "parked", "later") == set()


def test_a_parked_event_of_one_route_stops_no_other_route(
    ledger: Ledger, clock: VirtualClock
) -> None:
    plans = {}
    for name in ("one", "two"):
        route = Route(name, key="id")
        route.stage("work")(lambda item: Done())
        plans[name] = Plan(route)
    ctx = Context(ledger, plans, clock, SeededChance(), MemoryBlobs())
    ear = RecordingSubscriber()
    ear.takes = refuses("bad", error=EventRefused)
    relay = EventRelay(ctx, ear, "p1")
    submit(ctx, "one", [{"id": "bad"}])
    relay.run_once()
    submit(ctx, "two", [{"id": f"k{n}"} for n in range(10)])
    for item in ledger.claim(
        [ClaimRequest(plans["two"], "work", 10, Lease("t", "h", clock.now() + 60_000))],
        clock.now(),
        0,
    )[0].items:
        ledger.apply([decide(item, Done(), plans["two"], clock.now(), 0)], clock.now())
    submit(ctx, "one", [{"id": "newest"}])
    relay.run_once()
    clock.advance("400d")
    assert prune(ctx, "two", DAY, **SIGNED).items == 10
    assert {line.route for line in ledger.feed(0, 100)} == {"one"}


def test_a_route_may_forget(world: World) -> None:
    ended(world, "a")
    world.clock.advance("10d")
    world.add("newest")
    prune(world.ctx, ROUTE, DAY, statuses=FAILED_TOO, **SIGNED)
    route = parcels()
    route.remember_ms = 30 * DAY
    forgetful = World(world.ledger, world.clock, route).registered()
    assert prune(forgetful.ctx, ROUTE, DAY, statuses=FAILED_TOO, **SIGNED).forgotten == 0
    world.clock.advance("21d")
    assert prune(forgetful.ctx, ROUTE, DAY, statuses=FAILED_TOO, **SIGNED).forgotten == 1
    assert world.ledger.peek(ROUTE, ["a"]) == [None]


def test_an_unknown_route_is_a_mistake(world: World) -> None:
    with pytest.raises(UsageError, match="no route 'letters'"):
        prune(world.ctx, "letters", DAY, **SIGNED)
    assert str(PruneReport(items=1200)) == "1,200 rows removed, 0 seals forgotten"
