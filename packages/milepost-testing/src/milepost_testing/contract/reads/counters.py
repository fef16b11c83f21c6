"""Promise 8, whole records: counters and error groups agree with the rows after every kind of
write."""

from __future__ import annotations

from milepost.core.decide import decide
from milepost.core.operators import cancel, move, retry, skip
from milepost.core.outcome import Done, HandedOver, NotYet, Outcome, Reject, Retry
from milepost.core.status import Status
from milepost.ports.feed import Group
from milepost.ports.ledger import Ledger
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import World, sample_route


class CountersContract(Promises):
    def test_counters_follow_an_item_through_its_life(self, world: World) -> None:
        world.add("p1")
        steps: list[Outcome] = [Retry("busy"), NotYet(), HandedOver("1s"), Done()]
        for outcome in steps:
            world.clock.advance("1h")
            world.claim()
            world.clock.advance("1h")
            for item in world.claim().items:
                world.settle(item, outcome)
            world.audit()
        assert sum(world.count().values()) == 1

    def test_counters_tell_stage_status_and_hour(self, world: World) -> None:
        world.add("p1", "p2")
        world.clock.advance("2h")
        world.settle(world.claim(want=1).items[0], Done())
        hour = world.now // 3_600_000
        found = sorted(
            (count.stage, count.status, count.hour, count.n)
            for count in world.ledger.counts("parcels")
            if count.n
        )
        assert found == [("stamp", Status.QUEUED, hour, 1), ("weigh", Status.QUEUED, hour - 2, 1)]

    def test_counts_are_given_by_route_or_for_all(self, ledger: Ledger) -> None:
        World(ledger).add("p1")
        World(ledger, sample_route("letters")).add("l1", "l2")
        assert {count.route: count.n for count in ledger.counts()} == {"parcels": 1, "letters": 2}
        assert [count.n for count in ledger.counts("letters")] == [2]
        assert ledger.counts("nowhere") == []

    def test_like_errors_make_one_group(self, world: World) -> None:
        world.add("p1", "p2", "p3")
        for number, item in enumerate(world.claim().items):
            world.settle(
                item, Retry(f"scale {number} is busy") if number < 2 else Reject("no such parcel")
            )
        groups = sorted(world.ledger.groups("parcels"), key=lambda group: group.now)
        assert [(group.stage, group.category, group.now) for group in groups] == [
            ("weigh", "REJECTED", 1),
            ("weigh", "ERROR", 2),
        ]
        assert groups[1].sample in ("scale 0 is busy", "scale 1 is busy")
        assert world.row("p1").error is not None
        world.audit()

    def test_a_group_remembers_how_many_there_ever_were_and_when(self, world: World) -> None:
        world.add("p1")
        first = world.now
        world.settle(world.take("p1"), Retry("scale 1 is busy"))
        world.clock.advance(5)
        last = world.now
        world.settle(world.take("p1"), Retry("scale 2 is busy"))
        world.clock.advance(5)
        world.settle(world.take("p1"), Done())
        (group,) = world.ledger.groups("parcels")
        assert isinstance(group, Group)
        assert (group.now, group.first_at, group.last_at) == (0, first, last)
        assert group.total >= 1
        world.audit()

    def test_groups_follow_operators_too(self, world: World) -> None:
        world.add("p1", "p2", "p3")
        for item in world.claim().items:
            world.settle(item, Reject("no"))
        world.apply(retry(world.item("p1"), world.plan, world.now, by="ops"))
        world.apply(skip(world.item("p2"), world.plan, world.now, by="ops"))
        assert [group.now for group in world.ledger.groups()] == [1]
        world.audit()

    def test_a_failed_item_that_is_moved_takes_its_group_along(self, world: World) -> None:
        world.add("p1")
        world.settle(world.take("p1"), Reject("no"))
        world.apply(move(world.item("p1"), world.plan, "stamp", world.now, by="ops"))
        world.audit()
        world.apply(retry(world.item("p1"), world.plan, world.now, by="ops"))
        world.audit()
        assert all(group.now == 0 for group in world.ledger.groups())

    def test_a_cancelled_item_is_counted_as_such(self, world: World) -> None:
        world.add("p1", "p2")
        world.apply(cancel(world.item("p1"), world.plan, world.now, by="ops"))
        assert world.count() == {"CANCELLED": 1, "QUEUED": 1}
        world.audit()

    def test_many_items_in_batches_are_counted_right(self, world: World) -> None:
        world.add(*(f"p{n}" for n in range(self.many)))
        for _ in range(5):
            items = world.claim(want=self.many * 3 // 10).items
            outcomes = [
                Done() if number % 3 else Retry(f"error {'abc'[number % 2]}")
                for number in range(len(items))
            ]
            changes = [
                decide(item, outcome, world.plan, world.now, 0.0)
                for item, outcome in zip(items, outcomes, strict=True)
            ]
            assert world.ledger.apply(changes, world.now) == [None] * len(items)
            world.clock.advance(1)
        assert sum(world.count().values()) == self.many
        world.audit()
