"""Confirmations: valid or not, now or later, first or second."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.item_lives import (
    START,
    after,
    at_stage,
    claimed,
    handler,
    make_plan,
    new_item,
    settled,
    walk,
)

from milepost.core.change import Change
from milepost.core.confirmations import confirm, noted_once, too_late
from milepost.core.decide import OUTCOME_LIMIT, valid_confirmation
from milepost.core.item import Item
from milepost.core.operators import cancel, retry
from milepost.core.outcome import (
    Done,
    HandedOver,
    NotYet,
    Outcome,
    Reject,
    Retry,
    outcome_from_builtins,
)
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import EDGES, NOTES, Reason, Status
from milepost.core.values.refusal import Refusal, RefusalKind

PLAN = make_plan()


def kind_of(answer: Change | Refusal) -> RefusalKind:
    assert isinstance(answer, Refusal)
    return answer.kind


def given_word(
    item: Item, stage: str, outcome: Outcome, plan: Plan = PLAN, *, operator: bool = False
) -> Change | Refusal:
    return confirm(
        item,
        stage,
        outcome,
        plan,
        START,
        0.0,
        by="partner",
        why="seen",
        act="a-1",
        operator=operator,
    )


def written(item: Item, stage: str, outcome: Outcome) -> Item:
    change = given_word(item, stage, outcome)
    assert isinstance(change, Change), change
    return after(item, change)


@pytest.mark.parametrize(
    "value", [True, 1, -1, 0.5, "yes", "2024-01-01", "x", {"a": 1}, [0], "True"]
)
def test_what_confirms(value: Any) -> None:
    assert valid_confirmation(value)


@pytest.mark.parametrize(
    "value",
    [False, None, 0, 0.0, "", " ", "false", "False", "NO", " no ", "0", "null", "{}", "[]", {}, []],
)
def test_what_confirms_nothing(value: Any) -> None:
    assert not valid_confirmation(value)
    item = new_item(PLAN)
    assert kind_of(given_word(item, "weigh", Done(value))) is RefusalKind.CONFIRMS_NOTHING


@given(
    st.sampled_from(["", "false", "no", "0", "null", "{}", "[]"]),
    st.sampled_from([str.upper, str.title, str.lower]),
    st.sampled_from(["", " ", "\n"]),
)
def test_a_no_is_a_no_however_it_is_written(word: str, case: Any, blank: str) -> None:
    assert not valid_confirmation(blank + case(word) + blank)


def counted_route() -> Plan:
    """The second stage's answer must be as many as it was given."""
    route = Route("parcels")
    route.external("pack")
    route.external(
        "count", accepts=lambda value, payload: payload is None or value == payload["pieces"]
    )
    return Plan(route)


@pytest.mark.parametrize("answer", [2, 3])
def test_a_stage_may_judge_an_answer_by_what_it_was_given_to_do(answer: int) -> None:
    plan = counted_route()
    item = new_item(plan)
    arrived = after(item, given_word(item, "pack", Done({"pieces": 3}), plan))
    change = given_word(arrived, "count", Done(answer), plan)
    assert isinstance(change, Change) is (answer == 3)


@pytest.mark.parametrize("answer", [2, 3])
def test_an_answer_that_came_early_is_judged_when_the_item_gets_there(answer: int) -> None:
    plan = counted_route()
    item = new_item(plan)
    told = after(item, given_word(item, "count", Done(answer), plan))
    assert set(told.row.kept) == {"count"}
    change = given_word(told, "pack", Done({"pieces": 3}), plan)
    assert isinstance(change, Change)
    assert change.line is not None
    assert set(change.after.kept) == ({"count"} if answer == 3 else set())
    assert change.line.note == (
        None if answer == 3 else {"for": "count", "confirms nothing": {"type": "done", "output": 2}}
    )
    # What confirms is looked at once; what does not leaves the stage to be offered as any other.
    assert (change.after.look_at == START) is (answer == 3)


def test_a_stage_may_say_itself_what_it_accepts() -> None:
    route = Route("parcels")
    route.stage("weigh", accepts=lambda value: value["grams"] > 0)(handler)
    stage = Plan(route).first
    assert valid_confirmation({"grams": 1}, stage)
    assert not valid_confirmation({"grams": 0}, stage)
    assert not valid_confirmation("anything that makes it fail", stage)


def test_a_confirmation_at_the_items_stage_moves_it_on() -> None:
    item = written(at_stage("delivered", PLAN), "delivered", Done({"at": "door"}))
    assert (item.row.status, item.results["delivered"]) == (Status.COMPLETED, {"at": "door"})


def test_a_plain_yes_is_no_payload() -> None:
    item = written(at_stage("stamp", PLAN), "stamp", Done(True))
    assert (item.stage, item.payload) == ("delivered", {"by": "weigh"})


def test_who_and_why_are_kept() -> None:
    change = given_word(new_item(PLAN), "weigh", Done(True))
    assert isinstance(change, Change)
    assert change.line is not None
    assert (change.line.reason, change.line.by, change.line.why, change.line.act) == (
        Reason.CONFIRMED,
        "partner",
        "seen",
        "a-1",
    )


