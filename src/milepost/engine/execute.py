"""Execute: call a stage's handler for a job and turn whatever happens into outcomes. Nothing a handler does gets past here."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from milepost.core.item import Item
from milepost.core.outcome import OUTCOMES, Done, Outcome, Retry, as_outcome, outcome_of_exception
from milepost.core.route import Stage
from milepost.engine.halving import halving
from milepost.ports.runner import Job, Ran

Ticks = Callable[[], int]
"""Milliseconds that only ever rise, for response times."""


def run_plain(stage: Stage, job: Job, ticks: Ticks) -> list[Ran]:
    """Run a plain handler in the calling thread."""
    assert stage.handler is not None
    began = ticks()
    rans: list[Ran] = []
    todo = job
    if stage.verify is not None:
        rans, todo = _verified(job, [_probe_plain(stage, item) if item.row.unknown else None for item in job], began, ticks)
    if not todo:
        return rans
    if stage.batch == 1:
        try:
            outcome = as_outcome(stage.handler(todo[0]))
        except Exception as error:
            outcome = outcome_of_exception(error)
        rans.append(Ran(todo[0], outcome, ticks() - began))
        return rans
    search = halving(todo)
    calls = 0
    group = next(search)
    while True:
        calls += 1
        try:
            answer: object = stage.handler(group)
        except Exception as error:
            answer = _as_retry(error)
        try:
            group = search.send(answer)
        except StopIteration as end:
            return rans + _settled(todo, end.value, calls, ticks() - began)


async def run_async(stage: Stage, job: Job, ticks: Ticks) -> list[Ran]:
    """Run an async handler; a call that takes longer than the stage's timeout is cut off and is a counted try."""
    assert stage.handler is not None
    began = ticks()
    rans: list[Ran] = []
    todo = job
    if stage.verify is not None:
        rans, todo = _verified(job, [await _probe_async(stage, item) if item.row.unknown else None for item in job], began, ticks)
    if not todo:
        return rans
    if stage.batch == 1:
        answer = await _call_async(stage, todo[0])
        rans.append(Ran(todo[0], as_outcome(answer), ticks() - began))
        return rans
    search = halving(todo)
    calls = 0
    group = next(search)
    while True:
        calls += 1
        try:
            group = search.send(await _call_async(stage, group))
        except StopIteration as end:
            return rans + _settled(todo, end.value, calls, ticks() - began)


async def _call_async(stage: Stage, argument: Any) -> object:
    assert stage.handler is not None
    try:
        if stage.timeout_ms is None:
            return await stage.handler(argument)
        limit = asyncio.timeout(stage.timeout_ms / 1000)
        try:
            async with limit:
                return await stage.handler(argument)
        except TimeoutError as error:
            if not limit.expired():
                return _as_retry(error) if stage.batch > 1 else outcome_of_exception(error)
            return Retry(f"no answer within {stage.timeout_ms / 1000:g} s", category="TIMEOUT", unknown=True)
    except asyncio.CancelledError:
        raise
    except Exception as error:
        return _as_retry(error) if stage.batch > 1 else outcome_of_exception(error)


def _as_retry(error: Exception) -> Retry:
    """A batch call's exception. It cannot reject: it does not say for whom it speaks."""
    outcome = outcome_of_exception(error)
    return outcome if isinstance(outcome, Retry) else Retry(outcome.error, category=outcome.category, details=outcome.details)


def _settled(items: Job, outcomes: dict[int, tuple[Outcome, bool]], calls: int, took: int) -> list[Ran]:
    rans = [Ran(items[index], outcome, took, failed_alone=alone) for index, (outcome, alone) in sorted(outcomes.items())]
    rans[0].calls = calls - 1
    return rans


def _verified(job: Job, answers: list[Outcome | None], began: int, ticks: Ticks) -> tuple[list[Ran], Job]:
    """Split a job into what the probes have settled and what still has to be done."""
    took = ticks() - began
    rans = [Ran(item, answer, took) for item, answer in zip(job, answers, strict=True) if answer is not None]
    return rans, [item for item, answer in zip(job, answers, strict=True) if answer is None]


def _probed(answer: object) -> Outcome | None:
    """What a probe said: an outcome or True settles the item, False or None means "not there: do the work"."""
    if isinstance(answer, OUTCOMES):
        return answer
    if answer is True:
        return Done()
    if answer is None or answer is False:
        return None
    return Retry(f"verify returned {type(answer).__name__}; return Done(…), True, False or None", category="WRONG_ANSWER", unknown=True)


def _probe_failed(error: Exception) -> Outcome:
    """A probe that raises is a Retry, never "not there"."""
    said = outcome_of_exception(error)
    after = said.after if isinstance(said, Retry) else None
    return Retry(f"verify failed: {said.error}", after=after, category="VERIFY_FAILED", details=said.details, unknown=True)


def _probe_plain(stage: Stage, item: Item) -> Outcome | None:
    assert stage.verify is not None
    try:
        answer = stage.verify(item)
        return _probed(asyncio.run(answer) if inspect.iscoroutine(answer) else answer)
    except Exception as error:
        return _probe_failed(error)


async def _probe_async(stage: Stage, item: Item) -> Outcome | None:
    assert stage.verify is not None
    try:
        if inspect.iscoroutinefunction(stage.verify):
            return _probed(await stage.verify(item))
        return _probed(await asyncio.to_thread(stage.verify, item))
    except Exception as error:
        return _probe_failed(error)
