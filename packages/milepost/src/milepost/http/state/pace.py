"""Ended items of a route for the charts: by hour from the ledger's counters, by minute from samples
that the overview takes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from milepost.core.counters import HOUR
from milepost.core.status import FAILED, Status
from milepost.ports.feed import Count

HOURS = 48
MINUTE, MINUTES = 60_000, 60
EVERY = 5_000
"""Minimum time between two samples."""
APART = MINUTE
"""An open page takes samples twice as often; a longer time between two samples is a gap."""

Ended = tuple[int, int]
"""Numbers of completed and of failed items."""


class Sample(Struct, frozen=True):
    """Total numbers of completed and of failed items of a route at a time."""

    at: int
    done: int
    failed: int


class UnwatchedGap(Struct, frozen=True):
    """A period without samples, and the items that ended in it: their minutes are unknown."""

    begin: int
    end: int
    done: int
    failed: int


class Samples:
    """Samples of each route in the last hour, taken whenever the overview is rendered. In memory
    only; no query is made for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, deque[Sample]] = {}

    def seen(self, route: str, now: Sample) -> list[Sample]:
        """All samples of the last hour, the oldest first, with this one."""
        with self._lock:
            kept = self._seen.setdefault(route, deque())
            if kept and now.at < kept[-1].at:
                kept.clear()  # the clock was set back
            while len(kept) > 1 and kept[1].at <= now.at - MINUTES * MINUTE:
                kept.popleft()
            before = list(kept)
            if not kept or now.at - kept[-1].at >= EVERY:
                kept.append(now)
        return [*before, now]


def by_hour(counts: Iterable[Count], now: int) -> list[Ended]:
    """Completed and failed items in each of the last hours, the oldest first."""
    first = now // HOUR - HOURS + 1
    found = [[0, 0] for _ in range(HOURS)]
    for count in counts:
        place = count.hour - first
        if 0 <= place < HOURS and count.n > 0:
            if count.status is Status.COMPLETED:
                found[place][0] += count.n
            elif count.status in FAILED:
                found[place][1] += count.n
    return [(done, failed) for done, failed in found]


def by_minute(samples: Sequence[Sample], now: int) -> tuple[list[Ended | None], list[UnwatchedGap]]:
    """The same for each of the last minutes; None: no samples. Items that ended between two samples
    count for the minute of the second one; across a gap, they count for the gap as a whole."""
    first = (now // MINUTE - MINUTES + 1) * MINUTE
    found: list[Ended | None] = [None] * MINUTES
    gaps = []
    for sample in samples:
        if sample.at >= first:
            found[(sample.at - first) // MINUTE] = (0, 0)
    for before, after in pairwise(samples):
        done, failed = max(0, after.done - before.done), max(0, after.failed - before.failed)
        place = (after.at - first) // MINUTE
        if place < 0 or not (done or failed):
            continue
        if after.at - before.at > APART:
            gaps.append(UnwatchedGap(before.at, after.at, done, failed))
        else:
            was = found[place] or (0, 0)
            found[place] = (was[0] + done, was[1] + failed)
    return found, gaps
