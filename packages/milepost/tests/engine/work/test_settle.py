"""Settle: an outcome is written while its lease holds, decided again if only a note came between,
and else refused and noted."""

from __future__ import annotations

import pytest
from tests.engine.world import ROUTE, Faulty, World

from milepost.core.item import Item, Row
from milepost.core.outcome import Done, Outcome, Reject, Retry
from milepost.core.status import TERMINAL, Reason, Status
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act, confirm_outside
from milepost.engine.acts.verbs import CancelVerb
from milepost.engine.resend import Resender
from milepost.engine.work.settle import SettleResult, give_back, settle
from milepost.ports.documents import ROUTE as ROUTE_KIND
from milepost.ports.items import Query
from milepost.ports.retention import DeliveredLines, PruneCriteria
from milepost.ports.runner import JobResult
from milepost_testing.audit import audit


def said(item: Item, outcome: Outcome, **options: bool) -> JobResult:
    return JobResult(item, outcome, 5, **options)


def change_version(world: World, version: int) -> None:
    plan = world.plan
    shape = [list(pair) for pair in plan.shape]
    assert world.ledger.write(
        ROUTE_KIND,
        ROUTE,
        {"version": version, "digest": plan.digest, "shape": shape, "at": world.clock.now()},
    )


def test_a_batch_of_outcomes_is_written_each_by_its_own_rule(world: World) -> None:
    world.add("done", "retry", "reject")
    by_key = {item.key: item for item in world.claim("weigh")}
    outcomes = {"done": Done({"grams": 3}), "retry": Retry("busy"), "reject": Reject("no")}
    assert settle(
        world.ctx, [said(by_key[key], outcome) for key, outcome in outcomes.items()]
    ) == SettleResult(written=3)
    assert (world.row("done").stage, world.item("done").results) == (
        "stamp",
        {"weigh": {"grams": 3}},
    )
    assert world.row("retry").status is Status.RETRY_SCHEDULED
    assert world.row("retry").look_at == world.clock.now() + 60_000
    assert world.row("reject").status is Status.REJECTED
    line = world.ledger.history(ROUTE, "retry")[-1].line
    assert (line.by, line.since, line.attempt and line.attempt.response_ms) == (
        "host:1",
        by_key["retry"].row.claimed_at,
        5,
    )


