"""Durations and rates as people write them ("10m", "2d", "50/s"), parsed into numbers.

Inside Milepost a time is an integer of milliseconds since 1970 (UTC) and a span is an integer of milliseconds.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from milepost.core.errors import UsageError

type_names = "a number of seconds, a timedelta, or text such as '30s', '10m', '6h', '14d' or '1h30m'"
Span = float | int | str | timedelta

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000, "y": 365 * 86_400_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhdwy])")
_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*(\d*)\s*(s|m|h|d)\s*")
LONGEST = 100 * 365 * 86_400_000


def span_ms(value: Span, subject: str) -> int:
    """The span in milliseconds; `subject` names it in the error if it is invalid."""
    ms: float | None = None
    if isinstance(value, timedelta):
        ms = value.total_seconds() * 1000
    elif isinstance(value, str):
        text = value.strip().lower()
        parts = _PART.findall(text)
        if parts and _PART.sub("", text).strip() == "":
            ms = sum(float(number) * _UNITS[unit] for number, unit in parts)
        else:
            try:
                ms = float(text) * 1000
            except ValueError:
                ms = None
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        ms = value * 1000
    if ms is None or not 0 <= ms <= LONGEST:
        raise UsageError(f"{subject} is {value!r}; it must be {type_names}, from 0 to 100 years")
    return round(ms)


def rate_per_second(value: str | float | int, subject: str) -> float:
    """Handler calls a second, from "50/s", "10/m", "1000/h" or a number of calls a second."""
    if isinstance(value, str):
        match = _RATE.fullmatch(value.lower())
        number = float(match[1]) / ((float(match[2] or 1)) * _UNITS[match[3]] / 1000) if match and match[2] != "0" else 0.0
    else:
        number = 0.0 if isinstance(value, bool) else float(value)
    if not 0 < number <= 1_000_000:
        raise UsageError(f"{subject} is {value!r}; write calls per time, such as '50/s', '10/m' or '1000/h'")
    return number


Moment = str | datetime | timedelta


def moment_ms(value: Moment, now: int, subject: str, zone: tzinfo = UTC) -> int:
    """A time in milliseconds, from ISO-8601 text, a datetime, or a span from now ("2h"). A value without a time zone is in `zone`; a date
    alone is its first moment."""
    try:
        if isinstance(value, timedelta):
            return now + span_ms(value, subject)
        if isinstance(value, str) and not _PART.sub("", value.lower()).strip():
            return now + span_ms(value, subject)
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value.strip())
        return round((found if found.tzinfo else found.replace(tzinfo=zone)).timestamp() * 1000)
    except (AttributeError, TypeError, ValueError, OverflowError, OSError):
        expected = "a time such as '2027-01-31T08:00:00Z' or '2027-01-31', or a span from now such as '2h'"
        raise UsageError(f"{subject} is {value!r}; it must be {expected}") from None


def iso(ms: int | None) -> str | None:
    """A time as fixed-width ISO-8601 in UTC with milliseconds, so that text sorts like time."""
    if ms is None:
        return None
    seconds, rest = divmod(ms, 1000)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{rest:03d}Z"


UNSCHEDULED = 5 * 365 * 86_400_000
"""A delay this long is none: the next try comes when a person or a program brings it forward."""


def retry_time(delay_ms: int | float) -> str:
    """When the next try comes, for people: 'in 5 min', or 'when it is sent again' after a delay that only stands for "not by itself"."""
    return "when it is sent again" if delay_ms >= UNSCHEDULED else f"in {short_span(delay_ms)}"


def short_span(ms: int | float) -> str:
    """A span for people: '850 ms', '12 s', '5 min', '3 h', '14 d'."""
    ms = abs(ms)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= 1.95 * size or (ms >= size and ms % size == 0):
            return f"{ms / size:.0f} {unit}"
    return f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.0f} ms"
