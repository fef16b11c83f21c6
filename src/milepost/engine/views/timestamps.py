"""Moments in a sentence: by the clock of this machine, or for whoever reads it elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from milepost.core.values.durations import iso
from milepost.engine.views.items import clock_time, when


class Watch(Struct, frozen=True):
    """What time it is, and how another moment is told: by default in this machine's own time."""

    now: int
    told: Callable[[int, int], str] = clock_time

    def at(self, ms: int) -> str:
        return self.told(ms, self.now)

    def when(self, ms: int) -> str:
        """'in 5 min (14:03:12)'."""
        return when(ms, self.now, self.told)


def instant(ms: int, _now: int) -> str:
    """A moment that means the same everywhere: '2026-03-01T14:03:12.000Z'."""
    return iso(ms) or ""
