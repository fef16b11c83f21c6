"""Handler pools: quick jobs are handed over in portions, and no job waits for a blocked one of its
portion."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

import milepost as mp
from milepost.core.decide import NOTHING
from milepost.core.item import Content, Item
from milepost.core.outcome import Done, Outcome, Retry
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route, Stage
from milepost.engine.work.execute import run_async, run_plain
from milepost.ports.runner import Job, JobResult
from milepost.runners import handler_pool
from milepost.runners.handler_pool import PORTION, AsyncHandlerPool, ThreadHandlerPool
from milepost.runners.jobs import Jobs

TIMEOUT = 30
Crew = AsyncHandlerPool | ThreadHandlerPool


def jobs(*keys: str, lane: str = "") -> list[Job]:
    return [
        [Item(replace(NOTHING, route="r", stage="s", key=key, lane=lane), Content())]
        for key in keys
    ]


def stage_with(handler: Callable[..., Any]) -> Stage:
    route = Route("r")
    route.stage("s")(handler)
    return Plan(route).first


class Handler:
    """Answers at once, except for the keys that have a gate: these wait until it is opened."""

    def __init__(self, *gated: str) -> None:
        self.gates = {key: threading.Event() for key in gated}
        self.begun = {key: threading.Event() for key in gated}
        self.calls: list[str] = []

    def __call__(self, item: Item) -> Outcome:
        self.calls.append(item.key)
        if item.key in self.gates:
            self.begun[item.key].set()
            assert self.gates[item.key].wait(TIMEOUT)
        if item.key.startswith("exit"):
            raise SystemExit(1)
        return Done()

    async def coroutine(self, item: Item) -> Outcome:
        if item.key not in self.gates:
            return self(item)
        self.calls.append(item.key)
        self.begun[item.key].set()
        while not self.gates[item.key].is_set():
            await asyncio.sleep(0.001)
        return Done()

    def open(self) -> None:
        for gate in self.gates.values():
            gate.set()


@contextmanager
def crew_of(kind: str, handler: Handler, width: int = 4) -> Iterator[Crew]:
    """A crew whose calls have been quick so far."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    pool: Crew
    if kind == "threads":
        pool = ThreadHandlerPool(stage_with(handler), width, run_plain, lambda: None)
    else:

        async def call(item: Item) -> Outcome:
            return await handler.coroutine(item)

        pool = AsyncHandlerPool(stage_with(call), width, run_async, lambda: None, loop)
    pool._mean_ms = 0.0
    try:
        yield pool
    finally:
        handler.open()
        pool.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(TIMEOUT)
        loop.close()


def results(pool: Crew, count: int) -> list[JobResult]:
    """The next results, taken as a worker takes them: turn by turn."""
    taken: list[JobResult] = []
    pause = threading.Event()
    for _ in range(TIMEOUT * 1000):
        taken += pool.take()
        if len(taken) >= count:
            return taken
        pause.wait(0.001)
    raise AssertionError(f"{len(taken)} of {count} results came")


KEYS = [str(number) for number in range(PORTION)]


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_a_job_that_blocks_holds_up_no_other_one_of_its_portion(kind: str) -> None:
    handler = Handler("3")
    with crew_of(kind, handler) as pool:
        pool.put(jobs(*KEYS))
        others = results(pool, PORTION - 1)
        assert sorted(int(ran.item.key) for ran in others) == [n for n in range(PORTION) if n != 3]
        assert [item.key for item, _ in pool.running()] == ["3"]
        handler.open()
        assert [ran.item.key for ran in results(pool, 1)] == ["3"]
    assert sorted(handler.calls) == sorted(KEYS)


def test_several_jobs_of_a_portion_block_and_each_keeps_one_thread() -> None:
    handler = Handler("0", "7", "20")
    with crew_of("threads", handler) as pool:
        pool.put(jobs(*KEYS))
        assert len(results(pool, PORTION - 3)) == PORTION - 3
        assert sorted(item.key for item, _ in pool.running()) == ["0", "20", "7"]
        handler.open()
        results(pool, 3)
    assert sorted(handler.calls) == sorted(KEYS)


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_what_is_left_of_a_portion_can_be_recalled(kind: str) -> None:
    handler = Handler("3")
    with crew_of(kind, handler, width=1) as pool:
        pool.put(jobs(*KEYS))
        assert handler.begun["3"].wait(TIMEOUT)
        oldest = pool.oldest()
        assert oldest is not None
        back = pool.recall(lambda item: int(item.key) % 2 == 0)
        assert [int(item.key) for item in back] == list(range(4, PORTION, 2))
        handler.open()
        done = [int(ran.item.key) for ran in results(pool, PORTION - len(back))]
        assert done == [0, 1, 2, 3, *range(5, PORTION, 2)]
        assert pool.oldest() is None