def test_an_outside_retry_is_a_counted_try() -> None:
    item = written(at_stage("delivered", PLAN), "delivered", Retry("lost in the post"))
    assert (item.row.status, item.row.attempts) == (Status.RETRY_SCHEDULED, 1)


def test_an_outside_reject_ends_it() -> None:
    assert (
        written(at_stage("delivered", PLAN), "delivered", Reject("refused")).row.status
        is Status.REJECTED
    )


def kept(item: Item) -> Outcome | None:
    """What waits for the item at its stage."""
    told = item.row.kept.get(item.stage)
    return None if told is None else outcome_from_builtins(told)


def test_while_a_worker_holds_it_the_word_is_kept_and_the_lease_stays() -> None:
    held = claimed(new_item(PLAN), PLAN)
    item = written(held, "weigh", Done({"g": 1}))
    assert (item.row.status, item.row.lease, item.row.look_at) == (
        Status.PROCESSING,
        held.row.lease,
        held.row.look_at,
    )
    assert kept(item) == Done({"g": 1})
    assert settled(item, Reject("no"), PLAN).stage == "stamp"


def test_for_a_later_stage_it_is_kept_until_the_item_gets_there() -> None:
    item = written(new_item(PLAN), "delivered", Done({"at": "door"}))
    assert (item.stage, kept(item)) == ("weigh", None)
    item = settled(claimed(item, PLAN), Done(), PLAN)
    item = settled(claimed(item, PLAN), Done(), PLAN)
    assert (item.stage, kept(item), item.row.due_at) == ("delivered", Done({"at": "door"}), START)


@pytest.mark.parametrize("stage", ["weigh", "delivered"])
def test_the_first_word_wins_and_a_different_later_one_is_noted(stage: str) -> None:
    item = written(claimed(new_item(PLAN), PLAN), stage, Done("first"))
    same = given_word(item, stage, Done("first"))
    assert kind_of(same) is RefusalKind.KNOWN
    assert str(same).startswith("known")
    change = given_word(item, stage, Done("second"))
    assert isinstance(change, Change)
    assert change.line is not None
    assert change.line.reason is Reason.NOTED
    assert change.after.kept == item.row.kept


def test_a_word_for_a_stage_that_is_behind_is_known_or_noted() -> None:
    item = at_stage("stamp", PLAN)
    for known in (Done({"by": "weigh"}), Done(True)):
        answer = given_word(item, "weigh", known)
        assert isinstance(answer, Refusal)
        assert answer.kind is RefusalKind.KNOWN
        assert answer.text.startswith("known")
    change = given_word(item, "weigh", Done("other"))
    assert isinstance(change, Change)
    assert change.line is not None
    assert change.line.reason is Reason.NOTED
    assert (change.after.stage, change.after.status) == ("stamp", item.row.status)


def test_a_confirmation_still_moves_a_failed_item_and_nothing_else_does() -> None:
    failed = settled(claimed(new_item(PLAN), PLAN), Reject("no"), PLAN)
    assert written(failed, "weigh", Done(True)).stage == "stamp"
    for outcome in (Retry("x"), NotYet(), Reject("y")):
        answer = given_word(failed, "weigh", outcome)
        assert kind_of(answer) is RefusalKind.ENDED
        assert "only a confirmation" in str(answer)


def test_for_a_later_stage_of_a_failed_item_it_is_kept_until_a_person_retries_it() -> None:
    failed = settled(claimed(new_item(PLAN), PLAN), Reject("no"), PLAN)
    item = written(failed, "stamp", Done({"s": 1}))
    assert (item.row.status, set(item.row.kept)) == (Status.REJECTED, {"stamp"})
    item = after(item, retry(item, PLAN, START, by="ops", why="once more"))
    item = settled(claimed(item, PLAN), Done(), PLAN)
    assert (item.stage, kept(item)) == ("stamp", Done({"s": 1}))


def cancelled(item: Item) -> Item:
    return after(item, cancel(item, PLAN, START, by="ops", why="not wanted"))


@pytest.mark.parametrize("stage", ["stamp", "delivered"])
@pytest.mark.parametrize("outcome", [Done(True), Retry("x"), NotYet(), Reject("y")])
def test_no_partner_moves_what_a_person_has_cancelled(stage: str, outcome: Outcome) -> None:
    answer = given_word(cancelled(at_stage("stamp", PLAN)), stage, outcome)
    assert kind_of(answer) is RefusalKind.ENDED
    assert "CANCELLED" in str(answer)


def test_what_was_kept_before_the_cancelling_does_not_move_it_either() -> None:
    item = cancelled(written(claimed(at_stage("stamp", PLAN), PLAN), "stamp", Done("first")))
    for word in ("first", "second"):
        assert kind_of(given_word(item, "stamp", Done(word))) is RefusalKind.ENDED


