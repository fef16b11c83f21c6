"""Backoff: the delay before a retry, and between checks. Randomness is passed in."""

from __future__ import annotations

import math
from typing import NamedTuple

from msgspec import Struct

from milepost.core.errors import UsageError
from milepost.core.values.durations import Span, span_ms


class Delay(NamedTuple):
    """A delay in milliseconds with its components."""

    ms: int
    exponential_ms: int
    jitter_ms: int


class Backoff(Struct, frozen=True, kw_only=True):
    """The delay after a failure: `base * factor**n`, n = failures before this one, spread uniformly
    by ± `jitter` (a share of it).

    No delay exceeds `cap`: if the jitter could push one above it, the delay is drawn from a range
    that ends at `cap`. `delays` replaces base, factor and cap: the delay after the first failure,
    after the second, and so on; the last one holds for all that follow. `attempts` is the
    threshold: when that many attempts have failed, the item ends MAX_RETRIES_EXCEEDED.
    """

    attempts: int = 3
    base: Span = 1
    factor: float = 2.0
    cap: Span = "1h"
    jitter: float = 0.25
    delays: tuple[Span, ...] = ()

    def __post_init__(self) -> None:
        if (
            isinstance(self.attempts, bool)
            or not isinstance(self.attempts, int)
            or self.attempts < 1
        ):
            raise UsageError(f"Backoff(attempts={self.attempts!r}): give a whole number from 1 up")
        if not (isinstance(self.factor, (int, float)) and 1 <= self.factor < math.inf):
            raise UsageError(f"Backoff(factor={self.factor!r}): give a number from 1 up")
        if not (isinstance(self.jitter, (int, float)) and 0 <= self.jitter <= 1):
            raise UsageError(
                f"Backoff(jitter={self.jitter!r}): give a share from 0 to 1, such as 0.25"
            )
        span_ms(self.base, "Backoff(base=…)")
        span_ms(self.cap, "Backoff(cap=…)")
        if not isinstance(self.delays, (tuple, list)):
            raise UsageError(
                f"Backoff(delays={self.delays!r}): give a list of spans, such as ('5s', '5m', '30m')"
            )
        for delay in self.delays:
            span_ms(delay, "Backoff(delays=…)")

    def exponential_ms(self, failures_before: int) -> float:
        """The delay before jitter. Computed by logarithm past the cap, so that no exponent
        overflows."""
        if self.delays:
            return float(span_ms(self.delays[min(failures_before, len(self.delays) - 1)], "delays"))
        base, cap = float(span_ms(self.base, "base")), float(span_ms(self.cap, "cap"))
        if base <= 0:
            return 0.0
        if base >= cap:
            return cap
        if self.factor > 1 and failures_before * math.log(self.factor) >= math.log(cap / base):
            return cap
        return min(cap, base * float(self.factor**failures_before))

    def delay(self, failures_before: int, chance: float, floor_ms: int | None = None) -> Delay:
        """The delay after this failure. `chance` is in [-1, 1]; `floor_ms` is a partner's minimum
        delay, which jitter only increases, and which may be above the cap."""
        exponential = self.exponential_ms(failures_before)
        low, high = self._range_ms(exponential)
        total = min(high, low + (high - low) * (chance + 1) / 2)
        if floor_ms is not None and total < floor_ms:
            total = floor_ms + floor_ms * self.jitter * abs(chance)
            return Delay(math.ceil(total), round(exponential), round(total - floor_ms))
        return Delay(math.ceil(total), round(exponential), round(total - exponential))

    def _range_ms(self, exponential: float) -> tuple[float, float]:
        """The shortest and the longest delay. A range that would pass the cap is moved down to end
        there, with the same ratio of longest to shortest, but never below the shortest first
        delay."""
        high = exponential * (1 + self.jitter)
        if self.delays:
            return exponential * (1 - self.jitter), high
        cap = float(span_ms(self.cap, "cap"))
        if high <= cap:
            return exponential * (1 - self.jitter), high
        first = min(cap, float(span_ms(self.base, "base")))
        return max(cap / (1 + self.jitter), first) * (1 - self.jitter), cap


class Checks(Struct, frozen=True, kw_only=True):
    """Intervals between looks at a stage that answers NotYet: from `every`, doubling up to `up_to`.

    Each pause is spread uniformly by ± `jitter` (a share of it), so that items taken in together
    are not looked at together. After `overdue` at the stage the item is reported once; looks
    continue.
    """

    every: Span = "1m"
    up_to: Span = "1h"
    overdue: Span | None = None
    jitter: float = 0.25

    def __post_init__(self) -> None:
        every, up_to = (
            span_ms(self.every, "Checks(every=…)"),
            span_ms(self.up_to, "Checks(up_to=…)"),
        )
        if every <= 0:
            raise UsageError(
                "Checks(every=0): a pause between looks is needed; give a span such as '10s'"
            )
        if up_to < every:
            raise UsageError(
                f"Checks(up_to={self.up_to!r}) is shorter than every={self.every!r}; make it at least as long"
            )
        if self.overdue is not None:
            span_ms(self.overdue, "Checks(overdue=…)")
        if not (isinstance(self.jitter, (int, float)) and 0 <= self.jitter < 1):
            raise UsageError(
                f"Checks(jitter={self.jitter!r}): give a share from 0 up, below 1, such as 0.25"
            )

    def after_ms(self, looks_before: int, chance: float = 0.0) -> int:
        """The pause before the next look, after this many earlier looks without result. `chance` is
        in [-1, 1]."""
        every, up_to = span_ms(self.every, "every"), span_ms(self.up_to, "up_to")
        pause = up_to if looks_before >= 40 else min(up_to, every << looks_before)
        return math.ceil(pause * (1 + self.jitter * chance))
