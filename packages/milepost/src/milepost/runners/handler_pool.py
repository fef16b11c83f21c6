"""Handler pools: run one stage's handler calls, in threads for plain functions and in tasks for
async ones."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from milepost.core.item import Item
from milepost.core.outcome import Retry
from milepost.core.routes.route import Stage
from milepost.ports.handler import close_of
from milepost.ports.runner import Execute, ExecuteAsync, Job, JobResult
from milepost.runners.jobs import NO_CAPS, Jobs, Portion

SIGNAL_AFTER = 256
SIGNAL_MS = 4
STUCK_MS = 20
QUICK_MS = 0.05
"""Calls that take less than this on average are given to a thread in portions, because handing over
each one would cost more."""
PORTION = 32
IDLE_S = 10.0
"""How long a thread waits for another job before it ends."""
CLOSE_S = 5.0
"""How long a pool that ends waits for its handler's `close`."""
PORTION_MS = 5
"""A portion that takes longer is interrupted: its calls are no longer quick."""

log = logging.getLogger(__name__)


def ticks() -> int:
    return time.monotonic_ns() // 1_000_000


class Outbox:
    """Queue of results for the engine. It wakes the engine rarely: after many results, or after a
    moment."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._done: deque[JobResult] = deque()
        self._since = 0
        self._woken = False

    def put(self, rans: list[JobResult]) -> None:
        self._done.extend(rans)

    def notify(self, now: int, *, last: bool) -> None:
        """Wake the engine if it is time. Whether this was the `last` job is checked after its
        results were put: otherwise a delayed thread could leave its results unnoticed, since later
        threads have already woken the engine."""
        if self._woken:
            return
        if not self._since:
            self._since = now
        if last or len(self._done) >= SIGNAL_AFTER or now - self._since >= SIGNAL_MS:
            self._since = 0
            self._woken = True
            self._wake()

    def take(self) -> list[JobResult]:
        taken = []
        # Reset this before taking results: one that is added from now on wakes the engine again.
        self._woken = False
        done = self._done
        while done:
            taken.append(done.popleft())
        return taken


class BaseHandlerPool(ABC):
    """Common part of both kinds of pool."""

    def __init__(self, stage: Stage, width: int, wake: Callable[[], None]) -> None:
        self._stage = stage
        self._width = width
        self._jobs = Jobs(lanes=stage.lane is not None)
        self._out = Outbox(wake)
        self._running: dict[int, tuple[Item, int]] = {}
        self._mean_ms = 1.0

    def take(self) -> list[JobResult]:
        return self._out.take()

    def recall(self, unwanted: Callable[[Item], bool] | None = None) -> list[Item]:
        return self._jobs.recall(unwanted)

    def oldest(self) -> Item | None:
        return self._jobs.oldest()

    def running(self) -> list[tuple[Item, int]]:
        now = ticks()
        return [(item, now - began) for item, began in list(self._running.values())]

    def _most(self) -> int:
        """How many jobs one thread or task takes at a time. Those not started can still be recalled
        or taken by another."""
        return PORTION if self._mean_ms < QUICK_MS else 1

    def _note(self, lane: str, rans: list[JobResult]) -> None:
        """Learn from the results of a job whether its lane's partner answers."""
        outcome = rans[-1].outcome
        if self._jobs.learn(lane, sound=not (type(outcome) is Retry and outcome.breaker)):
            self._rouse()

    @abstractmethod
    def _rouse(self) -> None:
        """Start threads or tasks for the waiting jobs."""

    def _learn(self, took: int, calls: int) -> None:
        self._mean_ms += (took / calls - self._mean_ms) * 0.2

    def _handler_close(self) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """The `close` of a handler that is an object with such a method, plain or async; None: it
        has none."""
        close = close_of(self._stage.handler)
        if close is None:
            return None

        async def call() -> None:
            closing = close()
            if inspect.isawaitable(closing):
                await closing

        return call

    def _failed(
        self, job: Job, error: BaseException, began: int, *, cancelled: bool = False
    ) -> list[JobResult]:
        """Results of a job whose call was interrupted: failed attempts, because every claimed item
        must get a result."""
        outcome = Retry(
            f"the call was interrupted: {type(error).__name__}", category="EXCEPTION", unknown=True
        )
        return [JobResult(item, outcome, ticks() - began, cancelled=cancelled) for item in job]


