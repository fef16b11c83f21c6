"""Durations of handler calls, and of items at their stages: in this process, since it was started."""

from __future__ import annotations

from collections.abc import Collection

from markupsafe import Markup
from msgspec import Struct

from milepost.core.values.durations import short_span
from milepost.core.values.histogram import Histogram
from milepost.engine.metrics import MetricFigures
from milepost.http.dashboard.charts.svg import spread


class Durations(Struct, frozen=True):
    """A stage: number of handler calls, p50 and p95 of their durations; and p50 and p95 of the time that items spent at the stage
    before they left it."""

    place: str
    calls: int
    half: str
    most: str
    chart: Markup
    stay_half: str = ""
    stay_most: str = ""


def durations(figures: MetricFigures, routes: Collection[str]) -> list[Durations]:
    """For each stage of these routes with finished work, in the order of its first record."""
    found = []
    for labels, took in figures.histograms.get("attempt_duration", {}).items():
        if labels[0] in routes:
            stays = figures.histograms.get("stage_duration", {}).get(labels)
            stay = ("", "") if stays is None else (_within(stays, 0.5), _within(stays, 0.95))
            chart = spread(took.counts, _told(took))
            found.append(Durations("/".join(labels), sum(took.counts), _within(took, 0.5), _within(took, 0.95), chart, *stay))
    return found


def _told(found: Histogram) -> list[str]:
    bounds = [short_span(bound * 1000) for bound in found.bounds]
    words = [*(f"up to {bound}" for bound in bounds), f"more than {bounds[-1]}"]
    return [f"{n:,} took {word}" for n, word in zip(found.counts, words, strict=True)]


def _within(found: Histogram, part: float) -> str:
    bound = found.within(part)
    return f"over {short_span(found.bounds[-1] * 1000)}" if bound is None else short_span(bound * 1000)
