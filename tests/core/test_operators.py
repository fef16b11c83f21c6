"""What people may do: the change, or a sentence that says why not."""

from __future__ import annotations

from typing import Any

import pytest
from life import LEASE, START, after, at_stage, claimed, make_plan, new_item, settled
from msgspec.structs import replace

from milepost.core import operators
from milepost.core.change import Change
from milepost.core.decide import decide, given_back
from milepost.core.item import Item
from milepost.core.outcome import Done, HandedOver, NotYet, Reject, Retry
from milepost.core.outside import confirm
from milepost.core.status import Reason, Status, allowed

PLAN = make_plan()
WHO: dict[str, Any] = {"by": "ops", "why": "because", "act": "a-1"}


def done(item: Item, change: Change | str) -> Item:
    assert isinstance(change, Change), change
    assert change.line is not None
    assert allowed(change.before.status, change.after.status, change.line.reason)
    assert (change.line.by, change.line.why, change.line.act) == ("ops", "because", "a-1")
    return after(item, change)


def refused(answer: Change | str) -> str:
    assert isinstance(answer, str), answer
    return answer


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
    if isinstance(answer, str):
        assert answer.startswith(("it ", "a worker", "route"))
    else:
        done(item, answer)


def test_retry_starts_the_stage_again_with_counts_at_zero_and_a_new_round() -> None:
    item = done(ended(), operators.retry(ended(), PLAN, START, **WHO))
    row = item.row
    assert (row.status, row.attempts, row.losses, row.total_attempts, row.round, row.pass_no) == (Status.QUEUED, 0, 0, 1, 2, 1)
    assert (row.error, row.due_at) == (None, START)
    assert item.work_id == new_item(PLAN).work_id, "the same work: a partner can recognise the repeat"


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
    timeout = decide(claimed(new_item(PLAN), PLAN), Retry("no answer", category="TIMEOUT", unknown=True), PLAN, START, 0.0)
    ended = Item(replace(timeout.after, status=Status.MAX_RETRIES_EXCEEDED), claimed(new_item(PLAN), PLAN).content)
    assert done(ended, operators.retry(ended, PLAN, START, **WHO)).row.unknown
    assert not done(ended, operators.retry(ended, PLAN, START, as_new=True, **WHO)).row.unknown
    held = claimed(new_item(PLAN), PLAN)
    assert done(held, operators.cancel(held, PLAN, START, **WHO)).row.unknown


def test_retry_says_why_not() -> None:
    assert "COMPLETED" in refused(operators.retry(completed(), PLAN, START, **WHO))
    assert "worker holds it" in refused(operators.retry(claimed(new_item(PLAN), PLAN), PLAN, START, **WHO))
    assert "use skip" in refused(operators.retry(new_item(PLAN), PLAN, START, stage="stamp", **WHO))
    assert "no stage 'nowhere'" in refused(operators.retry(new_item(PLAN), PLAN, START, stage="nowhere", **WHO))


@pytest.mark.parametrize("name", ["queued", "held", "waiting", "retried", "rejected", "handed over"])
def test_skip_goes_past_the_stage_without_a_result(name: str) -> None:
    before = some_items()[name]
    item = done(before, operators.skip(before, PLAN, START, **WHO))
    assert (item.stage, item.results, item.payload, item.row.lease) == ("stamp", {}, before.payload, None)


def test_skipping_the_last_stage_completes() -> None:
    there = at_stage("delivered", PLAN)
    assert done(there, operators.skip(there, PLAN, START, **WHO)).row.status is Status.COMPLETED
    assert "COMPLETED" in refused(operators.skip(completed(), PLAN, START, **WHO))


def test_cancel_ends_and_a_worker_finds_its_lease_gone() -> None:
    held = claimed(new_item(PLAN), PLAN)
    row = done(held, operators.cancel(held, PLAN, START, **WHO)).row
    assert (row.status, row.lease, row.due_at) == (Status.CANCELLED, None, None)
    assert "ended already" in refused(operators.cancel(ended(), PLAN, START, **WHO))


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
    assert "only an external stage" in refused(operators.resend(new_item(PLAN), PLAN, START, **WHO))
    assert "only an external stage" in refused(operators.resend(completed(), PLAN, START, **WHO))


def test_move_brings_an_item_to_a_stage_that_is_still_there() -> None:
    item = done(new_item(PLAN), operators.move(new_item(PLAN), PLAN, "stamp", START, **WHO))
    assert (item.stage, item.row.status) == ("stamp", Status.QUEUED)
    gone = done(new_item(PLAN), operators.move(new_item(PLAN), PLAN, None, START, **WHO))
    assert gone.row.status is Status.CANCELLED
    failed = done(ended(), operators.move(ended(), PLAN, "stamp", START, **WHO))
    assert (failed.stage, failed.row.status) == ("stamp", Status.REJECTED), "a failed item keeps its end"
    assert "ended already" in refused(operators.move(completed(), PLAN, "stamp", START, **WHO))


def test_back_fill_takes_finished_items_on_to_an_added_stage() -> None:
    item = done(completed(), operators.back_fill(completed(), PLAN, "delivered", START, **WHO))
    assert (item.stage, item.row.status) == ("delivered", Status.QUEUED)
    assert "only finished items" in refused(operators.back_fill(new_item(PLAN), PLAN, "delivered", START, **WHO))
