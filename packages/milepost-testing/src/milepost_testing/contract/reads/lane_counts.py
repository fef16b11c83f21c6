"""Contract of lane counts: exact numbers of items by lane, and of those that entered a stage by a
time."""

from __future__ import annotations

import pytest

from milepost.core.forecast import LaneCount
from milepost.core.outcome import Done, HandedOver, NotYet, Outcome, Reject, Retry
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import World

HOUR = 3_600_000


class LaneCountsContract(Promises):
    @pytest.fixture
    def busy(self, world: World) -> World:
        """At weigh: claimed, handed over, two retries in lane north, one ready, one for later; at
        stamp: one that waits; one failed."""
        outcomes: dict[str, Outcome | None] = {
            "claimed": None,
            "partner": HandedOver(within="4h"),
            "wrong": Reject("no such parcel"),
            "waits": Done(),
            "retry-1": Retry("busy", after="2h"),
            "retry-2": Retry("busy", after="3h"),
        }
        for key, outcome in outcomes.items():
            if key.startswith("retry"):
                world.add(key, lane="north", list_id="list-2")
            else:
                world.add(key, list_id="list-1")
            taken = world.take(key)
            if outcome is not None:
                assert world.settle(taken, outcome) is None
        world.settle(world.take("waits", "stamp"), NotYet(after="5h"))
        world.add("ready", list_id="list-2")
        world.add("later", not_before=world.now + HOUR)
        return world

    def test_each_live_item_is_counted_once_by_what_it_waits_for(self, busy: World) -> None:
        self.needs(busy.ledger, "lane counts")
        counted = busy.ledger.lane_counts("parcels", busy.now)
        assert counted is not None
        assert sorted(counted, key=lambda one: (one.stage, one.lane)) == [
            LaneCount("stamp", "", later=1, next_at=busy.now + 5 * HOUR),
            LaneCount(
                "weigh", "", claimed=1, with_partner=1, ready=1, later=1, next_at=busy.now + HOUR
            ),
            LaneCount("weigh", "north", later=2, next_at=busy.now + 2 * HOUR),
        ]
        later = busy.ledger.lane_counts("parcels", busy.now + 150 * 60_000)
        assert later is not None
        assert LaneCount("weigh", "north", ready=1, later=1, next_at=busy.now + 3 * HOUR) in later
        assert busy.ledger.lane_counts("letters", busy.now) == []

    def test_the_items_of_lists_are_counted_with_those_that_have_ended(self, busy: World) -> None:
        self.needs(busy.ledger, "lane counts")
        counted = busy.ledger.lane_counts("parcels", busy.now, {"list-1"})
        assert counted is not None
        assert sorted(counted, key=lambda one: one.stage) == [
            LaneCount("stamp", "", later=1, next_at=busy.now + 5 * HOUR),
            LaneCount("weigh", "", failed=1, claimed=1, with_partner=1),
        ]
        both = busy.ledger.lane_counts("parcels", busy.now, {"list-1", "list-2", "gone"})
        assert both is not None
        assert LaneCount("weigh", "", failed=1, claimed=1, with_partner=1, ready=1) in both

    def test_a_ledger_that_lacks_lane_counts_says_that_it_does_not_know_them(
        self, busy: World
    ) -> None:
        lacks = "lane counts" in busy.ledger.missing_capabilities
        answers = [
            busy.ledger.lane_counts("parcels", busy.now),
            busy.ledger.entered_by("parcels", "weigh", busy.now),
        ]
        assert [answer is None for answer in answers] == [lacks, lacks]

    def test_live_items_that_entered_a_stage_by_a_time_are_counted(self, world: World) -> None:
        self.needs(world.ledger, "lane counts")
        start = world.now
        world.add("a")
        world.settle(world.take("a"), Reject("no such parcel"))
        world.add("b")
        taken = world.take("b")
        world.add("c", lane="north")
        world.clock.advance(5_000)
        world.add("d")
        world.settle(taken, Done())
        assert [
            world.ledger.entered_by("parcels", "weigh", at)
            for at in (start - 1, start, world.now - 1, world.now)
        ] == [0, 1, 1, 2]
        assert [
            world.ledger.entered_by("parcels", stage, world.now) for stage in ("stamp", "nowhere")
        ] == [1, 0]
        world.claim()
        assert world.ledger.entered_by("parcels", "weigh", world.now) == 2, (
            "a claimed item is counted"
        )
