"""Failed keys whose rows were pruned can be submitted again, each as a new item."""

from __future__ import annotations

import pytest
from tests.engine.world import ROUTE, World

from milepost.core.errors import UsageError
from milepost.core.outcome import Done, Reject
from milepost.core.status import TERMINAL, Status
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act, confirm_outside
from milepost.engine.acts.verbs import CancelVerb
from milepost.engine.intake import submit, take_in
from milepost.engine.retention import prune

SIGNED = {"by": "ops", "reason": "a test"}


def left(world: World, *ended: str) -> None:
    """Items "failed", "cancelled" and "done" have ended, and their rows have left."""
    if "failed" not in ended:
        world.add("failed")
        world.work("weigh", Reject("no such parcel"))
    world.add("cancelled")
    act(world.ctx, select(world.ctx, ROUTE, keys=["cancelled"]), CancelVerb(), **SIGNED)
    world.add("done")
    for stage in ("weigh", "stamp"):
        world.work(stage)
    confirm_outside(world.ctx, ROUTE, "done", "Delivered", Done(True), "courier")
    world.clock.advance("10d")
    assert prune(world.ctx, ROUTE, 86_400_000, statuses=TERMINAL, **SIGNED).items == 3
    world.clock.advance("1d")


def test_failed_and_cancelled_keys_are_taken_in_again_and_no_others(world: World) -> None:
    world.add("failed")
    first = world.item("failed").work_id
    world.work("weigh", Reject("no such parcel"))
    left(world, "failed")
    inputs = [{"id": key} for key in ("failed", "cancelled", "done", "new")]
    assert [receipt.answer for receipt in submit(world.ctx, ROUTE, inputs[:3])] == ["known"] * 3
    preview = take_in(world.ctx, world.plan, inputs, dry_run=True, failed_again="")
    assert [receipt.answer for receipt in preview] == ["new", "new", "known", "new"]
    assert world.ledger.get([(ROUTE, "failed")]) == [None]
    receipts = submit(world.ctx, ROUTE, inputs, by="ops", failed_again="the catalogue was mended")
    assert [receipt.answer for receipt in receipts] == ["new", "new", "known", "new"]
    row = world.row("failed")
    assert (row.status, row.stage, row.version) == (Status.QUEUED, "weigh", 1)
    assert world.item("failed").work_id != first, (
        "a partner must not take it for the work that failed"
    )
    [line] = [written.line for written in world.ledger.history(ROUTE, "failed")]
    assert (line.by, line.why) == ("ops", "the catalogue was mended")
    assert line.note["after"]["status"] == "REJECTED"
    assert [written.line.why for written in world.ledger.history(ROUTE, "new")] == [None]


def test_it_goes_its_way_and_its_new_end_is_what_the_seal_remembers(world: World) -> None:
    left(world)
    submit(world.ctx, ROUTE, [{"id": "failed", "fixed": True}], by="ops", failed_again="mended")
    for stage in ("weigh", "stamp"):
        world.work(stage)
    confirm_outside(world.ctx, ROUTE, "failed", "Delivered", Done(True), "courier")
    world.clock.advance("10d")
    assert prune(world.ctx, ROUTE, 86_400_000, **SIGNED).items == 1
    [known] = world.ledger.peek(ROUTE, ["failed"])
    assert known is not None
    assert (known.sealed, known.status) == (True, Status.COMPLETED)
    [receipt] = submit(
        world.ctx, ROUTE, [{"id": "failed", "fixed": True}], by="ops", failed_again="once more"
    )
    assert receipt.answer == "known"


def test_it_is_signed_and_a_row_that_is_there_is_not_passed_over(world: World) -> None:
    left(world)
    with pytest.raises(UsageError, match="a name and a reason"):
        submit(world.ctx, ROUTE, [{"id": "failed"}], failed_again="no name")
    with pytest.raises(UsageError, match="a name and a reason"):
        submit(world.ctx, ROUTE, [{"id": "failed"}], by="ops", failed_again="")
    world.add("here")
    world.work("weigh", Reject("no"))
    [receipt] = submit(world.ctx, ROUTE, [{"id": "here"}], by="ops", failed_again="mended")
    assert (receipt.answer, receipt.status) == ("known", Status.REJECTED)


def test_two_at_once_begin_one_life(world: World) -> None:
    left(world)
    both = [{"id": "failed"}, {"id": "failed"}]
    assert [
        one.answer for one in submit(world.ctx, ROUTE, both, by="ops", failed_again="mended")
    ] == ["new", "known"]
    [again] = submit(world.ctx, ROUTE, [{"id": "failed"}], by="ops", failed_again="mended")
    assert (again.answer, again.status) == ("known", Status.QUEUED)
