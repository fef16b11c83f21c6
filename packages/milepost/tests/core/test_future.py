"""Rows that a clock ahead has dated in the future: when they are due."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from milepost.core.change import Change
from milepost.core.clocks import FOLLOWED_MS
from milepost.core.future import dated_at, due_at_once, from_future, redate
from milepost.core.item import Row
from milepost.core.status import LIVE, TERMINAL, Reason, Status
from milepost.core.values.refusal import Refusal

NOW = 2_015_619_200_000
DAY = 86_400_000
SPANS = st.integers(0, 30 * DAY)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Rows whose due time was counted from their last change, as the rules do it."""
    status = draw(st.sampled_from(sorted(LIVE)))
    dated = NOW + draw(st.integers(-10 * DAY, 10 * DAY))
    look_at = dated + draw(SPANS)
    given: dict[str, Any] = {"updated_at": dated, "look_at": look_at}
    if status is Status.PROCESSING:
        given = {
            "updated_at": dated - draw(SPANS),
            "claimed_at": dated,
            "look_at": look_at,
            "lease": "t",
            "holder": "w",
        }
    elif status is Status.WAITING:
        given["handed_over"] = draw(st.booleans())
    elif status is Status.PENDING and draw(st.booleans()):
        given["not_before"] = look_at
    overdue = draw(st.none() | SPANS)
    given["overdue_at"] = None if overdue is None else dated + overdue
    return replace(Row("r", "k", "s", status, 1, b"head", dated, dated, dated, "c", b"d"), **given)


@given(row=rows())
@example(
    row=Row(
        "r",
        "k",
        "s",
        Status.QUEUED,
        1,
        b"h",
        NOW + 3 * DAY,
        NOW + 3 * DAY,
        NOW + 3 * DAY,
        "c",
        b"d",
        look_at=NOW + 3 * DAY,
    )
)
def test_a_row_is_never_due_later_than_its_rule_counted_from_now_allows(row: Row) -> None:
    change = due_at_once(row, NOW)
    after = row if change is None else change.after
    assert after.look_at is not None
    assert row.look_at is not None
    meant = row.look_at - dated_at(row)
    if row.later_than(NOW) or not from_future(row, NOW):
        assert change is None
    else:
        assert NOW <= after.look_at <= NOW + meant
        assert row.handed_over or after.look_at == NOW
        assert due_at_once(after, NOW) is None


@given(row=rows(), ahead=st.integers(0, FOLLOWED_MS))
def test_a_row_dated_at_most_minutes_ahead_is_left_as_it_is(row: Row, ahead: int) -> None:
    assume(row.look_at is not None)
    assert due_at_once(row, dated_at(row) - ahead) is None


@given(row=rows(), status=st.sampled_from(sorted(TERMINAL)))
def test_nothing_is_due_for_an_ended_row(row: Row, status: Status) -> None:
    assert due_at_once(replace(row, status=status, look_at=None), NOW) is None


def test_a_partners_time_counts_from_now_and_that_is_on_record() -> None:
    row = Row(
        "r",
        "k",
        "s",
        Status.WAITING,
        3,
        b"h",
        NOW,
        NOW + 3 * DAY,
        NOW,
        "c",
        b"d",
        look_at=NOW + 4 * DAY,
        handed_over=True,
    )
    change = due_at_once(row, NOW)
    assert change is not None
    assert change.line is not None
    assert change.after.look_at == NOW + DAY
    assert change.after.updated_at == NOW
    assert change.line.reason is Reason.NOTED
    assert change.line.note["redated"]["due_at"] == "2033-11-18T22:13:20.000Z"


@given(row=rows())
def test_redate_leaves_nothing_in_the_future_but_what_was_meant(row: Row) -> None:
    answer = redate(row, NOW, by="ops", why="the clock was ahead", act="a")
    if isinstance(answer, Refusal):
        assert not from_future(row, NOW) or row.status is Status.PROCESSING
        return
    assert isinstance(answer, Change)
    assert answer.line is not None
    after = answer.after
    assert after.look_at is not None
    assert row.look_at is not None
    assert not from_future(after, NOW)
    assert after.status is row.status
    assert after.not_before == row.not_before
    assert after.look_at <= max(row.look_at, NOW)
    assert after.entered_at <= NOW or row.later_than(NOW)
    assert (answer.line.by, answer.line.why, answer.line.act) == ("ops", "the clock was ahead", "a")
    if row.later_than(NOW):
        assert after.look_at == row.look_at
