"""Runner without threads and without real time: seeded randomness decides the order of turns and
handler calls.

The same seed gives the same order of turns, the same durations of calls and so the same run. The
clock is the test's own (`VirtualClock`): it moves only from one event to the next.
"""

from __future__ import annotations

import asyncio
import math
import random
import selectors
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from milepost.core.item import Item
from milepost.core.routes.route import Stage
from milepost.ports.runner import Execute, ExecuteAsync, HandlerPool, Job, JobResult
from milepost.ports.service import Service
from milepost.runners.jobs import NO_CAPS, Jobs, Portion
from milepost_testing.clock import VirtualClock

Duration = Callable[[random.Random, Stage], int]
"""Duration of a call in milliseconds."""


def brisk(dice: random.Random, stage: Stage) -> int:
    """Calls of 0 to 20 ms."""
    return dice.randrange(21)


class SimRunner:
    """The runner of one process. `run` is for a Station; `next_at` and `step` let a test interleave
    several processes.

    `meddle` may replace a stage's handler; `duration` returns how long calls take (the waits of an
    async handler are added, and cost no real time).
    """

    def __init__(
        self,
        clock: VirtualClock,
        seed: int = 0,
        *,
        duration: Duration = brisk,
        meddle: Callable[[Stage], Stage] | None = None,
    ) -> None:
        self.clock = clock
        self.dice = random.Random(seed)
        self.duration = duration
        self._loop: VirtualLoop | None = None
        self._meddle = meddle
        self._crews: list[SimCrew] = []
        self._services: dict[str, Service] = {}
        self._wanted: dict[str, int] = {}

    # What a Station asks for ----------------------------------------------------------------------
    def pool(
        self,
        stage: Stage,
        width: int,
        execute: Execute,
        execute_async: ExecuteAsync,
        wake: Callable[[], None],
    ) -> HandlerPool:
        pool = SimCrew(
            self,
            stage if self._meddle is None else self._meddle(stage),
            width,
            execute,
            execute_async,
            wake,
        )
        self._crews.append(pool)
        return pool

    def wake(self, name: str) -> None:
        if name in self._wanted:
            self._wanted[name] = self.clock.now()

    def run(self, services: Sequence[Service], stopped: Callable[[], bool]) -> None:
        self.enlist(services)
        try:
            while not stopped():
                self.clock.advance_to(self.next_at())
                self.step()
        finally:
            self.close()

    # What a test asks for -------------------------------------------------------------------------
    def enlist(self, services: Sequence[Service]) -> None:
        """Register these services: they get a turn now, and from then on when they ask for one."""
        self._services = {service.name: service for service in services}
        self._wanted = dict.fromkeys(self._services, self.clock.now())

    def next_at(self) -> int:
        """The time of the next event here; it may be in the past."""
        ends = [end for end in (pool.next_end() for pool in self._crews) if end is not None]
        return min([*self._wanted.values(), *ends], default=self.clock.now())

    def set_back(self, ms: int) -> None:
        """The clock was set back: turns and calls last as long as before, because a machine
        measures them by its monotonic clock."""
        self._wanted = {name: at - ms for name, at in self._wanted.items()}
        for pool in self._crews:
            pool.set_back(ms)

    @property
    def busy(self) -> bool:
        """Whether a call is running or waiting."""
        return any(pool.busy for pool in self._crews)

    def next_end(self) -> int | None:
        """When the next call ends."""
        return min(
            (end for end in (pool.next_end() for pool in self._crews) if end is not None),
            default=None,
        )

    def next_turn(self, name: str) -> int | None:
        """When the first of the services with this name prefix wants its turn."""
        return min(
            (at for service, at in self._wanted.items() if service.startswith(name)), default=None
        )

    def step(self) -> bool:
        """One event whose time has come: a call ends, or a service has a turn. False: there is
        none."""
        now = self.clock.now()
        ready: list[SimCrew | str] = [name for name, at in self._wanted.items() if at <= now]
        ready += [
            pool for pool in self._crews if (end := pool.next_end()) is not None and end <= now
        ]
        if not ready:
            return False
        chosen = self.dice.choice(ready)
        if isinstance(chosen, SimCrew):
            chosen.end_one()
        else:
            self._turn(chosen)
        return True

    def everybody(self) -> None:
        """A turn for every service, and an end for every call that is due, in random order; the
        clock stands still."""
        for pool in self._crews:
            while (end := pool.next_end()) is not None and end <= self.clock.now():
                pool.end_one()
        names = list(self._services)
        self.dice.shuffle(names)
        for name in names:
            self._turn(name)

    def close(self) -> None:
        """Stop everything here."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    @property
    def loop(self) -> VirtualLoop:
        """The event loop of this process's async handlers."""
        if self._loop is None:
            self._loop = VirtualLoop()
        return self._loop

    def _turn(self, name: str) -> None:
        # Never at the same time again: a service that always wants more must not stop time.
        delay = max(1, math.ceil(self._services[name].turn() * 1000))
        self._wanted[name] = self.clock.now() + delay


