"""Metrics: collected in the process, read from the ledger, and written as text for Prometheus."""

from __future__ import annotations

import math
import os
import platform
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from milepost.core.admission.breakers import BreakerState
from milepost.core.outcome import Done
from milepost.core.status import Status
from milepost.core.values.histogram import Histogram
from milepost.engine.breakers import breaker_views
from milepost.engine.context import Context
from milepost.engine.events.cursors import lag_of, live_cursors
from milepost.engine.events.records import parked_items
from milepost.engine.presence import last_runs
from milepost.engine.views.caches import TtlCache
from milepost.engine.views.items import live_processes
from milepost.engine.views.snapshot import snapshots
from milepost.ports.observer import Observer
from milepost.ports.runner import JobResult

# Collected in this process ------------------------------------------------------------------------
OTHER = "other"
"""Label for every name that is not a known route, stage or word: the number of labels does not grow
with input."""
ANSWERS = ("new", "known", "changed", "malformed")
RESENDER_ACTS = ("resent", "offered", "lost", "overdue", "no_answer", "confirmed", "decided")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
OUTCOMES = {
    "Done": "done",
    "NotYet": "not-yet",
    "Checked": "checked",
    "HandedOver": "handed-over",
    "Retry": "retry",
    "Reject": "reject",
}
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
                name: {
                    labels: Histogram(found.bounds, list(found.counts), found.total)
                    for labels, found in series.items()
                }
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

    def settled(
        self, rans: Sequence[JobResult], now: int, written: int, refused: int, undecided: int
    ) -> None:
        # Most items of a batch are alike: equal ones are counted together, which is fast.
        rows = [(ran.item.row, ran) for ran in rans]
        tried = Counter(
            (row.route, row.stage, type(ran.outcome), ran.response_ms) for row, ran in rows
        )
        through = Counter(
            (row.route, row.stage, row.entered_at) for row, ran in rows if type(ran.outcome) is Done
        )
        with self._lock:
            for (route, stage, kind, took), n in tried.items():
                place = self._place(route, stage)
                self._count("attempts", (*place, OUTCOMES.get(kind.__name__, OTHER)), n)
                self._time("attempt_duration", place, took / 1000, SHORT, n)
            for (route, stage, entered), n in through.items():
                self._time(
                    "stage_duration",
                    self._place(route, stage),
                    max(0, now - entered) / 1000,
                    LONG,
                    n,
                )
            for result, n in (("written", written), ("refused", refused), ("undecided", undecided)):
                self._count("outcomes", (result,), n)

    def resent(self, route: str, items: Sequence[tuple[str, str]]) -> None:
        found = Counter(items)
        with self._lock:
            for (stage, what), n in found.items():
                self._count(
                    "resender", (*self._place(route, stage), _among(RESENDER_ACTS, what)), n
                )
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

    def _time(
        self, name: str, labels: Labels, value: float, bounds: tuple[float, ...], n: int
    ) -> None:
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


# Text ---------------------------------------------------------------------------------------------
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Family(Struct, frozen=True):
    """Samples of one name. `kind` is gauge, counter or histogram; a counter's name is without
    `_total` here, which is added in the text."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    samples: Mapping[Labels, float | Histogram] = {}


def exposition(families: Iterable[Family], *, openmetrics: bool = False) -> str:
    """All families as text; one without samples is left out."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        total = "_total" if family.kind == "counter" else ""
        name = family.name if openmetrics else family.name + total
        lines.append(f"# HELP {name} {_escaped(family.help, quotes=openmetrics)}")
        lines.append(f"# TYPE {name} {family.kind}")
        for labels, value in sorted(family.samples.items(), key=lambda sample: sample[0]):
            pairs = list(zip(family.labels, labels, strict=True))
            if isinstance(value, Histogram):
                lines += _histogram(family.name, pairs, value)
            else:
                lines.append(f"{family.name}{total}{_labels(pairs)} {_number(value)}")
    if openmetrics:
        lines.append("# EOF")
    return "".join(f"{line}\n" for line in lines)


def _histogram(name: str, pairs: list[tuple[str, str]], found: Histogram) -> Iterable[str]:
    so_far = 0
    for bound, n in zip((*found.bounds, math.inf), found.counts, strict=True):
        so_far += n
        yield f"{name}_bucket{_labels([*pairs, ('le', _number(bound))])} {so_far}"
    yield f"{name}_sum{_labels(pairs)} {_number(found.total)}"
    yield f"{name}_count{_labels(pairs)} {so_far}"


def _labels(pairs: list[tuple[str, str]]) -> str:
    return (
        "{" + ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in pairs) + "}"
        if pairs
        else ""
    )


def _escaped(text: str, *, quotes: bool) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return (
        str(int(value))
        if value == int(value) and abs(value) < 1e15 and isinstance(value, int)
        else repr(float(value))
    )


# Read from the ledger -----------------------------------------------------------------------------
KEEP_S = 1.0
KEEP_REMOTE_S = 15.0
"""How long ledger gauges are cached; longer if each query is paid for."""
STARTED_AT = time.time()

