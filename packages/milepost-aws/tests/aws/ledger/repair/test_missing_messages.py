"""The rule that distinguishes lost messages from a backlog whose messages exist."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from milepost_aws.ledger.repair.lost_messages import TOLERANCE, missing_messages

some = st.integers(0, 200_000)


@given(queued=some, others=some, visible=some, in_flight=some, delayed=some)
def test_never_more_are_missing_than_wait(
    queued: int, others: int, visible: int, in_flight: int, delayed: int
) -> None:
    assert 0 <= missing_messages(queued, others, visible, in_flight, delayed) <= queued


@given(queued=some, others=some)
def test_all_are_missing_in_a_queue_that_was_purged(queued: int, others: int) -> None:
    assert missing_messages(queued, others, 0, 0, 0) == queued


@given(queued=some, more=some, others=some, in_flight=some, delayed=some)
def test_a_backlog_whose_messages_are_visible_is_left_alone(
    queued: int, more: int, others: int, in_flight: int, delayed: int
) -> None:
    assert missing_messages(queued, others, queued + more, in_flight, delayed) == 0


@given(queued=some, in_hand=some, soon=some, hidden=some, held_back=some, stale=some)
def test_nothing_is_missing_where_every_item_has_a_message(
    queued: int, in_hand: int, soon: int, hidden: int, held_back: int, stale: int
) -> None:
    """Of the queued items' messages some are in flight (a worker looks without claiming) and some
    delayed (no token); messages that call for nothing any more lie about as well."""
    hidden = min(hidden, queued)
    held_back = min(held_back, queued - hidden)
    visible = queued - hidden - held_back + stale
    assert (
        missing_messages(queued, in_hand + soon, visible, in_hand + hidden, soon + held_back) == 0
    )


@given(queued=some, others=some, visible=some, in_flight=some, delayed=some)
def test_what_is_sent_again_is_not_missing_any_more(
    queued: int, others: int, visible: int, in_flight: int, delayed: int
) -> None:
    missing = missing_messages(queued, others, visible, in_flight, delayed)
    assert missing_messages(queued, others, visible + missing, in_flight, delayed) == 0


@given(queued=some, others=some, visible=some, in_flight=some, delayed=some, more=some)
def test_more_messages_never_make_more_missing(
    queued: int, others: int, visible: int, in_flight: int, delayed: int, more: int
) -> None:
    before = missing_messages(queued, others, visible, in_flight, delayed)
    for counts in (
        (visible + more, in_flight, delayed),
        (visible, in_flight + more, delayed),
        (visible, in_flight, delayed + more),
    ):
        assert missing_messages(queued, others, *counts) <= before


def test_an_old_backlog_of_100_000_is_left_alone_though_its_queue_counts_roughly() -> None:
    assert missing_messages(100_000, 40, 99_000, 40, 0) == 0
    assert missing_messages(100_000, 40, 100_000, 0, 0) == 0
    assert missing_messages(100_000, 0, 40_000, 0, 0) == 60_000


def test_a_single_lost_message_is_noticed_beside_others_in_hand_and_held_back() -> None:
    assert missing_messages(queued=1, others=20, visible=0, in_flight=8, delayed=12) == 1
    assert missing_messages(queued=1, others=1000, visible=0, in_flight=0, delayed=1000) == 1
    assert (
        missing_messages(queued=TOLERANCE + 1, others=0, visible=TOLERANCE, in_flight=0, delayed=0)
        == 0
    ), "too few to tell"
