"""Virtual clock and seeded randomness for tests."""

from __future__ import annotations

import random

from milepost.core.values.durations import Span, span_ms

START = 2_015_619_200_000
"""A Monday in November 2033: times in failing tests look like times, and a stand-in with a clock of
its own does not treat a test's rows as expired (DynamoDB deletes rows whose time to live is
over)."""


class VirtualClock:
    """Stands still until it is advanced."""

    def __init__(self, start: int = START) -> None:
        self._now = start

    def now(self) -> int:
        return self._now

    def advance(self, span: Span) -> int:
        """Move forward by a span ("10m", seconds, a timedelta); returns the new time."""
        self._now += span_ms(span, "advance(…)")
        return self._now

    def set_back(self, span: Span) -> int:
        """Move back, as people and time servers do to clocks; returns the new time."""
        self._now -= span_ms(span, "set_back(…)")
        return self._now

    def advance_to(self, moment: int) -> int:
        """Move forward to a time; a time in the past changes nothing."""
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
