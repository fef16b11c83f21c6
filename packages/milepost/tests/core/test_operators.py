"""Acts of operators: the change, or a refusal with its reason."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.core.item_lives import (
    LEASE,
    START,
    after,
    at_stage,
    claimed,
    make_plan,
    new_item,
    settled,
)

from milepost.core import operators
from milepost.core.change import Change
from milepost.core.confirmations import confirm
from milepost.core.decide import accept, decide, given_back
from milepost.core.due import Lease, look
from milepost.core.item import Content, Item, digest_of
from milepost.core.outcome import Done, HandedOver, NotYet, Outcome, Reject, Retry
from milepost.core.status import Reason, Status, allowed
from milepost.core.values.refusal import Refusal

PLAN = make_plan()
WHO: dict[str, Any] = {"by": "ops", "why": "because", "act": "a-1"}


def done(item: Item, change: Change | Refusal) -> Item:
    assert isinstance(change, Change), change
    assert change.line is not None
    assert allowed(change.before.status, change.after.status, change.line.reason)
    assert (change.line.by, change.line.why, change.line.act) == ("ops", "because", "a-1")
    return after(item, change)


def refused(answer: Change | Refusal) -> str:
    assert isinstance(answer, Refusal), answer
    return answer.text


def ended(outcome: Any = None) -> Item:
    return settled(claimed(new_item(PLAN), PLAN), outcome or Reject("no"), PLAN)


def completed() -> Item:
    change = confirm(at_stage("delivered", PLAN), "delivered", Done(True), PLAN, START, 0.0, by="x")
    assert isinstance(change, Change)
    return after(at_stage("delivered", PLAN), change)


def some_items() -> dict[str, Item]:
    held = claimed(new_item(PLAN), PLAN)
    return {
        "queued": new_item(PLAN),
        "held": held,
        "waiting": settled(held, NotYet(), PLAN),
        "handed over": settled(held, HandedOver("1d"), PLAN),
        "retried": settled(held, Retry("busy"), PLAN),
        "rejected": ended(),
        "outside": at_stage("delivered", PLAN),
        "completed": completed(),
    }


@pytest.mark.parametrize("verb", ["retry", "skip", "cancel", "resend"])
@pytest.mark.parametrize("name", sorted(some_items()))
def test_every_verb_on_every_item_is_an_allowed_edge_or_a_sentence(verb: str, name: str) -> None:
    item = some_items()[name]
    answer = getattr(operators, verb)(item, PLAN, START, **WHO)
    if isinstance(answer, Refusal):
        assert answer.text.startswith(("it ", "a worker", "route"))
    else:
        done(item, answer)


def test_retry_starts_the_stage_again_with_counts_at_zero_and_a_new_round() -> None:
    item = done(ended(), operators.retry(ended(), PLAN, START, **WHO))
    row = item.row
    assert (row.status, row.attempts, row.losses, row.total_attempts, row.round, row.pass_no) == (
        Status.QUEUED,
        0,
        0,
        1,
        2,
        1,
    )
    assert (row.error, row.due_at) == (None, START)
    assert item.work_id == new_item(PLAN).work_id, (
        "the same work: a partner can recognise the repeat"
    )


def test_retry_as_new_gets_a_new_work_id() -> None:
    item = done(ended(), operators.retry(ended(), PLAN, START, as_new=True, **WHO))
    assert (item.row.round, item.row.pass_no) == (2, 2)
    assert item.work_id != new_item(PLAN).work_id


def test_sent_back_to_an_earlier_stage_is_a_new_pass() -> None:
    there = at_stage("delivered", PLAN)
    item = done(there, operators.retry(there, PLAN, START, stage="weigh", **WHO))
    assert (item.stage, item.row.round, item.row.pass_no, item.row.lane) == ("weigh", 1, 2, "north")
    assert item.work_id != new_item(PLAN).work_id


def kept_for(stage: str, item: Item) -> Item:
    kept = confirm(item, stage, Done("early"), PLAN, START, 0.0, by="x")
    assert isinstance(kept, Change)
    return after(item, kept)


def test_retry_moves_the_stages_old_confirmation_into_history_and_leaves_one_for_later() -> None:
    held = kept_for("weigh", claimed(kept_for("stamp", new_item(PLAN)), PLAN))
    item = after(held, given_back(held.row, START, why="shutdown"))
    change = operators.retry(item, PLAN, START, **WHO)
    assert isinstance(change, Change)
    assert change.line is not None
    assert list(change.after.kept) == ["stamp"]
    assert list(change.line.note["kept"]) == ["weigh"]


def test_sending_an_item_back_moves_all_its_confirmations_into_history() -> None:
    there = done(new_item(PLAN), operators.skip(new_item(PLAN), PLAN, START, **WHO))
    item = kept_for("delivered", there)
    change = operators.retry(item, PLAN, START, stage="weigh", **WHO)
    assert isinstance(change, Change)
    assert change.line is not None
    assert change.after.kept == {}
    assert change.line.note == {"kept": item.row.kept}


def test_a_result_that_nobody_knows_stays_unknown_through_an_end_and_a_retry() -> None:
    timeout = decide(
        claimed(new_item(PLAN), PLAN),
        Retry("no answer", category="TIMEOUT", unknown=True),
        PLAN,
        START,
        0.0,
    )
    ended = Item(
        replace(timeout.after, status=Status.MAX_RETRIES_EXCEEDED),
        claimed(new_item(PLAN), PLAN).content,
    )
    assert done(ended, operators.retry(ended, PLAN, START, **WHO)).row.unknown
    assert not done(ended, operators.retry(ended, PLAN, START, as_new=True, **WHO)).row.unknown
    held = claimed(new_item(PLAN), PLAN)
    assert done(held, operators.cancel(held, PLAN, START, **WHO)).row.unknown


def test_retry_says_why_not() -> None:
    assert "COMPLETED" in refused(operators.retry(completed(), PLAN, START, **WHO))
    assert "worker has claimed it" in refused(
        operators.retry(claimed(new_item(PLAN), PLAN), PLAN, START, **WHO)
    )
    assert "use skip" in refused(operators.retry(new_item(PLAN), PLAN, START, stage="stamp", **WHO))
    assert "no stage 'nowhere'" in refused(
        operators.retry(new_item(PLAN), PLAN, START, stage="nowhere", **WHO)
    )


@pytest.mark.parametrize(
    "name", ["queued", "held", "waiting", "retried", "rejected", "handed over"]
)
def test_skip_goes_past_the_stage_without_a_result(name: str) -> None:
    before = some_items()[name]
    item = done(before, operators.skip(before, PLAN, START, **WHO))
    assert (item.stage, item.results, item.payload, item.row.lease) == (
        "stamp",
        {},
        before.payload,
        None,
    )


def test_skipping_the_last_stage_completes() -> None:
    there = at_stage("delivered", PLAN)
    assert done(there, operators.skip(there, PLAN, START, **WHO)).row.status is Status.COMPLETED
    assert "COMPLETED" in refused(operators.skip(completed(), PLAN, START, **WHO))


def test_cancel_ends_and_a_worker_finds_its_lease_gone() -> None:
    held = claimed(new_item(PLAN), PLAN)
    row = done(held, operators.cancel(held, PLAN, START, **WHO)).row
    assert (row.status, row.lease, row.due_at) == (Status.CANCELLED, None, None)
    assert "already ended" in refused(operators.cancel(completed(), PLAN, START, **WHO))
    assert (
        done(ended(), operators.cancel(ended(), PLAN, START, **WHO)).row.status is Status.CANCELLED
    ), "a failed one, too"


def test_a_retry_of_work_that_a_partner_still_has_verifies_first() -> None:
    handed = settled(claimed(new_item(PLAN), PLAN), HandedOver("1d"), PLAN)
    assert done(handed, operators.retry(handed, PLAN, START, **WHO)).row.unknown
    assert not done(handed, operators.retry(handed, PLAN, START, as_new=True, **WHO)).row.unknown, (
        "the operator says that it is new work"
    )
    cancelled = done(handed, operators.cancel(handed, PLAN, START, **WHO))
    assert done(cancelled, operators.retry(cancelled, PLAN, START, **WHO)).row.unknown


def test_a_cancelled_item_can_be_started_again() -> None:
    item = new_item(PLAN)
    item = done(item, operators.cancel(item, PLAN, START, **WHO))
    assert done(item, operators.retry(item, PLAN, START + LEASE, **WHO)).row.status is Status.QUEUED


def test_resend_offers_an_external_stage_again_under_the_same_work_id() -> None:
    item = at_stage("delivered", PLAN)
    change = operators.resend(item, PLAN, START + 5, **WHO)
    assert isinstance(change, Change)
    assert change.line is not None
    assert (change.line.reason, change.line.offered) == (Reason.RESENT, item.work_id)
    done(item, change)
    assert "there is no message" in refused(operators.resend(new_item(PLAN), PLAN, START, **WHO))
    assert "to run it again use rerun" in refused(operators.resend(completed(), PLAN, START, **WHO))
    assert "use retry" in refused(operators.resend(ended(), PLAN, START, **WHO))


@pytest.mark.parametrize(
    "outcome", [NotYet(after="6h"), Retry("busy", after="6h"), HandedOver(within="6h")]
)
def test_resend_brings_an_item_at_a_stage_of_ours_to_its_workers_at_once(outcome: Outcome) -> None:
    item = claimed(new_item(PLAN), PLAN)
    assert "a worker has claimed it" in refused(operators.resend(item, PLAN, START, **WHO))
    item = settled(item, outcome, PLAN)
    assert item.row.look_at is not None
    assert item.row.look_at > START
    again = done(item, operators.resend(item, PLAN, START + 5, **WHO))
    assert (again.row.status, again.row.look_at, again.row.attempts) == (
        Status.QUEUED,
        START + 5,
        item.row.attempts,
    )
    assert again.row.unknown is item.row.handed_over, (
        "verify asks first whether what was handed over has been done"
    )


def test_resend_calls_again_for_what_waits_in_a_queue() -> None:
    """Where workers are called by messages, one may be lost."""
    plan = make_plan(offer_life_ms=600_000)
    item = new_item(plan)
    change = operators.resend(item, plan, START + 5, **WHO)
    assert isinstance(change, Change)
    assert (change.after.status, change.after.look_at) == (Status.QUEUED, START + 5 + 600_000)


def test_move_brings_an_item_to_a_stage_that_is_still_there() -> None:
    item = done(new_item(PLAN), operators.move(new_item(PLAN), PLAN, "stamp", START, **WHO))
    assert (item.stage, item.row.status) == ("stamp", Status.QUEUED)
    gone = done(new_item(PLAN), operators.move(new_item(PLAN), PLAN, None, START, **WHO))
    assert gone.row.status is Status.CANCELLED
    failed = done(ended(), operators.move(ended(), PLAN, "stamp", START, **WHO))
    assert (failed.stage, failed.row.status) == ("stamp", Status.REJECTED), (
        "a failed item keeps its end"
    )
    assert "already ended" in refused(operators.move(completed(), PLAN, "stamp", START, **WHO))


def test_back_fill_takes_finished_items_on_to_an_added_stage() -> None:
    item = done(completed(), operators.back_fill(completed(), PLAN, "delivered", START, **WHO))
    assert (item.stage, item.row.status) == ("delivered", Status.QUEUED)
    assert "only completed items" in refused(
        operators.back_fill(new_item(PLAN), PLAN, "delivered", START, **WHO)
    )


# Run again ----------------------------------------------------------------------------------------
def test_rerun_starts_at_the_first_stage_with_a_new_work_id() -> None:
    item = done(completed(), operators.rerun(completed(), PLAN, START, **WHO))
    assert (item.stage, item.row.pass_no, item.row.round, item.row.again) == ("weigh", 2, 1, True)
    assert item.row.status is Status.QUEUED


def test_rerun_of_the_last_stage_is_a_new_round_of_the_same_work_unless_it_is_new() -> None:
    before = completed()
    same = done(before, operators.rerun(before, PLAN, START, stage="delivered", **WHO))
    assert (same.work_id, same.row.round) == (before.work_id, before.row.round + 1)
    new = done(before, operators.rerun(before, PLAN, START, stage="delivered", as_new=True, **WHO))
    assert new.work_id != before.work_id


def test_rerun_says_why_not() -> None:
    assert "use retry" in refused(operators.rerun(ended(), PLAN, START, **WHO))
    assert "wait for its end" in refused(operators.rerun(new_item(PLAN), PLAN, START, **WHO))
    assert "no stage 'nowhere'" in refused(
        operators.rerun(completed(), PLAN, START, stage="nowhere", **WHO)
    )
    assert "use rerun" in refused(operators.retry(completed(), PLAN, START, **WHO))


# Other content ------------------------------------------------------------------------------------
def replaced(item: Item, content: Any, **how: Any) -> Change | Refusal:
    old = {"content": item.input}
    return operators.replace(
        item, PLAN, START, content=content, digest=digest_of(content), old=old, **how, **WHO
    )


def test_replace_starts_at_the_first_stage_in_the_new_contents_lane() -> None:
    before = at_stage("stamp", PLAN)
    new = {"id": "p1", "lane": "south"}
    item = done(before, replaced(before, new))
    assert (item.stage, item.lane, item.payload, item.row.pass_no) == ("weigh", "south", new, 2)
    assert item.row.current_digest == digest_of(new) != item.row.input_digest


def test_the_line_of_a_replacement_has_both_digests_and_the_old_content() -> None:
    before, new = new_item(PLAN), {"id": "p1", "lane": "south"}
    change = replaced(before, new)
    assert isinstance(change, Change)
    assert change.line is not None
    told = change.line.note["replaced"]
    assert told == {
        "digest": before.row.input_digest.hex(),
        "by_digest": digest_of(new).hex(),
        "content": before.input,
    }


def test_replace_takes_the_item_out_of_a_workers_hands() -> None:
    held = claimed(new_item(PLAN), PLAN)
    row = done(held, replaced(held, {"id": "p1", "lane": "south"})).row
    assert (row.lease, row.holder, row.unknown, row.pass_no) == (None, None, False, 2)


def test_replace_says_why_not() -> None:
    assert "has this content already" in refused(
        replaced(new_item(PLAN), {"id": "p1", "lane": "north"})
    )
    assert "add rerun" in refused(replaced(completed(), {"id": "p1", "lane": "south"}))
    item = done(completed(), replaced(completed(), {"id": "p1", "lane": "south"}, rerun=True))
    assert (item.stage, item.row.again) == ("weigh", False), (
        "other content is news, also the second time"
    )


# For later ----------------------------------------------------------------------------------------
def for_later(ms: int = 3_600_000) -> Item:
    content = {"id": "p1", "lane": "north"}
    change = accept(
        PLAN,
        "p1",
        content,
        START,
        correlation_id="c",
        digest=digest_of(content),
        not_before=START + ms,
    )
    return Item(change.after, Content(content))


def test_an_item_for_later_is_pending_and_due_then() -> None:
    item = for_later()
    assert (item.row.status, item.row.due_at, item.row.not_before) == (
        Status.PENDING,
        START + 3_600_000,
        START + 3_600_000,
    )
    assert look(item, PLAN, START + 3_599_999, 0.0, Lease("t", "worker", START + LEASE)) is None
    assert (
        look(item, PLAN, START + 3_599_999, 0.0, Lease("t", "worker", START + LEASE), called=True)
        is None
    ), "a message came too early"
    claimed(item, PLAN, START + 3_600_000)


def test_a_moment_that_is_past_is_now() -> None:
    assert for_later(-1).row == new_item(PLAN).row or for_later(-1).row.not_before is None
    assert for_later(-1).row.status is Status.QUEUED


def test_an_item_for_later_is_neither_retried_nor_started_early_by_a_skip() -> None:
    item = for_later()
    assert "use reschedule" in refused(operators.retry(item, PLAN, START, **WHO))
    skipped = done(item, operators.skip(item, PLAN, START, **WHO))
    assert (skipped.stage, skipped.row.status, skipped.row.due_at) == (
        "stamp",
        Status.PENDING,
        START + 3_600_000,
    )
    assert skipped.row.overdue_at == START + 3_600_000 + 3_600_000


def test_a_cancelled_item_for_later_is_retried_and_waits_for_its_time() -> None:
    cancelled = done(for_later(), operators.cancel(for_later(), PLAN, START, **WHO))
    assert "use retry first" in refused(
        operators.reschedule(cancelled, PLAN, START, not_before=START, **WHO)
    )
    again = done(cancelled, operators.retry(cancelled, PLAN, START + 60_000, **WHO))
    assert (again.row.status, again.row.due_at, again.row.not_before) == (
        Status.PENDING,
        START + 3_600_000,
        START + 3_600_000,
    )
    now = done(again, operators.reschedule(again, PLAN, START, not_before=START, **WHO))
    assert (now.row.status, now.row.not_before) == (Status.QUEUED, None)
    late = done(cancelled, operators.retry(cancelled, PLAN, START + 3_600_000, **WHO))
    assert (late.row.status, late.row.not_before) == (Status.QUEUED, None), "its time is past"


def test_reschedule_moves_the_time_and_says_why_not() -> None:
    item = for_later()
    later = done(item, operators.reschedule(item, PLAN, START, not_before=START + 5, **WHO))
    assert (later.row.due_at, later.row.not_before) == (START + 5, START + 5)
    now = done(later, operators.reschedule(later, PLAN, START, not_before=START, **WHO))
    assert (now.row.status, now.row.not_before, now.row.due_at) == (Status.QUEUED, None, START)
    for other, why in (
        (claimed(new_item(PLAN), PLAN), "has not started"),
        (at_stage("delivered", PLAN), "offered"),
        (ended(), "REJECTED"),
    ):
        assert why in refused(operators.reschedule(other, PLAN, START, not_before=START + 9, **WHO))
