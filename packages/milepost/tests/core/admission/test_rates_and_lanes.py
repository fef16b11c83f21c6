"""Rates and fair lanes: no rate is exceeded, no call is refused that it allows, and slots are
shared out evenly."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from milepost.core.admission.lanes import fair_shares, share_out
from milepost.core.admission.rates import (
    SET_BACK_MS,
    CallRate,
    TokenBucket,
    calls_left,
    claim_rate,
    next_call_at,
    next_call_ms,
    refill,
    spend,
)

START = 1_700_000_000_000
per_second = st.one_of(st.floats(1 / 86_400, 1), st.floats(1, 10_000))
rates = st.builds(CallRate, per_second, st.floats(1, 1_000))
waits = st.integers(0, 3_600_000)


@given(rates, st.lists(st.tuples(waits, st.integers(0, 50)), max_size=40))
def test_a_rate_is_never_exceeded(rate: CallRate, asks: list[tuple[int, int]]) -> None:
    bucket, now, granted = None, START, 0
    for wait, wanted in asks:
        now += wait
        bucket = refill(bucket, rate, now)
        got = min(wanted, calls_left(bucket))
        bucket = spend(bucket, rate, got)
        granted += got
        assert granted <= rate.burst + (now - START) * rate.per_second / 1000 + 1e-6 * max(
            1, granted
        )


@given(rates, st.integers(0, 200))
def test_next_call_at_is_the_first_moment_with_one_more_call(rate: CallRate, spent: int) -> None:
    bucket = spend(refill(None, rate, START), rate, spent)
    at = next_call_at(bucket, rate)
    assert at > START
    later = calls_left(refill(bucket, rate, at))
    if calls_left(bucket) + 1 <= rate.burst:
        assert later >= calls_left(bucket) + 1
    if at > START + 1:
        assert calls_left(refill(bucket, rate, at - 2)) <= calls_left(bucket) + 1


@given(rates, st.integers(0, 200))
def test_next_call_ms_is_zero_exactly_where_a_call_is_left(rate: CallRate, spent: int) -> None:
    bucket = spend(refill(None, rate, START), rate, spent)
    assert (next_call_ms(bucket, rate) == 0) == (calls_left(bucket) > 0)


@given(rates, st.integers(1, 100), waits)
def test_a_debt_is_paid_off_by_time_alone(rate: CallRate, spent: int, wait: int) -> None:
    bucket = spend(refill(None, rate, START), rate, spent)
    filled = refill(bucket, rate, START + wait)
    assert filled.tokens <= bucket.tokens + wait * rate.per_second / 1000 + 1e-6
    assert filled.tokens <= rate.burst


@given(rates, st.integers(0, 100), st.integers(1, 100))
def test_returned_calls_never_overfill_the_bucket(
    rate: CallRate, spent: int, returned: int
) -> None:
    bucket = spend(refill(None, rate, START), rate, spent)
    assert spend(bucket, rate, -returned).tokens <= rate.burst


@given(rates, st.integers(0, 20), st.integers(0, 10_000_000))
def test_a_clock_set_back_delays_a_call_by_seconds_only(
    rate: CallRate, debt: int, back: int
) -> None:
    bucket = spend(refill(None, rate, START), rate, math.ceil(rate.burst) + debt)
    now = START - back
    owed_ms = (1 - bucket.tokens) * 1000 / rate.per_second
    bucket = refill(bucket, rate, now)
    later = refill(bucket, rate, now + SET_BACK_MS + math.ceil(owed_ms) + 1)
    assert calls_left(later) >= 1


@given(rates, st.integers(0, SET_BACK_MS))
def test_a_machine_that_is_a_little_behind_gains_nothing(rate: CallRate, behind: int) -> None:
    bucket = spend(refill(None, rate, START), rate, 1)
    assert refill(bucket, rate, START - behind) == TokenBucket(bucket.tokens, START)


def test_a_claim_rate_saves_up_a_tenth_of_a_second_and_at_least_one_call() -> None:
    assert claim_rate(2) == CallRate(2, 1)
    assert claim_rate(1000) == CallRate(1000, 100)


lanes = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=8)


def shared(want: int, lanes: list[tuple[int, int]], known: int) -> list[int]:
    """What each lane of (in hand, has) gets."""
    got = [0] * len(lanes)

    def take(lane: int, share: int) -> int:
        taken = min(share, lanes[lane][1] - got[lane])
        got[lane] += taken
        return taken

    left = share_out(want, range(len(lanes)), lambda lane: lanes[lane][0] + got[lane], known, take)
    assert left == want - sum(got)
    return got


def one_at_a_time(want: int, lanes: list[tuple[int, int]], known: int) -> list[int]:
    """The same rule, written plainly: the next item goes to the lane with the fewest in hand that
    has one."""
    got, left = [0] * len(lanes), want
    half = -(-(want + sum(held for held, _ in lanes)) // 2)
    while left:
        able = [lane for lane in range(len(lanes)) if got[lane] < lanes[lane][1]]
        if not able or (len(able) == 1 and known > 1 and lanes[able[0]][0] + got[able[0]] >= half):
            break
        lane = min(able, key=lambda lane: lanes[lane][0] + got[lane])
        got[lane] += 1
        left -= 1
    return got


@given(st.integers(0, 100), lanes, st.integers(0, 3))
def test_sharing_out_is_as_fair_as_one_item_at_a_time(
    want: int, lanes: list[tuple[int, int]], idle: int
) -> None:
    known = len(lanes) + idle
    got, plain = shared(want, lanes, known), one_at_a_time(want, lanes, known)
    if all(has >= want for _, has in lanes):
        assert got == plain, "where no lane runs dry the two are the same"
    levels = [held + taken for (held, _), taken in zip(lanes, got, strict=True)]
    for lane, (_, has) in enumerate(lanes):
        assert got[lane] <= has
        if got[lane] < has and sum(got) == want:
            # No lane that was given something stands more than one above a lane that could have had
            # more.
            assert all(
                levels[other] <= levels[lane] + 1 for other in range(len(lanes)) if got[other]
            )


@given(st.integers(0, 100), st.integers(0, 50), st.integers(2, 9))
def test_a_lane_alone_gets_at_most_half_where_there_are_others(
    want: int, held: int, known: int
) -> None:
    [got] = shared(want, [(held, 1000)], known)
    assert got == max(0, min(want, -(-(want + held) // 2) - held))
    assert shared(want, [(held, 1000)], 1) == [want]


@given(st.integers(1, 100), lanes)
def test_with_slots_left_over_at_most_one_lane_has_more(
    want: int, lanes: list[tuple[int, int]]
) -> None:
    got = shared(want, lanes, len(lanes))
    if sum(got) < want:
        assert sum(taken < has for taken, (_, has) in zip(got, lanes, strict=True)) <= 1


@given(st.integers(0, 100), st.lists(st.integers(0, 50), min_size=2, max_size=9))
def test_shares_of_several_lanes_use_up_all(left: int, in_hand: list[int]) -> None:
    shares = fair_shares(left, in_hand)
    assert sum(shares) == left
    assert min(shares) >= 0
