"""Batching of concurrent submits: those that come at the same time share a batch, and so a commit. None waits for more than two."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from milepost.engine.intake import Receipt
from milepost.engine.share import Accepts
from milepost.ports.observer import correlation_id as current_correlation_id

MOST = 1_000

Take = Callable[[str, Sequence[Any], str, str | None, str | None, str | None], list[Receipt]]
"""Submits items of a route, for a caller, under one correlation id, not to start before a time; with a reason, also accepts failed keys
again whose rows were pruned. Returns one receipt for each."""
TakeEach = Callable[[str, Sequence[Any], Sequence[str], Sequence[str], Sequence[int | None]], list[Receipt]]
"""Submits items of a route, each with its caller, its correlation id and the time before which it does not start. Returns one receipt for
each."""


class WaitingSubmit(NamedTuple):
    """An item that waits for the next batch of its route."""

    content: Any
    by: str
    correlation_id: str
    not_before: int | None
    receipt: asyncio.Future[Receipt]


class Submitting:
    """Collects submits while a batch is being written; all of them are the next batch. Belongs to one event loop."""

    def __init__(self, take: Take, take_each: TakeEach, pool: ThreadPoolExecutor, accepts: Accepts) -> None:
        self._take, self._take_each, self._pool, self._accepts = take, take_each, pool, accepts
        self._waiting: dict[str, list[WaitingSubmit]] = {}
        self._task: asyncio.Task[None] | None = None

    async def submit(self, route: str, content: Any, by: str, not_before: int | None = None, correlation_id: str | None = None) -> Receipt:
        """Durable when this returns. The correlation id is that of the call, unless one is given; `not_before` is in milliseconds."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Receipt] = loop.create_future()
        given_id = correlation_id or current_correlation_id() or ""
        self._waiting.setdefault(route, []).append(WaitingSubmit(content, by, given_id, not_before, future))
        if self._task is None:
            self._task = loop.create_task(self._run())
        with self._accepts:
            return await future

    async def submit_many(
        self, route: str, contents: Sequence[Any], by: str, not_before: str | None = None, failed_again: str | None = None
    ) -> list[Receipt]:
        """A batch of its own; durable when this returns."""
        loop = asyncio.get_running_loop()
        with self._accepts:
            return await loop.run_in_executor(
                self._pool, self._take, route, contents, by, current_correlation_id(), not_before, failed_again
            )

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            route, waiting = next(iter(self._waiting.items()))
            batch, rest = waiting[:MOST], waiting[MOST:]
            if rest:
                self._waiting[route] = rest
            else:
                del self._waiting[route]
            try:
                contents, authors, ids, starts, _ = zip(*batch, strict=True)
                receipts = await loop.run_in_executor(self._pool, self._take_each, route, contents, authors, ids, starts)
            except BaseException as error:
                for one in batch:
                    if not one.receipt.done():
                        one.receipt.set_exception(error)
                continue
            for one, receipt in zip(batch, receipts, strict=True):
                # A caller that has disconnected gets no answer; its item is recorded all the same.
                if not one.receipt.done():
                    one.receipt.set_result(receipt)
        self._task = None
