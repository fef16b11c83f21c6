"""Pruning: rows go when they have ended long ago and everybody has been told; the memory of them stays."""

from __future__ import annotations

import pytest
from ears import Ear, refuses
from engine_world import ROUTE, Interrupted, World, dies, parcels

from milepost.core.errors import EventRefused, UsageError
from milepost.core.outcome import Reject
from milepost.core.status import Status
from milepost.engine import prune as prune_module
from milepost.engine.acts import act_view, all_acts
from milepost.engine.cursors import forget_subscriber
from milepost.engine.prune import PruneReport, prune
from milepost.engine.relay import Relay

DAY = 86_400_000
SIGNED = {"by": "ops", "reason": "housekeeping"}


def ended(world: World, *keys: str) -> None:
    world.add(*keys)
    world.work("weigh", Reject("no"))


def test_old_rows_go_and_their_keys_stay_known(world: World) -> None:
    ended(world, "old1", "old2")
    world.clock.advance("10d")
    ended(world, "young")
    world.add("open")
    report = prune(world.ctx, ROUTE, 5 * DAY, **SIGNED)
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
    assert prune(world.ctx, ROUTE, DAY, on_progress=seen.append, **SIGNED).items == 5
    assert seen == [2, 4, 5]


def test_a_preview_lets_nothing_go(world: World) -> None:
    ended(world, "a", "b")
    world.clock.advance("10d")
    before = world.ledger.pulse()
    report = prune(world.ctx, ROUTE, DAY, by="", reason="", dry_run=True)
    assert (report.items, report.dry_run, str(report)) == (1, True, "1 row would go")
    assert world.ledger.pulse() == before
    assert prune(world.ctx, ROUTE, DAY, **SIGNED).items == 1, "the item of the newest line stays"


def test_a_preview_counts_what_subscribers_hold_back(world: World) -> None:
    ended(world, "a", "b")
    Relay(world.ctx, Ear(), "p1").run_once()
    ended(world, "c", "d", "e")
    world.clock.advance("10d")
    world.add("young")
    preview = prune(world.ctx, ROUTE, DAY, by="", reason="", dry_run=True)
    assert (preview.items, preview.kept_back) == (2, 7)
    assert prune(world.ctx, ROUTE, DAY, **SIGNED).items == 2


def test_it_is_signed_and_on_record(world: World) -> None:
    ended(world, "a")
    world.clock.advance("10d")
    world.add("newest")
    with pytest.raises(UsageError, match="a name and a reason"):
        prune(world.ctx, ROUTE, DAY, by="", reason="x")
    assert all_acts(world.ctx) == []
    prune(world.ctx, ROUTE, DAY, **SIGNED)
    [act] = all_acts(world.ctx, ROUTE)
    assert (act.verb, act.by, act.reason, act.done, act.finished_at) == ("prune", "ops", "housekeeping", 1, world.clock.now())


def test_one_that_was_cut_off_says_how_to_go_on(faulty: World) -> None:
    ended(faulty, "a")
    faulty.clock.advance("10d")
    faulty.add("newest")
    faulty.ledger.before("prune", dies)  # type: ignore[attr-defined]
    with pytest.raises(Interrupted):
        prune(faulty.ctx, ROUTE, DAY, **SIGNED)
    view = act_view(all_acts(faulty.ctx)[0])
    assert (view["finished_at"], view["go_on"]) == (None, "milepost prune parcels --older-than 86400000ms --by YOU --reason '…'")


def test_never_past_a_live_cursor(world: World) -> None:
    ended(world, "told")
    Relay(world.ctx, Ear(), "p1").run_once()
    ended(world, "untold")
    world.clock.advance("10d")
    report = prune(world.ctx, ROUTE, DAY, **SIGNED)
    assert (report.items, report.kept_back) == (1, 2)
    assert world.row("untold")
    assert str(report) == "1 row let go, 0 seals forgotten; rows with any of the last 2 lines wait until every subscriber is told"
    forget_subscriber(world.ctx, "ear", **SIGNED)
    world.add("newest")
    assert prune(world.ctx, ROUTE, DAY, **SIGNED).items == 1


def test_never_past_what_is_parked(world: World) -> None:
    ended(world, "first")
    ended(world, "parked")
    ear = Ear()
    ear.takes = refuses("parked", error=EventRefused)
    relay = Relay(world.ctx, ear, "p1")
    relay.run_once()
    world.add("newest")
    relay.run_once()
    world.clock.advance("10d")
    assert prune(world.ctx, ROUTE, DAY, **SIGNED).items == 1
    assert world.row("parked")


def test_a_route_may_forget(world: World) -> None:
    ended(world, "a")
    world.clock.advance("10d")
    world.add("newest")
    prune(world.ctx, ROUTE, DAY, **SIGNED)
    route = parcels()
    route.remember_ms = 30 * DAY
    forgetful = World(world.ledger, world.clock, route).registered()
    assert prune(forgetful.ctx, ROUTE, DAY, **SIGNED).forgotten == 0
    world.clock.advance("21d")
    assert prune(forgetful.ctx, ROUTE, DAY, **SIGNED).forgotten == 1
    assert world.ledger.peek(ROUTE, ["a"]) == [None]


def test_an_unknown_route_is_a_mistake(world: World) -> None:
    with pytest.raises(UsageError, match="no route 'letters'"):
        prune(world.ctx, "letters", DAY, **SIGNED)
    assert str(PruneReport(items=1200)) == "1,200 rows let go, 0 seals forgotten"
