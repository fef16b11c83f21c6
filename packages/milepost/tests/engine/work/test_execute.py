"""execute: whatever a handler or probe does, each item has exactly one outcome."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from milepost.app import Milepost
from milepost.core.decide import accept
from milepost.core.item import Content, Item, digest_of
from milepost.core.outcome import Done, HandedOver, NotYet, Outcome, Reject, Retry
from milepost.core.routes.backoff import Backoff
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route, Stage
from milepost.engine.work.execute import run_async, run_plain
from milepost.ports.runner import JobResult
from milepost_testing import VirtualClock, assert_item, drain
from milepost_testing.seeded_runner import VirtualLoop


def stage_of(handler: Callable[..., Any], **options: Any) -> Stage:
    route = Route("parcels", key="id")
    route.stage("weigh", **options)(handler)
    return Plan(route).first


def items(*keys: str, unknown: bool = False) -> list[Item]:
    plan = Plan(_plain())
    made = []
    for key in keys or ("a",):
        row = accept(
            plan, key, {"id": key}, 0, correlation_id="c", digest=digest_of({"id": key})
        ).after
        made.append(Item(replace(row, unknown=unknown), Content({"id": key})))
    return made


def _plain() -> Route:
    route = Route("parcels", key="id")
    route.stage("weigh")(lambda item: Done())
    return route


def run(stage: Stage, job: list[Item]) -> list[JobResult]:
    """Run the job as the stage's own kind of handler, in virtual time."""
    if not stage.is_async:
        ticks = iter(range(0, 1000, 7))
        return run_plain(stage, job, lambda: next(ticks))
    loop = VirtualLoop()
    try:
        rans: list[JobResult] = loop.finish(
            run_async(stage, job, lambda: round(loop.time() * 1000))
        )
        return rans
    finally:
        loop.close()


def outcome(stage: Stage, *, unknown: bool = False) -> Outcome:
    [ran] = run(stage, items(unknown=unknown))
    return ran.outcome


def both(handler: Callable[[Item], Any]) -> list[Callable[..., Any]]:
    """The same handler, plain and async."""

    async def awaited(item: Item) -> Any:
        await asyncio.sleep(0)
        return handler(item)

    return [handler, awaited]


DEEP: list[Any] = reduce(lambda inner, _: [inner], range(300), [])


# Answers ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "said",
    [Done({"grams": 3}), NotYet(after=3), HandedOver(within="2d"), Retry("busy"), Reject("no")],
)
def test_an_outcome_is_passed_on_as_it_is(said: Outcome) -> None:
    for handler in both(lambda item: said):
        assert outcome(stage_of(handler)) is said


@pytest.mark.parametrize("said", [None, True, "done", {"status": "ok"}, Done])
def test_anything_else_is_a_wrong_answer_that_says_what_was_expected(said: Any) -> None:
    for handler in both(lambda item: said):
        told = outcome(stage_of(handler))
        assert isinstance(told, Retry)
        assert told.category == "WRONG_ANSWER"
        assert "return Done()" in told.error


@pytest.mark.parametrize(
    "said",
    [
        Done(object()),
        Done({"bytes": {1, 2, object()}}),
        Done(payload=object()),
        Done({"text": "\ud800"}),
        Retry("busy", details=object()),
        Retry("busy", http_status="503"),  # type: ignore[arg-type]
        Retry("busy", category=7),  # type: ignore[arg-type]
        NotYet(note=object()),  # type: ignore[arg-type]
        Done(DEEP),
        Done(payload=DEEP),
        Retry("busy", details=DEEP),
    ],
)
def test_an_outcome_that_cannot_be_written_down_is_told_here_and_not_in_the_ledger(
    said: Outcome,
) -> None:
    for handler in both(lambda item: said):
        told = outcome(stage_of(handler))
        assert isinstance(told, Retry), told
        assert told.category == "WRONG_ANSWER"
        assert type(said).__name__ in told.error


def test_in_a_batch_only_the_item_with_the_bad_answer_is_hit() -> None:
    rans = run(
        stage_of(lambda batch: [Done(), Done(object()), "what"], batch=3), items("a", "b", "c")
    )
    assert [(ran.item.key, type(ran.outcome)) for ran in rans] == [
        ("a", Done),
        ("b", Retry),
        ("c", Retry),
    ]
    assert rans[0].calls == 0


def test_the_time_a_call_took_is_measured_with_its_probe() -> None:
    assert run(stage_of(lambda item: Done()), items())[0].response_ms == 7

    async def slow(item: Item) -> Outcome:
        await asyncio.sleep(2)
        return Done()

    assert run(stage_of(slow), items())[0].response_ms == pytest.approx(2000, abs=1)


# Exceptions ---------------------------------------------------------------------------------------
class Permanent(Exception):
    permanent = True
    http_status = 404


class Busy(Exception):
    retry_after = 30
    http_status = 503


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("cannot even be printed")


