"""Promise 4, reported correctly: a history line names the claim that it ends, a worker learns
whether its outcome was written, and no write takes back a lease extension."""

from __future__ import annotations

import pytest

from milepost.blobs.memory import MemoryBlobs
from milepost.core.change import change
from milepost.core.confirmations import confirm
from milepost.core.decide import MAX_LOSSES, decide, given_back, undecided
from milepost.core.due import look
from milepost.core.history import claim_digest
from milepost.core.item import Item
from milepost.core.outcome import Checked, Done, HandedOver, NotYet, Outcome, Reject, Retry
from milepost.core.routes.route import Route
from milepost.core.status import Reason, Status
from milepost.engine.context import Context
from milepost.engine.resend import Resender
from milepost.engine.work.remote import Remote, RemoteClaimRequest, ShownLease
from milepost.engine.work.settle import recorded, settle
from milepost.ports.items import Conflict
from milepost.ports.ledger import Ledger
from milepost.ports.runner import JobResult
from milepost_testing.clock import SeededChance
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import LEASE, World

CHECKED = Checked({"files": 2}, after="1h", note="all there")
OUTCOMES: list[Outcome] = [
    Done({"grams": 3}),
    Done(),
    Retry("busy"),
    Reject("broken"),
    NotYet(note="soon"),
    HandedOver(within="1h"),
    CHECKED,
]
names = [f"{type(outcome).__name__}-{number}" for number, outcome in enumerate(OUTCOMES)]


