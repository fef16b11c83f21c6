"""An unreachable ledger: the worker keeps trying, repeats no finished work, and stops when asked
to."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import milepost as mp
from milepost import station as stations
from milepost.composition import open_context
from milepost.core.errors import LedgerBusy, LedgerFull, TooManyOpenFiles
from milepost.core.status import Status
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost.engine.work.worker import Worker
from milepost.station import Station


class Moody:
    """A ledger that fails some verbs so many times each: before they are carried out, or after,
    when only the answer is lost."""

    def __init__(
        self,
        ledger: Any,
        *,
        before: dict[str, int] | None = None,
        after: dict[str, int] | None = None,
        error: Callable[[str], Exception] = LedgerBusy,
    ) -> None:
        self._ledger, self._before, self._after, self._error = (
            ledger,
            before or {},
            after or {},
            error,
        )
        self.failed: list[str] = []

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._ledger, name)
        if name not in self._before and name not in self._after:
            return verb

        def moody(*args: Any, **options: Any) -> Any:
            self._fail(self._before, name)
            answer = verb(*args, **options)
            self._fail(self._after, name)
            return answer

        return moody

    def _fail(self, left: dict[str, int], name: str) -> None:
        if left.get(name, 0) > 0:
            left[name] -= 1
            self.failed.append(name)
            raise self._error(f"{name} could not be carried out in time")


calls: list[str] = []


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stations, "BUSY_S", 0.01)
    calls.clear()


def place(**moods: Any) -> tuple[Context, Moody]:
    route = mp.Route("parcels", key="id")

    @route.stage("weigh")
    def weigh(item: mp.Item) -> mp.Outcome:
        calls.append(item.key)
        return mp.Done({"grams": 5})

    ctx = open_context("memory:", [route])
    submit(ctx, "parcels", [{"id": f"p{number}"} for number in range(5)])
    ctx.ledger = moody = Moody(ctx.ledger, **moods)  # type: ignore[assignment]
    return ctx, moody


def reasons(ctx: Context, key: str) -> list[str]:
    return [written.line.reason.value for written in ctx.ledger.history("parcels", key)]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("verb", ["apply_and_claim", "find", "next_due"])
def test_whoever_cannot_reach_the_ledger_tries_again(
    verb: str, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    ctx, moody = place(**{when: {verb: 3}})
    Station(ctx).run(until_idle_s=0.0)
    assert moody.failed == [verb] * 3
    assert "is waiting for the ledger" in caplog.text
    assert sorted(calls) == [f"p{number}" for number in range(5)]
    for number in range(5):
        # What was written though the answer was lost is known again, and is no late outcome.
        assert reasons(ctx, f"p{number}") == ["accepted", "completed"]


@pytest.mark.parametrize(
    "error",
    [TooManyOpenFiles, LedgerFull, partial(OSError, errno.EMFILE)],
    ids=["the ledger", "the disk", "a lock file"],
)
def test_a_worker_continues_after_a_shortage(
    error: Callable[[str], Exception], caplog: pytest.LogCaptureFixture
) -> None:
    ctx, moody = place(before={"apply_and_claim": 2, "dead_workers": 2}, error=error)
    Station(ctx).run(until_idle_s=0.0)
    assert sorted(moody.failed) == ["apply_and_claim"] * 2 + ["dead_workers"] * 2
    assert "heartbeat is waiting for the ledger" in caplog.text
    assert sorted(calls) == [f"p{number}" for number in range(5)]
    assert reasons(ctx, "p0") == ["accepted", "completed"]


def test_a_claim_whose_answer_was_lost_is_a_loss() -> None:
    ctx, _ = place(after={"claim": 1})
    station = Station(ctx, roles={"worker"})
    assert isinstance(station.worker, Worker)
    station.worker.lease_ms = 50
    station.run(until_idle_s=0.1)
    items = [
        item
        for item in ctx.ledger.get([("parcels", f"p{number}") for number in range(5)])
        if item is not None
    ]
    assert {item.row.status for item in items} == {Status.COMPLETED}
    assert any("lost" in reasons(ctx, item.key) for item in items)


def test_who_is_told_to_stop_does_not_wait_for_the_ledger() -> None:
    ctx, moody = place(before={"apply": 1_000_000, "apply_and_claim": 1_000_000})
    station = Station(ctx, roles={"worker"})

    def stop_once_it_has_failed() -> None:
        while not moody.failed:
            time.sleep(0.01)
        station.stop()

    threading.Thread(target=stop_once_it_has_failed, daemon=True).start()
    with pytest.raises(LedgerBusy, match="could not be carried out in time"):
        station.run()
    assert moody.failed
