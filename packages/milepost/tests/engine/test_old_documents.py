"""Old records of acts and processes leave by age and by number; what is recent, unfinished or
running stays."""

from __future__ import annotations

import pytest
from tests.engine.world import ROUTE, World

from milepost.core.outcome import Reject
from milepost.core.status import Status
from milepost.engine import old_documents
from milepost.engine.act_log import all_acts, record, select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.verbs import CancelVerb
from milepost.engine.health.doctor import doctor
from milepost.engine.left_items import unexplained
from milepost.engine.old_documents import (
    ACT_AGE_MS,
    ACTS,
    DAY_MS,
    PROCESSES,
    RECENT_MS,
    old_acts,
    old_processes,
    remove_old_acts,
)
from milepost.engine.presence import Heartbeat
from milepost.engine.resend import Resender
from milepost.engine.retention import prune
from milepost.ports.documents import ACT, PROCESS, Act, Process
from milepost.ports.items import Query

NOW = 2_000_000_000_000


def ended(at: int | None) -> Act:
    return Act("id", "pause", "parcels", "ops", "test", NOW - 2 * ACT_AGE_MS, finished_at=at)


def seen(at: int, *, stopped: bool = True) -> Process:
    return Process("host:1", "host", 1, at, at, stopped=stopped)


def test_a_finished_act_leaves_after_its_time_and_an_unfinished_one_stays() -> None:
    acts = {
        "old": ended(NOW - ACT_AGE_MS - 1),
        "young": ended(NOW - ACT_AGE_MS),
        "open": ended(None),
    }
    assert old_acts(acts, NOW) == ["old"]


def test_of_many_acts_the_oldest_leave_but_no_recent_one() -> None:
    old = {f"old-{number}": ended(NOW - RECENT_MS - 1000 + number) for number in range(10)}
    recent = {f"recent-{number}": ended(NOW - number) for number in range(ACTS - 4)}
    assert old_acts(old | recent, NOW) == [f"old-{number}" for number in range(6)]
    assert (
        old_acts({f"recent-{number}": ended(NOW - number) for number in range(2 * ACTS)}, NOW) == []
    )


def test_the_latest_prune_of_failed_rows_stays_as_their_explanation(world: World) -> None:
    world.add("p1")
    world.work("weigh", Reject("no"))
    for _ in range(2):
        world.clock.advance("1h")
        prune(world.ctx, ROUTE, 0, by="ops", reason="seen", statuses=frozenset({Status.REJECTED}))
    assert unexplained(world.ctx, world.plan) == (0, True)
    world.clock.advance("401d")
    remove_old_acts(world.ctx)
    assert [one.verb for one in all_acts(world.ctx)] == ["prune"]
    assert unexplained(world.ctx, world.plan) == (0, True)


def test_processes_leave_after_a_week_and_of_many_the_oldest_that_stopped() -> None:
    assert old_processes(
        {"old": seen(NOW - 7 * DAY_MS - 1), "young": seen(NOW - 7 * DAY_MS)}, NOW
    ) == ["old"]
    stopped = {f"stopped-{number}": seen(NOW - 1000 + number) for number in range(PROCESSES)}
    running = {"running": seen(NOW - 2000, stopped=False)}
    assert old_processes(stopped | running, NOW) == []
    assert old_processes(stopped | running | {"next": seen(NOW)}, NOW) == ["stopped-0"]


def test_the_resender_removes_old_acts_once_an_hour_some_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_documents, "AT_ONCE", 2)
    resender = Resender(world.ctx)
    for _ in range(5):
        record(world.ctx, "pause", ROUTE, "ops", "test", {"scope": ROUTE})
    world.clock.advance("401d")
    record(world.ctx, "resume", ROUTE, "ops", "test", {"scope": ROUTE})
    left = []
    for _ in range(4):
        resender.run_once()
        left.append(len(world.ledger.read(ACT)))
    assert left == [4, 2, 1, 1]
    assert [one.verb for one in all_acts(world.ctx)] == ["resume"]
    world.clock.advance("401d")
    assert not remove_old_acts(world.ctx)
    assert doctor(world.ctx).findings


def test_pruned_failed_items_stay_explained_when_old_acts_leave(world: World) -> None:
    """Doctor names failed items that have left without an operator's decision."""
    for key in ("p1", "p2"):
        world.add(key)
        world.work("weigh", Reject("no such parcel"))
        world.clock.advance("2d")
        assert (
            prune(
                world.ctx,
                ROUTE,
                DAY_MS,
                statuses=frozenset({Status.REJECTED}),
                by="ops",
                reason="dealt with",
            ).items
            == 1
        )
        world.clock.advance("401d")
    assert not remove_old_acts(world.ctx)
    assert [one.filter["statuses"] for one in all_acts(world.ctx, verb="prune")] == [
        ["REJECTED"]
    ], "the latest says the same as both"
    assert "failed" not in {finding.about for finding in doctor(world.ctx).findings}


def test_a_repeat_of_a_recent_act_gets_its_first_answer_after_the_upkeep(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_documents, "ACTS", 0)
    world.add("p1")
    resender = Resender(world.ctx)
    query = Query(route=ROUTE, statuses=frozenset({Status.QUEUED}))
    first = act(
        world.ctx,
        select(world.ctx, ROUTE, query=query),
        CancelVerb(),
        by="ops",
        reason="test",
        act_id="act-1",
    )
    assert first.done == 1
    world.clock.advance("6d")
    resender.run_once()
    assert world.ledger.read_one(ACT, "act-1") is not None
    act(
        world.ctx,
        select(world.ctx, ROUTE, query=query),
        CancelVerb(),
        by="ops",
        reason="test",
        act_id="act-1",
    )
    assert len(world.ledger.read(ACT)) == 1


def test_a_process_that_starts_removes_the_documents_of_old_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_documents, "PROCESSES", 3)
    for number in range(8):
        heartbeat = Heartbeat(world.ctx, f"host:{number}", dict)
        heartbeat.start()
        heartbeat.stop()
        world.clock.advance("1s")
    assert sorted(world.ledger.read(PROCESS)) == ["host:4", "host:5", "host:6", "host:7"]
    assert doctor(world.ctx).findings
