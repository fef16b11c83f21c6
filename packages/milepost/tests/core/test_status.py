"""The table of edges, and that nothing ever happens outside it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.item_lives import START, make_plan, new_item, walk

from milepost.core.change import Change
from milepost.core.decide import NOTHING, accept
from milepost.core.item import digest_of
from milepost.core.status import EDGES, FAILED, LIVE, NOTES, TERMINAL, Reason, Status, allowed

S, R = Status, Reason


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_every_change_that_any_rule_makes_is_an_edge_of_the_table(data: st.DataObject) -> None:
    for step, change, _ in walk(data, make_plan()):
        before, after = change.before.status, change.after.status
        if change.line is None:
            silent = (step == "claim" and allowed(before, after, R.CLAIMED)) or allowed(
                before, after, R.NOT_YET
            )
            assert silent, f"{step}: {before} -> {after} without a line"
        else:
            assert allowed(before, after, change.line.reason), (
                f"{step}: {before} -> {after} ({change.line.reason})"
            )


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_the_table_holds_with_grace_and_offer_life_too(data: st.DataObject) -> None:
    """As on a ledger whose offers are separate messages."""
    for step, change, _ in walk(data, make_plan(grace_ms=600_000, offer_life_ms=86_400_000)):
        if change.line is not None:
            before, after = change.before.status, change.after.status
            assert allowed(before, after, change.line.reason), (
                f"{step}: {before} -> {after} ({change.line.reason})"
            )


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_there_is_no_status_in_which_an_item_can_be_forgotten(data: st.DataObject) -> None:
    for step, change, _ in walk(data, make_plan()):
        row = change.after
        assert (row.due_at is None) == row.terminal, f"{step}: {row.status} is due at {row.due_at}"
        assert (row.lease is not None) == (row.status is S.PROCESSING and row.undecided is None), (
            step
        )
        assert not (row.terminal and row.handed_over)


@pytest.mark.parametrize("offered", [False, True])
def test_an_item_begins_pending_or_offered_in_the_same_write(offered: bool) -> None:
    plan = make_plan() if offered else make_plan(grace_ms=1000)
    row = new_item(plan).row
    assert row.status is (S.QUEUED if offered else S.PENDING)
    assert row.due_at == (START if offered else START + 1000)
    change = accept(plan, "p", {"lane": ""}, START, correlation_id="c", digest=digest_of({}))
    assert isinstance(change, Change)
    assert change.before.version == NOTHING.version == 0
    assert allowed(None, row.status, R.ACCEPTED)


def test_statuses_are_live_or_terminal_and_all_words_have_a_meaning() -> None:
    assert set(Status) == LIVE | TERMINAL
    assert not LIVE & TERMINAL
    assert FAILED < TERMINAL
    assert all(word.meaning for word in (*Status, *Reason))


def test_every_reason_is_a_note_or_on_an_edge() -> None:
    on_edges = {reason for edge in EDGES for reason in edge.reasons}
    assert on_edges | NOTES == set(Reason)
    assert not on_edges & NOTES


def test_every_status_can_be_reached_and_every_live_one_left() -> None:
    assert {edge.target for edge in EDGES} == set(Status)
    for status in LIVE:
        assert any(status in edge.sources for edge in EDGES)


def test_completed_is_left_only_by_an_operator() -> None:
    assert {reason for edge in EDGES if S.COMPLETED in edge.sources for reason in edge.reasons} == {
        R.BACK_FILL,
        R.RERUN,
        R.REPLACED,
    }
    assert {edge.who for edge in EDGES if S.COMPLETED in edge.sources} == {"operator"}


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [(S.COMPLETED, S.PROCESSING, R.CLAIMED), (S.QUEUED, S.PROCESSING, R.ADVANCED), (S.COMPLETED, S.CANCELLED, R.CANCELLED),
     (S.CANCELLED, S.PROCESSING, R.CLAIMED), (None, S.COMPLETED, R.ACCEPTED), (S.QUEUED, S.WAITING, R.KEPT), (S.PROCESSING, S.PROCESSING, R.CLAIMED)],
)  # fmt: skip
def test_what_may_not_be(before: Status | None, after: Status, reason: Reason) -> None:
    assert not allowed(before, after, reason)
