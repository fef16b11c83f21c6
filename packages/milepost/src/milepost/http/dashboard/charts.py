"""Charts as SVG: plain functions of numbers. Colours come from the style sheet, by class.

Horizontal lengths are in per cent and vertical ones in pixels, so that a chart fits any screen and
its text keeps its size.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, tzinfo
from operator import itemgetter

from markupsafe import Markup, escape
from msgspec import Struct

from milepost.core.counters import HOUR
from milepost.core.values.durations import short_span
from milepost.core.values.histogram import Histogram
from milepost.engine.metrics import MetricFigures
from milepost.http.state.pace import HOURS, MINUTE, MINUTES, Ended, UnwatchedGap

TALL, TOP, BOTTOM = 150, 18, 20
SCALE = 40
"""Width of the numbers at the left."""
EDGE = 8.0
"""Within this share of the width from an edge, a label does not stand in the middle of its bar."""


class Bar(Struct, frozen=True):
    """One bar: its tooltip, and the heights of its parts, lowest first. `label` stands below it,
    and `mark` draws a line before it. A label that is `minor` is left out on a narrow screen.
    `unknown`: what is missing here is not zero but unknown."""

    title: str
    parts: tuple[tuple[str, float], ...]
    """(class, value)"""
    label: str = ""
    mark: bool = False
    minor: bool = False
    unknown: bool = False


def nice_top(highest: float) -> float:
    """The next round number for the end of an axis: 1, 2 or 5 times a power of ten, at least
    one."""
    if highest <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= highest)


def bars(data: Sequence[Bar], title: str, axis: str = "") -> Markup:
    """Vertical bars, with numbers at the left and labels below; `title` is the description for
    screen readers. `axis` says what the labels are."""
    top = nice_top(max((sum(value for _, value in bar.parts) for bar in data), default=0))
    high = TALL - TOP - BOTTOM
    step = 100 / max(1, len(data))
    scale, plot = (
        [
            f'<text class="axis" x="{SCALE - 6}" y="{TALL - 5}" text-anchor="end">{escape(axis)}</text>'
        ],
        [],
    )
    for share in (0.0, 0.5, 1.0):
        y = TOP + high * (1 - share)
        plot.append(f'<line class="grid" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
        if (top * share).is_integer():
            scale.append(
                f'<text class="axis" x="{SCALE - 6}" y="{y + 4:.1f}" text-anchor="end">{brief(top * share)}</text>'
            )
    for place, bar in enumerate(data):
        plot += _column(bar, place * step, step, top, high)
    return Markup(
        f'<div class="chart"><svg class="scale" width="{SCALE}" height="{TALL}" aria-hidden="true">{"".join(scale)}</svg>'
        f'<svg class="plot" width="100%" height="{TALL}" role="img" aria-label="{escape(title)}">{"".join(plot)}</svg></div>'
    )


def _column(bar: Bar, x: float, step: float, top: float, high: float) -> list[str]:
    out, base = [], float(TOP + high)
    if bar.mark:
        out.append(
            f'<line class="mark" x1="{x:.2f}%" x2="{x:.2f}%" y1="{TOP}" y2="{TALL - BOTTOM}"/>'
        )
    if bar.label:
        # At an edge it stands beside the middle of its bar, so that it is not cut off.
        anchor, at = (
            ("start", x)
            if x < EDGE
            else ("end", x + step)
            if x + step > 100 - EDGE
            else ("middle", x + step / 2)
        )
        where = f'x="{at:.2f}%" text-anchor="{anchor}"'
        kind = "axis minor" if bar.minor else "axis"
        out.append(f'<text class="{kind}" {where} y="{TALL - 5}">{escape(bar.label)}</text>')
    ground = "hit unknown" if bar.unknown else "hit"
    out.append(
        f'<g class="column"><rect class="{ground}" x="{x:.2f}%" y="{TOP}" width="{step:.3f}%" height="{high}"/>'
    )
    for kind, value in bar.parts:
        if value > 0:
            tall = max(high * value / top, 1.0)
            base -= tall
            out.append(
                f'<rect class="{escape(kind)}" x="{x + step * 0.12:.2f}%" y="{base:.1f}" width="{step * 0.76:.3f}%" height="{tall:.1f}"/>'
            )
    out.append(
        f'<text class="value" x="100%" y="11" text-anchor="end">{escape(bar.title)}</text></g>'
    )
    return out


def stack(parts: Sequence[tuple[str, float]], title: str) -> Markup:
    """One horizontal bar of parts, each a share of the whole; every part above zero is visible.
    Each has a name, by which the page knows it again when other parts come and go."""
    out = [
        f'<svg class="stack" role="img" aria-label="{escape(title)}" width="100%" height="10"><title>{escape(title)}</title>'
    ]
    x = 0.0
    for kind, share in parts:
        if share > 0:
            wide = max(share * 100, 0.6)
            out.append(
                f'<rect class="{escape(kind)}" data-name="{escape(kind)}" x="{x:.2f}%" width="{wide:.2f}%" height="10"/>'
            )
            x += wide
    out.append("</svg>")
    return Markup("".join(out))


def spread(found: Histogram) -> Markup:
    """A small histogram of durations in seconds, with a tooltip for each bar."""
    bounds = [short_span(bound * 1000) for bound in found.bounds]
    words = [*(f"up to {bound}" for bound in bounds), f"more than {bounds[-1]}"]
    titles = [f"{n:,} took {word}" for n, word in zip(found.counts, words, strict=True)]
    top, step = max([1, *found.counts]), 100 / max(1, len(titles))
    out = [
        f'<svg class="spread" width="120" height="24" role="img" aria-label="{escape("; ".join(titles))}">'
    ]
    for place, (n, title) in enumerate(zip(found.counts, titles, strict=True)):
        tall = max(24 * n / top, 1.0)
        out.append(
            f'<rect class="{"done" if n else "grid"}" x="{place * step:.2f}%" y="{24 - tall:.1f}" width="{step * 0.8:.2f}%" height="{tall:.1f}">'
            f"<title>{escape(title)}</title></rect>"
        )
    out.append("</svg>")
    return Markup("".join(out))


def brief(n: float) -> str:
    """A number in few characters: 950, 12k, 3.4M."""
    for size, mark in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if n >= size:
            return f"{n / size:.3g}{mark}"
    return f"{n:.3g}"


class Chart(Struct, frozen=True):
    """A chart, and the same as a table, the latest first."""

    picture: Markup
    rows: Sequence[tuple[int, int, int, int | None]]
    """The begin of an hour or a minute, the items that were completed or failed in it; and the end,
    of a time while no page was open."""
    since: int | None = None
    """The time from which there are data, if that is later than the start of the chart."""
    unknown: bool = False
    """Places of it are shaded, since items ended there at times that are not known."""


def hours_chart(ended: Sequence[Ended], now: int, zone: tzinfo = UTC) -> Chart:
    """The ledger counts by hours of UTC; `zone` is that of the viewer, in which they are named."""
    data, rows = [], []
    for place, (done, failed) in enumerate(ended):
        ms = (now // HOUR - HOURS + 1 + place) * HOUR
        hour, end = _local(ms, zone), _local(ms + HOUR, zone)
        # A day by its name: "today" and "yesterday" may differ for the reader.
        label = f"{hour:%a %d}" if hour.hour == 0 else f"{hour:%H}" if hour.hour % 6 == 0 else ""
        title = f"{hour:%a %d %b, %H:%M} to {end:%H:%M} {hour:%Z}: {_said(done, failed)}"
        data.append(
            Bar(title, _parts(done, failed), label, mark=hour.hour == 0, minor=hour.hour % 12 != 0)
        )
        if done or failed:
            rows.append((ms, done, failed, None))
    return Chart(
        bars(
            data,
            f"Ended in the last two days, by hour: {_summed(ended)}",
            f"{_local(now, zone):%Z}",
        ),
        rows[::-1],
    )


def minutes_chart(
    ended: Sequence[Ended | None],
    gaps: Sequence[UnwatchedGap],
    since: int,
    now: int,
    zone: tzinfo = UTC,
) -> Chart:
    """A minute without data has no bar. If items ended in such minutes, these are shaded, and the
    items are shown as one number."""
    first = (now // MINUTE - MINUTES + 1) * MINUTE
    data = []
    rows: list[tuple[int, int, int, int | None]] = [
        (gap.begin, gap.done, gap.failed, gap.end) for gap in gaps
    ]
    for place, seen in enumerate(ended):
        ms = first + place * MINUTE
        minute = _local(ms, zone)
        gap = None if seen is not None and any(seen) else _gap(ms, gaps)
        said = _unseen(gap, zone) if seen is None or gap is not None else _said(*seen)
        label = f"{minute:%H:%M}" if minute.minute % 15 == 0 else ""
        data.append(
            Bar(
                f"{minute:%H:%M} {minute:%Z}: {said}",
                _parts(*(seen or (0, 0))),
                label,
                unknown=gap is not None,
            )
        )
        if seen is not None and any(seen):
            rows.append((ms, *seen, None))
    title = (
        f"Ended in the last hour, by minute: {_summed([one for one in ended if one is not None])}"
    )
    if gaps:
        title += f"; and {_said(sum(gap.done for gap in gaps), sum(gap.failed for gap in gaps))} without data by minute"
    rows.sort(key=itemgetter(0), reverse=True)
    return Chart(
        bars(data, title, f"{_local(now, zone):%Z}"),
        rows,
        since if since > first else None,
        any(bar.unknown for bar in data),
    )


def _gap(ms: int, gaps: Sequence[UnwatchedGap]) -> UnwatchedGap | None:
    """The gap that this minute is in, at least partly."""
    return next((gap for gap in gaps if gap.begin < ms + MINUTE and ms < gap.end), None)


def _unseen(gap: UnwatchedGap | None, zone: tzinfo) -> str:
    if gap is None:
        return "no data by minute"
    return f"no data by minute; {_said(gap.done, gap.failed)} from {_local(gap.begin, zone):%H:%M} to {_local(gap.end, zone):%H:%M}"


def _local(ms: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(ms / 1000, zone)


def _parts(done: int, failed: int) -> tuple[tuple[str, float], ...]:
    return (("done", done), ("fail", failed))


def _said(done: int, failed: int) -> str:
    return f"{done:,} completed" + (f", {failed:,} failed" if failed else "")


def _summed(ended: Sequence[Ended]) -> str:
    return f"{_said(sum(done for done, _ in ended), sum(failed for _, failed in ended))} in all"


def durations(
    figures: MetricFigures, routes: Collection[str]
) -> list[tuple[str, Histogram, Histogram | None]]:
    """For each stage of these routes with finished work in this process, in the order of its first
    record: how long its handler calls took, and the time that items spent there before they left
    it."""
    calls, stays = (
        figures.histograms.get(name, {}) for name in ("attempt_duration", "stage_duration")
    )
    return [
        ("/".join(labels), took, stays.get(labels))
        for labels, took in calls.items()
        if labels[0] in routes
    ]


def within(found: Histogram, part: float) -> str:
    """A percentile, as a span of time."""
    bound = found.within(part)
    return (
        f"over {short_span(found.bounds[-1] * 1000)}" if bound is None else short_span(bound * 1000)
    )
