"""Claiming: due items of a stage, oldest first, under a fresh token."""

from __future__ import annotations

from milepost.core.operators import cancel
from milepost.core.outcome import Done, HandedOver, NotYet, Retry
from milepost.core.status import Status
from milepost.ports.ledger import Ledger
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import LEASE, World, sample_route


class ClaimContract(Promises):
    def test_a_claimed_item_is_held_under_the_grip_and_has_its_content(self, world: World) -> None:
        world.add("p1", colour="red")
        world.clock.advance(1)
        (item,) = world.claim(holder="anna").items
        row = item.row
        assert (row.status, row.holder, row.claimed_at, row.due_at) == (
            Status.PROCESSING,
            "anna",
            world.now,
            world.now + LEASE,
        )
        assert row.lease
        assert item.input == {"id": "p1", "colour": "red"}
        assert world.row("p1") == row
        assert world.count() == {"PROCESSING": 1}
        world.audit()

    def test_a_claim_makes_no_history_line(self, world: World) -> None:
        world.add("p1")
        world.claim()
        assert world.reasons("p1") == ["accepted"]
        assert world.row("p1").version == 1

    def test_a_held_item_is_given_to_nobody_else(self, world: World) -> None:
        world.add("p1")
        assert len(world.claim().items) == 1
        assert world.claim().items == []

    def test_each_claim_has_its_own_token(self, world: World) -> None:
        world.add("p1", "p2")
        first, second = world.claim(want=1).items[0], world.claim(want=1).items[0]
        assert first.row.lease != second.row.lease
        assert first.key != second.key

    def test_oldest_due_first(self, world: World) -> None:
        for key in ("c", "a", "b"):
            world.add(key)
            world.clock.advance(1)
        assert [world.claim(want=1).items[0].key for _ in range(3)] == ["c", "a", "b"]

    def test_never_more_than_wanted(self, world: World) -> None:
        world.add(*(f"p{n}" for n in range(10)))
        assert len(world.claim(want=4).items) == 4
        assert world.claim(want=0).items == []
        assert len(world.claim(want=100).items) == 6

    def test_an_item_at_another_stage_or_route_is_not_given(self, ledger: Ledger) -> None:
        world, other = World(ledger), World(ledger, sample_route("letters"))
        world.add("p1")
        assert world.claim("stamp").items == []
        assert other.claim("weigh").items == []
        assert len(world.claim("weigh").items) == 1

    def test_several_asks_in_one_call_are_answered_in_order(self, world: World) -> None:
        world.bring("p1", to="stamp")
        world.add("p2", "p3")
        asks = [world.ask("weigh", 1), world.ask("stamp"), world.ask("weigh")]
        first, second, third = world.ledger.claim(asks, world.now, 0.0)
        assert [len(first.items), len(second.items), len(third.items)] == [1, 1, 1]
        assert second.items[0].key == "p1"
        assert {first.items[0].row.lease, third.items[0].row.lease} == {
            asks[0].lease.token,
            asks[2].lease.token,
        }

    def test_an_item_before_its_time_is_left_alone_and_next_at_says_when(
        self, world: World
    ) -> None:
        world.add("p1")
        world.settle(world.take("p1"), Retry("busy", after=30))
        world.clock.advance(29)
        claimed = world.claim()
        assert claimed.items == []
        assert world.row("p1").due_at == world.now + 1000
        world.asks_again(claimed, world.now + 1000)
        world.clock.advance(1)
        assert world.take("p1").attempt == 2

    def test_next_at_is_none_when_only_a_new_change_can_bring_work(self, world: World) -> None:
        world.asks_again(world.claim(), None)
        world.bring("p1", to="stamp")
        world.asks_again(world.claim("weigh"), None)

    def test_next_at_looks_at_every_open_lane(self, world: World) -> None:
        world.add("later", lane="south")
        world.settle(world.take("later"), Retry("busy", after=5))
        world.add("now", lane="north")
        claimed = world.claim()
        assert [item.key for item in claimed.items] == ["now"]
        world.asks_again(claimed, world.now + 5000)
        world.hold("parcels/weigh/south")
        world.asks_again(world.claim(), world.row("now").due_at)

    def test_waiting_items_come_back_when_they_are_due(self, world: World) -> None:
        world.add("p1")
        world.settle(world.take("p1"), NotYet())
        assert world.row("p1").status is Status.WAITING
        assert world.claim().items == []
        world.clock.advance(10)
        item = world.take("p1")
        assert (item.attempt, item.row.looks) == (1, 1)

    def test_ended_items_are_never_given(self, world: World) -> None:
        world.add("p1")
        assert world.apply(cancel(world.item("p1"), world.plan, world.now, by="ops")) is None
        world.clock.advance("1w")
        assert world.claim().items == []

    def test_an_outdated_process_is_told_so_and_given_nothing(self, world: World) -> None:
        world.add("p1")
        world.set_version(2)
        claimed = world.claim()
        assert claimed.outdated
        assert claimed.items == []
        assert world.row("p1").status is Status.QUEUED
        world.plan = world.plan.at_version(2)
        assert len(world.claim().items) == 1

    def test_a_silence_after_handing_over_is_a_counted_try_made_by_the_claim(
        self, world: World
    ) -> None:
        world.add("p1")
        world.settle(world.take("p1"), HandedOver("1h"))
        world.clock.advance("1h")
        claimed = world.claim()
        world.moved_on(claimed)
        row = world.row("p1")
        assert (row.status, row.attempts, row.unknown) == (Status.RETRY_SCHEDULED, 1, True)
        assert row.error is not None
        assert row.error.category == "NO_ANSWER"
        world.clock.advance(1)
        assert world.take("p1").row.unknown
        world.audit()

    def test_a_kept_confirmation_met_by_a_claim_is_applied_instead_of_work(
        self, world: World
    ) -> None:
        world.add("p1")
        world.confirm("p1", "stamp", Done({"stamped": 1}))
        world.settle(world.take("p1"), Done())
        assert world.called or world.row("p1").stage == "stamp"
        claimed = world.claim("stamp")
        world.moved_on(claimed)
        assert world.row("p1").stage == "delivered"
        assert world.item("p1").results == {"stamp": {"stamped": 1}}
        assert world.row("p1").kept == {}
        assert world.reasons("p1") == ["accepted", "kept", "advanced", "confirmed"]
        assert [(line.by, line.kept) for line in world.lines("p1")[1::2]] == [
            ("partner", False),
            ("partner", True),
        ], "who gave it"
        world.audit()

    def test_overdue_is_told_once_and_changes_no_status(self, world: World) -> None:
        world.bring("p1", to="stamp")
        world.settle(world.take("p1", "stamp"), NotYet(after="3d"))
        world.clock.advance("1d")
        claimed = world.claim("stamp")
        world.moved_on(claimed)
        assert world.row("p1").status is Status.WAITING
        assert world.reasons("p1")[-1] == "overdue"
        assert world.claim("stamp").moved == 0
        world.clock.advance("2d")
        assert world.take("p1", "stamp").row.overdue_at is None
        assert world.reasons("p1").count("overdue") == 1
        world.audit()

    def test_overdue_and_ready_is_one_write_claimed_and_told(self, world: World) -> None:
        world.bring("p1", to="stamp")
        world.clock.advance("2d")
        assert world.take("p1", "stamp").row.overdue_at is None
        assert world.reasons("p1")[-1] == "overdue"
        world.audit()

    def test_items_that_are_only_moved_on_never_keep_others_from_being_claimed(
        self, world: World
    ) -> None:
        world.add(*(f"k{n}" for n in range(5)))
        for n in range(5):
            world.confirm(f"k{n}", "stamp")
        for item in world.claim().items:
            world.settle(item, Done())
        world.bring("p1", to="stamp")
        got: list[str] = []
        for _ in range(10):
            got += [item.key for item in world.claim("stamp", want=1).items]
        assert got == ["p1"]
        assert world.count("delivered") == {"QUEUED": 5}
        world.audit()
