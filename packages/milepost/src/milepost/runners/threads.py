"""Runner of a process: a thread per service, threads for plain handlers, and one event loop for
async handlers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from contextvars import ContextVar, copy_context
from weakref import WeakSet

from milepost.core.routes.route import Stage
from milepost.ports.runner import Execute, ExecuteAsync, HandlerPool
from milepost.ports.service import Service
from milepost.runners.handler_pool import AsyncHandlerPool, ThreadHandlerPool

STOP_SEEN_S = 0.1
CUT_OFF_S = 1.0
LEAVE_S = 10.0


_RUNNER: ContextVar[ThreadRunner | None] = ContextVar("runner", default=None)
"""The runner whose service or handler runs here; threads and tasks started by a handler inherit
it."""


class ThreadRunner:
    """Runs services and handler pools until stopped. Async handlers run on `loop`, an event loop of
    the caller that runs in another thread; without it, on a loop and a thread of the runner's
    own."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._wakers: dict[str, threading.Event] = {}
        self._borrowed = loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: threading.Thread | None = None
        self._pools: WeakSet[AsyncHandlerPool | ThreadHandlerPool] = WeakSet()
        self._error: BaseException | None = None

    def needs_this_thread(self) -> bool:
        """Whether the caller is a service or handler of this runner, or on the event loop of its
        handlers: then waiting here for the runner to end would block for ever."""
        if _RUNNER.get() is self:
            return True
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return False
        return running is (self._borrowed or self._loop)

    def pool(
        self,
        stage: Stage,
        width: int,
        execute: Execute,
        execute_async: ExecuteAsync,
        wake: Callable[[], None],
    ) -> HandlerPool:
        pool: AsyncHandlerPool | ThreadHandlerPool
        if stage.is_async:
            pool = AsyncHandlerPool(stage, width, execute_async, wake, self._event_loop())
        else:
            pool = ThreadHandlerPool(stage, width, execute, wake)
        self._pools.add(pool)
        return pool

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        if self._borrowed is not None:
            return self._borrowed
        if self._loop is None:
            from milepost_net.background import (
                new_event_loop,
            )  # not for programs that run no async handler

            self._loop = new_event_loop()
            self._loop_thread = threading.Thread(
                target=_serve_loop, args=(self._loop,), name="handlers", daemon=True
            )
            self._loop_thread.start()
        return self._loop

    def wake(self, name: str) -> None:
        waker = self._wakers.get(name)
        if waker is not None:
            waker.set()

    def run(self, services: Sequence[Service], stopped: Callable[[], bool]) -> None:
        for service in services:
            self._wakers[service.name] = threading.Event()
        threads = [
            # Each in its own context, which names this runner; handlers' threads and tasks inherit
            # it.
            threading.Thread(
                target=copy_context().run,
                args=(self._serve, service, stopped),
                name=service.name,
                daemon=True,
            )
            for service in services
        ]
        for thread in threads:
            thread.start()
        try:
            self._wait_for(threads, stopped)
        finally:
            self.close()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the pools' threads and the event loop of the runner's own. `run` does so at its end;
        a caller that only uses pools must."""
        with ExitStack() as closing:
            # Each of them, although a handler's `close` may raise.
            closing.callback(self._stop_loop)
            for pool in list(self._pools):
                closing.callback(pool.close)

    def _wait_for(self, threads: Sequence[threading.Thread], stopped: Callable[[], bool]) -> None:
        """Wait until all have ended. After a stop, a service that hangs (a subscriber that does not
        return, for example) is abandoned after a while: its leases expire."""
        leave_at: float | None = None
        while any(thread.is_alive() for thread in threads) and (
            leave_at is None or time.monotonic() < leave_at
        ):
            for thread in threads:
                # A join without a timeout would block signals.
                thread.join(timeout=0.05)
            if leave_at is None and (self._error is not None or stopped()):
                leave_at = time.monotonic() + LEAVE_S

    def _serve(self, service: Service, stopped: Callable[[], bool]) -> None:
        waker = self._wakers[service.name]
        _RUNNER.set(self)
        try:
            while not stopped() and self._error is None:
                until = time.monotonic() + service.turn()
                # In short waits, so that a stop is noticed; the next turn comes at its time or at a
                # wake-up.
                while (left := until - time.monotonic()) > 0 and not waker.wait(
                    min(left, STOP_SEEN_S)
                ):
                    if stopped() or self._error is not None:
                        break
                waker.clear()
        except BaseException as error:
            self._error = self._error or error

    def _stop_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and self._loop_thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._loop_thread.join(timeout=2 * CUT_OFF_S)


def _serve_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is stopped; remaining tasks have a moment to handle their
    cancellation."""
    loop.run_forever()
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=CUT_OFF_S))
    loop.close()
