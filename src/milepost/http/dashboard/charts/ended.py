"""Ended items by hour and by minute: a chart, and a table of the same numbers. Hours are in UTC, as the ledger counts them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from markupsafe import Markup
from msgspec import Struct

from milepost.core.counters import HOUR
from milepost.core.values.durations import iso
from milepost.http.dashboard.charts.svg import Bar, bars
from milepost.http.state.pace import HOURS, MINUTE, MINUTES, Ended, UnwatchedGap

AXIS = "UTC"


class EndedFigures(Struct, frozen=True):
    """Items that ended in an hour, or in a minute; or up to `until`, while no page was open."""

    at: str | None
    done: int
    failed: int
    until: str | None = None


class Chart(Struct, frozen=True):
    """A chart, and the same as a table, the latest first."""

    picture: Markup
    rows: list[EndedFigures]
    since: str | None = None
    """The time from which there are data, if that is later than the start of the chart."""
    unknown: bool = False
    """Places of it are shaded, since items ended there at times that are not known."""


def hours_chart(ended: Sequence[Ended], now: int) -> Chart:
    data, rows = [], []
    for place, (done, failed) in enumerate(ended):
        ms = (now // HOUR - HOURS + 1 + place) * HOUR
        hour = _utc(ms)
        # A day by its name: "today" and "yesterday" may differ for the reader.
        label = f"{hour:%a %d}" if hour.hour == 0 else f"{hour:%H}" if hour.hour % 6 == 0 else ""
        title = f"{hour:%a %d %b, %H}:00 to {(hour.hour + 1) % 24:02}:00 {AXIS}: {_said(done, failed)}"
        data.append(Bar(title, _parts(done, failed), label, mark=hour.hour == 0, minor=hour.hour % 12 != 0))
        if done or failed:
            rows.append(EndedFigures(iso(ms), done, failed))
    return Chart(bars(data, f"Ended in the last two days, by hour: {_summed(ended)}", AXIS), rows[::-1])


def minutes_chart(ended: Sequence[Ended | None], gaps: Sequence[UnwatchedGap], since: int, now: int) -> Chart:
    """A minute without data has no bar. If items ended in such minutes, these are shaded, and the items are shown as one number."""
    first = (now // MINUTE - MINUTES + 1) * MINUTE
    data, rows = [], [EndedFigures(iso(gap.begin), gap.done, gap.failed, iso(gap.end)) for gap in gaps]
    for place, seen in enumerate(ended):
        ms = first + place * MINUTE
        minute = _utc(ms)
        gap = None if seen is not None and any(seen) else _gap(ms, gaps)
        said = _unseen(gap) if seen is None or gap is not None else _said(*seen)
        label = f"{minute:%H:%M}" if minute.minute % 15 == 0 else ""
        data.append(Bar(f"{minute:%H:%M} {AXIS}: {said}", _parts(*(seen or (0, 0))), label, unknown=gap is not None))
        if seen is not None and any(seen):
            rows.append(EndedFigures(iso(ms), *seen))
    title = f"Ended in the last hour, by minute: {_summed([one for one in ended if one is not None])}"
    if gaps:
        title += f"; and {_said(sum(gap.done for gap in gaps), sum(gap.failed for gap in gaps))} without data by minute"
    rows.sort(key=lambda row: row.at or "", reverse=True)
    return Chart(bars(data, title, AXIS), rows, iso(since) if since > first else None, any(bar.unknown for bar in data))


def _gap(ms: int, gaps: Sequence[UnwatchedGap]) -> UnwatchedGap | None:
    """The gap that this minute is in, at least partly."""
    return next((gap for gap in gaps if gap.begin < ms + MINUTE and ms < gap.end), None)


def _unseen(gap: UnwatchedGap | None) -> str:
    if gap is None:
        return "no data by minute"
    return f"no data by minute; {_said(gap.done, gap.failed)} from {_utc(gap.begin):%H:%M} to {_utc(gap.end):%H:%M}"


def _utc(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _parts(done: int, failed: int) -> tuple[tuple[str, float], ...]:
    return (("done", done), ("fail", failed))


def _said(done: int, failed: int) -> str:
    return f"{done:,} completed" + (f", {failed:,} failed" if failed else "")


def _summed(ended: Sequence[Ended]) -> str:
    return f"{_said(sum(done for done, _ in ended), sum(failed for _, failed in ended))} in all"
