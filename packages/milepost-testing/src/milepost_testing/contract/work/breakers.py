"""Circuit breakers: when a lane is closed to claims, which items are probes, and when it opens to
claims again."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from milepost.core.admission.breakers import BreakerState
from milepost.core.decide import decide, given_back
from milepost.core.item import Item
from milepost.core.outcome import Checked, Done, HandedOver, NotYet, Outcome, Reject, Retry
from milepost.core.routes.backoff import Backoff
from milepost.core.routes.breaker import Breaker
from milepost.core.routes.route import Limits, Route
from milepost.core.status import Status
from milepost.ports.documents import BREAKER
from milepost.ports.ledger import Ledger
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import LEASE, World, sample_route

DOWN = Retry("the partner does not answer")
COOLDOWN = 30_000
PLAIN, NORTH = "parcels/weigh/", "parcels/weigh/north"


class BreakersContract(Promises):
    @pytest.fixture
    def guarded(self, ledger: Ledger) -> World:
        """A world whose first stage has a breaker: three failures in a row within a minute open it
        for 30 s."""
        return World(ledger, self.route())

    def route(self, probes: int = 1) -> Route:
        breaker = Breaker(failures=3, within="1m", cooldown="30s", probes=probes)
        return sample_route(breaker=breaker, retry=Backoff(attempts=50, base=1, factor=1, jitter=0))

    def fail(self, world: World, *keys: str, outcome: Outcome = DOWN, **content: Any) -> None:
        """Add these items and let the first attempt of each have this outcome."""
        world.add(*keys, **content)
        items = world.claim().items
        assert sorted(item.key for item in items) == sorted(keys)
        for item in items:
            assert world.settle(item, outcome) is None

    def half_open(self, world: World, *waiting: str) -> None:
        """Open the breaker, with these items waiting, and let its cooldown pass."""
        self.fail(world, "f1", "f2", "f3")
        world.add(*waiting)
        world.clock.advance(31)

    def keys(self, items: list[Item]) -> list[str]:
        return sorted(item.key for item in items)

    def test_a_closed_breaker_writes_nothing(self, guarded: World) -> None:
        outcomes: list[Outcome] = [
            Done(),
            NotYet(),
            Checked(),
            HandedOver("1h"),
            Reject("no such house"),
        ]
        for number, outcome in enumerate(outcomes):
            self.fail(guarded, f"p{number}", outcome=outcome)
        assert guarded.ledger.read(BREAKER) == {}

    def test_it_opens_after_failures_in_a_row_and_its_items_wait_uncounted(
        self, guarded: World
    ) -> None:
        self.fail(guarded, "f1", "f2")
        assert guarded.breaker(PLAIN) is not None
        self.fail(guarded, "f3")
        guarded.add("p1")
        record = guarded.breaker(PLAIN)
        assert record is not None
        assert (record.state(guarded.now), record.retry_at) == (
            BreakerState.OPEN,
            guarded.now + COOLDOWN,
        )
        assert "does not answer" in record.error
        before = guarded.row("p1")
        claimed = guarded.claim()
        assert claimed.items == []
        guarded.asks_again(claimed, guarded.now + COOLDOWN)
        guarded.clock.advance(29)
        assert guarded.claim().items == []
        waiting = guarded.row("p1")
        assert (waiting.status, waiting.attempts, waiting.version, waiting.stage) == (
            before.status,
            0,
            before.version,
            "weigh",
        )
        assert guarded.row("f1").attempts == 1
        guarded.audit()

    def test_a_success_in_between_starts_the_count_anew(self, guarded: World) -> None:
        self.fail(guarded, "f1", "f2")
        self.fail(guarded, "good", outcome=Done())
        assert guarded.breaker(PLAIN) is None
        self.fail(guarded, "f3", "f4")
        guarded.add("p1")
        assert self.keys(guarded.claim().items) == ["p1"]

    def test_failures_that_are_far_apart_do_not_open_it(self, ledger: Ledger) -> None:
        breaker = Breaker(failures=2, within="10s", cooldown="30s")
        world = World(
            ledger, sample_route(breaker=breaker, retry=Backoff(attempts=50, base="1h", jitter=0))
        )
        for number in range(4):
            self.fail(world, f"f{number}")
            world.clock.advance(10)
        world.add("p1")
        assert self.keys(world.claim().items) == ["p1"]

    @pytest.mark.parametrize(
        "outcome",
        [Reject("no such house"), NotYet(), HandedOver("1h"), Done()],
        ids=lambda one: type(one).__name__,
    )
    def test_what_the_partner_answers_does_not_open_it(
        self, guarded: World, outcome: Outcome
    ) -> None:
        for number in range(4):
            self.fail(guarded, f"p{number}", outcome=outcome)
        guarded.add("last")
        assert "last" in self.keys(guarded.claim().items)

    def lose(self, world: World, holder: str, *keys: str) -> None:
        """Add these items, and lose the worker that claims what is there."""
        world.add(*keys)
        items = world.claim(holder=holder).items
        assert items
        world.clock.advance(LEASE / 1000)
        for item in items:
            change = world.look(item.key)
            assert change is not None
            world.apply(change)

    def test_lost_workers_count_as_failures(self, ledger: Ledger) -> None:
        world = World(
            ledger, sample_route(breaker=Breaker(failures=3, within="1h", cooldown="30s"))
        )
        for number in range(3):
            record = world.breaker(PLAIN)
            assert record is None or record.closed
            self.lose(world, f"w{number}", f"p{number}")
        record = world.breaker(PLAIN)
        assert record is not None
        assert not record.closed
        assert "the worker w2 was lost" in record.error

    def test_a_worker_that_is_lost_again_counts_again(self, ledger: Ledger) -> None:
        world = World(
            ledger, sample_route(breaker=Breaker(failures=2, within="1h", cooldown="30s"))
        )
        self.lose(world, "office", "p1", "p2")
        record = world.breaker(PLAIN)
        assert record is not None
        assert record.closed
        world.clock.advance(1)
        self.lose(world, "office", "p3")
        record = world.breaker(PLAIN)
        assert record is not None
        assert not record.closed

    def test_the_items_of_one_lost_worker_count_as_one_failure(self, guarded: World) -> None:
        self.lose(guarded, "w", "p1", "p2", "p3", "p4")
        record = guarded.breaker(PLAIN)
        assert record is not None
        assert (record.closed, len(record.failures)) == (True, 1)

    def test_each_lane_has_its_own(self, guarded: World) -> None:
        self.fail(guarded, "n1", "n2", "n3", lane="north")
        guarded.add("n4", lane="north")
        guarded.add("s1", lane="south")
        assert self.keys(guarded.claim().items) == ["s1"]
        assert list(guarded.ledger.read(BREAKER)) == [NORTH]

    def test_a_lane_may_have_other_settings(self, ledger: Ledger) -> None:
        lanes = {
            "north": Limits(breaker=Breaker(failures=1, cooldown="5s"), retry=Backoff(attempts=1))
        }
        world = World(ledger, sample_route(lanes=lanes))
        self.fail(world, "n1", lane="north")
        assert world.row("n1").status is Status.MAX_RETRIES_EXCEEDED
        self.fail(world, "s1", lane="south")
        assert world.row("s1").status is Status.RETRY_SCHEDULED
        world.add("n2", lane="north")
        assert [item.key for item in world.claim().items if item.lane == "north"] == []
        world.clock.advance(5)
        assert [item.key for item in world.claim().items if item.lane == "north"] == ["n2"]

    def test_after_the_cooldown_one_item_is_let_through_and_its_success_closes_it(
        self, guarded: World
    ) -> None:
        self.half_open(guarded, "p1", "p2")
        [probe] = guarded.claim().items
        assert guarded.claim(holder="other").items == [], "one probe is under way"
        assert guarded.settle(probe, Done()) is None
        assert guarded.breaker(PLAIN) is None
        assert self.keys([*guarded.claim().items, probe]) == ["f1", "f2", "f3", "p1", "p2"]
        guarded.audit()

    def test_a_probe_that_fails_opens_it_again(self, guarded: World) -> None:
        self.half_open(guarded, "p1")
        [probe] = guarded.claim().items
        assert guarded.settle(probe, DOWN) is None
        record = guarded.breaker(PLAIN)
        assert record is not None
        assert (record.retry_at, record.trips) == (guarded.now + COOLDOWN, 2)
        guarded.clock.advance(29)
        assert guarded.claim().items == []
        guarded.clock.advance(1)
        assert len(guarded.claim().items) == 1
        guarded.audit()

    def test_a_rejected_probe_shows_that_the_partner_answers(self, guarded: World) -> None:
        self.half_open(guarded)
        [probe] = guarded.claim().items
        assert guarded.settle(probe, Reject("no such house")) is None
        assert guarded.breaker(PLAIN) is None

    @pytest.mark.parametrize(
        "outcome",
        [Retry("too many calls", breaker=False), NotYet(asked=False)],
        ids=lambda one: type(one).__name__,
    )
    def test_an_outcome_that_says_nothing_about_the_partner_neither_opens_nor_closes_it(
        self, guarded: World, outcome: Outcome
    ) -> None:
        for number in range(4):
            self.fail(guarded, f"p{number}", outcome=outcome)
        assert guarded.ledger.read(BREAKER) == {}
        self.half_open(guarded)
        opened = guarded.breaker(PLAIN)
        [probe] = guarded.claim().items
        assert guarded.settle(probe, outcome) is None
        assert guarded.breaker(PLAIN) == opened, "the place of the probe is free again"
        assert len(guarded.claim().items) == 1
        guarded.audit()

    def test_a_probe_is_of_another_party_than_the_last_failures(self, ledger: Ledger) -> None:
        breaker = Breaker(failures=3, within="1m", cooldown="30s")
        retry = Backoff(attempts=50, base=1, factor=1, jitter=0)
        world = World(
            ledger,
            sample_route(breaker=breaker, retry=retry, party=lambda key: key.partition("-")[0]),
        )
        self.fail(world, "bob-1", "bob-2", "bob-3")
        world.add("bob-4", "bob-5")
        world.clock.advance(1)
        world.add("carol-1")
        world.clock.advance(1)
        world.add("alice-1", "alice-2")
        world.clock.advance(31)
        [probe] = world.claim().items
        assert probe.key == "carol-1"
        assert world.settle(probe, DOWN) is None
        world.clock.advance(31)
        [probe] = world.claim().items
        assert probe.key.startswith("alice"), "neither bob's, which failed first, nor carol's"
        assert world.settle(probe, DOWN) is None
        world.clock.advance(31)
        [probe] = world.claim().items
        assert probe.key.startswith("bob"), (
            "all have failed: it is the turn of the one that failed longest ago"
        )
        assert world.settle(probe, Done()) is None
        assert world.breaker(PLAIN) is None
        world.audit()

    def test_all_probes_must_succeed(self, ledger: Ledger) -> None:
        world = World(ledger, self.route(probes=2))
        self.half_open(world, "p1", "p2")
        one, two = world.claim().items
        assert world.settle(one, Done()) is None
        assert world.claim().items == [], "one has passed and one is under way"
        assert world.settle(two, Done()) is None
        assert len(world.claim().items) == 3

    def test_a_probe_that_is_given_back_leaves_room_for_another(self, guarded: World) -> None:
        self.half_open(guarded)
        [probe] = guarded.claim().items
        assert (
            guarded.apply(given_back(probe.row, guarded.now, why="the worker is stopping")) is None
        )
        guarded.ledger.drop_tickets([probe.ticket])
        assert len(guarded.claim().items) == 1

    @pytest.mark.parametrize("looks", [1, 2])
    def test_a_probe_that_cannot_tell_leaves_room_for_another(
        self, guarded: World, looks: int
    ) -> None:
        self.half_open(guarded)
        for _ in range(looks):
            [probe] = guarded.claim().items
            assert (
                guarded.settle(
                    probe, NotYet(after="1s", note="too many files are open", unknown=True)
                )
                is None
            )
            assert guarded.breaker(PLAIN) is not None
        assert len(guarded.claim().items) == 1

    def test_a_probe_that_dies_with_its_process_does_not_hold_it_half_open(
        self, guarded: World
    ) -> None:
        self.half_open(guarded)
        [probe] = guarded.claim().items
        guarded.clock.advance(LEASE / 1000 - 1)
        assert guarded.claim().items == []
        seen = []
        for _ in range(3):
            guarded.clock.advance(COOLDOWN / 1000 + 1)
            seen += guarded.claim().items
        assert seen, "another item was let through"
        assert guarded.settle(seen[-1], Done()) is None
        assert guarded.breaker(PLAIN) is None
        assert probe.key in {"f1", "f2", "f3"}
        guarded.audit()

    def test_a_probe_whose_lease_is_extended_keeps_others_out(self, guarded: World) -> None:
        self.half_open(guarded)
        [probe] = guarded.claim().items
        guarded.clock.advance(LEASE / 2000)
        assert guarded.ledger.extend(
            [probe.row], guarded.now + 2 * LEASE, guarded.now, [probe.ticket]
        ) == [True]
        guarded.clock.advance(LEASE / 1000)
        assert guarded.claim().items == []

    def test_it_is_shared_by_all_processes(self, ledger: Ledger) -> None:
        one = World(ledger, self.route())
        two = World(self.another(ledger), self.route(), clock=one.clock)
        self.fail(one, "f1", "f2")
        self.fail(two, "f3")
        assert one.claim().items == []
        one.clock.advance(31)
        [probe] = two.claim(holder="other").items
        assert one.claim().items == []
        assert two.settle(probe, Done()) is None
        assert len(one.claim().items) == 2

    def test_a_try_that_began_before_it_opened_changes_nothing(self, guarded: World) -> None:
        guarded.add("a", "b", "c", "d", "e")
        items = guarded.claim().items
        for item in items[:3]:
            guarded.settle(item, DOWN)
        opened = guarded.breaker(PLAIN)
        guarded.clock.advance(1)
        guarded.settle(items[3], DOWN)
        guarded.settle(items[4], Done())
        assert guarded.breaker(PLAIN) == opened

    def test_an_operator_closes_it(self, guarded: World) -> None:
        self.fail(guarded, "f1", "f2", "f3")
        guarded.add("p1")
        assert guarded.claim().items == []
        assert guarded.ledger.write(BREAKER, PLAIN, None)
        assert self.keys(guarded.claim().items) == ["p1"]

    def test_a_clock_set_back_keeps_it_open_for_no_more_than_a_cooldown(
        self, guarded: World
    ) -> None:
        self.fail(guarded, "f1", "f2", "f3")
        guarded.clock.set_back("1h")
        guarded.add("p1")
        assert guarded.claim().items == []
        guarded.clock.advance(31)
        assert self.keys(guarded.claim().items) == ["p1"]

    def test_renaming_its_stage_keeps_it_open(self, guarded: World) -> None:
        self.fail(guarded, "f1", "f2", "f3")
        guarded.ledger.rename_stage("parcels", "weigh", "scales")
        assert list(guarded.ledger.read(BREAKER)) == ["parcels/scales/"]

    def test_items_that_arrive_are_not_claimed_past_it(self, ledger: Ledger) -> None:
        self.needs(ledger, "one step")
        route = sample_route(lane=None)
        route.stages[1] = replace(
            route.stages[1], breaker=Breaker(failures=2), retry=Backoff(attempts=9, base=1)
        )
        world = World(ledger, route)
        world.bring("s1", "s2", to="stamp")
        world.add("p1", "p2")
        failing, coming = world.claim("stamp").items, world.claim("weigh").items
        changes = [decide(item, DOWN, world.plan, world.now, 0.0) for item in failing]
        changes += [decide(item, Done(), world.plan, world.now, 0.0) for item in coming]
        versions = {world.plan.name: world.plan.version}
        answers, [claimed] = ledger.apply_and_claim(
            changes, world.now, versions, [world.ask("stamp")], 0.0
        )
        assert (answers, claimed.items) == ([None] * 4, []), (
            "the write that opened it claims nothing behind it"
        )
        assert {world.row(key).status for key in ("p1", "p2")} == {Status.QUEUED}
        assert claimed.next_at == world.now + COOLDOWN
        world.audit()
