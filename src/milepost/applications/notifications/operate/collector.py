"""Collector of figures: reads the feed of history lines, counts them, and keeps the figures in the application's documents.

One process at a time counts, for as long as it goes on; another takes over when it has been silent for a while. Malformed requests
make no history: each process counts its own in memory, and adds them every few seconds.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter

import msgspec

import milepost as mp
from milepost.applications.notifications.operate.figures import Figures, Starts, count, read_figures, target_of
from milepost.applications.notifications.settings import NotificationsSettings

FIGURES = "figures"
PAGE = 500
PAGES = 40
"""Pages of the feed that are counted in one turn."""
HELD_MS = 30_000
MOST_NAMES = 1_000
"""Names of senders of malformed requests that are kept until they are added; a flood of names is cut off."""


class FigureCollector:
    """Counts for one process."""

    def __init__(self) -> None:
        self._holder = secrets.token_hex(8)
        self._starts = Starts()
        self._lock = threading.Lock()
        self._malformed: Counter[str] = Counter()

    def malformed(self, sender: str | None) -> None:
        """Count a malformed request."""
        name = (sender or "").strip()[:100] or "(unknown)"
        with self._lock:
            if name in self._malformed or len(self._malformed) < MOST_NAMES:
                self._malformed[name] += 1

    def turn(self, app: mp.AppContext[NotificationsSettings], *, hold: bool = True) -> int:
        """Count what is new; returns the number of lines. 0: nothing is new, or another process counts. `hold`: this process goes on
        counting; a command that only looks does not."""
        held = app.documents.get(FIGURES)
        figures = read_figures(None if held is None else held.value)
        now, total = round(app.now().timestamp() * 1000), 0
        ours = figures.holder == self._holder or figures.held_until <= now or figures.held_until > now + 2 * HELD_MS
        for _ in range(PAGES if ours else 0):
            lines = app.feed(figures.seq, PAGE)
            if not lines:
                break
            targets = {target_of(line["key"]) for line in lines if line["route"] == app.settings.route}
            figures = count(figures, lines, app.settings.route, {url: _lane(app, url) for url in targets}, self._starts)
            total += len(lines)
            if len(lines) < PAGE:
                break
        malformed = self._taken()
        if not total and not malformed:
            return 0
        if total:
            figures.holder, figures.held_until = (self._holder, now + HELD_MS) if hold else ("", 0)
        for sender, n in malformed.items():
            figures.sender(sender).malformed += n
        # One write for all pages: the document may be large.
        if app.documents.put(FIGURES, msgspec.to_builtins(figures), expect=0 if held is None else held.version):
            return total
        with self._lock:  # another process has written meanwhile: its figures are read, and these lines counted, in the next turn
            self._malformed.update(malformed)
        return 0

    def _taken(self) -> Counter[str]:
        with self._lock:
            taken, self._malformed = self._malformed, Counter()
        return taken


def figures_of(app: mp.AppContext[NotificationsSettings]) -> Figures:
    """The figures as they were last written."""
    held = app.documents.get(FIGURES)
    return read_figures(None if held is None else held.value)


def _lane(app: mp.AppContext[NotificationsSettings], url: str) -> str:
    try:
        return str(app.state.destinations.lane_of(url))
    except mp.MilepostError:
        return "(invalid)"
