"""Durations and rates as people write them ("10m", "2d", "50/s"), parsed into numbers.

Inside Milepost a time is an integer of milliseconds since 1970 (UTC) and a span is an integer of
milliseconds.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from milepost.core.errors import UsageError

SPAN_FORMS = (
    "a number of seconds, a timedelta, or text such as '30s', '10m', '6h', '14d' or '1h30m'"
)
Span = float | int | str | timedelta

_UNITS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
    "y": 365 * 86_400_000,
}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhdwy])")
_TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")
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
        raise UsageError(f"{subject} is {value!r}; it must be {SPAN_FORMS}, from 0 to 100 years")
    return round(ms)


def rate_per_second(value: str | float | int, subject: str) -> float:
    """Handler calls a second, from "50/s", "10/m", "1000/h" or a number of calls a second."""
    if isinstance(value, str):
        match = _RATE.fullmatch(value.lower())
        number = (
            float(match[1]) / ((float(match[2] or 1)) * _UNITS[match[3]] / 1000)
            if match and match[2] != "0"
            else 0.0
        )
    else:
        number = 0.0 if isinstance(value, bool) else float(value)
    if not 0 < number <= 1_000_000:
        raise UsageError(
            f"{subject} is {value!r}; write calls per time, such as '50/s', '10/m' or '1000/h'"
        )
    return number


Moment = str | datetime | timedelta


def is_span(text: str) -> bool:
    """Whether the text consists of parts of a span, such as "2h 30m"; it may still be too long."""
    return not _PART.sub("", text.lower()).strip()


def moment_ms(
    value: Moment, now: int, subject: str, zone: tzinfo = UTC, *, past: bool = False
) -> int:
    """A time in milliseconds, from ISO-8601 text, a datetime, a time of day ("18:00": the next
    one), or a span from now ("2h"). A value without a time zone is in `zone`; a date alone is its
    first moment. With `past` a span is counted back from now, and a time of day is the last one."""
    back = -1 if past else 1
    try:
        if isinstance(value, timedelta):
            return now + back * span_ms(value, subject)
        if isinstance(value, str) and is_span(value):
            return now + back * span_ms(value, subject)
        if isinstance(value, str) and _TIME_OF_DAY.fullmatch(value.strip()):
            return _nearest(time.fromisoformat(value.strip().zfill(5)), now, zone, back)
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value.strip())
        return round((found if found.tzinfo else found.replace(tzinfo=zone)).timestamp() * 1000)
    except (AttributeError, TypeError, ValueError, OverflowError, OSError):
        expected = f"a time such as '2027-01-31T08:00:00Z', '2027-01-31' or '18:00', or a span such as '2h' ({'ago' if past else 'from now'})"
        raise UsageError(f"{subject} is {value!r}; it must be {expected}") from None


def _nearest(clock: time, now: int, zone: tzinfo, step: int) -> int:
    """The next time at which a clock in this zone shows that, or with a step of -1 the last one."""
    today = datetime.fromtimestamp(now / 1000, zone).date()
    for day in (today, today + timedelta(days=step)):
        found = round(datetime.combine(day, clock, zone).timestamp() * 1000)
        if (found - now) * step > 0:
            return found
    return round(
        datetime.combine(today + timedelta(days=2 * step), clock, zone).timestamp() * 1000
    )  # a day of 25 hours


def zone_of(name: str, subject: str) -> tzinfo:
    """The time zone of this name, such as 'Europe/London', 'UTC' or '+01:00'; `subject` names it in
    the error if it is invalid."""
    if name.upper() in ("UTC", "Z"):
        return UTC
    try:
        if name[:1] in ("+", "-"):
            found = datetime.fromisoformat(f"2000-01-01T00:00{name}").tzinfo
            if found is not None:
                return found
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise UsageError(
            f"{subject} is {name!r}; it must be the name of a time zone, such as 'Europe/London', or an offset such as '+01:00'"
        ) from None


def local_zone() -> tzinfo:
    """The time zone of this machine, with summer time where it has one."""
    return _LocalZone()


class _LocalZone(tzinfo):
    """The zone by the rules of this machine at each time. (`astimezone` alone gives the offset of
    one time, which is wrong for half a year.)"""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return _local(dt).utcoffset()

    def dst(self, dt: datetime | None) -> timedelta | None:
        return None

    def tzname(self, dt: datetime | None) -> str | None:
        return _local(dt).tzname()

    def fromutc(self, dt: datetime) -> datetime:
        found = dt.replace(tzinfo=UTC).astimezone()
        wall = found.replace(tzinfo=None, fold=0)
        # In the hour that comes twice, the second one.
        return wall.replace(tzinfo=self, fold=int(_local(wall).utcoffset() != found.utcoffset()))


def _local(at: datetime | None) -> datetime:
    return (datetime.now() if at is None else at.replace(tzinfo=None)).astimezone()


def full_time(ms: int, zone: tzinfo) -> str:
    """A time for people with its date and zone: '2027-01-31 18:00 +01:00 (CET)'."""
    found = datetime.fromtimestamp(ms / 1000, zone)
    offset = f"{found:%z}"
    name = found.tzname() or ""
    shown = f"{found:%Y-%m-%d %H:%M:%S}" if found.second else f"{found:%Y-%m-%d %H:%M}"
    return (
        f"{shown} UTC"
        if name == "UTC"
        else f"{shown} {offset[:3]}:{offset[3:5]}{f' ({name})' if name.isalpha() else ''}"
    )


def iso(ms: int | None) -> str | None:
    """A time as fixed-width ISO-8601 in UTC with milliseconds, so that text sorts like time."""
    if ms is None:
        return None
    seconds, rest = divmod(ms, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@lru_cache(1024)
def _second(seconds: int) -> str:
    """A whole second as ISO-8601 without a zone. Cached, because the times of a batch lie in few
    seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


UNSCHEDULED = 5 * 365 * 86_400_000
"""A delay of this length or more means that there is no next try by itself: the next round of a
program, such as one that cron starts, brings it forward."""


def retry_time(delay_ms: int | float) -> str:
    """When the next try comes, for people: 'in 5 min', or 'at the next round' if it is
    unscheduled."""
    return "at the next round" if delay_ms >= UNSCHEDULED else f"in {short_span(delay_ms)}"


def short_span(ms: int | float) -> str:
    """A span for people: '850 ms', '12 s', '5 min', '3 h', '14 d'."""
    ms = abs(ms)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= 1.95 * size or (ms >= size and ms % size == 0):
            return f"{ms / size:.0f} {unit}"
    return f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.0f} ms"
