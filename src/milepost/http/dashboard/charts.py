"""Charts as SVG: plain functions of numbers. Colours come from the style sheet, by class."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup, escape
from msgspec import Struct

WIDTH, HEIGHT = 720, 150
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 10, 24


class Bar(Struct, frozen=True):
    """One bar: what it stands for, what is said of it when somebody points at it, and how high its parts are, lowest first."""

    label: str
    told: str
    parts: tuple[tuple[str, float], ...]
    """(class, value)"""


def nice_top(highest: float) -> float:
    """The next round number that an axis may end with: 1, 2 or 5 times a power of ten."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= highest)


def bars(data: Sequence[Bar], title: str, unit: str) -> Markup:
    """Bars beside each other, with an axis at the left, some labels below, and a word for each bar."""
    top = nice_top(max((sum(value for _, value in bar.parts) for bar in data), default=0))
    inner, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    step = inner / max(1, len(data))
    out = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]
    for share in (0.0, 0.5, 1.0):
        y = TOP + high * (1 - share)
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text class="axis" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{brief(top * share)}</text>')
    every = max(1, math.ceil(len(data) / 8))
    for place, bar in enumerate(data):
        x, base = LEFT + place * step, float(TOP + high)
        said = f"{bar.told}"
        out.append(f'<g class="column"><title>{escape(said)}</title>')
        out.append(f'<rect class="hit" x="{x:.1f}" y="{TOP}" width="{step:.2f}" height="{high}"/>')
        for kind, value in bar.parts:
            tall = high * value / top
            if tall > 0:
                base -= max(tall, 1.0)
                out.append(
                    f'<rect class="{escape(kind)}" x="{x + step * 0.12:.1f}" y="{base:.1f}" width="{step * 0.76:.2f}" '
                    f'height="{max(tall, 1.0):.1f}"/>'
                )
        out.append("</g>")
        if place % every == 0:
            out.append(f'<text class="axis" x="{x + step / 2:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(bar.label)}</text>')
    out.append(f'<text class="axis unit" x="{LEFT}" y="{TOP - 1}">{escape(unit)}</text></svg>')
    return Markup("".join(out))


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


def brief(n: float) -> str:
    """A number in few characters: 950, 12k, 3.4M."""
    for size, mark in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if n >= size:
            return f"{n / size:.3g}{mark}"
    return f"{n:.3g}"
