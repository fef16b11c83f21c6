"""Operators' acts beyond a retry: rerun, replace, reschedule."""

from __future__ import annotations

from typing import Any

from milepost.core.item import digest_of
from milepost.core.operators import cancel, replace, rerun, reschedule, retry
from milepost.core.outcome import Done, Reject
from milepost.core.status import TERMINAL, Status
from milepost.core.values.refusal import Refusal
from milepost.ports.items import Conflict
from milepost.ports.retention import DeliveredLines, PruneCriteria
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import World

WHO: dict[str, Any] = {"by": "ops", "why": "because"}
HOUR = 3_600_000


class ActsContract(Promises):
    # rerun ----------------------------------------------------------------------------------------
    def test_a_finished_item_runs_again_from_the_first_stage(self, world: World) -> None:
        world.bring("p1", to="COMPLETED")
        before = world.item("p1")
        world.clock.advance("1m")
        assert world.apply(rerun(before, world.plan, world.now, **WHO)) is None
        item = world.item("p1")
        assert (item.stage, item.row.pass_no, item.row.again) == (
            "weigh",
            before.row.pass_no + 1,
            True,
        )
        assert item.row.status in (Status.PENDING, Status.QUEUED)
        for stage in ("weigh", "stamp"):
            world.settle(world.take("p1", stage), Done({"again": stage}))
        assert world.item("p1").results["stamp"] == {"again": "stamp"}
        assert world.confirm("p1", "delivered") is None
        row = world.row("p1")
        assert (row.status, row.due_at) == (Status.COMPLETED, None)
        reasons = [reason for reason in world.reasons("p1") if reason != "offered"]
        assert reasons[-4:] == ["rerun", "advanced", "advanced", "confirmed"]
        world.audit()

    def test_a_finished_item_runs_again_from_its_last_stage_and_answers_anew(
        self, world: World
    ) -> None:
        """At the last stage it keeps its work_id, unless it is new work; the answer of the first
        run does not count."""
        world.bring("p1", "p2", to="COMPLETED")
        ids = [world.item(key).work_id for key in ("p1", "p2")]
        assert (
            world.apply(rerun(world.item("p1"), world.plan, world.now, stage="delivered", **WHO))
            is None
        )
        assert (
            world.apply(
                rerun(
                    world.item("p2"), world.plan, world.now, stage="delivered", as_new=True, **WHO
                )
            )
            is None
        )
        assert [
            world.item(key).work_id == old for key, old in zip(("p1", "p2"), ids, strict=True)
        ] == [True, False]
        for key in ("p1", "p2"):
            assert (world.row(key).stage, world.row(key).terminal) == ("delivered", False)
            assert world.row(key).kept == {}
            assert world.confirm(key, "delivered", Done({"shelf": 7})) is None
            assert world.row(key).status is Status.COMPLETED
            assert world.item(key).results["delivered"] == {"shelf": 7}
        world.audit()

    # replace --------------------------------------------------------------------------------------
    def test_replaced_content_is_what_is_worked_on_and_what_is_known(self, world: World) -> None:
        world.add("p1", colour="red")
        first = world.row("p1").input_digest
        world.settle(world.take("p1"), Done({"grams": 1}))
        new = {"id": "p1", "colour": "blue"}
        assert world.apply(_replaced(world, "p1", new)) is None
        item = world.item("p1")
        assert (item.stage, item.input, item.payload, item.row.pass_no) == ("weigh", new, new, 2)
        assert item.results.get("weigh") is None, (
            "what came of the old content is not taken for the new one's"
        )
        assert (item.row.input_digest, item.row.content_digest) == (first, digest_of(new))
        [known] = world.ledger.peek("parcels", ["p1"])
        assert known is not None
        assert (known.input_digest, known.content_digest, known.current_digest) == (
            first,
            digest_of(new),
            digest_of(new),
        )
        taken = world.take("p1")
        assert taken.payload == new
        assert world.settle(taken, Done()) is None
        assert world.item("p1").payload == new
        world.audit()

    def test_replacing_voids_the_lease_and_what_was_kept(self, world: World) -> None:
        world.add("p1")
        taken = world.take("p1")
        world.confirm("p1", "delivered")
        assert world.apply(_replaced(world, "p1", {"id": "p1", "n": 2})) is None
        row = world.row("p1")
        assert (row.lease, row.kept, row.stage) == (None, {}, "weigh")
        lost = world.settle(taken, Done())
        assert isinstance(lost, Conflict)
        assert lost.current is not None
        assert lost.current.lease is None
        assert world.lines("p1")[-1].note["kept"].keys() == {"delivered"}
        world.audit()

    def test_replaced_at_its_own_stage_it_keeps_what_the_stages_before_gave(
        self, world: World
    ) -> None:
        world.add("p1")
        world.settle(world.take("p1"), Done({"grams": 340}))
        new = {"id": "p1", "n": 2}
        assert world.apply(_replaced(world, "p1", new, here=True)) is None
        item = world.item("p1")
        assert (item.stage, item.input, item.payload, item.results["weigh"]) == (
            "stamp",
            new,
            {"grams": 340},
            {"grams": 340},
        )
        world.audit()

    def test_a_failed_or_cancelled_item_that_is_replaced_starts_again(self, world: World) -> None:
        world.add("p1")
        world.settle(world.take("p1"), Reject("no"))
        world.add("p2")
        world.apply(cancel(world.item("p2"), world.plan, world.now, **WHO))
        for key in ("p1", "p2"):
            assert world.apply(_replaced(world, key, {"id": key, "n": 2})) is None
        assert {item.key for item in world.claim().items} == {"p1", "p2"}
        assert world.row("p1").error is None
        world.audit()

    def test_replaced_by_its_first_content_an_item_has_one_digest_again(self, world: World) -> None:
        world.add("p1")
        assert world.apply(_replaced(world, "p1", {"id": "p1", "n": 2})) is None
        assert world.apply(_replaced(world, "p1", {"id": "p1"})) is None
        [known] = world.ledger.peek("parcels", ["p1"])
        assert known is not None
        assert (known.content_digest, known.current_digest) == (None, digest_of({"id": "p1"}))
        world.audit()

    def test_a_seal_holds_the_first_digest_and_the_last(self, world: World) -> None:
        world.bring("p1", to="delivered")
        new = {"id": "p1", "n": 2}
        assert world.apply(_replaced(world, "p1", new, here=True)) is None
        world.confirm("p1", "delivered")
        world.add("p2")  # the item of the newest line always stays
        world.clock.advance("2d")
        assert (
            world.ledger.prune(
                PruneCriteria(
                    "parcels",
                    TERMINAL,
                    world.now,
                    None,
                    DeliveredLines(world.ledger.last_seq()),
                    10,
                )
            ).items
            == 1
        )
        [known] = world.ledger.peek("parcels", ["p1"])
        assert known is not None
        assert known.sealed
        assert (known.input_digest, known.content_digest) == (
            digest_of({"id": "p1"}),
            digest_of(new),
        )

    # not before -----------------------------------------------------------------------------------
    def test_an_item_for_later_is_not_claimed_before_its_time(self, world: World) -> None:
        start = world.now + HOUR
        world.add("p1", not_before=start)
        row = world.row("p1")
        assert (row.status, row.due_at, row.not_before) == (Status.PENDING, start, start)
        assert world.claim().items == []
        assert world.look("p1") is None
        world.clock.advance("59m")
        assert world.claim().items == []
        world.clock.advance_to(start)
        _see_to(world, "p1")
        assert world.take("p1").key == "p1"
        world.audit()

    def test_an_external_stage_is_not_offered_before_its_time(self, world: World) -> None:
        start = world.now + HOUR
        world.add("p1", not_before=start)
        world.confirm("p1", "weigh")
        world.confirm("p1", "stamp")
        row = world.row("p1")
        assert (row.stage, row.status, row.due_at) == ("delivered", Status.PENDING, start)
        assert row.overdue_at == start + 30 * 24 * HOUR, "late is counted from then"
        assert not any(line.offered for line in world.lines("p1"))
        world.clock.advance_to(start)
        _see_to(world, "p1")
        assert world.row("p1").status is Status.QUEUED
        assert [line.offered is not None for line in world.lines("p1")][-1]
        world.audit()

    def test_an_item_can_be_set_for_another_time_until_it_starts(self, world: World) -> None:
        world.add("p1", not_before=world.now + HOUR)
        later = world.now + 2 * HOUR
        assert (
            world.apply(
                reschedule(world.item("p1"), world.plan, world.now, not_before=later, **WHO)
            )
            is None
        )
        row = world.row("p1")
        assert (row.status, row.due_at, row.not_before) == (Status.PENDING, later, later)
        world.clock.advance("90m")
        assert world.claim().items == []
        assert (
            world.apply(
                reschedule(world.item("p1"), world.plan, world.now, not_before=world.now, **WHO)
            )
            is None
        )
        assert world.row("p1").not_before is None
        taken = world.take("p1")
        assert isinstance(
            reschedule(taken, world.plan, world.now, not_before=later, **WHO), Refusal
        )
        world.audit()

    def test_an_item_that_waits_for_a_worker_can_be_put_off(self, world: World) -> None:
        world.add("p1")
        later = world.now + HOUR
        assert (
            world.apply(
                reschedule(world.item("p1"), world.plan, world.now, not_before=later, **WHO)
            )
            is None
        )
        assert world.claim().items == []
        assert (world.row("p1").status, world.row("p1").due_at) == (Status.PENDING, later)
        world.clock.advance_to(later)
        _see_to(world, "p1")
        assert world.take("p1").key == "p1"
        world.audit()

    def test_a_failed_item_can_be_cancelled(self, world: World) -> None:
        world.add("p1")
        world.settle(world.take("p1"), Reject("no"))
        assert world.apply(cancel(world.item("p1"), world.plan, world.now, **WHO)) is None
        assert world.row("p1").status is Status.CANCELLED
        world.audit()

    def test_an_item_for_later_can_be_cancelled(self, world: World) -> None:
        world.add("p1", not_before=world.now + HOUR)
        assert world.apply(cancel(world.item("p1"), world.plan, world.now, **WHO)) is None
        world.clock.advance("2h")
        assert world.claim().items == []
        assert world.row("p1").status is Status.CANCELLED
        world.audit()

    def test_a_cancelled_item_for_later_that_is_retried_starts_at_its_time(
        self, world: World
    ) -> None:
        later = world.now + 2 * HOUR
        world.add("p1", not_before=later)
        assert world.apply(cancel(world.item("p1"), world.plan, world.now, **WHO)) is None
        world.clock.advance("1h")
        assert world.apply(retry(world.item("p1"), world.plan, world.now, **WHO)) is None
        row = world.row("p1")
        assert (row.status, row.due_at, row.not_before) == (Status.PENDING, later, later)
        assert world.claim().items == []
        world.clock.advance_to(later)
        _see_to(world, "p1")
        assert world.take("p1").key == "p1"
        world.audit()


def _replaced(world: World, key: str, content: Any, **more: Any) -> Any:
    item = world.item(key)
    kept = {"content": item.input}
    return replace(
        item,
        world.plan,
        world.now,
        content=content,
        digest=digest_of(content),
        old=kept,
        **more,
        **WHO,
    )


def _see_to(world: World, key: str) -> None:
    """Do what the resender does when an item is due."""
    change = world.look(key)
    if change is not None:
        assert world.apply(change) is None
