"""Milepost itself, as a user would run it: the list is submitted, the station runs."""

from __future__ import annotations

import threading
import time

import msgspec

from bench.measure import Span, facts_of, ledger_bytes
from bench.route import NAME, make_route, settles
from milepost.composition import open_context
from milepost.core.status import Status
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost.engine.lists.reconcile import submit_list
from milepost.runners.process import tune_garbage_collection
from milepost.station import Station

TICK_S = 0.005
PATIENCE_S = 1800


def intake(ledger: str, path: str, n: int, handlers: str, expect: str) -> dict[str, float]:
    """Submit the list. `expect` is the category in which every line must come out: new, in_progress
    or finished."""
    tune_garbage_collection()  # as `milepost submit` does
    ctx = open_context(f"sqlite:///{ledger}", [make_route(handlers)])
    with Span() as span:
        report = submit_list(ctx, NAME, path)
    ctx.ledger.close()
    if report.counts[expect] != n:
        raise SystemExit(f"expected {n} {expect}, got {report.counts}")
    return facts_of(span, n)


def process(ledger: str, n: int, handlers: str) -> dict[str, float]:
    """See n items through. Timed from the start of the station until the last settle is on disk,
    not until it is idle."""
    ctx = open_context(f"sqlite:///{ledger}", [make_route(handlers)])
    before = completed(ctx)
    with Span() as span:
        run_station(ctx, n * settles(handlers), span)
    _expect(ctx, before + n)
    return facts_of(span, n, bytes_each=ledger_bytes(ledger) / n)


def ones(ledger: str, path: str, n: int) -> dict[str, float]:
    """Submit the items one at a time, each on disk before the next, while the station sees them
    through."""
    ctx = open_context(f"sqlite:///{ledger}", [make_route()])
    with open(path, "rb") as source:
        contents = [msgspec.json.decode(line) for line in source]

    def hand_over() -> None:
        for content in contents:
            submit(ctx, NAME, [content])

    thread = threading.Thread(target=hand_over)
    with Span() as span:
        thread.start()
        run_station(ctx, n * settles("plain"), span)
    thread.join()
    _expect(ctx, n)
    return facts_of(span, n)


def run_station(ctx: Context, expected: int, span: Span) -> None:
    """Run the station as `milepost work` does, until it has settled so many times."""
    tune_garbage_collection()
    station = Station(ctx)
    worker = station.worker
    assert worker is not None
    deadline = time.monotonic() + PATIENCE_S

    def look() -> None:
        if worker.finished >= expected:
            span.stop()
            station.stop()
        elif time.monotonic() > deadline:
            raise TimeoutError(f"{worker.finished} of {expected} settles within {PATIENCE_S} s")

    station.run(on_tick=look, tick_s=TICK_S)


def completed(ctx: Context) -> int:
    return sum(count.n for count in ctx.ledger.counts(NAME) if count.status is Status.COMPLETED)


def _expect(ctx: Context, n: int) -> None:
    there = completed(ctx)
    ctx.ledger.close()
    if there != n:
        raise SystemExit(f"expected {n} items COMPLETED, got {there}")
