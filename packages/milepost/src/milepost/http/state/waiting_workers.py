"""Remote workers that wait for work. A waiting worker occupies no thread: one task for each stage
claims on behalf of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from milepost.engine.context import Context
from milepost.engine.work.remote import Remote, RemoteClaim, RemoteClaimRequest, ShownLease
from milepost.http.protocol.problems import problem_error

MOST = 1_000
"""Maximum waiting workers."""
POLL_S = 0.05
QUIET_MS = 1_000
"""Time between two claims on a ledger that cannot report new writes."""

T = TypeVar("T")


@dataclass(eq=False)
class Waiter:
    """One waiting call. While a claim is running for it (`asked`), it waits for the result even if
    its time is `over`."""

    wish: RemoteClaimRequest
    future: asyncio.Future[RemoteClaim]
    asked: bool = False
    over: bool = False


class Waiting:
    """Belongs to one event loop."""

    def __init__(self, ctx: Context, remote: Remote, pool: ThreadPoolExecutor) -> None:
        self._ctx, self._remote, self._pool = ctx, remote, pool
        self._lines: dict[tuple[str, str], list[Waiter]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = False

    def end(self) -> None:
        """The server stops: answer every waiting call now. Callable from any thread."""
        self._ended = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._let_go)

    @property
    def waiting(self) -> int:
        return sum(len(line) for line in self._lines.values())

    async def claim(
        self, wish: RemoteClaimRequest, wait_s: float, gone: Callable[[], Any]
    ) -> RemoteClaim:
        """Items, as soon as there are any; none if there were none within the time. A caller that
        has disconnected (`gone`, an awaitable that ends then) gets no items."""
        self._loop = asyncio.get_running_loop()
        given = await self._run(self._remote.claim, wish)
        if given.items or wait_s <= 0 or self._ended:
            return given
        if self.waiting >= MOST:
            raise problem_error(
                "too-many",
                f"{MOST:,} workers are waiting here already",
                expected="wait: 0, or a longer pause between calls",
            )
        waiter = self._line_up(wish)
        left = asyncio.ensure_future(gone())
        try:
            await asyncio.wait(
                {waiter.future, left}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
            )
            waiter.over = True
            if waiter.asked and not left.done():
                await asyncio.wait({waiter.future, left}, return_when=asyncio.FIRST_COMPLETED)
            if not waiter.future.done():
                return given
            given = waiter.future.result()
            if left.done():
                self._start(self._return(wish, given))
            return given
        except asyncio.CancelledError:
            if waiter.future.done() and waiter.future.exception() is None:
                self._start(self._return(wish, waiter.future.result()))
            raise
        finally:
            left.cancel()
            waiter.future.cancel()

    def _let_go(self) -> None:
        for waiter in [waiter for line in self._lines.values() for waiter in line]:
            waiter.over = True
            if not waiter.asked and not waiter.future.done():
                waiter.future.set_result(RemoteClaim([]))

    def _line_up(self, wish: RemoteClaimRequest) -> Waiter:
        waiter = Waiter(wish, asyncio.get_running_loop().create_future())
        place = (wish.plan.name, wish.stage.name)
        line = self._lines.get(place)
        if line is None:
            line = self._lines[place] = []
            self._start(self._serve(place, line))
        line.append(waiter)
        return waiter

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, place: tuple[str, str], line: list[Waiter]) -> None:
        """Claim whenever that may bring items: after a write to the ledger, or when a due time has
        come."""
        ledger = self._ctx.ledger
        change_counter: int | None = None
        next_at: int | None = None
        try:
            while line:
                try:
                    felt = await self._run(ledger.change_counter)
                    now = self._ctx.clock.now()
                    if felt != change_counter or (next_at is not None and next_at <= now):
                        change_counter, next_at = felt, await self._ask(line)
                        if next_at is None and "change counter" in ledger.missing_capabilities:
                            next_at = now + QUIET_MS
                    await asyncio.sleep(POLL_S)
                except Exception as error:
                    for waiter in line:
                        if not waiter.future.done():
                            waiter.future.set_exception(error)
                line[:] = [waiter for waiter in line if not waiter.future.done()]
        finally:
            del self._lines[place]

    async def _ask(self, line: list[Waiter]) -> int | None:
        """Claim for one waiter after another, until no more items are given; returns the earliest
        time at which that may change."""
        times: list[int] = []
        for waiter in list(line):
            if waiter.over or waiter.future.done():
                continue
            waiter.asked = True
            given = await self._run(self._remote.claim, waiter.wish)
            waiter.asked = False
            if given.next_at is not None:
                times.append(given.next_at)
            if waiter.future.done():
                await self._return(waiter.wish, given)
            elif given.items or waiter.over:
                waiter.future.set_result(given)
            if not given.items and given.empty_handed:
                break
        return min(times, default=None)

    async def _return(self, wish: RemoteClaimRequest, given: RemoteClaim) -> None:
        """Give items back whose worker has disconnected."""
        shown = [ShownLease(item.key, item.row.lease or "") for item in given.items]
        if shown:
            await self._run(
                self._remote.give_back, wish.plan, wish.stage, shown, "its worker has disconnected"
            )

    async def _run(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)
