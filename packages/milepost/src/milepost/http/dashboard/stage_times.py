"""Chart of an item's time at its stages, and its state there. Pure functions of its history."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup, escape
from msgspec import Struct
from msgspec.structs import replace

from milepost.core.history import Line
from milepost.core.status import TERMINAL, Status
from milepost.core.values.durations import short_span
from milepost.http.dashboard.render import KINDS

WORDS = {
    "todo": "queued",
    "work": "processing",
    "wait": "waiting",
    "retry": "waiting for the next attempt",
    "fail": "failed, until an operator acted",
}
"""States of an item, by the class of the style sheet."""
HIGH = 18
LEAST = 0.5
"""Minimum width in per cent, so that a very short span is still visible and can be pointed at."""
TICKS = 4
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
STEPS = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 15 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE,
    5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY,
    30 * DAY, 90 * DAY, 365 * DAY,
)  # fmt: skip


class Span(Struct, frozen=True):
    """A period in which an item was at a stage in one state."""

    stage: str
    kind: str
    start: int
    end: int


class Mark(Struct, frozen=True):
    """A failed attempt."""

    stage: str
    at: int
    title: str


class Track(Struct, frozen=True):
    """A stage in the chart: a horizontal bar, and how long the item was there."""

    stage: str
    bar: Markup
    took: str


class StageTimesChart(Struct, frozen=True):
    start: int
    end: int
    tracks: list[Track]
    axis: Markup
    kinds: list[tuple[str, str]]
    """The colours in use, with their meanings."""


def spans(lines: Sequence[Line], now: int, claimed_at: int | None = None) -> list[Span]:
    """The periods that the lines describe; none while the item was off the route. A claim makes no
    line: the next line has its time, or `claimed_at` does if there is no line yet."""
    found: list[Span] = []
    while len(lines) > 1 and lines[-1].status in TERMINAL and lines[-2].status in TERMINAL:
        lines = lines[:-1]  # noted after its end
    for line, following in pairwise([*lines, None]):
        assert line is not None
        if line.status in (Status.COMPLETED, Status.CANCELLED) or (
            following is None and line.status in TERMINAL
        ):
            continue
        end = now if following is None else following.at
        since = claimed_at if following is None else following.since
        taken = end if since is None else min(max(since, line.at), end)
        _add(found, Span(line.after_stage, KINDS[line.status], line.at, taken))
        if taken < end:
            _add(found, Span(line.after_stage, "work", taken, end))
    return found


def _add(found: list[Span], span: Span) -> None:
    """Lines that change nothing, such as notes, do not split a span."""
    last = found[-1] if found else None
    if last is not None and (last.stage, last.kind, last.end) == (
        span.stage,
        span.kind,
        span.start,
    ):
        found[-1] = replace(last, end=span.end)
    elif span.end > span.start:
        found.append(span)


def marks(lines: Sequence[Line]) -> list[Mark]:
    """The failed attempts."""
    return [
        Mark(
            line.stage,
            line.at,
            f"attempt {line.attempt.number} failed: {line.attempt.category}: {line.attempt.message}",
        )
        for line in lines
        if line.attempt is not None
    ]


def way(
    lines: Sequence[Line], stages: Sequence[str], now: int, claimed_at: int | None = None
) -> StageTimesChart | None:
    """The chart, with a track for each stage that the item has been at; None if there is nothing to
    draw."""
    lines = [line for line in lines if line.version]  # one that cannot be read has no time
    found, failed = spans(lines, now, claimed_at), marks(lines)
    if not found:
        return None
    start, end = found[0].start, max(found[-1].end, *(span.end for span in found))
    seen = dict.fromkeys(span.stage for span in found)
    order = [stage for stage in stages if stage in seen] + [
        stage for stage in seen if stage not in stages
    ]
    scale = _Scale(start, end)
    here = None if lines[-1].status in TERMINAL else lines[-1].after_stage
    tracks = []
    for stage in order:
        mine = [span for span in found if span.stage == stage]
        took = short_span(sum(span.end - span.start for span in mine if span.kind != "fail"))
        bar = _bar(stage, mine, [mark for mark in failed if mark.stage == stage], scale)
        tracks.append(Track(stage, bar, f"{took} so far" if stage == here else took))
    kinds = [
        (kind, word) for kind, word in WORDS.items() if any(span.kind == kind for span in found)
    ]
    return StageTimesChart(start, end, tracks, _axis(scale), kinds)


class _Scale:
    """Times as per cent of the whole period."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.length = start, max(1, end - start)
        step = next(
            (step for step in STEPS if self.length / step <= TICKS), math.ceil(self.length / TICKS)
        )
        self.ticks = range(0, self.length + 1, step)

    def place(self, at: int) -> float:
        return min(100.0, max(0.0, 100 * (at - self.start) / self.length))

    def since(self, at: int) -> str:
        return (
            "from the beginning" if at <= self.start else f"from {short_span(at - self.start)} on"
        )


def _bar(stage: str, found: Sequence[Span], failed: Sequence[Mark], scale: _Scale) -> Markup:
    title = "; ".join(
        [f"{WORDS[span.kind]} {short_span(span.end - span.start)}" for span in found]
        + [mark.title for mark in failed]
    )
    out = [
        f'<svg width="100%" height="{HIGH}" role="img" aria-label="{escape(f"{stage}: {title}")}">'
    ]
    for tick in scale.ticks:
        at = f"{scale.place(scale.start + tick):.2f}%"
        out.append(f'<line class="grid" x1="{at}" x2="{at}" y1="0" y2="{HIGH}"/>')
    for span in found:
        left = min(scale.place(span.start), 100 - LEAST)
        wide = max(scale.place(span.end) - scale.place(span.start), LEAST)
        said = f"{WORDS[span.kind]}: {short_span(span.end - span.start)}, {scale.since(span.start)}"
        out.append(
            f'<rect class="{span.kind}" x="{left:.2f}%" y="3" width="{wide:.2f}%" height="{HIGH - 6}" rx="2">'
        )
        out.append(f"<title>{escape(said)}</title></rect>")
    for mark in failed:
        out.append(
            f'<circle class="failed" cx="{scale.place(mark.at):.2f}%" cy="{HIGH / 2:g}" r="4.5">'
        )
        out.append(f"<title>{escape(mark.title)}</title></circle>")
    return Markup("".join([*out, "</svg>"]))


def _axis(scale: _Scale) -> Markup:
    out = ['<svg width="100%" height="16" aria-hidden="true">']
    for tick in scale.ticks:
        place = scale.place(scale.start + tick)
        anchor = "start" if place < 5 else "end" if place > 95 else "middle"
        out.append(
            f'<text class="axis" x="{place:.2f}%" y="12" text-anchor="{anchor}">{short_span(tick) if tick else "0"}</text>'
        )
    return Markup("".join([*out, "</svg>"]))
