"""Metrics of this process, in memory: counters and histograms with a bounded set of labels."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from milepost.core.outcome import Done
from milepost.core.values.histogram import Histogram
from milepost.ports.observer import Observer
from milepost.ports.runner import JobResult

OTHER = "other"
"""Label for every name that is not a known route, stage or word: the number of labels does not grow with input."""
ANSWERS = ("new", "known", "changed", "malformed")
RESENDER_ACTS = ("resent", "offered", "lost", "overdue", "no_answer", "confirmed", "decided")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
OUTCOMES = {"Done": "done", "NotYet": "not-yet", "HandedOver": "handed-over", "Retry": "retry", "Reject": "reject"}
MOST_SERIES = 2_000
"""Maximum series of one family; further ones count as "other"."""
SHORT = (0.001, 0.005, 0.025, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0)
LONG = (0.1, 1.0, 10.0, 60.0, 300.0, 1_800.0, 3_600.0, 21_600.0, 86_400.0, 604_800.0, 2_592_000.0)
"""Upper bounds in seconds: of calls, and of an item's time at a stage, which may be months."""

Labels = tuple[str, ...]


class MetricFigures(Struct):
    """Everything collected, by family and labels."""

    counters: dict[str, dict[Labels, float]] = {}
    histograms: dict[str, dict[Labels, Histogram]] = {}


class Collector(Observer):
    """An Observer that counts. `stages` are the known ones, by route."""

    def __init__(self, stages: Mapping[str, Collection[str]]) -> None:
        self._stages = {route: frozenset(names) for route, names in stages.items()}
        self._lock = threading.Lock()
        self._figures = MetricFigures()

    def figures(self) -> MetricFigures:
        """A copy of the present figures."""
        with self._lock:
            counters = {name: dict(series) for name, series in self._figures.counters.items()}
            histograms = {
                name: {labels: Histogram(found.bounds, list(found.counts), found.total) for labels, found in series.items()}
                for name, series in self._figures.histograms.items()
            }
        return MetricFigures(counters, histograms)

    def submitted(self, route: str, answers: Mapping[str, int]) -> None:
        with self._lock:
            for answer, n in answers.items():
                self._count("submits", (self._route(route), _among(ANSWERS, answer)), n)

    def claimed(self, route: str, stage: str, items: int, lost: int) -> None:
        place = self._place(route, stage)
        with self._lock:
            self._count("claims", place, items)
            self._count("leases_lost", place, lost)

    def settled(self, rans: Sequence[JobResult], now: int, written: int, refused: int, undecided: int) -> None:
        # Most items of a batch are alike: equal ones are counted together, which is fast.
        rows = [(ran.item.row, ran) for ran in rans]
        tried = Counter((row.route, row.stage, type(ran.outcome), ran.response_ms) for row, ran in rows)
        through = Counter((row.route, row.stage, row.entered_at) for row, ran in rows if type(ran.outcome) is Done)
        with self._lock:
            for (route, stage, kind, took), n in tried.items():
                place = self._place(route, stage)
                self._count("attempts", (*place, OUTCOMES.get(kind.__name__, OTHER)), n)
                self._time("attempt_duration", place, took / 1000, SHORT, n)
            for (route, stage, entered), n in through.items():
                self._time("stage_duration", self._place(route, stage), max(0, now - entered) / 1000, LONG, n)
            for result, n in (("written", written), ("refused", refused), ("undecided", undecided)):
                self._count("outcomes", (result,), n)

    def resent(self, route: str, items: Sequence[tuple[str, str]]) -> None:
        found = Counter(items)
        with self._lock:
            for (stage, what), n in found.items():
                self._count("resender", (*self._place(route, stage), _among(RESENDER_ACTS, what)), n)
                if what == "lost":
                    self._count("leases_lost", self._place(route, stage), n)

    def delivered(self, subscriber: str, taken: int, failed: int) -> None:
        with self._lock:
            self._count("event_deliveries", (subscriber, "delivered"), taken)
            self._count("event_deliveries", (subscriber, "failed"), failed)

    def called(self, method: str, path: str, status: int, seconds: float) -> None:
        method = _among(METHODS, method)
        with self._lock:
            self._count("http_requests", (method, path, str(status)), 1)
            self._time("http_request_duration", (method, path), seconds, SHORT, 1)

    def _route(self, route: str) -> str:
        return route if route in self._stages else OTHER

    def _place(self, route: str, stage: str) -> tuple[str, str]:
        known = self._stages.get(route)
        if known is None:
            return OTHER, OTHER
        return route, stage if stage in known else OTHER

    def _count(self, name: str, labels: Labels, n: int) -> None:
        series = self._figures.counters.setdefault(name, {})
        labels = _bounded(series, labels)
        series[labels] = series.get(labels, 0) + n

    def _time(self, name: str, labels: Labels, value: float, bounds: tuple[float, ...], n: int) -> None:
        series = self._figures.histograms.setdefault(name, {})
        labels = _bounded(series, labels)
        found = series.get(labels)
        if found is None:
            found = series[labels] = Histogram.empty(bounds)
        found.add(value, n)


class BothObservers:
    """Forwards each call of an Observer to two observers, one after the other."""

    def __init__(self, first: Observer, second: Observer) -> None:
        self._observers = (first, second)

    def __getattr__(self, name: str) -> Any:
        def forward(*facts: Any) -> None:
            for one in self._observers:
                getattr(one, name)(*facts)

        return forward


def _among(known: Collection[str], name: str) -> str:
    return name if name in known else OTHER


def _bounded(series: Mapping[Labels, object], labels: Labels) -> Labels:
    """These labels, unless the family already has the maximum number of other series."""
    return labels if labels in series or len(series) < MOST_SERIES else (OTHER,) * len(labels)
