"""Admission: how many handler calls a rate allows now, and how free slots are shared out among lanes. Time is passed in.

Every ledger's claim asks these rules, and so does the limit on HTTP calls. Times are milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

SAVED_S = 0.1
"""A claim rate saves up the calls of this many seconds, and always at least one call."""
SET_BACK_MS = 10_000
"""A clock that is further behind a stored time than this was set back; one that is less far behind belongs to another machine."""

# Tokens are fractions: a rounding error must neither refuse a call nor delay it.
_SLACK = 1e-9
_SLACK_MS = 1e-6

L = TypeVar("L")


class CallRate(Struct, frozen=True):
    """`per_second` calls in the long run, at most `burst` at once."""

    per_second: float
    burst: float


class TokenBucket(Struct, frozen=True):
    """The calls that a rate has left: so many tokens at that moment. Below 0: calls were made that the rate did not allow."""

    tokens: float
    at: int | float


def claim_rate(per_second: float) -> CallRate:
    """The rate of handler calls of a stage or lane."""
    return CallRate(per_second, max(1.0, per_second * SAVED_S))


def refill(bucket: TokenBucket | None, rate: CallRate, now: float) -> TokenBucket:
    """The bucket as it is now; a scope without one starts with a full bucket. Time before `at` adds nothing. If the clock was set
    back, the bucket counts from now on: store it, or it would start anew at every look and never fill."""
    if bucket is None:
        return TokenBucket(rate.burst, now)
    since = now if was_set_back(bucket, now) else bucket.at
    return TokenBucket(min(rate.burst, bucket.tokens + max(0.0, now - since) * rate.per_second / 1000), max(since, now))


def was_set_back(bucket: TokenBucket, now: float) -> bool:
    """Was the clock set back since the bucket was stored?"""
    return now < bucket.at - SET_BACK_MS


def spend(bucket: TokenBucket, rate: CallRate, calls: int) -> TokenBucket:
    """The bucket after so many calls. A negative number returns calls that were paid for and not made."""
    return TokenBucket(min(rate.burst, bucket.tokens - calls), bucket.at)


def calls_left(bucket: TokenBucket) -> int:
    """How many calls a refilled bucket allows at once."""
    return max(0, math.floor(bucket.tokens + _SLACK))


def next_call_ms(bucket: TokenBucket, rate: CallRate) -> float:
    """Milliseconds from the bucket's time until it allows a call; 0: it allows one now."""
    return 0.0 if calls_left(bucket) else max(0.0, (1 - bucket.tokens) * 1000 / rate.per_second)


def next_call_at(bucket: TokenBucket, rate: CallRate) -> int:
    """The first whole millisecond after the bucket's time at which it allows one call more than it does now."""
    missing = calls_left(bucket) + 1 - bucket.tokens
    return math.ceil(bucket.at) + max(1, math.ceil(missing * 1000 / rate.per_second - _SLACK_MS))


def fair_shares(left: int, in_hand: Sequence[int]) -> list[int]:
    """How many of `left` items each lane gets, given what each has in hand: as if every item went to the lane with the fewest, the
    first of these."""
    level = _level(left, in_hand)
    # The level takes a little more than there is: the last lanes are filled to one below it.
    spare = sum(level - held for held in in_hand if held < level) - left
    shares: list[int] = []
    for held in reversed(in_hand):
        lower = held < level and spare > 0
        spare -= lower
        shares.append(max(0, level - held - lower))
    return shares[::-1]


def _level(left: int, in_hand: Sequence[int]) -> int:
    """The lowest number of items in hand to which all lanes below it can be filled with `left` items, rounded up."""
    ordered = sorted(in_hand)
    total = left
    for count, held in enumerate(ordered, 1):
        total += held
        level = -(-total // count)
        if count == len(ordered) or level <= ordered[count]:
            return level
    return 0


def share_out(want: int, lanes: Sequence[L], in_hand: Callable[[L], int], known: int, take: Callable[[L, int], int]) -> int:
    """Share `want` items out among the lanes, in this order where they stand equal; how many items are left over.

    `take(lane, share)` takes up to `share` items of a lane and returns how many it got: fewer than its share means that the lane has
    no more, or may have no more. The others share what such a lane leaves. `in_hand` counts what was just taken as well. `known` is
    how many lanes the stage has, with those that have no work now: where there are several, the last lane with work is filled to half
    of all at most, since work for the others may come any moment.
    """
    left, half = want, -(-(want + sum(map(in_hand, lanes))) // 2)
    while lanes and left > 0:
        held = [in_hand(lane) for lane in lanes]
        shares = fair_shares(left, held) if len(lanes) > 1 or known < 2 else [max(0, min(left, half - held[0]))]
        able: list[L] = []
        for lane, share in zip(lanes, shares, strict=True):
            got = take(lane, share) if share else 0
            left -= got
            if got == share:
                able.append(lane)
        if len(able) == len(lanes):
            break
        lanes = able
    return left
