"""Pauses, rates, limits and lanes: which items may be claimed now, and when the next claim can
succeed."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from milepost.core.outcome import Done
from milepost.core.routes.route import Limits
from milepost.core.status import Status
from milepost.ports.items import Query
from milepost.ports.ledger import Ledger
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import World, sample_route


class ControlsContract(Promises):
    @pytest.mark.parametrize(
        "name", ["parcels", "parcels/weigh", "parcels/weigh/", "parcels/weigh/north"]
    )
    def test_a_pause_holds_exactly_its_scope(self, world: World, name: str) -> None:
        world.add("plain")
        world.add("north", lane="north")
        world.hold(name)
        held = {"parcels/weigh/": {"plain"}, "parcels/weigh/north": {"north"}}.get(
            name, {"plain", "north"}
        )
        got = {item.key for item in world.claim().items}
        assert got == {"plain", "north"} - held
        world.release(name)
        assert {item.key for item in world.claim().items} == held
        assert all(world.row(key).attempts == 0 for key in held)
        world.audit()

    def test_a_pause_of_a_wider_lane_holds_the_lanes_within_it(self, world: World) -> None:
        """A lane named `A@B` lies within the lane `B`; other lanes whose names end alike do not."""
        for key, lane in (
            ("bob", "bob@north"),
            ("amy", "amy@north"),
            ("other", "amy@south"),
            ("alike", "upnorth"),
        ):
            world.add(key, lane=lane)
        world.hold("parcels/weigh/north")
        assert {item.key for item in world.claim().items} == {"other", "alike"}
        world.release("parcels/weigh/north")
        world.hold("parcels/weigh/bob@north")
        assert {item.key for item in world.claim().items} == {"amy"}
        world.release("parcels/weigh/bob@north")
        assert {item.key for item in world.claim().items} == {"bob"}
        world.audit()

    def test_a_pause_of_one_stage_leaves_the_others_open(self, world: World) -> None:
        world.bring("p1", to="stamp")
        world.add("p2")
        world.hold("parcels/weigh")
        assert world.claim("weigh").items == []
        assert [item.key for item in world.claim("stamp").items] == ["p1"]

    def test_held_items_are_not_due_and_who_hears_of_no_change_asks_again(
        self, world: World
    ) -> None:
        world.add("p1")
        world.hold("parcels/weigh")
        claimed = world.claim()
        world.asks_again(claimed, None)
        assert (
            claimed.next_at is not None or "change counter" not in world.ledger.missing_capabilities
        ), "a worker would not notice the resume"
        assert world.ledger.next_due([world.plan]) is None

    def test_a_worker_may_settle_what_it_holds_while_paused(self, world: World) -> None:
        world.add("p1")
        item = world.take("p1")
        world.hold("parcels")
        assert world.settle(item, Done()) is None
        assert world.ledger.extend([item.row], world.now + 1, world.now) == [False]

    def test_next_due_is_the_earliest_of_our_own_stages_and_open_lanes(self, world: World) -> None:
        assert world.ledger.next_due([world.plan]) is None
        world.bring("outside", to="delivered")
        assert world.ledger.next_due([world.plan]) is None, (
            "an external stage is not ours to work on"
        )
        world.add("north", lane="north")
        first = world.now
        world.clock.advance(5)
        world.add("plain")
        assert world.ledger.next_due([world.plan]) == first
        world.hold("parcels/weigh/north")
        assert world.ledger.next_due([world.plan]) == world.now
        world.claim()
        assert world.ledger.next_due([world.plan]) == world.row("plain").due_at
        assert world.ledger.next_due([]) is None

    def test_an_external_stage_is_sent_again_by_the_resenders_look(self, world: World) -> None:
        world.bring("p1", to="delivered")
        row = world.row("p1")
        assert (row.status, row.due_at) == (Status.QUEUED, world.now + 14 * 86_400_000)
        offered = world.lines("p1")[-1].offered
        assert offered == world.item("p1").work_id
        assert world.look("p1") is None
        world.clock.advance("14d")
        assert world.apply(world.look("p1")) is None
        assert world.reasons("p1")[-1] == "resent"
        assert world.lines("p1")[-1].offered == offered
        assert world.look("p1") is None
        world.clock.advance("14d")
        world.apply(world.look("p1"))
        world.clock.advance("2d")
        world.apply(world.look("p1"))
        assert world.reasons("p1")[-1] == "overdue"
        assert world.row("p1").status is Status.QUEUED
        world.audit()

    def test_a_rate_is_kept_over_time_and_next_at_says_when_there_is_a_token(
        self, ledger: Ledger
    ) -> None:
        world = World(ledger, sample_route(rate="2/s"))
        world.add(*(f"p{n}" for n in range(20)))
        got = len(world.claim().items)
        assert got == 1, "at 2/s one call is saved up at most"
        claimed = world.claim()
        assert claimed.items == []
        assert claimed.next_at is not None
        assert world.now + 490 <= claimed.next_at <= world.now + 510
        start = world.now
        while world.now < start + 5000:
            world.clock.advance_to(claimed.next_at)
            claimed = world.claim()
            got += len(claimed.items)
            assert claimed.next_at is not None
            assert claimed.next_at > world.now
        assert 10 <= got <= 12
        world.audit()

    def test_a_rate_holds_for_all_processes_together(self, ledger: Ledger) -> None:
        other = self.another(ledger)
        one = World(ledger, sample_route(rate="10/s"))
        two = World(other, sample_route(rate="10/s"), clock=one.clock)
        one.add(*(f"p{n}" for n in range(100)))
        got = 0
        for _ in range(40):
            got += len(one.claim().items) + len(two.claim(holder="other").items)
            one.clock.advance(0.05)
        assert 19 <= got <= 22

    def test_a_rate_counts_calls_not_items(self, ledger: Ledger) -> None:
        world = World(ledger, sample_route(rate="1/s", batch=10))
        world.add(*(f"p{n}" for n in range(50)))
        assert len(world.claim(batch=10).items) == 10
        assert world.claim(batch=10).items == []
        world.clock.advance(1)
        assert len(world.claim(batch=10, want=3).items) == 3
        assert world.claim(batch=10).items == []

    def test_calls_that_were_spent_beyond_the_claim_are_charged(self, ledger: Ledger) -> None:
        world = World(ledger, sample_route(rate="1/s"))
        world.add("p1", "p2")
        assert len(world.claim().items) == 1
        world.clock.advance(1)
        assert world.claim(spent={"": 3}).items == []
        world.clock.advance(2)
        assert world.claim().items == []
        world.clock.advance(1)
        assert len(world.claim().items) == 1

    def test_calls_beyond_the_claim_are_charged_to_their_lane(self, ledger: Ledger) -> None:
        world = World(ledger, sample_route(lanes={"west": Limits(rate="1/s")}))
        world.add("w1", "w2", lane="west")
        world.add("e1", "e2", lane="east")
        assert len([item for item in world.claim().items if item.lane == "west"]) == 1
        world.clock.advance(1)
        assert [item for item in world.claim(spent={"west": 3}).items if item.lane == "west"] == []
        world.clock.advance(3)
        assert [item.lane for item in world.claim().items] == ["west"]

    def test_a_lane_that_holds_much_leaves_what_comes_next_to_the_others(
        self, world: World
    ) -> None:
        self.needs(world.ledger, "fair lanes")
        world.add(*(f"slow{n}" for n in range(50)), lane="slow")
        world.add(*(f"quick{n}" for n in range(50)), lane="quick")
        assert {item.lane for item in world.claim(want=2, held={"slow": 4}).items} == {"quick"}
        alone = world.claim(want=4, held={"slow": 4, "quick": 4}).items
        assert {item.lane for item in alone} == {"slow", "quick"}

    def test_a_lane_alone_is_not_given_everything_where_there_are_others(
        self, world: World
    ) -> None:
        world.add("q", lane="quick")
        assert len(world.claim(want=10).items) == 1
        world.add(*(f"slow{n}" for n in range(50)), lane="slow")
        assert len(world.claim(want=10).items) == 5
        assert world.claim(want=5, held={"slow": 5}).items == []

    def test_a_clock_set_back_blocks_a_rate_for_seconds_only(self, ledger: Ledger) -> None:
        world = World(ledger, sample_route(rate="1/s"))
        world.add("p1")
        assert len(world.claim().items) == 1
        world.clock.set_back("1h")
        world.add("p2")
        assert world.claim().items == []
        world.clock.advance(15)
        assert [item.key for item in world.claim().items] == ["p2"]

    def test_a_rate_does_not_save_up_while_idle(self, ledger: Ledger) -> None:
        world = World(ledger, sample_route(rate="20/s"))
        world.clock.advance("1d")
        world.add(*(f"p{n}" for n in range(30)))
        assert len(world.claim().items) <= 2

    def test_a_limit_set_while_running_wins_over_the_routes(self, ledger: Ledger) -> None:
        world = World(ledger, sample_route(rate="1/s"))
        world.add(*(f"p{n}" for n in range(200)))
        world.limit("parcels/weigh", rate="1000/s")
        assert len(world.claim(want=200).items) == 100
        world.limit("parcels/weigh", rate="1/h")
        world.clock.advance(1)
        assert len(world.claim(want=200).items) <= 1

    def test_a_lanes_rate_holds_up_only_that_lane(self, ledger: Ledger) -> None:
        world = World(ledger, sample_route(lanes={"slow": Limits(rate="1/s")}))
        world.add(*(f"s{n}" for n in range(5)), lane="slow")
        world.add(*(f"q{n}" for n in range(5)), lane="quick")
        claimed = world.claim()
        assert Counter(item.lane for item in claimed.items) == {"slow": 1, "quick": 5}
        assert claimed.next_at is not None
        assert world.now < claimed.next_at <= world.now + 1001

    def test_a_lanes_concurrency_lets_as_many_wait_as_the_request_says(
        self, ledger: Ledger
    ) -> None:
        world = World(ledger, sample_route(lanes={"narrow": Limits(concurrency=2)}))
        world.add(*(f"n{n}" for n in range(9)), lane="narrow")
        assert len(world.claim(held={"narrow": 1}, ahead={"narrow": 3}).items) == 4
        assert world.claim(held={"narrow": 5}, ahead={"narrow": 3, "other": 9}).items == []

    def test_a_lanes_concurrency_counts_what_is_in_hand_already(self, ledger: Ledger) -> None:
        world = World(ledger, sample_route(lanes={"narrow": Limits(concurrency=2)}))
        world.add(*(f"n{n}" for n in range(5)), lane="narrow")
        world.add(*(f"w{n}" for n in range(5)), lane="wide")
        assert Counter(item.lane for item in world.claim(held={"narrow": 1}).items) == {
            "narrow": 1,
            "wide": 5,
        }
        assert world.claim(held={"narrow": 2, "wide": 5}).items == []
        assert world.claim(held={"narrow": 3}).items == []
        assert len(world.claim(held={}, batch=2).items) == 4

    def test_a_rate_of_a_wider_lane_holds_for_the_lanes_within_it_together(
        self, world: World
    ) -> None:
        for lane in ("amy@north", "bob@north", "north", "amy@south"):
            world.add(*(f"{lane}-{n}" for n in range(20)), lane=lane)
        world.limit("parcels/weigh/north", rate="2/s")
        first = world.claim()
        within = [item for item in first.items if item.lane.endswith("north")]
        assert (len(within), len(first.items)) == (1, 21), "at 2/s one call is saved up at most"
        assert first.next_at is not None
        assert first.next_at <= world.now + 501
        got: Counter[str] = Counter()
        for _ in range(100):
            world.clock.advance(0.1)
            got.update(item.lane for item in world.claim().items)
        assert 19 <= sum(got.values()) <= 21
        assert min(got[lane] for lane in ("amy@north", "bob@north", "north")) >= 3, (
            "none starves another"
        )
        world.audit()

    def test_a_routes_limits_of_a_wider_lane_hold_for_the_lanes_within_it_together(
        self, ledger: Ledger
    ) -> None:
        world = World(
            ledger,
            sample_route(lanes={"north": Limits(rate="1/s"), "south": Limits(concurrency=3)}),
        )
        for lane in ("amy@north", "bob@north", "amy@south", "bob@south"):
            world.add(*(f"{lane}-{n}" for n in range(9)), lane=lane)
        claimed = Counter(item.lane.rpartition("@")[2] for item in world.claim().items)
        assert claimed == {"north": 1, "south": 3}

    def test_a_lane_keeps_its_own_limits_within_a_wider_one(self, world: World) -> None:
        for lane in ("amy@north", "bob@north"):
            world.add(*(f"{lane}-{n}" for n in range(50)), lane=lane)
        world.limit("parcels/weigh/north", rate="100/s")
        world.limit("parcels/weigh/bob@north", rate="1/s", concurrency=5)
        claimed = Counter(item.lane for item in world.claim().items)
        assert (claimed.total(), claimed["bob@north"] <= 1) == (10, True)
        world.clock.advance(1)
        assert world.claim(held={"bob@north": 5, "amy@north": 9}).items[0].lane == "amy@north"

    def test_the_concurrency_of_a_wider_lane_counts_what_the_lanes_within_it_hold(
        self, world: World
    ) -> None:
        for lane in ("amy@north", "bob@north", "north", "bob@south"):
            world.add(*(f"{lane}-{n}" for n in range(9)), lane=lane)
        world.limit("parcels/weigh/north", concurrency=4)
        held = {"amy@north": 1, "eve@north": 1}
        claimed = Counter(item.lane.rpartition("@")[2] for item in world.claim(held=held).items)
        assert claimed == {"north": 2, "south": 9}
        assert world.claim(held={"amy@north": 2, "north": 2, "bob@south": 9}).items == []
        assert len(world.claim(held={"amy@north": 4}, ahead={"amy@north": 2}).items) == 2

    def test_calls_beyond_the_claim_are_charged_to_the_wider_lane_too(self, world: World) -> None:
        for lane in ("amy@north", "bob@north"):
            world.add(*(f"{lane}-{n}" for n in range(9)), lane=lane)
        world.limit("parcels/weigh/north", rate="1/s")
        assert len(world.claim().items) == 1
        world.clock.advance(1)
        assert world.claim(spent={"amy@north": 2, "bob@north": 1}).items == []
        world.clock.advance(2)
        assert world.claim().items == []
        world.clock.advance(1)
        assert len(world.claim().items) == 1

    def test_a_search_within_a_wider_lane_finds_the_items_of_all_lanes_within_it(
        self, world: World
    ) -> None:
        for key, lane in (
            ("amy", "amy@north"),
            ("own", "north"),
            ("other", "amy@south"),
            ("alike", "upnorth"),
        ):
            world.add(key, lane=lane)
        query = Query(route="parcels", within="north")
        assert {item.key for item in world.ledger.find(query).items} == {"amy", "own"}
        live = replace(
            query,
            statuses=frozenset({Status.PENDING, Status.QUEUED}),
            entered_before=world.now + 1,
            limit=1,
        )
        assert len(world.ledger.find(live).items) == 1
        assert {
            item.key for item in world.ledger.find(replace(query, within="amy@north")).items
        } == {"amy"}

    def test_a_lane_limit_set_while_running_wins(self, world: World) -> None:
        world.add(*(f"n{n}" for n in range(5)), lane="north")
        world.limit("parcels/weigh/north", concurrency=1)
        assert len(world.claim().items) == 1
        world.limit("parcels/weigh/north", concurrency=3)
        assert len(world.claim(held={"north": 1}).items) == 2

    def test_no_lane_starves_another(self, world: World) -> None:
        self.needs(world.ledger, "fair lanes")
        world.add(*(f"big{n}" for n in range(200)), lane="big")
        world.clock.advance(1)
        world.add("small1", "small2", lane="small")
        got = Counter(item.lane for item in world.claim(want=10).items)
        assert got["small"] == 2
        assert got["big"] >= 5

    def test_no_lane_starves_another_when_one_item_is_wanted_at_a_time(self, world: World) -> None:
        self.needs(world.ledger, "fair lanes")
        world.add(*(f"big{n}" for n in range(100)), lane="big")
        world.add(*(f"small{n}" for n in range(3)), lane="small")
        got: list[str] = []
        for step in range(20):
            got += [item.lane for item in world.claim(want=1).items]
            world.clock.advance(0.002 if step % 2 else 0.004)
        assert len(got) == 20
        assert got.count("small") == 3