def raising(error: BaseException) -> Callable[[Any], Any]:
    def handler(item: Any) -> Any:
        raise error

    return handler


def test_an_exception_is_a_retry_that_says_what_and_where() -> None:
    for handler in both(raising(KeyError("grams"))):
        told = outcome(stage_of(handler))
        assert isinstance(told, Retry)
        assert (told.category, told.error, told.unknown) == (
            "EXCEPTION",
            "KeyError: 'grams'",
            False,
        )
        assert told.details["type"] == "KeyError"
        assert told.details["where"].startswith("test_execute.py:")


def test_a_permanent_exception_rejects_and_retry_after_is_obeyed() -> None:
    for handler in both(raising(Permanent("gone"))):
        told = outcome(stage_of(handler))
        assert isinstance(told, Reject)
        assert (told.error, told.http_status) == ("Permanent: gone", 404)
    for handler in both(raising(Busy("later"))):
        told = outcome(stage_of(handler))
        assert isinstance(told, Retry)
        assert (told.after, told.http_status) == (30, 503)


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError(),
        RecursionError(),
        Unprintable(),
        BaseException("x"),
    ],
)
def test_nothing_a_handler_raises_gets_past(error: BaseException) -> None:
    for handler in both(raising(error)):
        told = outcome(stage_of(handler))
        assert isinstance(told, Retry)
        assert told.category == "EXCEPTION"
        assert told.details["type"] == type(error).__name__


def test_sys_exit_in_a_batch_and_in_a_probe_does_not_get_past_either() -> None:
    rans = run(stage_of(raising(SystemExit(1)), batch=2), items("a", "b"))
    assert [ran.outcome.category for ran in rans if isinstance(ran.outcome, Retry)] == [
        "EXCEPTION",
        "EXCEPTION",
    ]
    for handler in both(lambda item: Done()):
        told = outcome(stage_of(handler, verify=lambda item: sys.exit(1)), unknown=True)
        assert isinstance(told, Retry)
        assert (told.category, told.unknown) == ("VERIFY_FAILED", True)


def test_a_batch_call_cannot_reject_by_raising() -> None:
    rans = run(stage_of(raising(Permanent("gone")), batch=4), items("a"))
    assert isinstance(rans[0].outcome, Retry)


