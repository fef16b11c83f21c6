"""Batching of concurrent submits: those that come at the same time share a batch, and so a commit.
None waits for more than two."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from milepost.engine.context import Context
from milepost.engine.intake import Receipt, submit, take_in
from milepost.ports.observer import correlation_id as current_correlation_id

MOST = 1_000


class WaitingSubmit(NamedTuple):
    """An item that waits for the next batch of its route."""

    content: Any
    by: str
    correlation_id: str
    not_before: int | None
    receipt: asyncio.Future[Receipt]


class Submitting:
    """Collects submits while a batch is being written; all of them are the next batch. Belongs to
    one event loop."""

    def __init__(self, ctx: Context, pool: ThreadPoolExecutor) -> None:
        self._ctx, self._pool = ctx, pool
        self._waiting: dict[str, list[WaitingSubmit]] = {}
        self._task: asyncio.Task[None] | None = None

    async def submit(
        self,
        route: str,
        content: Any,
        by: str,
        not_before: int | None = None,
        correlation_id: str | None = None,
    ) -> Receipt:
        """Durable when this returns. The correlation id is that of the call, unless one is given;
        `not_before` is in milliseconds."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Receipt] = loop.create_future()
        given_id = correlation_id or current_correlation_id() or ""
        self._waiting.setdefault(route, []).append(
            WaitingSubmit(content, by, given_id, not_before, future)
        )
        if self._task is None:
            self._task = loop.create_task(self._run())
        with self._ctx.accepts:
            return await future

    async def submit_many(
        self,
        route: str,
        contents: Sequence[Any],
        by: str,
        not_before: str | None = None,
        failed_again: str | None = None,
    ) -> list[Receipt]:
        """A batch of its own; durable when this returns. With a reason for `failed_again`, failed
        keys whose rows were pruned are accepted again."""
        options: dict[str, Any] = {
            "correlation_id": current_correlation_id(),
            "not_before": not_before,
            "failed_again": failed_again,
        }
        work = partial(submit, self._ctx, route, contents, by=by, **options)
        with self._ctx.accepts:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)

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
                work = partial(
                    take_in,
                    self._ctx,
                    self._ctx.plan(route),
                    contents,
                    correlation_id=ids,
                    by=authors,
                    not_before=starts,
                )
                receipts = await loop.run_in_executor(self._pool, work)
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