class ClaimNamesContract(Promises):
    @pytest.mark.parametrize("outcome", OUTCOMES, ids=names)
    def test_the_line_of_an_outcome_names_its_claim(self, world: World, outcome: Outcome) -> None:
        world.add("p1")
        item = world.take("p1")
        assert world.settle(item, outcome) is None
        assert item.row.lease is not None
        assert world.lines("p1")[-1].claim == claim_digest(item.row.lease)
        assert _recorded(world, item)
        assert _recorded(world, item, outcome)

    def test_the_line_of_a_claim_that_ended_without_an_outcome_names_it_too(
        self, world: World
    ) -> None:
        world.add("p1")
        given = world.take("p1")
        assert world.apply(given_back(given.row, world.now, why="shutdown")) is None
        lost = world.take("p1")
        world.clock.advance(LEASE / 1000)
        last = world.take("p1")
        assert world.apply(undecided(last.row, Done(), world.now, by="worker")) is None
        leases = [item.row.lease or "" for item in (given, lost, last)]
        assert [(line.reason.value, line.claim) for line in world.lines("p1")[1:]] == [
            ("given-back", claim_digest(leases[0])),
            ("lost", claim_digest(leases[1])),
            ("undecided", claim_digest(leases[2])),
        ]
        assert [_recorded(world, item) for item in (given, lost, last)] == [False, False, True]

    def test_an_outcome_that_says_nothing_new_is_known_by_the_row(self, world: World) -> None:
        world.add("p1")
        items = []
        for _ in range(2):
            items.append(world.take("p1"))
            assert world.settle(items[-1], NotYet(after="1m")) is None
            assert _recorded(world, items[-1], NotYet(after="1m"))
            world.clock.advance("1m")
        assert world.reasons("p1") == ["accepted", "not-yet"]
        assert not _recorded(world, items[-1], Done())
        other = world.take("p1")
        assert world.settle(other, Done()) is None
        assert world.row("p1").settled is None
        world.audit()

    def test_two_claims_of_one_worker_at_the_same_moment_are_told_apart(self, world: World) -> None:
        world.add("p1")
        first = world.take("p1")
        assert world.apply(given_back(first.row, world.now, why="shutdown")) is None
        second = world.take("p1")
        assert world.settle(second, Retry("busy")) is None
        assert (first.row.holder, first.row.claimed_at) == (
            second.row.holder,
            second.row.claimed_at,
        )
        assert [_recorded(world, first), _recorded(world, second)] == [False, True]
        summary = settle(_context(world), [JobResult(first, Done(), 1)])
        assert (summary.written, summary.refused) == (0, 1)
        assert world.reasons("p1")[-1] == "late"
        assert world.lines("p1")[-1].claim == claim_digest(first.row.lease or "")

    def test_the_loss_that_ends_an_item_is_no_outcome_of_its_claim(self, ledger: Ledger) -> None:
        world = World(ledger, _remote_route())
        ctx = _context(world)
        remote, resender = Remote(ctx), Resender(ctx)
        world.add("p1")
        for number in range(MAX_LOSSES):
            [item] = remote.claim(
                RemoteClaimRequest(world.plan, world.plan.first, f"worker-{number}", 1, LEASE)
            ).items
            world.clock.advance((LEASE + ledger.timing.resend_delay_ms) / 1000)
            resender.run_once()
        # If the row is the queue, the next claim writes the loss.
        if not world.row("p1").terminal:
            assert (
                remote.claim(
                    RemoteClaimRequest(world.plan, world.plan.first, "worker", 1, LEASE)
                ).items
                == []
            )
        assert world.row("p1").status is Status.MAX_RETRIES_EXCEEDED
        shown = [(ShownLease("p1", item.row.lease or ""), Done())]
        assert remote.settle(world.plan, world.plan.first, shown) == [False]
        assert Remote(_context(world)).settle(world.plan, world.plan.first, shown) == [False]
        assert [line.reason for line in world.lines("p1")][-2:] == [Reason.EXHAUSTED, Reason.LATE]
        assert world.lines("p1")[-2].claim == claim_digest(item.row.lease or "")

    @pytest.mark.parametrize("outcome", OUTCOMES, ids=names)
    def test_an_outcome_said_again_to_another_process_hears_that_it_was_written(
        self, ledger: Ledger, outcome: Outcome
    ) -> None:
        world = World(ledger, _remote_route())
        plan, stage = world.plan, world.plan.first
        other = World(self.another(ledger), world.plan.route, clock=world.clock)
        one, two = Remote(_context(world)), Remote(_context(other))
        world.add("p1")
        [item] = one.claim(RemoteClaimRequest(plan, stage, "worker", 1, LEASE)).items
        shown = ShownLease("p1", item.row.lease or "")
        assert one.settle(plan, stage, [(shown, outcome)]) == [True]
        assert two.settle(plan, stage, [(shown, outcome)]) == [True]
        assert one.settle(plan, stage, [(shown, outcome)]) == [True]
        different = Retry("something else")
        assert two.settle(
            plan, stage, [(shown, different), (ShownLease("p1", "no such lease"), outcome)]
        ) == [False, False]
        assert one.settle(plan, stage, [(shown, different)]) == [False]

    # Extensions -----------------------------------------------------------------------------------
    def test_a_note_on_a_held_row_leaves_its_extended_lease(self, world: World) -> None:
        world.add("p1")
        item = world.take("p1")
        seen = world.item("p1")
        world.clock.advance((LEASE - 5_000) / 1000)
        assert world.ledger.extend([item.row], world.now + LEASE, world.now) == [True]
        until = world.now + LEASE
        assert (
            world.apply(
                confirm(seen, "stamp", Done(True), world.plan, world.now, 0.0, by="partner")
            )
            is None
        )
        row = world.row("p1")
        assert (row.look_at, row.due_at, row.lease) == (until, until, item.row.lease)
        assert list(row.kept) == ["stamp"]
        world.clock.advance(6_000 / 1000)
        assert world.claim(holder="other").items == []
        assert world.row("p1").losses == 0
        world.clock.advance(LEASE / 1000)
        assert world.take("p1", holder="other").row.losses == 1
        world.audit()

    def test_a_loss_that_was_decided_before_the_lease_was_extended_is_not_written(
        self, world: World
    ) -> None:
        world.add("p1")
        item = world.take("p1")
        world.clock.advance(LEASE / 1000)
        lost = world.look("p1")
        assert lost is not None
        assert world.ledger.extend([item.row], world.now + LEASE, world.now) == [True]
        conflict = world.apply(lost)
        assert isinstance(conflict, Conflict)
        assert conflict.current is not None
        assert (conflict.current.lease, conflict.current.look_at) == (
            item.row.lease,
            world.now + LEASE,
        )
        assert world.settle(item, Done()) is None
        assert world.reasons("p1") == ["accepted", "advanced"]

    def test_a_loss_is_written_while_the_lease_has_run_out(self, world: World) -> None:
        world.add("p1")
        item = world.take("p1")
        for _ in range(2):
            world.clock.advance((LEASE // 2) / 1000)
            assert world.ledger.extend([item.row], world.now + LEASE, world.now) == [True]
        world.clock.advance(LEASE / 1000)
        assert world.apply(world.look("p1")) is None
        assert world.reasons("p1") == ["accepted", "lost"]

    def test_an_overdue_mark_on_a_held_row_leaves_its_extended_lease(self, world: World) -> None:
        world.add("p1")
        world.settle(world.take("p1"), Done())
        world.clock.advance((86_400_000 - LEASE // 2) / 1000)
        item = world.take("p1", "stamp")
        world.clock.advance((LEASE // 2) / 1000)
        overdue = look(world.item("p1"), world.plan, world.now, 0.0, None)
        assert overdue is not None
        assert overdue.line is not None
        assert overdue.line.reason is Reason.OVERDUE
        assert world.ledger.extend([item.row], world.now + LEASE, world.now) == [True]
        assert world.apply(overdue) is None
        row = world.row("p1")
        assert (row.overdue_at, row.look_at, row.due_at) == (
            None,
            world.now + LEASE,
            world.now + LEASE,
        )
        assert world.settle(Item(row, item.content), Done()) is None
        world.audit()

    @pytest.mark.parametrize("lost", [True, False], ids=["lost", "failed"])
    def test_a_lease_that_is_extended_after_the_overdue_mark_was_reported_ends_in_time(
        self, world: World, lost: bool
    ) -> None:
        world.add("p1")
        world.settle(world.take("p1"), Done())
        world.clock.advance((86_400_000 - LEASE // 2) / 1000)
        item = world.take("p1", "stamp")
        world.clock.advance((LEASE // 2) / 1000)
        assert world.apply(world.look("p1")) is None
        # The worker still has the earlier row.
        assert world.ledger.extend([item.row], world.now + LEASE, world.now) == [True]
        row = world.row("p1")
        assert (row.look_at, row.due_at) == (world.now + LEASE, world.now + LEASE)
        if lost:
            world.clock.advance(LEASE / 1000)
            assert world.apply(world.look("p1")) is None
            assert world.reasons("p1")[-1] == "lost"
        else:
            assert world.settle(Item(row, item.content), Retry("busy", after="1h")) is None
            assert (world.row("p1").look_at, world.row("p1").due_at) == (
                world.now + 3_600_000,
                world.now + 3_600_000,
            )
        world.audit()

    def test_an_outcome_is_written_however_often_its_lease_was_extended(self, world: World) -> None:
        world.add("p1")
        item = world.take("p1")
        noted = change(
            world.row("p1"), Reason.NOTED, world.now, Status.PROCESSING, {}, note={"n": 1}
        )
        for n in range(3):
            world.clock.advance(1_000 / 1000)
            assert world.ledger.extend([item.row], world.now + LEASE + n, world.now) == [True]
        assert world.apply(noted) is None
        assert (
            world.apply(
                decide(Item(world.row("p1"), item.content), Done(), world.plan, world.now, 0.0)
            )
            is None
        )
        assert world.row("p1").stage == "stamp"


def _context(world: World) -> Context:
    return Context(
        world.ledger, {world.plan.name: world.plan}, world.clock, SeededChance(), MemoryBlobs()
    )


def _remote_route() -> Route:
    route = Route("parcels", key="id")
    route.stage("weigh", remote=True)
    route.stage("stamp", remote=True)
    return route


def _recorded(world: World, item: Item, outcome: Outcome | None = None) -> bool:
    return recorded(_context(world), world.row(item.key), item.row.lease or "", outcome)
