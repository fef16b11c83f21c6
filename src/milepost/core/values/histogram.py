"""Histogram: how many values were at most each of a set of bounds."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from msgspec import Struct


class Histogram(Struct):
    """How often a value was at most each of the bounds; the last count is of those above all."""

    bounds: tuple[float, ...]
    counts: list[int]
    total: float = 0.0

    @classmethod
    def empty(cls, bounds: tuple[float, ...]) -> Histogram:
        return cls(bounds, [0] * (len(bounds) + 1))

    def add(self, value: float, n: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += n
        self.total += value * n

    def within(self, part: float) -> float | None:
        """The least of the bounds that so great a part of the values did not pass; None: that part passed them all."""
        wanted = part * sum(self.counts)
        for bound, so_far in zip(self.bounds, accumulate(self.counts), strict=False):
            if so_far >= wanted:
                return bound
        return None
