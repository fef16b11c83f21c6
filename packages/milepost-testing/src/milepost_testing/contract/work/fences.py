"""Promises 3, 4 and 6: leases fence, lost items come back, and losses are bounded."""

from __future__ import annotations

from msgspec.structs import replace

from milepost.core.change import change
from milepost.core.decide import MAX_LOSSES, decide, given_back, undecided
from milepost.core.due import FRAGILE
from milepost.core.item import Item
from milepost.core.outcome import Done, NotYet, Outcome, Retry
from milepost.core.status import Reason, Status
from milepost.ports.items import Conflict, Refused
from milepost.ports.ledger import Ledger
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import LEASE, World


class FencesContract(Promises):
    def test_a_stale_lease_loses(self, world: World) -> None:
        world.add("p1")
        late_one = world.take("p1", holder="slow")
        world.clock.advance("1m")
        current = world.take("p1", holder="quick")
        assert world.settle(late_one, Done()) == Conflict(current.row)
        assert world.row("p1") == current.row
        assert world.settle(current, Done()) is None
        assert world.reasons("p1") == ["accepted", "lost", "advanced"]
        world.audit()

    def test_a_stale_lease_loses_even_at_the_same_version(self, world: World) -> None:
        world.add("p1")
        first = world.take("p1")
        world.apply(given_back(first.row, world.now, why="shutdown"))
        second = world.take("p1")
        noted = change(second.row, Reason.NOTED, world.now, second.row.status, {})
        stolen = decide(
            Item(replace(second.row, lease=first.row.lease), first.content),
            Done(),
            world.plan,
            world.now,
            0.0,
        )
        assert world.apply(stolen) == Conflict(second.row)
        assert world.apply(noted) is None

    def test_outcomes_of_stale_leases_lose_in_a_group_of_rows_that_differ_in_the_lease_alone(
        self, world: World
    ) -> None:
        """A repeated NotYet writes no line: head, status, stage and lane are those of the claim
        before, and only the lease tells them apart."""
        world.add(*[f"p{number:02}" for number in range(12)])
        claims = []
        for _ in range(3):
            items = world.claim().items
            assert len(items) == 12
            claims.append(items)
            if len(claims) < 3:
                self.settle_together(world, items, NotYet(after="1s"))
                world.clock.advance("1s")
        stale, current = claims[1:]
        assert {item.row.head for item in stale} == {item.row.head for item in current}
        assert self.settle_together(world, stale, Done()) == [
            Conflict(item.row) for item in self.in_order_of(stale, current)
        ]
        assert world.count() == {"PROCESSING": 12}
        assert self.settle_together(world, current, Done()) == [None] * 12
        assert world.count("stamp") == {"QUEUED": 12}
        world.audit()

    def settle_together(
        self, world: World, items: list[Item], outcome: Outcome
    ) -> list[Conflict | Refused | None]:
        answers = world.ledger.apply(
            [decide(item, outcome, world.plan, world.now, 0.0) for item in items], world.now
        )
        world.ledger.drop_tickets(
            [item.ticket for item, answer in zip(items, answers, strict=True) if answer is None]
        )
        return answers

    def in_order_of(self, items: list[Item], others: list[Item]) -> list[Item]:
        by_key = {item.key: item for item in others}
        return [by_key[item.key] for item in items]

    def test_a_lease_that_ran_out_but_was_taken_by_nobody_still_holds(self, world: World) -> None:
        world.add("p1")
        item = world.take("p1")
        world.clock.advance("10m")
        assert world.settle(item, Done()) is None
        assert world.row("p1").stage == "stamp"

    def test_an_expired_lease_is_a_loss_not_an_attempt(self, world: World) -> None:
        world.add("p1")
        world.take("p1", holder="dead")
        world.clock.advance("59s")
        assert world.claim().items == []
        world.clock.advance("1s")
        row = world.take("p1").row
        assert (row.losses, row.attempts, row.unknown, row.status) == (
            1,
            0,
            True,
            Status.PROCESSING,
        )
        line = world.lines("p1")[-1]
        assert (line.reason, line.by) == (Reason.LOST, "dead")
        world.audit()

    def test_what_two_workers_were_lost_with_is_given_alone_and_only_on_request(
        self, world: World
    ) -> None:
        world.add("f1", "f2")
        for _ in range(FRAGILE):
            assert len(world.claim().items) == 2
            world.clock.advance("1m")
        world.add("sound")
        claimed = world.claim()
        assert ([item.key for item in claimed.items], claimed.fragile) == (["sound"], True)
        assert len(world.claim(fragile=True).items) == 1
        assert len(world.claim(fragile=True).items) == 1
        assert world.claim(fragile=True).items == []
        assert {world.row(key).losses for key in ("f1", "f2")} == {FRAGILE}
        world.audit()

    def test_after_ten_losses_the_item_ends_worker_lost(self, world: World) -> None:
        world.add("poison", "good")
        for losses in range(MAX_LOSSES):
            for item in world.claim(fragile=losses >= FRAGILE).items:
                if item.key == "good":
                    world.settle(item, Done())
            world.clock.advance("1m")
        claimed = world.claim(fragile=True)
        world.moved_on(claimed)
        row = world.row("poison")
        assert (row.status, row.losses, row.attempts) == (
            Status.MAX_RETRIES_EXCEEDED,
            MAX_LOSSES,
            0,
        )
        assert row.error is not None
        assert row.error.category == "WORKER_LOST"
        assert world.row("good").stage == "stamp"
        world.clock.advance("1h")
        assert world.claim().items == []
        world.audit()

    def test_an_item_that_two_workers_were_lost_with_is_given_only_by_itself(
        self, world: World
    ) -> None:
        world.add("a", "b")
        for _ in range(2):
            assert len(world.claim().items) == 2
            world.clock.advance("1m")
        world.add("new")
        claimed = world.claim()
        assert [item.key for item in claimed.items] == ["new"]
        assert claimed.fragile, "there are some that wait to be asked for"
        first = world.claim(fragile=True)
        assert len(first.items) == 1
        assert first.items[0].row.losses == 2
        assert {
            *(item.key for item in first.items),
            *(item.key for item in world.claim(fragile=True).items),
        } == {"a", "b"}
        assert world.claim(fragile=True).items == []
        assert not world.claim().fragile
        world.audit()

    def test_losses_return_to_zero_on_advance(self, world: World) -> None:
        world.add("p1")
        world.take("p1")
        world.clock.advance("1m")
        world.settle(world.take("p1"), Done())
        assert world.row("p1").losses == 0

    def test_extend_moves_the_lease_on_without_a_line_or_version(self, world: World) -> None:
        world.add("p1")
        item = world.take("p1")
        world.clock.advance("50s")
        assert world.ledger.extend([item.row], world.now + LEASE, world.now) == [True]
        world.clock.advance("30s")
        assert world.claim().items == []
        assert world.row("p1").due_at == world.now + LEASE - 30_000
        assert world.row("p1").version == item.row.version
        assert world.settle(item, Done()) is None
        world.audit()

    def test_extend_says_which_leases_are_gone(self, world: World) -> None:
        world.add("p1", "p2", "p3")
        items = {item.key: item for item in world.claim().items}
        world.settle(items["p1"], Done())
        world.apply(given_back(items["p2"].row, world.now, why="shutdown"))
        again = world.take("p2")
        rows = [items[key].row for key in ("p1", "p2", "p3")]
        assert world.ledger.extend(rows, world.now + 2 * LEASE, world.now) == [False, False, True]
        assert world.row("p2") == again.row
        assert world.ledger.extend([], world.now, world.now) == []

    def test_extend_keeps_an_overdue_mark(self, world: World) -> None:
        world.bring("p1", to="stamp")
        item = world.take("p1", "stamp")
        marked = item.row.overdue_at
        world.ledger.extend([item.row], world.now + 2 * LEASE, world.now)
        row = world.row("p1")
        assert (row.look_at, row.overdue_at) == (world.now + 2 * LEASE, marked)

    def test_given_back_is_uncounted_and_due_at_once(self, world: World) -> None:
        world.add("p1")
        world.apply(given_back(world.take("p1").row, world.now, why="shutdown"))
        row = world.take("p1").row
        assert (row.attempts, row.losses) == (0, 0)
        assert world.reasons("p1") == ["accepted", "given-back"]
        world.audit()

    def test_reclaim_makes_what_dead_holders_held_due_at_once(self, world: World) -> None:
        world.add("p1", "p2", "p3")
        held = {
            world.claim(want=1, holder=holder).items[0].key: holder
            for holder in ("dead-1", "dead-2", "alive")
        }
        assert world.ledger.reclaim(["dead-1", "dead-2", "unknown"], world.now) == 2
        again = world.claim(holder="next").items
        assert sorted(held[item.key] for item in again) == ["dead-1", "dead-2"]
        assert all(item.row.losses == 1 for item in again)
        assert world.ledger.reclaim([], world.now) == 0
        world.audit()

    def test_a_reclaimed_lease_still_fences(self, world: World) -> None:
        world.add("p1")
        item = world.take("p1", holder="dead")
        world.ledger.reclaim(["dead"], world.now)
        world.take("p1", holder="next")
        conflict = world.settle(item, Done())
        assert isinstance(conflict, Conflict)

    def test_a_confirmation_while_held_is_kept_and_beats_the_worker(self, world: World) -> None:
        world.add("p1")
        item = world.take("p1")
        world.confirm("p1", "weigh", Done({"grams": 1}))
        conflict = world.settle(item, Retry("busy"))
        assert isinstance(conflict, Conflict)
        assert conflict.current is not None
        assert conflict.current.lease == item.row.lease, (
            "the lease still holds: the worker decides again on the current row"
        )
        assert world.settle(world.item("p1"), Retry("busy")) is None
        after = world.item("p1")
        assert (after.stage, after.results, after.row.attempts) == (
            "stamp",
            {"weigh": {"grams": 1}},
            0,
        )
        assert world.reasons("p1") == ["accepted", "kept", "confirmed"]
        world.audit()

    def test_an_undecided_outcome_is_decided_by_the_next_claim(self, world: World) -> None:
        world.add("p1")
        row = world.take("p1", holder="old").row
        kept = undecided(row, Done({"grams": 9}), world.now, by="old")
        world.set_version(2)
        assert world.apply(kept) is None
        world.plan = world.plan.at_version(2)
        claimed = world.claim(holder="new")
        world.moved_on(claimed)
        item = world.item("p1")
        assert (item.stage, item.results, item.row.undecided) == (
            "stamp",
            {"weigh": {"grams": 9}},
            None,
        )
        assert world.reasons("p1") == ["accepted", "undecided", "advanced"]
        world.audit()

    def test_who_departed_is_known_until_what_they_held_is_taken_back(self, ledger: Ledger) -> None:
        ledger.sign_on("alive")
        assert ledger.dead_workers() == []
        self.make_departed(ledger, "dead")
        assert ledger.dead_workers() == ["dead"]
        ledger.reclaim(["dead"], 0)
        assert ledger.dead_workers() == []
        ledger.sign_off("alive")
