"""Histogram: counts of values by upper bounds."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from msgspec import Struct


class Histogram(Struct):
    """Counts of values by upper bound; the last count is of values above all bounds."""

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
        """The percentile `part` (from 0 to 1), as the bound above it; None: it is above all
        bounds."""
        wanted = part * sum(self.counts)
        for bound, so_far in zip(self.bounds, accumulate(self.counts), strict=False):
            if so_far >= wanted:
                return bound
        return None
