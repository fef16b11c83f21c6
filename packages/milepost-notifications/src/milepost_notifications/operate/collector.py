"""Collector of figures: reads the feed of history lines, counts them, and keeps the figures in the
application's documents.

One process at a time counts, for as long as it goes on; another takes over when it has been silent
for a while. On AWS without a process of its own, a schedule calls it in a function. Malformed
requests make no history: each process counts its own in memory, and adds them every few seconds to
a tally, which the process that counts reads.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable

import msgspec

import milepost as mp
import milepost.application as mpa
import milepost_net as net
from milepost_notifications.operate.figures import (
    MOST_SENDERS,
    OTHER,
    Figures,
    Starts,
    add_tally,
    count,
    parties_of,
    read_figures,
)
from milepost_notifications.settings import NotificationsSettings

FIGURES = "figures"
MALFORMED = "malformed"
PAGE = 500
PAGES = 40
"""Pages of the feed that are counted in one write."""
LOOK_BACK = 2_000
"""Lines before its saved place that a process reads again when it begins to count, for the messages
that have had no try yet."""
HELD_MS = 30_000
MOST_NAMES = 1_000
"""Names of senders of malformed requests that are kept until they are added; a flood of names is
cut off."""
ALONE_S = 5.0
"""A process that has not counted for so long runs no services, such as the function behind API
Gateway: its calls add what is malformed."""

App = mpa.AppContext[NotificationsSettings]

log = logging.getLogger(__name__)


class FigureCollector:
    """Counts for one process."""

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        self._holder = secrets.token_hex(8)
        self._ticks = ticks
        self._starts: Starts | None = None
        self._lock = threading.Lock()
        self._malformed: Counter[str] = Counter()
        self._added_at: float | None = None

    def malformed(self, sender: str | None) -> None:
        name = (sender or "").strip()[:100] or "(unknown)"
        with self._lock:
            if name in self._malformed or len(self._malformed) < MOST_NAMES:
                self._malformed[name] += 1

    @property
    def overdue(self) -> bool:
        """Do malformed requests wait to be added, in a process that runs no services?"""
        return bool(self._malformed) and (
            self._added_at is None or self._ticks() - self._added_at > ALONE_S
        )

    def add_malformed(self, app: App) -> None:
        """Add this process's malformed requests to the tally, with one write for all of them; if it
        cannot be written, later."""
        self._added_at = self._ticks()
        with self._lock:
            taken, self._malformed = self._malformed, Counter()
        if not taken:
            return
        try:
            _tally(app, taken)
        except mp.MilepostError:
            log.exception("malformed requests could not be added; they are added later")
            with self._lock:
                self._malformed.update(taken)

    def turn(self, app: App, *, hold: bool = True) -> int:
        """Count what is new; returns the number of lines. 0: nothing is new, or another process
        counts. `hold`: this process goes on counting; a command that only looks does not."""
        self.add_malformed(app)
        held = app.documents.get(FIGURES)
        figures = read_figures(None if held is None else held.value)
        now, total = round(app.time() * 1000), 0
        if not (
            figures.holder == self._holder
            or figures.held_until <= now
            or figures.held_until > now + 2 * HELD_MS
        ):
            self._starts = None
            return 0
        starts = self._begun(app, figures)
        for _ in range(PAGES):
            entries = app.feed(figures.seq, PAGE)
            if not entries:
                break
            keys = {
                parties_of(entry.key): entry.key
                for entry in entries
                if entry.route == app.settings.route
            }
            lanes = {parties: _lane(app, key) for parties, key in keys.items()}
            figures = count(figures, entries, app.settings.route, lanes, starts)
            total += len(entries)
            if len(entries) < PAGE:
                break
        tally = app.tallies.get(MALFORMED)
        if not add_tally(figures, {} if tally is None else tally.value) and not total:
            return 0
        if total:
            figures.holder, figures.held_until = (self._holder, now + HELD_MS) if hold else ("", 0)
        # One write for all pages: the document may be large.
        if app.documents.put(
            FIGURES, msgspec.to_builtins(figures), expect=0 if held is None else held.version
        ):
            return total
        self._starts = None  # another process has written meanwhile: its figures are read, and these lines counted, in the next turn
        return 0

    def _begun(self, app: App, figures: Figures) -> Starts:
        """The messages that have had no try, as this process knows them; if another has counted
        since, from the lines before its place."""
        if self._starts is None or figures.holder != self._holder:
            self._starts = Starts()
            place = max(0, figures.seq - LOOK_BACK)
            while place < figures.seq and (
                entries := app.feed(place, min(PAGE, figures.seq - place))
            ):
                self._starts.recall(entries, app.settings.route)
                place = entries[-1].seq
        return self._starts


def figures_of(app: App) -> Figures:
    """The figures as they were last written."""
    held = app.documents.get(FIGURES)
    return read_figures(None if held is None else held.value)


def _tally(app: App, malformed: Counter[str]) -> None:
    """Add these numbers to the tally."""

    def added(present: dict[str, int] | None) -> dict[str, int]:
        tally = dict(present or {})
        for sender, n in malformed.items():
            name = sender if sender in tally or len(tally) < MOST_SENDERS else OTHER
            tally[name] = tally.get(name, 0) + n
        return tally

    app.tallies.update(MALFORMED, dict[str, int], added)


def _lane(app: App, key: str) -> str:
    sender, url = parties_of(key)
    try:
        lane = app.state.destinations.lane_of_key(url, sender)
        if lane is None:
            lane = (app.show(app.settings.route, key) or {}).get("lane")
    except (mp.MilepostError, net.InvalidRequest):
        return "(invalid)"
    return OTHER if lane is None else str(lane)
