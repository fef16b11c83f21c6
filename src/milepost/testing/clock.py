"""Time and chance in a test's own hands: a clock that moves when told to, and dice that fall the same way every run."""

from __future__ import annotations

import random

from milepost.core.values.durations import Span, span_ms

START = 2_015_619_200_000
"""A Monday in November 2033: times in failing tests look like times, and a stand-in that goes by its own clock does not take for past
what a test keeps (DynamoDB deletes rows whose time to live is over)."""


class VirtualClock:
    """Stands still until it is advanced."""

    def __init__(self, start: int = START) -> None:
        self._now = start

    def now(self) -> int:
        return self._now

    def advance(self, span: Span) -> int:
        """Move on by a span ("10m", seconds, a timedelta); the new moment."""
        self._now += span_ms(span, "advance(…)")
        return self._now

    def set_back(self, span: Span) -> int:
        """What people and time servers do to clocks; the new moment."""
        self._now -= span_ms(span, "set_back(…)")
        return self._now

    def advance_to(self, moment: int) -> int:
        """Move on to a moment; one that has passed already changes nothing."""
        self._now = max(self._now, moment)
        return self._now


class SeededChance:
    """The same seed gives the same jitter and the same tokens, in the same order."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._seed = seed
        self._given = 0

    def jitter(self) -> float:
        return self._random.uniform(-1.0, 1.0)

    def token(self) -> str:
        self._given += 1
        return f"token-{self._seed}-{self._given}"
