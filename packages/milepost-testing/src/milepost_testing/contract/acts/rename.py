"""Rename of a stage with items: every item keeps its place, and nothing else changes."""

from __future__ import annotations

import pytest

from milepost.core.admission.controls import scope
from milepost.core.change import Change
from milepost.core.confirmations import confirm
from milepost.core.decide import MAX_LOSSES, decide
from milepost.core.operators import cancel
from milepost.core.outcome import Done, Reject
from milepost.core.routes.plan import Plan
from milepost.core.status import TERMINAL, Status
from milepost.ports.documents import HOLD, LIMIT
from milepost.ports.items import Conflict, Query
from milepost.ports.ledger import Ledger
from milepost.ports.retention import DeliveredLines, PruneCriteria
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import World, sample_route


def renamed_plan(ledger: Ledger) -> Plan:
    """The sample route, whose "stamp" is now called "frank"."""
    route = sample_route()
    old = route.stages[1]
    route.stages[1] = type(old)(
        **{**{name: getattr(old, name) for name in old.__struct_fields__}, "name": "frank"}
    )
    return Plan(route, grace_ms=ledger.timing.grace_ms, offer_life_ms=ledger.timing.offer_life_ms)


class RenameContract(Promises):
    def test_every_item_of_the_stage_comes_along_with_its_counters_and_payload(
        self, world: World
    ) -> None:
        world.bring("here", to="stamp")
        world.bring("failed", to="stamp")
        for item in world.claim("stamp").items:
            if item.key == "failed":
                world.settle(item, Reject("no"))
        world.add("before")
        world.ledger.rename_stage("parcels", "stamp", "frank")
        world.plan = renamed_plan(world.ledger)
        assert world.count("frank") == {"PROCESSING": 1, "REJECTED": 1}
        assert world.count("stamp") == {}
        assert world.item("here").payload == {"by": "weigh"}
        assert world.row("before").stage == "weigh"
        assert {
            item.key
            for item in world.ledger.find(Query(route="parcels", stages=frozenset({"frank"}))).items
        } == {"here", "failed"}
        world.audit()

    def test_a_renamed_item_is_claimed_at_its_new_stage_and_goes_on(self, world: World) -> None:
        world.bring("p1", to="stamp")
        version = world.row("p1").version
        world.ledger.rename_stage("parcels", "stamp", "frank")
        world.plan = renamed_plan(world.ledger)
        assert world.row("p1").version == version
        assert world.settle(world.take("p1", "frank"), Done("ok")) is None
        assert world.row("p1").stage == "delivered"
        assert world.item("p1").results["frank"] == "ok"
        world.audit()

    @pytest.mark.parametrize("size", [10, 10_000])
    def test_a_kept_answer_comes_along_whatever_its_size(self, world: World, size: int) -> None:
        world.add("p1")
        later = confirm(
            world.item("p1"),
            "stamp",
            Done("ok", payload="x" * size),
            world.plan,
            world.now,
            0.0,
            by="partner",
        )
        assert isinstance(later, Change)
        assert world.apply(later) is None
        world.ledger.rename_stage("parcels", "stamp", "frank")
        world.plan = renamed_plan(world.ledger)
        assert set(world.row("p1").kept) == {"frank"}
        assert world.row("p1").kept["frank"]["payload"] == "x" * size
        world.audit()

    def test_pauses_and_limits_come_along(self, world: World) -> None:
        world.bring("p1", to="stamp")
        world.ledger.write(
            HOLD, scope("parcels", "stamp"), {"at": 1, "by": "ops", "reason": "repairs"}
        )
        world.ledger.write(LIMIT, scope("parcels", "stamp", "west"), {"rate": "1/s"})
        world.ledger.write(
            HOLD, scope("parcels", "stamping"), {"at": 1, "by": "ops", "reason": "another stage"}
        )
        world.ledger.rename_stage("parcels", "stamp", "frank")
        world.plan = renamed_plan(world.ledger)
        assert sorted(world.ledger.read(HOLD)) == ["parcels/frank", "parcels/stamping"]
        assert sorted(world.ledger.read(LIMIT)) == ["parcels/frank/west"]
        assert world.claim("frank").items == []

    def test_what_was_sealed_at_a_stage_that_is_merged_away_stays_known(self, world: World) -> None:
        world.add("gone", "anchor")
        world.apply(cancel(world.item("gone"), world.plan, world.now, by="ops"))
        world.apply(cancel(world.item("anchor"), world.plan, world.now, by="ops"))
        world.clock.advance("1h")
        world.ledger.prune(
            PruneCriteria(
                "parcels", TERMINAL, world.now, None, DeliveredLines(world.ledger.last_seq()), 10
            )
        )
        world.bring("p2", to="stamp")
        world.ledger.rename_stage("parcels", "weigh", "stamp")
        known = world.ledger.peek("parcels", ["gone"])[0]
        assert known is not None
        assert (known.status, known.stage) == (Status.CANCELLED, "stamp")

    def test_another_routes_stage_of_that_name_stays(self, ledger: Ledger) -> None:
        world, other = World(ledger), World(ledger, sample_route("letters"))
        world.bring("p1", to="stamp")
        other.bring("l1", to="stamp")
        ledger.rename_stage("parcels", "stamp", "frank")
        assert other.row("l1").stage == "stamp"
        other.audit()

    def test_a_change_made_before_the_renaming_does_not_undo_it(self, world: World) -> None:
        world.bring("p1", to="stamp")
        item = world.take("p1", "stamp")
        change = decide(item, Reject("no"), world.plan, world.now, 0.0)
        world.ledger.rename_stage("parcels", "stamp", "frank")
        conflict = world.apply(change)
        assert isinstance(conflict, Conflict)
        assert conflict.current is not None
        assert (conflict.current.stage, conflict.current.lease) == ("frank", item.row.lease)
        assert world.row("p1").stage == "frank"

    def test_a_confirmation_kept_for_the_stage_comes_along(self, world: World) -> None:
        world.add("p1")
        world.confirm("p1", "stamp", Done("early"))
        world.ledger.rename_stage("parcels", "stamp", "frank")
        world.plan = renamed_plan(world.ledger)
        assert list(world.row("p1").kept) == ["frank"]

    def test_a_stage_can_take_in_the_items_of_one_that_is_gone(self, world: World) -> None:
        """Renaming onto a stage that has items of its own merges both."""
        world.add("p1")
        world.bring("p2", to="stamp")
        world.ledger.rename_stage("parcels", "weigh", "stamp")
        assert world.row("p1").stage == world.row("p2").stage == "stamp"
        assert sum(world.count("stamp").values()) == 2
        assert {world.row(key).status for key in ("p1", "p2")} <= {Status.QUEUED, Status.PROCESSING}
        assert {count.stage for count in world.ledger.counts("parcels") if count.n} == {"stamp"}

    def test_error_groups_of_one_name_are_put_together_too(self, world: World) -> None:
        """Workers lost at either stage make groups of the same name."""
        world.bring("p2", to="stamp")
        world.add("p1")
        for _ in range(MAX_LOSSES + 1):
            for stage in ("weigh", "stamp"):
                world.claim(stage)
                world.claim(stage, fragile=True)
            world.clock.advance("1m")
        assert [group.now for group in world.ledger.groups()] == [1, 1]
        world.ledger.rename_stage("parcels", "weigh", "stamp")
        assert [(group.stage, group.now, group.total) for group in world.ledger.groups()] == [
            ("stamp", 2, 2)
        ]

    def test_renaming_a_stage_that_has_no_items_changes_nothing(self, world: World) -> None:
        world.add("p1")
        row = world.row("p1")
        world.ledger.rename_stage("parcels", "stamp", "frank")
        world.ledger.rename_stage("nowhere", "a", "b")
        assert world.row("p1") == row
