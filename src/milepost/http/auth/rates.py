"""Rates: so many calls a second, with a reserve for bursts. In memory, so for each process by itself."""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct


class Rate(Struct, frozen=True):
    """`per_second` on the long run, `burst` at once."""

    per_second: float
    burst: float


class Rates:
    """A bucket for each name: every call takes one out, time fills it up. Of too many names, the one unused for longest is forgotten,
    and begins with a full bucket if it comes again. Time is passed in: seconds that only rise."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, rate: Rate, now: float) -> float:
        """Take one out: 0 if there was one, else the seconds until there is."""
        left = self._at(name, rate, now)
        wait = self._wait(left, rate)
        self._left[name] = (left if wait else left - 1, now)
        self._left.move_to_end(name)
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        return wait

    def wait(self, name: str, rate: Rate, now: float) -> float:
        """The same, but nothing is taken out."""
        return self._wait(self._at(name, rate, now), rate)

    def _at(self, name: str, rate: Rate, now: float) -> float:
        left, since = self._left.get(name, (rate.burst, now))
        return min(rate.burst, left + (now - since) * rate.per_second)

    def _wait(self, left: float, rate: Rate) -> float:
        return 0.0 if left >= 1 else (1 - left) / rate.per_second
