"""Execute a job: call the stage's handler and turn every result, exception or timeout into
outcomes."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from types import TracebackType

from msgspec import UNSET

from milepost.core.item import Item
from milepost.core.outcome import (
    OUTCOMES,
    Done,
    NotYet,
    Outcome,
    Reject,
    Retry,
    as_outcome,
    check_outcome,
    outcome_of_exception,
)
from milepost.core.routes.route import Stage
from milepost.engine.work.bisection import halving
from milepost.engine.work.call_limits import CallLimit
from milepost.ports.handler import ready_of
from milepost.ports.observer import ABOUT
from milepost.ports.runner import Job, JobResult

log = logging.getLogger(__name__)

Ticks = Callable[[], int]
"""Monotonic milliseconds, for response times."""


def ready(stage: Stage) -> None:
    """Call the handler's `ready` method, if it has one, before any item is claimed. It raises if
    something is missing."""
    check = ready_of(stage.handler)
    if check is not None:
        check()


def run_plain(stage: Stage, job: Job, ticks: Ticks) -> list[JobResult]:
    """Run a plain handler in the calling thread."""
    assert stage.handler is not None
    ABOUT.set(job[0] if len(job) == 1 else None)
    began = ticks()
    results: list[JobResult] = []
    todo = job
    if stage.verify is not None:
        results, todo = _verified(
            job,
            [_probe_plain(stage, item) if item.row.unknown else None for item in job],
            began,
            ticks,
        )
        if not todo:
            return results
    if stage.batch == 1:
        item = todo[0]
        try:
            outcome = as_outcome(stage.handler(item))
        except BaseException as error:
            outcome = _raised(error)
        results.append(_result(item, outcome, ticks() - began))
        return results
    search = halving(todo)
    calls = 0
    group = next(search)
    while True:
        calls += 1
        try:
            answer: object = stage.handler(group)
        except BaseException as error:
            answer = _answer_of_failed_call(_raised(error), len(group))
        try:
            group = search.send(answer)
        except StopIteration as end:
            return results + _settled(todo, end.value, calls, ticks() - began)


async def run_async(stage: Stage, job: Job, ticks: Ticks) -> list[JobResult]:
    """Run an async handler; a call that exceeds the stage's timeout is cancelled and counts as a
    failed attempt."""
    assert stage.handler is not None
    ABOUT.set(job[0] if len(job) == 1 else None)
    began = ticks()
    results: list[JobResult] = []
    todo = job
    if stage.verify is not None:
        results, todo = _verified(
            job,
            [await _probe_async(stage, item) if item.row.unknown else None for item in job],
            began,
            ticks,
        )
        if not todo:
            return results
    if stage.batch == 1:
        with HandlerCall(stage, 1) as call:
            call.answer = await stage.handler(todo[0])
        results.append(_result(todo[0], as_outcome(call.answer), ticks() - began))
        return results
    search = halving(todo)
    calls = 0
    group = next(search)
    doubtful: set[str] = set()
    found: dict[str, Outcome] = {}
    while True:
        # Items of a call that timed out may be done already: probe them before the repeat.
        for item in group if stage.verify is not None else ():
            if item.key in doubtful and (there := await _probe_async(stage, item)) is not None:
                found[item.key] = there
        left = [item for item in group if item.key not in found]
        answer: object = []
        if left:
            calls += 1
            with HandlerCall(stage, len(left)) as call:
                call.answer = await stage.handler(left)
            answer = call.answer
        if isinstance(answer, Retry) and answer.unknown:
            doubtful.update(item.key for item in left)
        elif isinstance(answer, list) and len(answer) == len(left) < len(group):
            new_answers = iter(answer)
            answer = [found[item.key] if item.key in found else next(new_answers) for item in group]
        try:
            group = search.send(answer)
        except StopIteration as end:
            return results + _settled(todo, end.value, calls, ticks() - began)


class HandlerCall(CallLimit):
    """One call of an async handler, within its stage's timeout. `answer` is the handler's, or the
    outcome of its exception or timeout."""

    __slots__ = ("_size", "_stage", "answer")

    def __init__(self, stage: Stage, size: int) -> None:
        super().__init__(stage.timeout_ms)
        self._stage = stage
        self._size = size
        self.answer: object = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        late = self.end(kind)
        if error is None:
            return False
        if late or (self.expired and isinstance(error, TimeoutError)):
            self.answer = Retry(
                f"no answer within {(self._stage.timeout_ms or 0) / 1000:g} s",
                category="TIMEOUT",
                unknown=True,
            )
        elif _called_off(error):
            return False
        else:
            outcome = _raised(error)
            self.answer = (
                _answer_of_failed_call(outcome, self._size) if self._stage.batch > 1 else outcome
            )
        return True


def _called_off(error: BaseException) -> bool:
    """Whether the worker cancelled the call. Any other CancelledError is a failure of the
    handler."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _raised(error: BaseException) -> Retry | Reject | NotYet:
    """The outcome of an exception, including `sys.exit()` and exceptions that cannot be printed: no
    handler can stop the worker."""
    kind = type(error).__name__
    try:
        outcome = outcome_of_exception(error)
        if isinstance(outcome, NotYet):
            log.warning("the call is repeated in %s s: %s", outcome.after, outcome.note)
            return outcome
        if isinstance(error, Exception):
            return outcome
        return Retry(
            f"{kind}: {error}",
            category="EXCEPTION",
            details=outcome.details,
            traceback=outcome.traceback,
        )
    except Exception:
        return Retry(f"the handler raised {kind}", category="EXCEPTION", details={"type": kind})


