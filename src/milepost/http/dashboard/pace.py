"""How fast items come to their end: by hour from the ledger's counters, by minute from what the page has seen itself; and when those on
the way will be through."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from milepost.core.consequences import HOUR
from milepost.core.durations import iso, short_span
from milepost.core.status import FAILED, Status
from milepost.ports.ledger import Count

HOURS = 48
RECENT = 6
"""From how many hours a pace is taken, where nobody has watched."""
MINUTE, MINUTES = 60_000, 60
EVERY = 5_000
"""Samples are no closer to each other, however often somebody looks."""
WATCHED = 2 * MINUTE
"""So long somebody must have watched before a pace is taken from that."""
LATELY = 15 * MINUTE

Ended = tuple[float, float]
"""How many came through, and how many failed."""


class Sample(Struct, frozen=True):
    """So many of a route had come through, and had failed, at that moment."""

    at: int
    done: int
    failed: int


class Samples:
    """What has been seen of each route in the last hour, by whoever looked. It is kept in memory alone; nothing is asked for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, deque[Sample]] = {}

    def seen(self, route: str, now: Sample) -> list[Sample]:
        """All of the last hour, the oldest first, with this one."""
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


class Pace(Struct, frozen=True):
    """Items that end in an hour, and what that is taken from: "the last 15 min". `through`: some of them came through."""

    per_hour: float
    since: str
    through: bool = True


class Forecast(Struct, frozen=True):
    """What can be said of those on the way, and when they are through, if that can be said."""

    told: str
    at: str | None = None


def by_hour(counts: Iterable[Count], now: int) -> list[tuple[int, int]]:
    """How many came through, and failed, in each of the last hours, the oldest first."""
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


def by_minute(samples: Sequence[Sample], now: int) -> list[Ended | None]:
    """The same for each of the last minutes; None: nobody watched. What was seen to end between two samples is spread evenly."""
    first = (now // MINUTE - MINUTES + 1) * MINUTE
    found: list[list[float] | None] = [None] * MINUTES
    for before, after in pairwise(samples):
        done, failed = max(0, after.done - before.done), max(0, after.failed - before.failed)
        for place in range(max(0, (before.at - first) // MINUTE), (after.at - first) // MINUTE + 1):
            begin, end = max(before.at, first + place * MINUTE), min(after.at, first + (place + 1) * MINUTE)
            share = (end - begin) / max(1, after.at - before.at)
            was = found[place] or [0.0, 0.0]
            found[place] = [was[0] + done * share, was[1] + failed * share]
    return [None if one is None else (one[0], one[1]) for one in found]


def pace(hours: Sequence[tuple[int, int]], samples: Sequence[Sample], now: int) -> Pace | None:
    """The present pace: as it was seen in the last minutes, or as the last hours say. None: nothing has ended lately."""
    recent = [sample for sample in samples if sample.at >= now - LATELY]
    if len(recent) > 1 and (took := recent[-1].at - recent[0].at) >= WATCHED:
        done = sum(max(0, b.done - a.done) for a, b in pairwise(recent))
        ended = done + sum(max(0, b.failed - a.failed) for a, b in pairwise(recent))
        if ended:
            return Pace(ended * HOUR / took, f"the last {short_span(took)}", done > 0)
    sums = [done + failed for done, failed in hours[-RECENT:]]
    busy = next((place for place, n in enumerate(sums) if n), None)
    if busy is None:
        return None
    since = (now // HOUR - (len(sums) - 1 - busy)) * HOUR
    took = max(MINUTE, now - since)
    return Pace(sum(sums) * HOUR / took, f"the last {short_span(took)}", any(done for done, _ in hours[-RECENT:]))


def forecast(live: int, found: Pace | None, paused: Sequence[tuple[str, int]], now: int) -> Forecast:
    """When those on the way will be through, if it goes on so. `paused`: what is paused, and how many wait there."""
    if not live:
        return Forecast("Nothing is on the way.")
    begin = "".join(f"{n:,} {'waits' if n == 1 else 'wait'} at {where}, which is paused. " for where, n in paused if n)
    if sum(n for _, n in paused) >= live:
        return Forecast(f"{begin}Nothing new is begun until that is resumed.")
    if found is None:
        return Forecast(f"{begin}Nothing has ended in the last {RECENT} hours, so nobody can say when they will be through.")
    if not found.through:
        return Forecast(
            f"{begin}Whatever ended in {found.since} has failed, so nobody can say when the {live:,} on the way will be through."
        )
    left = live / found.per_hour * HOUR
    # To the minute: it is no more than a guess.
    at = -(-(now + round(left)) // MINUTE) * MINUTE
    pace_told = f"{found.per_hour:,.0f}" if found.per_hour >= 10 else f"{found.per_hour:.1f}"
    way = f"{begin}{live:,} {'is' if live == 1 else 'are'} on the way. At the pace of {found.since} ({pace_told} an hour)"
    through = "it is through" if live == 1 else "they are through"
    if left < MINUTE:
        return Forecast(f"{way} {through} in less than a minute.")
    return Forecast(f"{way} {through} in about {short_span(left)}", iso(at))