def test_a_lane_that_blocks_in_its_portions_leaves_a_thread_to_the_others() -> None:
    slow = [f"slow-{number}" for number in range(3 * PORTION)]
    handler = Handler(*slow)
    with crew_of("threads", handler, width=3) as pool:
        pool.put(jobs(*slow, lane="slow"))
        pool.put(jobs(*KEYS, lane="quick"))
        assert sorted(int(ran.item.key) for ran in results(pool, PORTION)) == list(range(PORTION))
        for _ in range(50):
            pool.take()
        assert sum(event.is_set() for event in handler.begun.values()) <= 2
        pool.recall()


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_a_call_that_exits_is_a_failed_try_and_the_rest_of_its_portion_runs(kind: str) -> None:
    handler = Handler()
    with crew_of(kind, handler) as pool:
        pool.put(jobs("0", "exit", "1", "2"))
        outcomes = {ran.item.key: ran.outcome for ran in results(pool, 4)}
    assert isinstance(outcomes.pop("exit"), Retry)
    assert outcomes == dict.fromkeys("012", Done())


def test_a_crew_made_smaller_puts_down_the_portions_of_the_threads_that_go() -> None:
    handler = Handler("0", str(PORTION // 2))
    with crew_of("threads", handler, width=2) as pool:
        pool.put(jobs(*KEYS))
        while not all(begun.wait(0.01) for begun in handler.begun.values()):
            assert pool.take() == [], "one thread has the first half, another the second"
        pool.resize(1)
        handler.open()
        assert len(results(pool, PORTION)) == PORTION
    assert sorted(handler.calls) == sorted(KEYS)


def test_a_thread_has_put_its_results_before_it_asks_whether_they_were_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that is held up after it asked would leave its results lying: the others have woken
    the engine by then."""
    handler, lying, woken = Handler(), list[int](), threading.Event()

    class Watched(Jobs):
        def __bool__(self) -> bool:
            lying.append(len(pool._out._done))
            return super().__bool__()

    monkeypatch.setattr(
        handler_pool, "SIGNAL_MS", 1_000 * TIMEOUT
    )  # only the last result wakes the engine
    pool = ThreadHandlerPool(stage_with(handler), 1, run_plain, woken.set)
    pool._jobs = Watched()
    pool._mean_ms = 0.0
    pool.put(jobs(*KEYS))
    assert woken.wait(TIMEOUT)
    assert lying[-1] == PORTION
    pool.close()


@pytest.mark.parametrize("call_is_async", [False, True])
@pytest.mark.parametrize("close_is_async", [False, True])
def test_a_handler_object_is_closed_after_its_last_call(
    call_is_async: bool, close_is_async: bool
) -> None:
    history: list[str] = []

    class Plain:
        def __call__(self, item: Item) -> Outcome:
            history.append("called")
            return Done()

    class Async:
        async def __call__(self, item: Item) -> Outcome:
            history.append("called")
            return Done()

    def close(self: Any) -> None:
        history.append("closed")

    async def close_async(self: Any) -> None:
        history.append("closed")

    handler = type(
        "Pool",
        (Async if call_is_async else Plain,),
        {"close": close_async if close_is_async else close},
    )()
    route = mp.Route("letters", key="id")
    route.stage("send")(handler)
    with mp.open("memory:", [route]) as post:
        post.submit("letters", {"id": "L-1"}, {"id": "L-2"})
        post.run(until_idle=0)
    assert history == ["called", "called", "closed"]


def test_a_handler_whose_call_does_not_end_is_not_closed_beneath_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun, gate, closed = threading.Event(), threading.Event(), threading.Event()

    class Hangs:
        def __call__(self, item: Item) -> Outcome:
            begun.set()
            gate.wait(TIMEOUT)
            return Done()

        def close(self) -> None:
            closed.set()

    monkeypatch.setattr(handler_pool, "CLOSE_S", 0.01)
    pool = ThreadHandlerPool(stage_with(Hangs()), 1, run_plain, lambda: None)
    pool.put(jobs("A"))
    assert begun.wait(TIMEOUT)
    pool.close()
    assert not closed.is_set()
    assert "is not closed: a call of it does not end" in caplog.text
    gate.set()
