"""The real Runner: a thread per service, threads for plain handlers, one event loop for async ones."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar, copy_context
from weakref import WeakSet

from milepost.core.routes.route import Stage
from milepost.ports.runner import Execute, ExecuteAsync, HandlerPool, Service
from milepost.runners.handler_pool import AsyncCrew, ThreadCrew

STOP_SEEN_S = 0.1
CUT_OFF_S = 1.0
LEAVE_S = 10.0


_RUNNER: ContextVar[ThreadRunner | None] = ContextVar("runner", default=None)
"""The runner whose service or handler runs here; threads and tasks that a handler starts with its context inherit it."""


class ThreadRunner:
    """Runs services and crews until told to stop. Async handlers run on `loop`, an event loop that runs in another thread and that
    the caller owns; without it, on a loop and a thread of the runner's own."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._wakers: dict[str, threading.Event] = {}
        self._borrowed = loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: threading.Thread | None = None
        self._crews: WeakSet[AsyncCrew | ThreadCrew] = WeakSet()
        self._error: BaseException | None = None

    def needs_this_thread(self) -> bool:
        """Is the caller a service or a handler of this runner, or on the event loop that runs its handlers? If so, waiting here for
        the runner to end would never end."""
        if _RUNNER.get() is self:
            return True
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return False
        return running is (self._borrowed or self._loop)

    def pool(self, stage: Stage, width: int, execute: Execute, execute_async: ExecuteAsync, wake: Callable[[], None]) -> HandlerPool:
        pool: AsyncCrew | ThreadCrew
        if stage.is_async:
            pool = AsyncCrew(stage, width, execute_async, wake, self._event_loop())
        else:
            pool = ThreadCrew(stage, width, execute, wake)
        self._crews.add(pool)
        return pool

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        if self._borrowed is not None:
            return self._borrowed
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop_thread = threading.Thread(target=_serve_loop, args=(self._loop,), name="handlers", daemon=True)
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
            # Each in a context of its own, in which this runner is named; handlers' threads and tasks inherit it.
            threading.Thread(target=copy_context().run, args=(self._serve, service, stopped), name=service.name, daemon=True)
            for service in services
        ]
        for thread in threads:
            thread.start()
        try:
            self._wait_for(threads, stopped)
        finally:
            for pool in self._crews:
                pool.close()
            self._stop_loop()
        if self._error is not None:
            raise self._error

    def _wait_for(self, threads: Sequence[threading.Thread], stopped: Callable[[], bool]) -> None:
        """Until all have ended. Once stopped, a service that hangs (a subscriber that does not return, say) is left behind
        after a while: what it held runs out by itself."""
        leave_at: float | None = None
        while any(thread.is_alive() for thread in threads) and (leave_at is None or time.monotonic() < leave_at):
            for thread in threads:
                # A join without a limit would not let signals through.
                thread.join(timeout=0.05)
            if leave_at is None and (self._error is not None or stopped()):
                leave_at = time.monotonic() + LEAVE_S

    def _serve(self, service: Service, stopped: Callable[[], bool]) -> None:
        waker = self._wakers[service.name]
        _RUNNER.set(self)
        try:
            while not stopped() and self._error is None:
                until = time.monotonic() + service.turn()
                # In short waits, so that a stop is seen; the next turn comes when it was wanted, or at a wake-up.
                while (left := until - time.monotonic()) > 0 and not waker.wait(min(left, STOP_SEEN_S)):
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
    """Run the loop until it is stopped; what is left on it has a moment to take its cancellation."""
    loop.run_forever()
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=CUT_OFF_S))
    loop.close()
