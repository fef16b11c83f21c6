"""The real Runner: a thread per service, threads for plain handlers, one event loop for async ones."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from milepost.core.item import Item
from milepost.core.route import Stage
from milepost.ports.runner import Crew, Execute, ExecuteAsync, Job, Ran, Service

SIGNAL_AFTER = 256
SIGNAL_MS = 4
STUCK_MS = 20
CUT_OFF_S = 1.0


def ticks() -> int:
    return time.monotonic_ns() // 1_000_000


class Outbox:
    """Finished work on its way back to the engine, which is woken in moderation: for a good many, or after a moment."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._done: deque[Ran] = deque()
        self._since = 0

    def add(self, rans: list[Ran], *, last: bool) -> None:
        self._done.extend(rans)
        now = ticks()
        if not self._since:
            self._since = now
        if last or len(self._done) >= SIGNAL_AFTER or now - self._since >= SIGNAL_MS:
            self._since = 0
            self._wake()

    def take(self) -> list[Ran]:
        taken = []
        done = self._done
        while done:
            taken.append(done.popleft())
        return taken


class ThreadCrew:
    """Threads that take jobs from one shared queue: no future per item, and a slow call holds up only its own thread."""

    def __init__(self, stage: Stage, width: int, execute: Execute, wake: Callable[[], None]) -> None:
        self._stage, self._width, self._execute = stage, width, execute
        self._jobs: deque[Job] = deque()
        self._out = Outbox(wake)
        self._more = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._running: dict[int, tuple[Item, int]] = {}

    def put(self, jobs: Sequence[Job]) -> None:
        self._jobs.extend(jobs)
        self._rouse()

    def _rouse(self) -> None:
        """Enough hands for what lies here: one at once, another each time those at work do not get through."""
        with self._more:
            if not self._jobs:
                return
            if self._idle:
                self._more.notify(1)
            elif self._threads < self._width:
                self._threads += 1
                threading.Thread(target=self._work, name=f"stage-{self._stage.name}", daemon=True).start()

    def _work(self) -> None:
        me = threading.get_ident()
        jobs, out, stage, execute = self._jobs, self._out, self._stage, self._execute
        while True:
            if self._threads > self._width and self._left():
                return
            try:
                job = jobs.popleft()
            except IndexError:
                with self._more:
                    # Looked at again after the wait: a job may have come just as it ended, and counted on this thread.
                    if not jobs and not self._wait_for_more() and not jobs:
                        self._threads -= 1
                        return
                continue
            self._running[me] = (job[0], ticks())
            if jobs and len(self._running) < self._width and self._stage_is_slow():
                self._rouse()
            rans = execute(stage, job, ticks)
            self._pace(rans)
            del self._running[me]
            out.add(rans, last=not jobs)

    def _left(self) -> bool:
        """Since a resize there are too many hands: one goes, and if it was called for a job another is."""
        with self._more:
            if self._threads <= self._width:
                return False
            self._threads -= 1
            self._rouse()
            return True

    _mean_ms = 1.0

    def _pace(self, rans: list[Ran]) -> None:
        if rans:
            self._mean_ms += (rans[0].response_ms - self._mean_ms) * 0.2

    def _stage_is_slow(self) -> bool:
        """Calls this long are worth a thread each; shorter ones are done sooner by one thread than by many that contend."""
        return self._mean_ms > 0.2

    def _wait_for_more(self) -> bool:
        self._idle += 1
        try:
            return self._more.wait(timeout=10)
        finally:
            self._idle -= 1

    def take(self) -> list[Ran]:
        if self._jobs:
            now = ticks()
            for _, began in list(self._running.values()):
                # Calls that were quick are slow now: another hand for each that is stuck.
                if now - began > STUCK_MS:
                    self._rouse()
        return self._out.take()

    def recall(self) -> list[Item]:
        taken: list[Item] = []
        while self._jobs:
            try:
                taken += self._jobs.popleft()
            except IndexError:
                break
        return taken

    def cancel(self) -> None:
        """A plain function cannot be stopped; it ends with the process."""

    def running(self) -> list[tuple[Item, int]]:
        now = ticks()
        return [(item, now - began) for item, began in list(self._running.values())]

    def resize(self, width: int) -> None:
        self._width = width
        self._rouse()


class AsyncCrew:
    """A few long-lived tasks on one event loop take jobs from a shared queue: no task per item."""

    def __init__(self, stage: Stage, width: int, execute: ExecuteAsync, wake: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        self._stage, self._width, self._execute, self._loop = stage, width, execute, loop
        self._jobs: deque[Job] = deque()
        self._out = Outbox(wake)
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[int, tuple[Item, int]] = {}

    def put(self, jobs: Sequence[Job]) -> None:
        self._jobs.extend(jobs)
        self._loop.call_soon_threadsafe(self._rouse)

    def _rouse(self) -> None:
        for _ in range(min(self._width - len(self._tasks), len(self._jobs))):
            task = self._loop.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        me = id(task)
        jobs = self._jobs
        paused = ticks()
        try:
            while jobs and len(self._tasks) <= self._width:
                job = jobs.popleft()
                self._running[me] = (job[0], ticks())
                try:
                    rans = await self._execute(self._stage, job, ticks)
                finally:
                    self._running.pop(me, None)
                self._out.add(rans, last=not jobs)
                if ticks() - paused > 5:
                    # Handlers that never wait must not keep the others from the loop.
                    await asyncio.sleep(0)
                    paused = ticks()
        finally:
            # Gone in the same step in which it saw no more jobs: whoever brings the next one must not count on this task.
            self._tasks.discard(task)

    def take(self) -> list[Ran]:
        return self._out.take()

    def recall(self) -> list[Item]:
        taken: list[Item] = []
        while self._jobs:
            try:
                taken += self._jobs.popleft()
            except IndexError:
                break
        return taken

    def cancel(self) -> None:
        def stop() -> None:
            for task in list(self._tasks):
                task.cancel()

        self._loop.call_soon_threadsafe(stop)

    def running(self) -> list[tuple[Item, int]]:
        now = ticks()
        return [(item, now - began) for item, began in list(self._running.values())]

    def resize(self, width: int) -> None:
        self._width = width
        self._loop.call_soon_threadsafe(self._rouse)


class ThreadRunner:
    """Runs services and crews until told to stop."""

    def __init__(self) -> None:
        self._wakers: dict[str, threading.Event] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def crew(self, stage: Stage, width: int, execute: Execute, execute_async: ExecuteAsync, wake: Callable[[], None]) -> Crew:
        if stage.is_async:
            return AsyncCrew(stage, width, execute_async, wake, self._event_loop())
        return ThreadCrew(stage, width, execute, wake)

    def _event_loop(self) -> asyncio.AbstractEventLoop:
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
        threads = [threading.Thread(target=self._serve, args=(service, stopped), name=service.name, daemon=True) for service in services]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                # A join without a limit would not let signals through.
                thread.join(timeout=0.2)
        self._stop_loop()
        if self._error is not None:
            raise self._error

    def _serve(self, service: Service, stopped: Callable[[], bool]) -> None:
        waker = self._wakers[service.name]
        try:
            while not stopped() and self._error is None:
                until = time.monotonic() + service.turn()
                # In short waits, so that a stop is seen; the next turn comes when it was wanted, or at a wake-up.
                while (left := until - time.monotonic()) > 0 and not waker.wait(min(left, 0.5)):
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
