"""Pace of a route: ended items by hour from the ledger's counters, by minute from samples that the overview takes; and a forecast of when
the items in progress will be completed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from milepost.core.counters import HOUR
from milepost.core.status import FAILED, Status
from milepost.core.values.durations import iso, short_span
from milepost.ports.feed import Count

HOURS = 48
RECENT = 6
"""Hours from which a pace is computed if there are no samples."""
MINUTE, MINUTES = 60_000, 60
EVERY = 5_000
"""Minimum time between two samples."""
WATCHED = 2 * MINUTE
"""Minimum time of sampling before a pace is computed from samples."""
LATELY = 15 * MINUTE
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
    """Samples of each route in the last hour, taken whenever the overview is rendered. In memory only; no query is made for them."""

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


class Pace(Struct, frozen=True):
    """Ended items per hour, and the period that this is computed from: "the last 15 min". `through`: some of them completed."""

    per_hour: float
    since: str
    through: bool = True


class PausedPart(Struct, frozen=True):
    """A pause: its place ("at weigh", "in lane north of taped"), and the number of items that wait there; None: unknown.
    `more`: others may still reach this lane."""

    where: str
    n: int | None
    more: bool = False


class Forecast(Struct, frozen=True):
    """A sentence about the items in progress, and the expected time of their completion, if it is known."""

    text: str
    at: str | None = None


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
    """The same for each of the last minutes; None: no samples. Items that ended between two samples count for the minute of the
    second one; across a gap, they count for the gap as a whole."""
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


def pace(hours: Sequence[Ended], samples: Sequence[Sample], now: int, born: int | None = None) -> Pace | None:
    """The present pace: from the samples of the last minutes, or from the last hours. None: nothing has ended recently. `born`: when
    the route was first recorded."""
    recent = [sample for sample in samples if sample.at >= now - LATELY]
    if len(recent) > 1 and (took := recent[-1].at - recent[0].at) >= WATCHED:
        done = sum(max(0, b.done - a.done) for a, b in pairwise(recent))
        ended = done + sum(max(0, b.failed - a.failed) for a, b in pairwise(recent))
        if ended:
            return Pace(ended * HOUR / took, f"the last {short_span(took)}", done > 0)
    lately = hours[-RECENT:]
    sums = [done + failed for done, failed in lately]
    busy = next((place for place, n in enumerate(sums) if n), None)
    if busy is None:
        return None
    took = max(1000, now - _since((now // HOUR - (len(sums) - 1 - busy)) * HOUR, sum(sums), samples, born))
    return Pace(sum(sums) * HOUR / took, f"the last {short_span(took)}", any(done for done, _ in lately))


def _since(hour: int, ended: int, samples: Sequence[Sample], born: int | None) -> int:
    """The earliest time at which the first of so many items can have ended in this hour: not before the route was recorded, and not
    before a sample at which none of them had ended."""
    # An item that was moved from another ledger may have ended before its route was recorded here.
    known = [hour] if born is None or born >= hour + HOUR else [hour, born]
    if samples:
        last = samples[-1].done + samples[-1].failed
        known += [sample.at for sample in samples if last - sample.done - sample.failed >= ended]
    return max(known)


def forecast(live: int, found: Pace | None, paused: Sequence[PausedPart], now: int, *, behind: int = 0) -> Forecast:
    """When the items in progress will be completed at this pace. `behind`: this many more items have a paused stage before them."""
    if not live:
        return Forecast("No items are in progress.")
    begin = "".join(
        f"{f'{one.n:,}' if one.n else 'None'} {'wait' if one.n > 1 else 'waits'} {one.where}, which is paused. "
        for one in paused
        if one.n is not None and (one.n or behind)
    )
    stopped = sum(one.n or 0 for one in paused)
    left = live - stopped - behind
    if behind:
        begin += f"{behind:,} more {'comes' if behind == 1 else 'come'} to it. "
    if left <= 0:
        return Forecast(f"{begin}{'Nothing is completed' if behind else 'Nothing new is started'} until that is resumed.")
    if found is None:
        return Forecast(f"{begin}Nothing has ended in the last {RECENT} hours, so there is no forecast.")
    if not found.through:
        return Forecast(f"{begin}All items that ended in {found.since} have failed, so there is no forecast for the {live:,} in progress.")
    return _reckoned(begin, left, left < live, found, paused, now)


def _reckoned(begin: str, left: int, some: bool, found: Pace, paused: Sequence[PausedPart], now: int) -> Forecast:
    """The forecast for the items that are not paused; `some`: others are paused."""
    ms = left / found.per_hour * HOUR
    # To the minute: it is only an estimate.
    at = -(-(now + round(ms)) // MINUTE) * MINUTE
    rate = f"{found.per_hour:,.0f}" if found.per_hour >= 10 else f"{found.per_hour:.1f}"
    who = f"{left:,}" if not some else "One other" if left == 1 else f"The other {left:,}"
    begin += f"{who} {'is' if left == 1 else 'are'} in progress. At the pace of {found.since} ({rate} an hour)"
    through = "it will be completed" if left == 1 else "they will be completed"
    if unknown := _places([one for one in paused if one.n is None]):
        begin, through = f"{begin}, not counting items that wait for the pause of {unknown},", f"{through} at the latest"
    elif coming := _places([one for one in paused if one.more]):
        begin = f"{begin}, not counting items that still reach {coming},"
    if ms < MINUTE:
        return Forecast(f"{begin} {through} in less than a minute.")
    return Forecast(f"{begin} {through} in about {short_span(ms)}", iso(at))


def _places(paused: Sequence[PausedPart]) -> str:
    return " and ".join(one.where.removeprefix("in ") for one in paused)
