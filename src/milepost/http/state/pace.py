"""How fast items come to their end: by hour from the ledger's counters, by minute from what the page has seen itself; and when those on
the way will be through."""

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
"""From how many hours a pace is taken, where nobody has watched."""
MINUTE, MINUTES = 60_000, 60
EVERY = 5_000
"""Samples are no closer to each other, however often somebody looks."""
WATCHED = 2 * MINUTE
"""So long somebody must have watched before a pace is taken from that."""
LATELY = 15 * MINUTE
APART = MINUTE
"""An open page looks twice as often; where two looks are further apart than this, nobody watched between them."""

Ended = tuple[int, int]
"""How many came through, and how many failed."""


class Sample(Struct, frozen=True):
    """So many of a route had come through, and had failed, at that moment."""

    at: int
    done: int
    failed: int


class UnwatchedGap(Struct, frozen=True):
    """A while in which nobody watched, and what ended in it: nobody knows in which minute."""

    begin: int
    end: int
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


class PausedPart(Struct, frozen=True):
    """A pause in the way: where ("at weigh", "in lane north of taped"), and how many wait there; None: nobody has counted them.
    `more`: others may still come to this lane, and nobody knows which."""

    where: str
    n: int | None
    more: bool = False


class Forecast(Struct, frozen=True):
    """What can be said of those on the way, and when they are through, if that can be said."""

    told: str
    at: str | None = None


def by_hour(counts: Iterable[Count], now: int) -> list[Ended]:
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


def by_minute(samples: Sequence[Sample], now: int) -> tuple[list[Ended | None], list[UnwatchedGap]]:
    """The same for each of the last minutes; None: nobody watched. Whatever ended between two looks counts for the minute in which
    that was seen; or, if nobody watched between them, for that gap as a whole."""
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
    """The present pace: as it was seen in the last minutes, or as the last hours say. None: nothing has ended lately. `born`: before
    that there was no such route."""
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
    """Since when so many have ended, the first of them in this hour: the hour is all that the counters know, but none of them ended
    before there was a route, nor before a look at which all of them were still to come."""
    # One that was taken over from another ledger may have ended before its route was made here.
    known = [hour] if born is None or born >= hour + HOUR else [hour, born]
    if samples:
        last = samples[-1].done + samples[-1].failed
        known += [sample.at for sample in samples if last - sample.done - sample.failed >= ended]
    return max(known)


def forecast(live: int, found: Pace | None, held: Sequence[PausedPart], now: int, *, behind: int = 0) -> Forecast:
    """When those on the way will be through, if it goes on so. `behind`: so many more have a paused stage before them."""
    if not live:
        return Forecast("Nothing is on the way.")
    begin = "".join(
        f"{f'{one.n:,}' if one.n else 'None'} {'wait' if one.n > 1 else 'waits'} {one.where}, which is paused. "
        for one in held
        if one.n is not None and (one.n or behind)
    )
    stopped = sum(one.n or 0 for one in held)
    left = live - stopped - behind
    if behind:
        begin += f"{behind:,} more {'comes' if behind == 1 else 'come'} to it. "
    if left <= 0:
        return Forecast(f"{begin}{'Nothing is through' if behind else 'Nothing new is begun'} until that is resumed.")
    if found is None:
        return Forecast(f"{begin}Nothing has ended in the last {RECENT} hours, so nobody can say when they will be through.")
    if not found.through:
        return Forecast(
            f"{begin}Whatever ended in {found.since} has failed, so nobody can say when the {live:,} on the way will be through."
        )
    return _reckoned(begin, left, left < live, found, held, now)


def _reckoned(begin: str, left: int, some: bool, found: Pace, held: Sequence[PausedPart], now: int) -> Forecast:
    """So many are left that nothing is known to hold up; `some`: others are held up."""
    ms = left / found.per_hour * HOUR
    # To the minute: it is no more than a guess.
    at = -(-(now + round(ms)) // MINUTE) * MINUTE
    rate = f"{found.per_hour:,.0f}" if found.per_hour >= 10 else f"{found.per_hour:.1f}"
    who = f"{left:,}" if not some else "One other" if left == 1 else f"The other {left:,}"
    begin += f"{who} {'is' if left == 1 else 'are'} on the way. At the pace of {found.since} ({rate} an hour)"
    through = "it is through" if left == 1 else "they are through"
    if unknown := _places([one for one in held if one.n is None]):
        begin, through = f"{begin}, not counting what is held back by the pause of {unknown},", f"{through} at the latest"
    elif coming := _places([one for one in held if one.more]):
        begin = f"{begin}, not counting what still comes to {coming},"
    if ms < MINUTE:
        return Forecast(f"{begin} {through} in less than a minute.")
    return Forecast(f"{begin} {through} in about {short_span(ms)}", iso(at))


def _places(held: Sequence[PausedPart]) -> str:
    return " and ".join(one.where.removeprefix("in ") for one in held)