def _answer_of_failed_call(outcome: Retry | Reject | NotYet, size: int) -> Retry | list[NotYet]:
    """The answer of a batch call that raised. It cannot reject, because it does not say which item
    it is about. A shortage is about none of them: it is the outcome of each, and the batch is not
    halved."""
    if isinstance(outcome, NotYet):
        return [outcome] * size
    if isinstance(outcome, Retry):
        return outcome
    return Retry(
        outcome.error,
        category=outcome.category,
        details=outcome.details,
        traceback=outcome.traceback,
    )


def _result(item: Item, outcome: Outcome, took: int, *, failed_alone: bool = False) -> JobResult:
    """The result of one item. An outcome that cannot be stored as JSON becomes a Retry
    (WRONG_ANSWER), so that only its own item is affected. The handler may have done the work, so
    `verify` runs before the next attempt."""
    try:
        if type(outcome) is not Done or outcome.output is not None or outcome.payload is not UNSET:
            check_outcome(outcome)
    except Exception as error:
        kind = type(outcome).__name__
        reason = str(error).encode(errors="replace").decode()
        outcome = Retry(
            f"the handler returned a {kind} that is not JSON: {reason}",
            category="WRONG_ANSWER",
            unknown=True,
        )
    return JobResult(item, outcome, took, failed_alone=failed_alone)


def _settled(
    items: Job, outcomes: dict[int, tuple[Outcome, bool]], calls: int, took: int
) -> list[JobResult]:
    results = [
        _result(items[index], outcome, took, failed_alone=alone)
        for index, (outcome, alone) in sorted(outcomes.items())
    ]
    results[0].calls = max(0, calls - 1)
    return results


def _verified(
    job: Job, answers: list[Outcome | None], began: int, ticks: Ticks
) -> tuple[list[JobResult], Job]:
    """Split a job into results settled by probes, and items still to be worked on."""
    took = ticks() - began
    results = [
        _result(item, answer, took)
        for item, answer in zip(job, answers, strict=True)
        if answer is not None
    ]
    return results, [item for item, answer in zip(job, answers, strict=True) if answer is None]


def _probed(answer: object) -> Outcome | None:
    """The outcome that a probe found: of an outcome or True; None of False or None, which mean that
    the work must be done."""
    if isinstance(answer, OUTCOMES):
        return answer
    if answer is True:
        return Done()
    if answer is None or answer is False:
        return None
    return Retry(
        f"verify returned {type(answer).__name__}; return Done(…), True, False or None",
        category="WRONG_ANSWER",
        unknown=True,
    )


def _probe_failed(error: BaseException) -> Outcome:
    """The outcome of a probe that raised: a Retry, because it is still unknown whether the work was
    done."""
    failure = _raised(error)
    if isinstance(failure, NotYet):
        return failure
    after = failure.after if isinstance(failure, Retry) else None
    message = f"verify failed: {failure.error}"
    return Retry(
        message,
        after=after,
        category="VERIFY_FAILED",
        details=failure.details,
        unknown=True,
        traceback=failure.traceback,
    )


def _probe_plain(stage: Stage, item: Item) -> Outcome | None:
    assert stage.verify is not None
    try:
        answer = stage.verify(item)
        return _probed(asyncio.run(answer) if inspect.iscoroutine(answer) else answer)
    except BaseException as error:
        return _probe_failed(error)


async def _probe_async(stage: Stage, item: Item) -> Outcome | None:
    assert stage.verify is not None
    try:
        with CallLimit(stage.timeout_ms):
            if inspect.iscoroutinefunction(stage.verify):
                return _probed(await stage.verify(item))
            return _probed(await asyncio.to_thread(stage.verify, item))
    except BaseException as error:
        if _called_off(error):
            raise
        return _probe_failed(error)
