"""How long ago a moment was, as pages say it."""

from __future__ import annotations

from datetime import datetime

from milepost.core.values.durations import short_span


def ms_since(moment: str, now: int) -> float:
    """Milliseconds from a moment, as views give it (ISO-8601), to now."""
    return now - datetime.fromisoformat(moment).timestamp() * 1000


def age(moment: str | None, now: int) -> str:
    """'3 s', '5 min', '14 d'; empty where there is no moment."""
    return "" if moment is None else short_span(max(0.0, ms_since(moment, now)))
