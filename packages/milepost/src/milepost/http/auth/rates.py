"""Rates of HTTP calls, one token bucket for each caller (see `core.admission`). In memory, so for
each process by itself."""

from __future__ import annotations

from collections import OrderedDict

from milepost.core.admission.rates import CallRate, TokenBucket, next_call_ms, refill, spend


class Rates:
    """The buckets by name. Above the maximum number of names, the least recently used one is
    dropped, and starts with a full bucket if it is used again. Time is passed in: monotonic
    seconds."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, name: str, rate: CallRate, now: float) -> float:
        """Make one call: 0 if the rate allows it, else the seconds until it does."""
        bucket = self._at(name, rate, now)
        wait_ms = next_call_ms(bucket, rate)
        self._buckets[name] = bucket if wait_ms else spend(bucket, rate, 1)
        self._buckets.move_to_end(name)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return wait_ms / 1000

    def wait(self, name: str, rate: CallRate, now: float) -> float:
        """The same, but no call is made."""
        return next_call_ms(self._at(name, rate, now), rate) / 1000

    def _at(self, name: str, rate: CallRate, now: float) -> TokenBucket:
        return refill(self._buckets.get(name), rate, now * 1000)
