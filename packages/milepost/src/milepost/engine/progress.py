"""Progress of each stage: how many items have completed it, noted twice a minute by the resender,
for the pace of a forecast.

The notes are one document, so that every process and every command sees the same pace. They count
items that have passed a stage, so failures are no progress, and items whose rows leave later make
no difference.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from milepost.core.counters import HOUR
from milepost.core.errors import LedgerError
from milepost.core.forecast import StagePace
from milepost.core.status import LIVE, Status
from milepost.engine.context import Context
from milepost.ports.documents import PROGRESS, read_versioned
from milepost.ports.feed import Count

NAME = "stages"
"""Name of the document."""
EVERY_MS = 30_000
WINDOW_MS = 15 * 60_000
"""A pace is that of this span, up to now."""
LEAST_MS = 60_000
"""Below this span no pace is told."""
HOURS = 2
"""Hours of which the completed items are noted: the present one and the one before."""

log = logging.getLogger(__name__)


class RouteProgress(Struct, frozen=True):
    """Where the items of a route are: those at each stage that are not completed, and those
    completed in the latest hours."""

    at_stages: dict[str, int]
    completed: list[tuple[int, int]]
    """Pairs of an hour since 1970, and the number of items."""


class ProgressNote(Struct, frozen=True):
    at: int
    routes: dict[str, RouteProgress]


class ProgressNotes(Struct, frozen=True):
    """The notes of the latest minutes, the oldest first."""

    notes: list[ProgressNote] = []


def progress_of(counts: Iterable[Count], now: int) -> RouteProgress:
    """The progress of a route, from its counters."""
    at_stages: dict[str, int] = {}
    completed: dict[int, int] = {}
    for count in counts:
        if count.status is not Status.COMPLETED:
            at_stages[count.stage] = at_stages.get(count.stage, 0) + count.n
        elif count.hour > now // HOUR - HOURS:
            completed[count.hour] = completed.get(count.hour, 0) + count.n
    return RouteProgress(at_stages, sorted(completed.items()))


def stage_paces(
    stages: Sequence[str], notes: Sequence[tuple[int, RouteProgress]]
) -> dict[str, StagePace]:
    """The pace of each stage, in order, from notes with their times, the oldest first; none if they
    span too little time."""
    newest = notes[-1][0] if notes else 0
    recent = [note for note in notes if newest - WINDOW_MS <= note[0] <= newest]
    if len(recent) < 2 or newest - recent[0][0] < LEAST_MS:
        return {}
    span_ms = newest - recent[0][0]
    return {
        stage: StagePace(
            sum(_passed(stages[number + 1 :], before, after) for before, after in pairwise(recent)),
            span_ms,
        )
        for number, stage in enumerate(stages)
    }


def _passed(
    later: Sequence[str], before: tuple[int, RouteProgress], after: tuple[int, RouteProgress]
) -> int:
    """How many items have come past a stage between two notes, at least. Completed items count by
    the hour in which they completed, so that those whose rows leave in between, which are older,
    make no difference."""
    hour = before[0] // HOUR

    def past(progress: RouteProgress) -> int:
        on_their_way = sum(progress.at_stages.get(stage, 0) for stage in later)
        return on_their_way + sum(n for at, n in progress.completed if at >= hour)

    return max(0, past(after[1]) - past(before[1]))


# Notes in the ledger ------------------------------------------------------------------------------
def read_paces(
    ctx: Context, route: str, stages: Sequence[str], counts: Iterable[Count]
) -> dict[str, StagePace]:
    """The present pace of each stage of a route, from the notes and its counters as they are now;
    `stages` in order."""
    now = ctx.clock.now()
    noted, _ = _read_notes(ctx)
    notes = [
        (note.at, note.routes[route])
        for note in noted.notes
        if route in note.routes and note.at < now
    ]
    return stage_paces(stages, [*notes, (now, progress_of(counts, now))])


def _read_notes(ctx: Context) -> tuple[ProgressNotes, int]:
    """The notes, and the version of their document. Damaged ones count as none: the next note
    replaces them."""
    notes, version = read_versioned(ctx.ledger, PROGRESS, NAME, ProgressNotes, damaged=None)
    return notes or ProgressNotes(), version


class ProgressNoter:
    """Takes a note if none was taken lately. Several processes may: one of them writes it."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._next_at = 0

    def note(self) -> None:
        now = self._ctx.clock.now()
        if 0 < self._next_at - now <= EVERY_MS:
            return
        self._next_at = now + EVERY_MS
        try:
            self._write(now)
        except LedgerError as error:
            # A forecast is worth no failed run: without notes there is none, and it says so.
            log.warning("the progress of the stages cannot be noted: %s", error)

    def _write(self, now: int) -> None:
        routes = _busy(self._ctx.ledger.counts(), now)
        noted, version = _read_notes(self._ctx)
        notes = noted.notes
        if notes and now - EVERY_MS < notes[-1].at <= now:
            return  # another process has taken one
        if not routes and (not notes or not notes[-1].routes):
            return  # nothing is in progress
        kept = [note for note in notes if now - WINDOW_MS <= note.at < now]
        self._ctx.ledger.write(
            PROGRESS, NAME, ProgressNotes([*kept, ProgressNote(now, routes)]), expect=version
        )


def _busy(counts: Iterable[Count], now: int) -> dict[str, RouteProgress]:
    """The progress of the routes with items that have not ended."""
    by_route: dict[str, list[Count]] = {}
    for count in counts:
        by_route.setdefault(count.route, []).append(count)
    return {
        route: progress_of(found, now)
        for route, found in by_route.items()
        if any(count.n > 0 and count.status in LIVE for count in found)
    }
