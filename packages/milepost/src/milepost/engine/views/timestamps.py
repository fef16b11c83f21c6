"""Times in a sentence, in local time or as ISO text."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from milepost.core.values.durations import iso
from milepost.engine.views.items import clock_time, when


class Watch(Struct, frozen=True):
    """The current time, and the format of other times (default: local time)."""

    now: int
    form: Callable[[int, int], str] = clock_time

    def at(self, ms: int) -> str:
        return self.form(ms, self.now)

    def when(self, ms: int) -> str:
        """'in 5 min (14:03:12)'."""
        return when(ms, self.now, self.form)


def instant(ms: int, _now: int) -> str:
    """A time that is unambiguous everywhere: '2026-03-01T14:03:12.000Z'."""
    return iso(ms) or ""
