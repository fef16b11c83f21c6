"""Settle and claim in one step: the same as two writes, with no other write between."""

from __future__ import annotations

from milepost.core.admission.controls import scope
from milepost.core.decide import decide
from milepost.core.item import Item
from milepost.core.outcome import Done
from milepost.core.status import Status
from milepost.ports.documents import HOLD
from milepost.ports.items import ClaimResult, Conflict, Refused
from milepost.ports.ledger import Ledger
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import World


class OneStepContract(Promises):
    def step(
        self, world: World, items: list[Item], want: int = 100
    ) -> tuple[list[Conflict | Refused | None], ClaimResult]:
        """Settle these items as done, and claim at their next stage."""
        changes = [decide(item, Done(), world.plan, world.now, 0.0) for item in items]
        versions = {world.plan.name: world.plan.version}
        answers, [claimed] = world.ledger.apply_and_claim(
            changes, world.now, versions, [world.ask("stamp", want)], 0.0
        )
        return answers, claimed

    def test_what_goes_on_is_claimed_at_the_next_stage(self, world: World, ledger: Ledger) -> None:
        self.needs(ledger, "one step")
        world.add("p1", "p2")
        answers, claimed = self.step(world, world.claim().items)
        assert answers == [None, None]
        assert sorted(item.key for item in claimed.items) == ["p1", "p2"]
        for item in claimed.items:
            assert (item.stage, item.status, item.row) == (
                "stamp",
                Status.PROCESSING,
                world.row(item.key),
            )
        assert world.reasons("p1") == ["accepted", "advanced"]
        world.audit()

    def test_a_repeated_settle_does_not_end_the_next_stage(
        self, world: World, ledger: Ledger
    ) -> None:
        self.needs(ledger, "one step")
        world.add("p1")
        items = world.claim().items
        _, claimed = self.step(world, items)
        [again], _ = self.step(world, items)
        assert again == Conflict(claimed.items[0].row)
        assert world.row("p1").stage == "stamp"

    def test_what_was_due_before_is_claimed_first(self, world: World, ledger: Ledger) -> None:
        self.needs(ledger, "one step")
        world.bring("old", to="stamp")
        world.clock.advance("1s")
        world.add("new")
        _, claimed = self.step(world, world.claim().items, want=1)
        assert [item.key for item in claimed.items] == ["old"]
        assert world.row("new").status is Status.QUEUED
        world.audit()

    def test_a_pause_holds_what_goes_on(self, world: World, ledger: Ledger) -> None:
        self.needs(ledger, "one step")
        world.add("p1")
        items = world.claim().items
        ledger.write(
            HOLD, scope(world.plan.name, "stamp"), {"by": "op", "at": world.now, "reason": "test"}
        )
        answers, claimed = self.step(world, items)
        assert (answers, claimed.items, world.row("p1").status) == ([None], [], Status.QUEUED)

    def test_what_lost_its_race_is_not_carried_on(self, world: World, ledger: Ledger) -> None:
        self.needs(ledger, "one step")
        world.add("p1", "p2")
        items = world.claim().items
        hurt = next(item for item in items if item.key == "p1")
        world.settle(hurt, Done())
        answers, claimed = self.step(world, items)
        assert [isinstance(answer, Conflict) for answer in answers] == [
            item.key == "p1" for item in items
        ]
        # It is due at that stage, though: it can be claimed there like any other.
        assert sorted(item.key for item in claimed.items) == ["p1", "p2"]
        world.audit()
