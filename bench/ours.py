"""Milepost itself, as a user would run it: the list is submitted, the station runs."""

from __future__ import annotations

import time

from bench.measure import Span, ledger_bytes, tell
from bench.route import NAME, make_route
from milepost.core.status import Status
from milepost.engine.context import Context
from milepost.engine.lists import submit_list
from milepost.runners.process import settle_in
from milepost.wiring import Station, open_context

TICK_S = 0.005
PATIENCE_S = 1800


def intake(ledger: str, path: str, n: int, expect: str) -> None:
    """Submit the list. `expect` is the category in which every line must come out: new, in_progress or finished."""
    ctx = open_context(f"sqlite:///{ledger}", [make_route()])
    with Span() as span:
        report = submit_list(ctx, NAME, path)
    ctx.ledger.close()
    if report.counts[expect] != n:
        raise SystemExit(f"expected {n} {expect}, got {report.counts}")
    tell(span, n)


def process(ledger: str, n: int, handlers: str) -> None:
    """See n items through. Timed from the start of the station until the last settle is on disk, not until it is idle."""
    ctx = open_context(f"sqlite:///{ledger}", [make_route(handlers)])
    before = completed(ctx)
    with Span() as span:
        run_station(ctx, n, span)
    done = completed(ctx) - before
    ctx.ledger.close()
    if done != n:
        raise SystemExit(f"expected {n} items COMPLETED, got {done}")
    tell(span, n, bytes_each=ledger_bytes(ledger) / n)


def run_station(ctx: Context, n: int, span: Span) -> None:
    settle_in()  # as `milepost work` does
    station = Station(ctx)
    worker = station.worker
    assert worker is not None
    settles = n * len(ctx.plan(NAME).stages)
    deadline = time.monotonic() + PATIENCE_S

    def look() -> None:
        if worker.finished >= settles:
            span.stop()
            station.stop()
        elif time.monotonic() > deadline:
            raise TimeoutError(f"{worker.finished} of {settles} settles within {PATIENCE_S} s")

    station.run(on_tick=look, tick_s=TICK_S)


def completed(ctx: Context) -> int:
    return sum(count.n for count in ctx.ledger.counts(NAME) if count.status is Status.COMPLETED)