class ThreadHandlerPool(BaseHandlerPool):
    """Threads that take jobs from one shared queue: no future per item, and a slow call delays only
    its own thread."""

    def __init__(
        self, stage: Stage, width: int, execute: Execute, wake: Callable[[], None]
    ) -> None:
        super().__init__(stage, width, wake)
        self._execute = execute
        self._more = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._closed = False

    def put(
        self,
        jobs: Sequence[Job],
        caps: Mapping[str, int | None] = NO_CAPS,
        joint_caps: Mapping[str, int | None] = NO_CAPS,
    ) -> None:
        self._jobs.put(jobs, caps, joint_caps)
        self._rouse()

    def _rouse(self) -> None:
        """Start threads for the waiting jobs: one at once, another each time the running ones are
        not enough."""
        with self._more:
            if not self._jobs:
                return
            if self._idle:
                self._more.notify(1)
            elif self._threads < self._width:
                self._threads += 1
                context = copy_context()
                threading.Thread(
                    target=context.run,
                    args=(self._work,),
                    name=f"stage-{self._stage.name}",
                    daemon=True,
                ).start()

    def _work(self) -> None:
        """The thread: it runs jobs until it has left the pool."""
        me = threading.get_ident()
        while True:
            taken = self._next_job()
            if taken is None:
                return
            self._run(*taken, me)

    def _next_job(self) -> tuple[Job, Portion] | None:
        """The next job for this thread, which waits for it; None: the thread has left the pool."""
        jobs = self._jobs
        while self._threads <= self._width or not self._left():
            taken = jobs.take(self._width, self._most())
            if taken is not None:
                return taken
            with self._more:
                # Checked again under the lock: a job added from now on finds this thread waiting.
                taken = jobs.take(self._width, self._most())
                if taken is not None:
                    return taken
                # In a closed pool, jobs that this thread may not take are left to the threads of
                # their lane.
                if not self._wait_for_more() and (self._closed or not jobs):
                    self._leave()
                    return None
        return None

    def _run(self, job: Job, portion: Portion, me: int) -> None:
        """Run a job and the rest of its portion."""
        jobs, out, running, stage, execute = (
            self._jobs,
            self._out,
            self._running,
            self._stage,
            self._execute,
        )
        first = began = ticks()
        if self._stage_is_slow() and len(running) + 1 < self._width and jobs:
            self._rouse()
        calls = 0
        while True:
            running[me] = (job[0], began)
            try:
                rans = execute(stage, job, ticks)
            except BaseException as error:
                rans = self._failed(job, error, began)
            calls += 1
            now = ticks()
            following = (
                None if now - first >= PORTION_MS or self._threads > self._width else portion.next()
            )
            if following is None:
                break
            out.put(rans)
            out.notify(now, last=False)
            job, began = following, now
        self._learn(now - first, calls)
        del running[me]
        jobs.done(portion)
        self._note(portion.lane, rans)
        out.put(rans)
        out.notify(now, last=not jobs)

    def _left(self) -> bool:
        """Whether this thread ends, because after a resize there are too many. If it was woken for
        a job, another thread is woken."""
        with self._more:
            if self._threads <= self._width:
                return False
            self._leave()
            self._rouse()
            return True

    def _leave(self) -> None:
        """Count out a thread that ends; the caller has the lock."""
        self._threads -= 1
        if self._closed:
            self._more.notify_all()

    def _stage_is_slow(self) -> bool:
        """Whether calls are slow enough for a thread each. Short calls finish sooner in one thread
        than in several that contend."""
        return self._mean_ms > 0.2

    def _wait_for_more(self) -> bool:
        if self._closed:
            return False
        self._idle += 1
        try:
            return self._more.wait(timeout=IDLE_S)
        finally:
            self._idle -= 1

    def take(self) -> list[JobResult]:
        if self._jobs:
            for _, took in self.running():
                # Calls that were quick are slow now: start another thread for each blocked one.
                if took > STUCK_MS:
                    self._rouse()
        return super().take()

    def cancel(self) -> None:
        """No-op: a plain function cannot be stopped; it ends with the process."""

    def close(self) -> None:
        """No more jobs will come: idle threads end now, the others when their handler returns. Then
        the handler is closed."""
        with self._more:
            self._closed = True
            self._more.notify_all()
        close = self._handler_close()
        if close is None:
            return
        with self._more:
            ended = self._more.wait_for(lambda: self._threads == 0, CLOSE_S)
        if ended:
            asyncio.run(close())
        else:
            log.warning(
                "the handler of stage %r is not closed: a call of it does not end", self._stage.name
            )

    def resize(self, width: int) -> None:
        self._width = width
        self._rouse()


