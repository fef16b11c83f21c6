"""Rates: how many calls a token bucket allows now, and when it allows the next. Time is passed in,
in milliseconds.

Every ledger's claim asks these rules, and so does the limit on HTTP calls.
"""

from __future__ import annotations

import math

from msgspec import Struct

from milepost.core.values.durations import rate_per_second

SAVED_S = 0.1
"""A claim rate saves up the calls of this many seconds, and always at least one call."""
SET_BACK_MS = 10_000
"""A clock that is further behind a stored time than this was set back; one that is less far behind
belongs to another machine."""

# Tokens are fractions: a rounding error must neither refuse a call nor delay it.
_SLACK = 1e-9
_SLACK_MS = 1e-6


class CallRate(Struct, frozen=True):
    """`per_second` calls in the long run, at most `burst` at once."""

    per_second: float
    burst: float

    @classmethod
    def of(cls, rate: str | float, subject: str) -> CallRate:
        """A rate as people write it ("50/s"), with a burst of the calls of two seconds; `subject`
        names it in the UsageError."""
        per_second = rate_per_second(rate, subject)
        return cls(per_second, max(1.0, 2 * per_second))


class TokenBucket(Struct, frozen=True):
    """The calls that a rate has left: so many tokens at that moment. Below 0: calls were made that
    the rate did not allow."""

    tokens: float
    at: int | float


def claim_rate(per_second: float) -> CallRate:
    """The rate of handler calls of a stage or lane."""
    return CallRate(per_second, max(1.0, per_second * SAVED_S))


def refill(bucket: TokenBucket | None, rate: CallRate, now: float) -> TokenBucket:
    """The bucket as it is now; a scope without one starts with a full bucket. Time before `at` adds
    nothing. If the clock was set back, the bucket counts from now on: store it, or it would start
    anew at every look and never fill."""
    if bucket is None:
        return TokenBucket(rate.burst, now)
    since = now if was_set_back(bucket, now) else bucket.at
    return TokenBucket(
        min(rate.burst, bucket.tokens + max(0.0, now - since) * rate.per_second / 1000),
        max(since, now),
    )


def was_set_back(bucket: TokenBucket, now: float) -> bool:
    """Whether the clock was set back since the bucket was stored."""
    return now < bucket.at - SET_BACK_MS


def spend(bucket: TokenBucket, rate: CallRate, calls: int) -> TokenBucket:
    """The bucket after so many calls. A negative number returns calls that were paid for and not
    made."""
    return TokenBucket(min(rate.burst, bucket.tokens - calls), bucket.at)


def calls_left(bucket: TokenBucket) -> int:
    """How many calls a refilled bucket allows at once."""
    return max(0, math.floor(bucket.tokens + _SLACK))


def next_call_ms(bucket: TokenBucket, rate: CallRate) -> float:
    """Milliseconds from the bucket's time until it allows a call; 0: it allows one now."""
    return 0.0 if calls_left(bucket) else max(0.0, (1 - bucket.tokens) * 1000 / rate.per_second)


def next_call_at(bucket: TokenBucket, rate: CallRate) -> int:
    """The first whole millisecond after the bucket's time at which it allows one call more than it
    does now."""
    missing = calls_left(bucket) + 1 - bucket.tokens
    return math.ceil(bucket.at) + max(1, math.ceil(missing * 1000 / rate.per_second - _SLACK_MS))
