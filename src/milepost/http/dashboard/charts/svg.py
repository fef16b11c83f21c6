"""Charts as SVG: plain functions of numbers. Colours come from the style sheet, by class.

What lies across is in parts of the whole width and what stands up is in pixels, so that a chart fits any screen and its words stay
as large as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup, escape
from msgspec import Struct

TALL, TOP, BOTTOM = 150, 18, 20
SCALE = 40
"""How wide the numbers at the left are."""
EDGE = 8.0
"""So much of the width is too near to an edge for a word in the middle of its bar."""


class Bar(Struct, frozen=True):
    """One bar: what is said of it when somebody points at it, and how high its parts are, lowest first. `label` stands below it, and
    `mark` draws a line before it. A label that is `minor` is left out where there is little room."""

    told: str
    parts: tuple[tuple[str, float], ...]
    """(class, value)"""
    label: str = ""
    mark: bool = False
    minor: bool = False


def nice_top(highest: float) -> float:
    """The next round number that an axis may end with: 1, 2 or 5 times a power of ten, and no less than one."""
    if highest <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= highest)


def bars(data: Sequence[Bar], told: str, axis: str = "") -> Markup:
    """Bars beside each other, with numbers at the left and words below; `told` is for those who do not see it. `axis` says what the
    words below are."""
    top = nice_top(max((sum(value for _, value in bar.parts) for bar in data), default=0))
    high = TALL - TOP - BOTTOM
    step = 100 / max(1, len(data))
    scale, plot = [f'<text class="axis" x="{SCALE - 6}" y="{TALL - 5}" text-anchor="end">{escape(axis)}</text>'], []
    for share in (0.0, 0.5, 1.0):
        y = TOP + high * (1 - share)
        plot.append(f'<line class="grid" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
        if (top * share).is_integer():
            scale.append(f'<text class="axis" x="{SCALE - 6}" y="{y + 4:.1f}" text-anchor="end">{brief(top * share)}</text>')
    for place, bar in enumerate(data):
        plot += _column(bar, place * step, step, top, high)
    return Markup(
        f'<div class="chart"><svg class="scale" width="{SCALE}" height="{TALL}" aria-hidden="true">{"".join(scale)}</svg>'
        f'<svg class="plot" width="100%" height="{TALL}" role="img" aria-label="{escape(told)}">{"".join(plot)}</svg></div>'
    )


def _column(bar: Bar, x: float, step: float, top: float, high: float) -> list[str]:
    out, base = [], float(TOP + high)
    if bar.mark:
        out.append(f'<line class="mark" x1="{x:.2f}%" x2="{x:.2f}%" y1="{TOP}" y2="{TALL - BOTTOM}"/>')
    if bar.label:
        # At an edge it stands beside the middle of its bar, so that it is not cut off.
        anchor, at = ("start", x) if x < EDGE else ("end", x + step) if x + step > 100 - EDGE else ("middle", x + step / 2)
        where = f'x="{at:.2f}%" text-anchor="{anchor}"'
        kind = "axis minor" if bar.minor else "axis"
        out.append(f'<text class="{kind}" {where} y="{TALL - 5}">{escape(bar.label)}</text>')
    out.append(f'<g class="column"><rect class="hit" x="{x:.2f}%" y="{TOP}" width="{step:.3f}%" height="{high}"/>')
    for kind, value in bar.parts:
        if value > 0:
            tall = max(high * value / top, 1.0)
            base -= tall
            out.append(
                f'<rect class="{escape(kind)}" x="{x + step * 0.12:.2f}%" y="{base:.1f}" width="{step * 0.76:.3f}%" height="{tall:.1f}"/>'
            )
    out.append(f'<text class="value" x="100%" y="11" text-anchor="end">{escape(bar.told)}</text></g>')
    return out


def stack(parts: Sequence[tuple[str, float]], told: str) -> Markup:
    """One lying bar of parts, each a share of the whole; what is more than nothing can be seen."""
    out = [f'<svg class="stack" role="img" aria-label="{escape(told)}" width="100%" height="10"><title>{escape(told)}</title>']
    x = 0.0
    for kind, share in parts:
        if share > 0:
            wide = max(share * 100, 0.6)
            out.append(f'<rect class="{escape(kind)}" x="{x:.2f}%" width="{wide:.2f}%" height="10"/>')
            x += wide
    out.append("</svg>")
    return Markup("".join(out))


def spread(counts: Sequence[int], told: Sequence[str]) -> Markup:
    """Small bars beside each other for how often something was how long, with a word for each of them."""
    top, step = max([1, *counts]), 100 / max(1, len(counts))
    out = [f'<svg class="spread" width="120" height="24" role="img" aria-label="{escape("; ".join(told))}">']
    for place, (n, word) in enumerate(zip(counts, told, strict=True)):
        tall = max(24 * n / top, 1.0)
        out.append(
            f'<rect class="{"done" if n else "grid"}" x="{place * step:.2f}%" y="{24 - tall:.1f}" width="{step * 0.8:.2f}%" height="{tall:.1f}">'
            f"<title>{escape(word)}</title></rect>"
        )
    out.append("</svg>")
    return Markup("".join(out))


def brief(n: float) -> str:
    """A number in few characters: 950, 12k, 3.4M."""
    for size, mark in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if n >= size:
            return f"{n / size:.3g}{mark}"
    return f"{n:.3g}"