def test_an_unexpected_error_of_a_batch_is_logged_and_each_outcome_written_alone(
    faulty: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(faulty.ledger, Faulty)

    def broken() -> None:
        raise TypeError("a ledger with a defect")

    faulty.add("a", "b")
    faulty.ledger.before("apply", broken)
    assert settle(
        faulty.ctx, [said(item, Done()) for item in faulty.claim("weigh")]
    ) == SettleResult(written=2)
    assert "cannot write 2 outcomes at once" in caplog.text
    assert "a ledger with a defect" in caplog.text, "with its traceback"


def test_nothing_to_settle_touches_no_ledger(faulty: World) -> None:
    assert isinstance(faulty.ledger, Faulty)
    faulty.ledger.before("apply", lambda: (_ for _ in ()).throw(AssertionError("written")))  # type: ignore[func-returns-value]
    assert settle(faulty.ctx, []) == SettleResult()
    assert give_back(faulty.ctx, [], "nothing") == 0


def test_an_item_that_failed_alone_is_marked_until_it_advances(world: World) -> None:
    world.add("a")
    settle(world.ctx, [said(world.claim("weigh")[0], Retry("bad"), failed_alone=True)])
    assert world.row("a").alone
    world.clock.advance("2m")
    settle(world.ctx, [said(world.claim("weigh")[0], Done())])
    assert not world.row("a").alone


# Fencing ------------------------------------------------------------------------------------------
def test_an_outcome_after_the_lease_was_lost_is_refused_and_noted(world: World) -> None:
    world.add("a")
    [late] = world.claim("weigh", holder="slow:1")
    world.clock.advance("31s")
    [current] = world.claim("weigh", holder="quick:2")
    assert settle(world.ctx, [said(late, Retry("too late " + "x" * 5000))]) == SettleResult(
        refused=1
    )
    row = world.row("a")
    assert (row.status, row.lease, row.attempts) == (Status.PROCESSING, current.row.lease, 0)
    line = world.ledger.history(ROUTE, "a")[-1].line
    assert (line.reason, line.by) == (Reason.LATE, "slow:1")
    assert line.note["refused"] == "Retry"
    # The one who holds it now is not hindered by the note.
    assert settle(world.ctx, [said(current, Done())]) == SettleResult(written=1)
    assert world.row("a").stage == "stamp"
    audit(world.ledger, ROUTE, world.plan)


def test_an_outcome_for_an_item_that_was_cancelled_meanwhile_is_refused_and_noted(
    world: World,
) -> None:
    world.add("a", "b")
    held = world.claim("weigh")
    act(
        world.ctx, select(world.ctx, ROUTE, keys=["a"]), CancelVerb(), by="ops", reason="not wanted"
    )
    assert settle(world.ctx, [said(item, Done()) for item in held]) == SettleResult(
        written=1, refused=1
    )
    assert world.row("a").status is Status.CANCELLED
    assert world.reasons("a")[-1] is Reason.LATE
    assert world.row("b").stage == "stamp"


def test_the_note_of_a_late_outcome_is_written_even_if_it_meets_another_write(
    faulty: World,
) -> None:
    assert isinstance(faulty.ledger, Faulty)
    faulty.add("a")
    [late] = faulty.claim("weigh", holder="slow:1")
    faulty.clock.advance("31s")
    [current] = faulty.claim("weigh", holder="quick:2")

    def other_settles() -> None:
        faulty.settle([current], Done())

    faulty.ledger.before(
        "apply", other_settles, lambda changes, *rest: changes[0].line.reason is Reason.LATE
    )
    assert settle(faulty.ctx, [said(late, Done())]) == SettleResult(refused=1)
    assert faulty.reasons("a") == [Reason.ACCEPTED, Reason.LOST, Reason.ADVANCED, Reason.LATE]


def test_an_outcome_for_an_item_that_is_gone_is_refused(world: World) -> None:
    world.add("a")
    [held] = world.claim("weigh")
    act(
        world.ctx, select(world.ctx, ROUTE, keys=["a"]), CancelVerb(), by="ops", reason="not wanted"
    )
    world.add("a-later-line")
    world.clock.advance("1d")
    assert (
        world.ledger.prune(
            PruneCriteria(
                ROUTE,
                TERMINAL,
                world.clock.now(),
                None,
                DeliveredLines(world.ledger.last_seq()),
                10,
            )
        ).items
        == 1
    )
    assert settle(world.ctx, [said(held, Done())]) == SettleResult(refused=1)


# Notes and confirmations that come between --------------------------------------------------------
def test_a_note_that_comes_between_does_not_cost_the_outcome(world: World) -> None:
    world.add("a")
    [held] = world.claim("weigh")
    assert isinstance(
        confirm_outside(world.ctx, ROUTE, "a", "Delivered", Done("early"), "partner"), Row
    )
    assert settle(world.ctx, [said(held, Retry("busy"))]) == SettleResult(written=1)
    row = world.row("a")
    assert (row.status, row.attempts) == (Status.RETRY_SCHEDULED, 1)
    assert "Delivered" in row.kept
    assert world.reasons("a") == [Reason.ACCEPTED, Reason.KEPT, Reason.RETRY]
    audit(world.ledger, ROUTE, world.plan)


def test_a_confirmation_kept_while_a_worker_was_at_it_beats_the_workers_outcome(
    world: World,
) -> None:
    world.add("a")
    [held] = world.claim("weigh")
    confirm_outside(world.ctx, ROUTE, "a", "weigh", Done({"by": "partner"}), "partner")
    assert world.row("a").status is Status.PROCESSING
    assert settle(world.ctx, [said(held, Reject("no such parcel"))]) == SettleResult(written=1)
    item = world.item("a")
    assert (item.stage, item.row.status, item.results) == (
        "stamp",
        Status.QUEUED,
        {"weigh": {"by": "partner"}},
    )
    assert world.reasons("a")[-1] is Reason.CONFIRMED


def test_a_confirmation_kept_for_the_next_stage_is_applied_at_once_when_the_item_gets_there(
    world: World,
) -> None:
    world.add("a")
    confirm_outside(world.ctx, ROUTE, "a", "stamp", Done({"stamp": 1}), "partner")
    confirm_outside(world.ctx, ROUTE, "a", "Delivered", Done({"signed": "x"}), "partner")
    settle(world.ctx, [said(world.claim("weigh")[0], Done())])
    item = world.item("a")
    assert item.row.status is Status.COMPLETED
    assert item.results == {"stamp": {"stamp": 1}, "Delivered": {"signed": "x"}}


# Out of date --------------------------------------------------------------------------------------
def test_an_outdated_process_writes_its_outcome_undecided_and_a_newer_one_decides_it(
    world: World,
) -> None:
    world.add("a", "b")
    held = {item.key: item for item in world.claim("weigh")}
    change_version(world, 2)
    outcomes = [said(held["a"], Done({"grams": 3})), said(held["b"], Retry("busy"))]
    assert settle(world.ctx, outcomes) == SettleResult(undecided=2)
    for key in ("a", "b"):
        assert (world.row(key).stage, world.row(key).status) == ("weigh", Status.PROCESSING)
        assert world.reasons(key)[-1] is Reason.UNDECIDED
    assert world.claim("weigh") == [], "an outdated process claims nothing"

    newer = world.beside()
    newer.ctx.take(newer.plan.at_version(2))
    Resender(newer.ctx).run_once()
    assert (newer.row("a").stage, newer.item("a").results) == ("stamp", {"weigh": {"grams": 3}})
    assert (newer.row("b").status, newer.row("b").attempts) == (Status.RETRY_SCHEDULED, 1)
    line = newer.ledger.history(ROUTE, "a")[-1].line
    assert (line.reason, line.by) == (Reason.ADVANCED, "host:1"), "the line names who did the work"
    audit(newer.ledger, ROUTE, newer.plan)


def test_an_undecided_outcome_is_fenced_like_any_other(world: World) -> None:
    world.add("a")
    [late] = world.claim("weigh", holder="old:1")
    change_version(world, 2)
    newer = world.beside()
    newer.ctx.take(newer.plan.at_version(2))
    world.clock.advance("31s")
    [current] = newer.claim("weigh", holder="new:2")
    assert settle(world.ctx, [said(late, Done())]) == SettleResult(refused=1)
    assert world.row("a").lease == current.row.lease
    assert world.row("a").undecided is None


# Giving back --------------------------------------------------------------------------------------
def test_what_is_given_back_is_due_at_once_and_uncounted(world: World) -> None:
    world.add("a", "b")
    held = world.claim("weigh")
    assert give_back(world.ctx, held, "the worker is stopping") == 2
    row = world.row("a")
    assert (row.status, row.look_at, row.lease, row.attempts, row.losses, row.unknown) == (
        Status.QUEUED, world.clock.now(), None, 0, 0, False,
    )  # fmt: skip
    line = world.ledger.history(ROUTE, "a")[-1].line
    assert (line.reason, line.why, line.by) == (
        Reason.GIVEN_BACK,
        "the worker is stopping",
        "host:1",
    )
    assert len(world.claim("weigh")) == 2


def test_what_was_cut_off_is_given_back_as_unknown(world: World) -> None:
    world.add("a")
    give_back(world.ctx, world.claim("weigh"), "cut off", unknown=True)
    assert world.row("a").unknown
    # And what was unknown before stays so, even if this worker had not begun.
    give_back(world.ctx, world.claim("weigh"), "not begun")
    assert world.row("a").unknown


def test_only_what_is_still_ours_is_given_back(world: World) -> None:
    world.add("a", "b")
    held = world.claim("weigh")
    act(
        world.ctx, select(world.ctx, ROUTE, keys=["a"]), CancelVerb(), by="ops", reason="not wanted"
    )
    assert give_back(world.ctx, held, "stopping") == 1
    assert world.row("a").status is Status.CANCELLED


def test_an_item_that_was_noted_meanwhile_is_given_back_all_the_same(world: World) -> None:
    """Else it would stay leased to a process that is gone, and count as lost."""
    world.add("a")
    held = world.claim("weigh")
    confirm_outside(world.ctx, ROUTE, "a", "Delivered", Done("early"), "partner")
    assert give_back(world.ctx, held, "stopping") == 1
    assert world.row("a").status is Status.QUEUED


def test_a_confirmation_kept_meanwhile_moves_the_item_on_when_it_is_given_back(
    world: World,
) -> None:
    world.add("a")
    held = world.claim("weigh")
    confirm_outside(world.ctx, ROUTE, "a", "weigh", Done({"by": "partner"}), "partner")
    give_back(world.ctx, held, "stopping")
    assert (world.row("a").stage, world.item("a").results) == (
        "stamp",
        {"weigh": {"by": "partner"}},
    )
    assert not world.ledger.find(Query(route=ROUTE, statuses=frozenset({Status.PROCESSING}))).items