ROUTE, PLACE = ("route",), ("route", "stage")
COUNTED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("submits", "Items submitted in this process, by answer.", (*ROUTE, "answer")),
    ("claims", "Items that workers of this process claimed.", PLACE),
    (
        "attempts",
        "Handler calls that ended in this process, by item and outcome.",
        (*PLACE, "outcome"),
    ),
    (
        "outcomes",
        "Outcomes by result: written, refused because the lease was lost, or left to a newer process.",
        ("result",),
    ),
    ("leases_lost", "Expired leases that this process found.", PLACE),
    (
        "resender",
        "Items whose due time had passed, by what this process's resender did.",
        (*PLACE, "what"),
    ),
    (
        "event_deliveries",
        "Deliveries of events to subscribers by this process.",
        ("subscriber", "result"),
    ),
    ("http_requests", "Calls answered.", ("method", "path", "status")),
)
TIMED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("attempt_duration", "Duration of handler calls.", PLACE),
    (
        "stage_duration",
        "Time that items spent at a stage with a handler, from entering it until it was done.",
        PLACE,
    ),
    ("http_request_duration", "Time until the answer of a call began.", ("method", "path")),
)


class Gauges:
    """Gauges of the ledger, cached for a while; one query at a time."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._cache = TtlCache(
            keep_s=KEEP_REMOTE_S if "change counter" in ctx.ledger.missing_capabilities else KEEP_S
        )

    def read(self) -> list[Family]:
        return self._cache.once(("gauges",), lambda: ledger_families(self._ctx))


def ledger_families(ctx: Context) -> list[Family]:
    """From counters and documents only: no row is counted."""
    now = ctx.clock.now()
    items: dict[Labels, float] = {}
    oldest: dict[Labels, float] = {}
    overdue: dict[Labels, float] = {}
    seen = snapshots(ctx)
    for name, snapshot in seen.items():
        for stage in snapshot.stages:
            for status in Status:
                items[name, stage.name, status.value] = stage.counts.get(status, 0)
            oldest[name, stage.name] = (stage.oldest_ms or 0) / 1000
            if stage.overdue is not None:
                overdue[name, stage.name] = stage.overdue.most
    newest = ctx.ledger.last_seq()
    behind: dict[Labels, float] = {}
    late: dict[Labels, float] = {}
    parked: dict[Labels, float] = {}
    for name, cursor in live_cursors(ctx).items():
        lag = lag_of(ctx, cursor, newest)
        behind[name,] = lag.lines
        late[name,] = lag.age_ms(now) / 1000
        parked[name,] = 0
    for one in parked_items(ctx):
        if (one.subscriber,) in parked:
            parked[one.subscriber,] += 1
    breakers: dict[Labels, float] = {
        (one.route, one.stage, one.lane): 1.0 if one.state == BreakerState.OPEN else 0.5
        for one in breaker_views(ctx)
    }
    runs: dict[Labels, float] = {
        (role,): max(0, now - last.at) / 1000 for role, last in last_runs(ctx).items()
    }
    return [
        Family("milepost_items", "gauge", "Items by stage and status.", (*PLACE, "status"), items),
        Family(
            "milepost_stage_oldest_seconds",
            "gauge",
            "Time that the oldest unfinished item has spent at its stage.",
            PLACE,
            oldest,
        ),
        Family(
            "milepost_overdue_items",
            "gauge",
            "Items past the overdue mark of their stage; on AWS at most so many.",
            PLACE,
            overdue,
        ),
        Family(
            "milepost_lines", "counter", "History lines written by all processes.", (), {(): newest}
        ),
        Family(
            "milepost_subscriber_lag_lines",
            "gauge",
            "Lines that a subscriber has not received yet.",
            ("subscriber",),
            behind,
        ),
        Family(
            "milepost_subscriber_lag_seconds",
            "gauge",
            "Age of the first line that a subscriber has not received.",
            ("subscriber",),
            late,
        ),
        Family(
            "milepost_subscriber_parked",
            "gauge",
            "Items with an event that a subscriber refused.",
            ("subscriber",),
            parked,
        ),
        Family(
            "milepost_role_last_run_seconds",
            "gauge",
            "Time since the last successful run of each role, in any process.",
            ("role",),
            runs,
        ),
        Family(
            "milepost_breaker_open",
            "gauge",
            "1: a lane's breaker is open; 0.5: it is half-open.",
            (*PLACE, "lane"),
            breakers,
        ),
        Family(
            "milepost_processes", "gauge", "Running processes.", (), {(): len(live_processes(ctx))}
        ),
    ]


def counted_families(figures: MetricFigures) -> list[Family]:
    """Counts of this process since it started."""
    counted = [
        Family(f"milepost_{name}", "counter", text, labels, figures.counters.get(name, {}))
        for name, text, labels in COUNTED
    ]
    timed = [
        Family(
            f"milepost_{name}_seconds", "histogram", text, labels, figures.histograms.get(name, {})
        )
        for name, text, labels in TIMED
    ]
    return counted + timed


def process_families(version: str) -> list[Family]:
    """Metrics of this process, with the conventional names."""
    about: dict[Labels, float] = {(version, platform.python_version()): 1}
    families = [
        Family(
            "milepost_build_info",
            "gauge",
            "Always 1; the labels have the versions.",
            ("version", "python"),
            about,
        ),
        Family(
            "process_start_time_seconds",
            "gauge",
            "Start time of the process, in seconds since 1970.",
            (),
            {(): STARTED_AT},
        ),
        Family(
            "process_cpu_seconds", "counter", "Processor time used.", (), {(): time.process_time()}
        ),
    ]
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        files = len(os.listdir("/proc/self/fd"))
    except (OSError, ValueError, IndexError):
        return families  # there is no such thing on this system
    return [
        *families,
        Family(
            "process_resident_memory_bytes",
            "gauge",
            "Memory in use.",
            (),
            {(): pages * os.sysconf("SC_PAGE_SIZE")},
        ),
        Family("process_open_fds", "gauge", "Files and connections open.", (), {(): files}),
    ]
