"""Metric families of /metrics: gauges from the ledger's counters, the counts of this process, and the process itself."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

from milepost.core.admission.breakers import BreakerState
from milepost.core.status import Status
from milepost.engine.breakers import breaker_views
from milepost.engine.context import Context
from milepost.engine.events.cursors import live_cursors
from milepost.engine.metrics.collector import Labels, MetricFigures
from milepost.engine.metrics.exposition import Family
from milepost.engine.presence import last_runs
from milepost.engine.views.caches import TtlCache
from milepost.engine.views.items import live_processes
from milepost.engine.views.snapshot import snapshots
from milepost.ports.documents import PARKED, Parked, read_all

KEEP_S = 1.0
KEEP_REMOTE_S = 15.0
"""How long ledger gauges are cached; longer if each query is paid for."""
STARTED_AT = time.time()

ROUTE, PLACE = ("route",), ("route", "stage")
COUNTED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("submits", "Items submitted in this process, by answer.", (*ROUTE, "answer")),
    ("claims", "Items that workers of this process claimed.", PLACE),
    ("attempts", "Handler calls that ended in this process, by item and outcome.", (*PLACE, "outcome")),
    ("outcomes", "Outcomes by result: written, refused because the lease was lost, or left to a newer process.", ("result",)),
    ("leases_lost", "Expired leases that this process found.", PLACE),
    ("resender", "Items whose due time had passed, by what this process's resender did.", (*PLACE, "what")),
    ("event_deliveries", "Deliveries of events to subscribers by this process.", ("subscriber", "result")),
    ("http_requests", "Calls answered.", ("method", "path", "status")),
)
TIMED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("attempt_duration", "Duration of handler calls.", PLACE),
    ("stage_duration", "Time that items spent at a stage with a handler, from entering it until it was done.", PLACE),
    ("http_request_duration", "Time until the answer of a call began.", ("method", "path")),
)


class Gauges:
    """Gauges of the ledger, cached for a while; one query at a time."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._cache = TtlCache(keep_s=KEEP_REMOTE_S if "change counter" in ctx.ledger.missing_capabilities else KEEP_S)

    def read(self) -> list[Family]:
        return self._cache.once(("gauges",), lambda: ledger_families(self._ctx))


def ledger_families(ctx: Context) -> list[Family]:
    """From counters and documents only: no row is counted."""
    now = ctx.clock.now()
    items: dict[Labels, float] = {}
    oldest: dict[Labels, float] = {}
    seen = snapshots(ctx)
    for name, snapshot in seen.items():
        for stage in snapshot.stages:
            for status in Status:
                items[name, stage.name, status.value] = stage.counts.get(status, 0)
            oldest[name, stage.name] = (stage.oldest_ms or 0) / 1000
    newest = ctx.ledger.last_seq()
    behind: dict[Labels, float] = {}
    late: dict[Labels, float] = {}
    parked: dict[Labels, float] = {}
    for name, cursor in live_cursors(ctx).items():
        behind[name,] = max(0, newest - cursor.seq)
        waiting = ctx.ledger.feed(cursor.seq, 1) if newest > cursor.seq else []
        late[name,] = max(0, now - waiting[0].line.at) / 1000 if waiting else 0.0
        parked[name,] = 0
    for one in read_all(ctx.ledger, PARKED, Parked).values():
        if (one.subscriber,) in parked:
            parked[one.subscriber,] += 1
    breakers: dict[Labels, float] = {
        (one.route, one.stage, one.lane): 1.0 if one.state == BreakerState.OPEN else 0.5 for one in breaker_views(ctx)
    }
    runs: dict[Labels, float] = {(role,): max(0, now - at) / 1000 for role, (at, _) in last_runs(ctx).items()}
    return [
        Family("milepost_items", "gauge", "Items by stage and status.", (*PLACE, "status"), items),
        Family("milepost_stage_oldest_seconds", "gauge", "Time that the oldest unfinished item has spent at its stage.", PLACE, oldest),
        Family("milepost_lines", "counter", "History lines written by all processes.", (), {(): newest}),
        Family("milepost_subscriber_lag_lines", "gauge", "Lines that a subscriber has not received yet.", ("subscriber",), behind),
        Family(
            "milepost_subscriber_lag_seconds", "gauge", "Age of the first line that a subscriber has not received.", ("subscriber",), late
        ),
        Family("milepost_subscriber_parked", "gauge", "Items with an event that a subscriber refused.", ("subscriber",), parked),
        Family(
            "milepost_role_last_run_seconds", "gauge", "Time since the last successful run of each role, in any process.", ("role",), runs
        ),
        Family("milepost_breaker_open", "gauge", "1: a lane's breaker is open; 0.5: it is half-open.", (*PLACE, "lane"), breakers),
        Family("milepost_processes", "gauge", "Running processes.", (), {(): len(live_processes(ctx))}),
    ]


def counted_families(figures: MetricFigures) -> list[Family]:
    """Counts of this process since it started."""
    counted = [Family(f"milepost_{name}", "counter", text, labels, figures.counters.get(name, {})) for name, text, labels in COUNTED]
    timed = [
        Family(f"milepost_{name}_seconds", "histogram", text, labels, figures.histograms.get(name, {})) for name, text, labels in TIMED
    ]
    return counted + timed


def process_families(version: str) -> list[Family]:
    """Metrics of this process, with the conventional names."""
    about: dict[Labels, float] = {(version, platform.python_version()): 1}
    families = [
        Family("milepost_build_info", "gauge", "Always 1; the labels have the versions.", ("version", "python"), about),
        Family("process_start_time_seconds", "gauge", "Start time of the process, in seconds since 1970.", (), {(): STARTED_AT}),
        Family("process_cpu_seconds", "counter", "Processor time used.", (), {(): time.process_time()}),
    ]
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        files = len(os.listdir("/proc/self/fd"))
    except (OSError, ValueError, IndexError):
        return families  # there is no such thing on this system
    return [
        *families,
        Family("process_resident_memory_bytes", "gauge", "Memory in use.", (), {(): pages * os.sysconf("SC_PAGE_SIZE")}),
        Family("process_open_fds", "gauge", "Files and connections open.", (), {(): files}),
    ]
