"""Observability of a server: metrics of its process, snapshots of the ledger, readiness, and the event stream."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import cast

from milepost.engine.context import Context
from milepost.engine.health.readiness import Unready, unready
from milepost.engine.metrics import BothObservers, Collector, Gauges
from milepost.http.state.event_stream import Feed
from milepost.ports.observer import NO_OBSERVER, Observer

PATIENCE_S = 1.0
"""Time limit for the ledger's answer."""
KEEP_S = 1.0
"""How long a readiness result is cached."""


class Observability:
    """One for each server. From its creation on, the metrics of this process are collected."""

    def __init__(self, ctx: Context, pool: Executor) -> None:
        self._ctx, self._pool = ctx, pool
        self.collector = _collector(ctx)
        self.gauges = Gauges(ctx)
        self.feed = Feed(ctx, pool)
        self._asking: asyncio.Future[list[Unready]] | None = None
        self._asked_at = 0.0

    async def unready(self) -> list[Unready]:
        """The parts that are not ready. At most one check runs at a time, however many callers there are and however slow the ledger is."""
        loop = asyncio.get_running_loop()
        if self._asking is None or (self._asking.done() and loop.time() - self._asked_at >= KEEP_S):
            self._asked_at = loop.time()
            self._asking = loop.run_in_executor(self._pool, unready, self._ctx)
        try:
            return await asyncio.wait_for(asyncio.shield(self._asking), PATIENCE_S)
        except TimeoutError:
            return [Unready("ledger", f"it has not answered within {PATIENCE_S:g} s")]


def _collector(ctx: Context) -> Collector:
    if isinstance(ctx.observer, Collector):
        return ctx.observer
    collector = Collector({name: list(plan.by_name) for name, plan in ctx.plans.items()})
    ctx.observer = collector if ctx.observer is NO_OBSERVER else cast(Observer, BothObservers(ctx.observer, collector))
    return collector