def test_a_word_for_a_stage_behind_a_cancelled_item_is_known_or_noted_as_ever() -> None:
    item = cancelled(at_stage("stamp", PLAN))
    assert kind_of(given_word(item, "weigh", Done({"by": "weigh"}))) is RefusalKind.KNOWN
    assert isinstance(given_word(item, "weigh", Done("other")), Change)


def test_a_person_may_confirm_what_was_cancelled() -> None:
    item = cancelled(at_stage("stamp", PLAN))
    assert after(item, given_word(item, "stamp", Done(True), operator=True)).stage == "delivered"
    early = after(item, given_word(item, "delivered", Done(True), operator=True))
    assert (early.row.status, set(early.row.kept)) == (Status.CANCELLED, {"delivered"})
    assert kind_of(given_word(item, "stamp", Retry("x"), operator=True)) is RefusalKind.ENDED


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_whatever_became_of_an_item_a_partner_takes_only_the_edges_of_partners(
    data: st.DataObject,
) -> None:
    theirs = [edge for edge in EDGES if edge.who.startswith("outside")]
    for step, change, _ in walk(data, PLAN):
        line = change.line
        if step == "confirm" and line is not None and line.reason not in NOTES:
            before, reason = change.before.status, line.reason
            assert any(before in edge.sources and reason in edge.reasons for edge in theirs), (
                f"{before} ({reason})"
            )


def test_what_came_too_late_is_noted_with_who_said_it_and_for_which_stage() -> None:
    item = cancelled(at_stage("stamp", PLAN))
    noted = too_late(item, "delivered", Done(1), START, by="partner", why="seen")
    assert noted.line is not None
    assert noted.line.note == {"for": "delivered", "too late": {"type": "done", "output": 1}}
    assert (noted.line.reason, noted.line.by, noted.line.why) == (Reason.NOTED, "partner", "seen")
    assert (noted.after.status, noted.after.kept) == (Status.CANCELLED, {})


def test_an_unknown_stage_is_named_with_those_there_are() -> None:
    answer = given_word(new_item(PLAN), "nowhere", Done(True))
    assert isinstance(answer, Refusal)
    assert "'nowhere'" in answer.text
    assert "weigh, stamp, delivered" in answer.text


def test_a_note_is_written_once_for_each_who_says_it_and_each_thing_said() -> None:
    item = written(at_stage("delivered", PLAN), "delivered", Done({"at": "door"}))
    first = given_word(item, "delivered", Done(1))
    assert isinstance(first, Change)
    assert first.line is not None
    assert noted_once(first, lambda: ()) is first
    assert (
        kind_of(noted_once(given_word(item, "delivered", Done(1)), lambda: [first.line]))
        is RefusalKind.NOTED_BEFORE
    )
    for other in (
        given_word(item, "delivered", Done("1")),
        confirm(item, "delivered", Done(1), PLAN, START, 0.0, by="somebody else"),
    ):
        assert noted_once(other, lambda: [first.line]) is other


def test_what_is_no_note_asks_for_no_history() -> None:
    moved = given_word(at_stage("delivered", PLAN), "delivered", Done({"at": "door"}))
    assert noted_once(moved, lambda: pytest.fail("nobody need look")) is moved


def test_a_confirmation_that_is_too_large_to_be_kept_is_refused() -> None:
    for stage in ("weigh", "stamp"):
        answer = given_word(new_item(PLAN), stage, Done("x" * OUTCOME_LIMIT))
        assert isinstance(answer, Refusal)
        assert "too large" in answer.text
        assert "the limit is 1,048,576" in answer.text


def awaited(item: Item, outcome: Outcome) -> Change:
    change = confirm(item, "weigh", outcome, PLAN, START, 0.0, by="partner", awaited=True)
    assert isinstance(change, Change), change
    return change


def test_an_awaited_failure_counts_once_however_often_it_is_reported() -> None:
    failure = Retry("no", category="PARTNER")
    handed = settled(claimed(new_item(PLAN), PLAN), HandedOver("1d"), PLAN)
    failed = after(handed, awaited(handed, failure))
    assert (failed.row.status, failed.row.attempts) == (Status.RETRY_SCHEDULED, 1)
    repeated = awaited(failed, failure)
    assert repeated.line is not None
    assert (repeated.line.reason, repeated.after.attempts, repeated.after.look_at) == (
        Reason.NOTED,
        1,
        failed.row.look_at,
    )
    rejected = awaited(failed, Reject("never"))
    assert rejected.after.status is Status.RETRY_SCHEDULED


def test_a_confirmation_is_applied_whether_it_is_awaited_or_not() -> None:
    item = new_item(PLAN)
    assert after(item, awaited(item, Done(True))).row.stage != "weigh"


def test_a_failure_while_a_worker_has_the_item_is_kept_for_its_outcome() -> None:
    held = claimed(new_item(PLAN), PLAN)
    kept = after(held, awaited(held, Retry("no")))
    assert kept.row.kept.keys() == {"weigh"}
    assert settled(kept, HandedOver("1d"), PLAN).row.status is Status.RETRY_SCHEDULED
