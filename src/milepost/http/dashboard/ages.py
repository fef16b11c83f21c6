"""Ages of times, as pages show them."""

from __future__ import annotations

from datetime import datetime

from milepost.core.values.durations import short_span


def ms_since(moment: str, now: int) -> float:
    """Milliseconds from a time, as views give it (ISO-8601), to now."""
    return now - datetime.fromisoformat(moment).timestamp() * 1000


def age(moment: str | None, now: int) -> str:
    """'3 s', '5 min', '14 d'; empty if there is no time."""
    return "" if moment is None else short_span(max(0.0, ms_since(moment, now)))