class AsyncHandlerPool(BaseHandlerPool):
    """A few long-lived tasks on one event loop take jobs from a shared queue: no task per item."""

    def __init__(
        self,
        stage: Stage,
        width: int,
        execute: ExecuteAsync,
        wake: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(stage, width, wake)
        self._execute = execute
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        self._latest: asyncio.Task[None] | None = None
        """The task that began a job last."""
        self._called_off = False

    def put(
        self,
        jobs: Sequence[Job],
        caps: Mapping[str, int | None] = NO_CAPS,
        joint_caps: Mapping[str, int | None] = NO_CAPS,
    ) -> None:
        self._jobs.put(jobs, caps, joint_caps)
        self._loop.call_soon_threadsafe(self._rouse)

    def _rouse(self) -> None:
        for _ in range(min(self._width - len(self._tasks), len(self._jobs))):
            task = self._loop.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        """The task: it runs jobs until there are none, or too many tasks."""
        task = asyncio.current_task()
        assert task is not None
        paused = ticks()
        try:
            while (taken := self._next_job()) is not None:
                self._latest = task
                ended = await self._run(*taken, task)
                if self._latest is not task:
                    # The handler has awaited something, and others have had their turns.
                    paused = ended
                elif ended - paused > PORTION_MS:
                    # Handlers that never await must not block the loop for the others.
                    await asyncio.sleep(0)
                    paused = ticks()
        finally:
            # Removed in the same step in which it saw no more jobs, so that the next job does not
            # rely on this task.
            self._tasks.discard(task)

    def _next_job(self) -> tuple[Job, Portion] | None:
        """The next job for a task; None: it ends."""
        if len(self._tasks) > self._width:
            return None
        return self._jobs.take(self._width, self._most())

    async def _run(self, job: Job, portion: Portion, task: asyncio.Task[None]) -> int:
        """Run a job and the rest of its portion; returns when the last call ended."""
        me = id(task)
        first = began = ticks()
        calls = 0
        following: Job | None = job
        try:
            while following is not None:
                if calls:
                    self._out.notify(began, last=False)
                self._running[me] = (following[0], began)
                results = await self._call(following, began, task)
                calls += 1
                began = ticks()
                self._note(portion.lane, results)
                self._out.put(results)
                following = self._following(portion, began - first)
        finally:
            del self._running[me]
            self._jobs.done(portion)
        self._learn(began - first, calls)
        self._out.notify(began, last=not self._jobs)
        return began

    async def _call(self, job: Job, began: int, task: asyncio.Task[None]) -> list[JobResult]:
        """The results of one call, which its handler or its program may break off."""
        try:
            return await self._execute(self._stage, job, ticks)
        except BaseException as error:
            if self._called_off:
                raise
            return await self._broken_off(job, error, began, task)

    def _following(self, portion: Portion, took: int) -> Job | None:
        """The next job of the portion, while its calls are quick and the tasks not too many."""
        if not portion or took >= PORTION_MS or len(self._tasks) > self._width:
            return None
        return portion.next()

    async def _broken_off(
        self, job: Job, error: BaseException, began: int, task: asyncio.Task[None]
    ) -> list[JobResult]:
        """Results of a job whose handler cancelled its own task, or whose program cancels every
        task of the loop. The task itself continues."""
        while task.cancelling():
            task.uncancel()
        # A program that ends cancels all tasks of its loop in one step: wait a step, so that it has
        # stopped the station before the worker reads this.
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        return self._failed(job, error, began, cancelled=isinstance(error, asyncio.CancelledError))

    def cancel(self) -> None:
        def stop() -> None:
            self._called_off = True
            for task in list(self._tasks):
                task.cancel()

        self._loop.call_soon_threadsafe(stop)

    def close(self) -> None:
        """Close the handler on its event loop. Tasks end by themselves when there is no job."""
        close = self._handler_close()
        if close is not None and self._loop.is_running():
            with suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(close(), self._loop).result(CLOSE_S)

    def resize(self, width: int) -> None:
        self._width = width
        self._loop.call_soon_threadsafe(self._rouse)