def test_a_call_that_we_cut_off_ourselves_has_no_outcome() -> None:
    """What the crew cancels is given back by the worker: an outcome beside that would be
    counted."""

    async def endless(item: Item) -> Outcome:
        await asyncio.Event().wait()
        raise AssertionError

    async def main() -> None:
        task = asyncio.create_task(_collected(run_async(stage_of(endless), items(), lambda: 0)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop = VirtualLoop()
    loop.finish(main())
    loop.close()


async def _collected(work: Any) -> Any:
    return await work


# Timeouts -----------------------------------------------------------------------------------------
def test_an_async_call_past_its_timeout_is_cut_off_and_its_result_unknown() -> None:
    ended = []

    async def slow(item: Item) -> Outcome:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(item.key)
        return Done()

    [ran] = run(stage_of(slow, timeout=10), items())
    assert isinstance(ran.outcome, Retry)
    assert (ran.outcome.category, ran.outcome.unknown) == ("TIMEOUT", True)
    assert "10 s" in ran.outcome.error
    assert ran.response_ms == pytest.approx(10_000, abs=2)
    assert ended == ["a"]


def test_a_handlers_own_timeout_error_is_an_exception_like_others() -> None:
    async def fails(item: Item) -> Outcome:
        raise TimeoutError("the partner's")

    told = outcome(stage_of(fails, timeout=10))
    assert isinstance(told, Retry)
    assert (told.category, told.error, told.unknown) == (
        "EXCEPTION",
        "TimeoutError: the partner's",
        False,
    )


def test_a_plain_function_that_overruns_has_its_late_answer_counted() -> None:
    stage = stage_of(lambda item: Done({"late": True}), timeout=0.001)
    ticks = iter([0, 60_000])
    [ran] = run_plain(stage, items(), lambda: next(ticks))
    assert ran.outcome == Done({"late": True})
    assert ran.response_ms == 60_000


def test_after_a_timed_out_batch_the_probe_is_asked_before_anybody_is_called_again() -> None:
    """The whole batch may have been done: only what is not there is called again."""
    there: set[str] = set()
    calls: list[list[str]] = []

    async def partner(batch: list[Item]) -> list[Outcome]:
        calls.append([item.key for item in batch])
        for item in batch:
            if item.key == "c":
                await asyncio.sleep(3600)
            there.add(item.key)
        return [Done({"by": "call"}) for _ in batch]

    def verify(item: Item) -> Outcome | None:
        return Done({"by": "probe"}) if item.key in there else None

    rans = run(stage_of(partner, batch=4, timeout=5, verify=verify), items("a", "b", "c", "d"))
    assert {ran.item.key: ran.outcome for ran in rans if ran.item.key != "c"} == {
        "a": Done({"by": "probe"}), "b": Done({"by": "probe"}), "d": Done({"by": "call"})
    }  # fmt: skip
    [culprit] = [ran for ran in rans if ran.item.key == "c"]
    assert isinstance(culprit.outcome, Retry)
    assert (culprit.outcome.category, culprit.outcome.unknown, culprit.failed_alone) == (
        "TIMEOUT",
        True,
        True,
    )
    assert sum(ran.calls for ran in rans) == len(calls) - 1
    assert [key for call in calls for key in call].count("a") == 1


# Verify -------------------------------------------------------------------------------------------
def counting_stage(
    answer: Any, *, is_async: bool, probe_async: bool = False, **options: Any
) -> tuple[Stage, list[str]]:
    seen: list[str] = []

    def plain(item: Any) -> Any:
        seen.append("handler")
        return [Done()] * len(item) if isinstance(item, list) else Done({"by": "handler"})

    def verify(item: Item) -> Any:
        seen.append("verify")
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def verify_async(item: Item) -> Any:
        return verify(item)

    handler = both(plain)[is_async]
    return stage_of(handler, verify=verify_async if probe_async else verify, **options), seen


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("probe_async", [False, True])
@pytest.mark.parametrize(
    ("answer", "then"),
    [
        (True, Done()),
        (Done({"found": 1}), Done({"found": 1})),
        (NotYet(), NotYet()),
        (False, Done({"by": "handler"})),
        (None, Done({"by": "handler"})),
    ],
)
def test_after_an_unknown_result_the_probe_decides_whether_there_is_work(
    answer: Any, then: Outcome, is_async: bool, probe_async: bool
) -> None:
    stage, seen = counting_stage(answer, is_async=is_async, probe_async=probe_async)
    assert outcome(stage, unknown=True) == then
    assert seen == (["verify", "handler"] if answer in (None, False) else ["verify"])


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("answer", [ConnectionError("down"), "maybe", 1])
def test_a_probe_that_raises_or_mumbles_is_a_retry_and_never_not_there(
    answer: Any, is_async: bool
) -> None:
    stage, seen = counting_stage(answer, is_async=is_async)
    told = outcome(stage, unknown=True)
    assert isinstance(told, Retry)
    assert told.unknown
    assert seen == ["verify"]


def test_without_doubt_the_probe_is_not_asked() -> None:
    for is_async in (False, True):
        stage, seen = counting_stage(True, is_async=is_async)
        assert outcome(stage) == Done({"by": "handler"})
        assert seen == ["handler"]


def test_a_probe_that_hangs_is_cut_off_at_the_stages_timeout() -> None:
    async def verify(item: Item) -> bool:
        await asyncio.sleep(3600)
        return False

    async def handler(item: Item) -> Outcome:
        raise AssertionError("must not be called")

    told = outcome(stage_of(handler, verify=verify, timeout=5), unknown=True)
    assert isinstance(told, Retry)
    assert (told.category, told.unknown) == ("VERIFY_FAILED", True)


def test_in_a_batch_only_what_is_not_there_is_called() -> None:
    called: list[list[str]] = []

    def handler(batch: list[Item]) -> list[Outcome]:
        called.append([item.key for item in batch])
        return [Done({"by": "handler"}) for _ in batch]

    job = items("a", "b", unknown=True) + items("c")
    rans = run(stage_of(handler, batch=3, verify=lambda item: item.key == "a"), job)
    assert called == [["b", "c"]]
    assert {ran.item.key: ran.outcome for ran in rans} == {
        "a": Done(),
        "b": Done({"by": "handler"}),
        "c": Done({"by": "handler"}),
    }


def test_plain_handlers_run_in_the_thread_that_calls() -> None:
    seen = []
    run(stage_of(lambda item: seen.append(threading.current_thread()) or Done()), items())
    assert seen == [threading.current_thread()]


def test_a_probe_that_cannot_tell_yet_is_asked_again_and_counts_no_attempt() -> None:
    """Nothing is done before the probe has said that it is not done."""
    clock = VirtualClock()
    looks: list[int] = []
    route = Route("parcels")

    def probe(item: Item) -> NotYet | None:
        looks.append(clock.now())
        return (
            NotYet(after="15m", unknown=True, note="the index is behind")
            if len(looks) < 3
            else None
        )

    @route.stage("post", verify=probe, retry=Backoff(attempts=2, base="1m", jitter=0))
    def post(item: Item) -> Outcome:
        return Retry("no answer", unknown=True) if item.attempt == 1 else Done()

    with Milepost("memory:", routes=[route], clock=clock) as system:
        system.submit("parcels", {"id": "P-1"})
        drain(system, clock)
        assert_item(system, "parcels", "P-1", status="COMPLETED")
    assert [(later - earlier) // 60_000 for earlier, later in pairwise(looks)] == [15, 15]
