"""Time limits of async calls: each call ends at its own limit, whatever the others do."""

from __future__ import annotations

import asyncio

import pytest

from milepost.engine.work import call_limits
from milepost.engine.work.call_limits import CallLimit
from milepost_testing.seeded_runner import VirtualLoop


@pytest.fixture
def loop():
    loop = VirtualLoop()
    yield loop
    loop.close()
    assert not call_limits._running, "no limit and no loop is kept after the last call"


async def call(seconds: float, limit_ms: int, begin: float = 0.0) -> tuple[str, float]:
    """A call that takes so long: how it ended, and when."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(begin)
    try:
        with CallLimit(limit_ms):
            await asyncio.sleep(seconds)
        return "ended", round(loop.time(), 2)
    except TimeoutError:
        return "late", round(loop.time(), 2)


def test_each_call_has_its_own_limit(loop):
    async def calls() -> list[tuple[str, float]]:
        began = asyncio.get_running_loop().time()
        found = await asyncio.gather(
            call(100, 10_000),
            call(1, 10_000),
            call(100, 10_000, begin=3),
            call(9, 10_000, begin=4),
            call(100, 5_000),
            call(2, 5_000, begin=5),
        )
        return [(how, round(at - began, 2)) for how, at in found]

    found = loop.run_until_complete(calls())
    assert found == [
        ("late", 10),
        ("ended", 1),
        ("late", 13),
        ("ended", 13),
        ("late", 5),
        ("ended", 7),
    ]


def test_a_call_that_begins_after_a_late_one_has_its_whole_time(loop):
    async def calls() -> list[str]:
        return [
            (await call(100, 1_000))[0],
            (await call(0.9, 1_000))[0],
            (await call(1.1, 1_000))[0],
        ]

    assert loop.run_until_complete(calls()) == ["late", "ended", "late"]


def test_a_cancelled_task_is_no_timeout(loop):
    async def calls() -> None:
        task = asyncio.ensure_future(call(100, 10_000))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run_until_complete(calls())


def test_a_call_that_ends_in_spite_of_its_limit_keeps_its_result_and_its_task(loop):
    async def stubborn() -> tuple[str, bool, int]:
        with CallLimit(1_000) as limit:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                found = "done"
        task = asyncio.current_task()
        assert task is not None
        await asyncio.sleep(5)
        return found, limit.expired, task.cancelling()

    assert loop.run_until_complete(stubborn()) == ("done", True, 0)


def test_a_task_that_is_cancelled_and_late_stays_cancelled(loop):
    async def calls() -> bool:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(call(100, 1_000))
        loop.call_at(loop.time() + 1.0, task.cancel)
        await asyncio.wait([task])
        return task.cancelled()

    assert loop.run_until_complete(calls())