class _Call:
    """A running call: the handler is called at its start or at its end, so that a crash in between
    covers both cases."""

    __slots__ = ("began", "end", "job", "portion", "rans")

    def __init__(
        self, job: Job, portion: Portion, began: int, end: int, rans: list[JobResult] | None
    ) -> None:
        self.job, self.portion, self.began, self.end, self.rans = job, portion, began, end, rans


class SimCrew:
    """Runs one stage's calls, at most `width` of them at a time."""

    def __init__(
        self,
        runner: SimRunner,
        stage: Stage,
        width: int,
        execute: Execute,
        execute_async: ExecuteAsync,
        wake: Callable[[], None],
    ) -> None:
        self._runner, self._stage, self._width = runner, stage, width
        self._execute, self._execute_async, self._wake = execute, execute_async, wake
        self._jobs = Jobs(lanes=stage.lane is not None)
        self._calls: list[_Call] = []
        self._done: list[JobResult] = []

    @property
    def busy(self) -> bool:
        return bool(self._jobs or self._calls or self._done)

    def put(
        self,
        jobs: Sequence[Job],
        caps: Mapping[str, int | None] = NO_CAPS,
        joint_caps: Mapping[str, int | None] = NO_CAPS,
    ) -> None:
        self._jobs.put(jobs, caps, joint_caps)
        self._begin()

    def take(self) -> list[JobResult]:
        taken, self._done = self._done, []
        return taken

    def recall(self, unwanted: Callable[[Item], bool] | None = None) -> list[Item]:
        return self._jobs.recall(unwanted)

    def oldest(self) -> Item | None:
        return self._jobs.oldest()

    def cancel(self) -> None:
        for call in self._calls:
            self._jobs.done(call.portion)
        self._calls.clear()

    def running(self) -> list[tuple[Item, int]]:
        now = self._runner.clock.now()
        return [(call.job[0], now - call.began) for call in self._calls]

    def resize(self, width: int) -> None:
        self._width = width
        self._begin()

    def next_end(self) -> int | None:
        return min((call.end for call in self._calls), default=None)

    def set_back(self, ms: int) -> None:
        for call in self._calls:
            call.began, call.end = call.began - ms, call.end - ms

    def end_one(self) -> None:
        """The call that is due first ends; its outcomes can be taken."""
        call = min(self._calls, key=lambda one: one.end)
        self._calls.remove(call)
        self._jobs.done(call.portion)
        self._done += (
            self._handle(call.job, call.end - call.began)[0] if call.rans is None else call.rans
        )
        self._begin()
        self._wake()

    def _begin(self) -> None:
        runner = self._runner
        while (
            len(self._calls) < self._width and (taken := self._jobs.take(self._width)) is not None
        ):
            job, portion = taken
            began, took = runner.clock.now(), runner.duration(runner.dice, self._stage)
            rans = None
            if runner.dice.random() < 0.5 or self._stage.is_async:
                rans, took = self._handle(job, took)
            self._calls.append(_Call(job, portion, began, began + took, rans))

    def _handle(self, job: Job, took: int) -> tuple[list[JobResult], int]:
        """Call the handler now, as a call of this duration; returns its outcomes, and the duration
        including its own waits."""
        if not self._stage.is_async:
            looks = iter((0,))
            return self._execute(self._stage, job, lambda: next(looks, took)), took
        loop, began = self._runner.loop, self._runner.loop.time()
        rans = loop.finish(
            self._execute_async(self._stage, job, lambda: round((loop.time() - began) * 1000))
        )
        return rans, took + math.ceil((loop.time() - began) * 1000)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop without real time: instead of waiting for a timer, it moves its own clock to
    it."""

    def __init__(self) -> None:
        self._passed = 0.0
        self._impatient = _Impatient(self._pass)
        super().__init__(self._impatient)
        self.set_default_executor(_Here())

    def time(self) -> float:
        return self._passed

    def _pass(self, seconds: float) -> None:
        # A little more than requested: rounding must not leave a timer just short of its time for
        # ever.
        self._passed += seconds + 1e-6

    def finish(self, work: Any) -> Any:
        """Run until this is done."""
        assert isinstance(work, Coroutine)
        return self.run_until_complete(work)


class _Impatient(selectors.DefaultSelector):
    """Never waits for time; only for external events, if nothing else is left."""

    def __init__(self, on_wait: Callable[[float], None]) -> None:
        super().__init__()
        self._on_wait = on_wait

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            return super().select(None)
        self._on_wait(timeout)
        return ready


class _Here(ThreadPoolExecutor):
    """`asyncio.to_thread` without a thread: the function is called directly."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **options))
        except BaseException as error:
            done.set_exception(error)
        return done
