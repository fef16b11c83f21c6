"""A shortage of the process or of its ledger (locks, disk space, file descriptors) is no failure of
a handler: it counts no attempt."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

import milepost as mp
from milepost.core.errors import LedgerBusy, LedgerFull, LedgerReadOnly, TooManyOpenFiles
from milepost_testing import SeededChance, VirtualClock, drain


def raised_from_no_descriptor() -> Exception:
    error = RuntimeError("the partner cannot be reached")
    error.__cause__ = OSError(errno.ENFILE, os.strerror(errno.ENFILE))
    return error


SHORTAGES: dict[str, Callable[[], Exception]] = {
    "the ledger is busy": lambda: LedgerBusy("locked for too long"),
    "the ledger is full": lambda: LedgerFull("the disk is full"),
    "the ledger cannot be opened": lambda: TooManyOpenFiles("too many files are open"),
    "another file cannot be opened": lambda: OSError(
        errno.EMFILE, os.strerror(errno.EMFILE), "/data/form.pdf"
    ),
    "a library has wrapped it": raised_from_no_descriptor,
}
shortages = pytest.mark.parametrize("shortage", SHORTAGES.values(), ids=SHORTAGES)


def opened(route: mp.Route) -> tuple[mp.Milepost, VirtualClock]:
    clock = VirtualClock()
    return mp.open("memory:", routes=[route], clock=clock, chance=SeededChance(1)), clock


def facts(ledger: mp.Milepost, key: str) -> tuple[str, int, list[str]]:
    story = ledger.show("parcels", key)
    return story["status"], story["total_attempts"], [line["reason"] for line in story["history"]]


@shortages
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_shortage_that_a_handler_meets_counts_no_attempt(
    shortage: Callable[[], Exception], is_async: bool
) -> None:
    route = mp.Route("parcels", key="id")
    left = [shortage() for _ in range(5)]

    def call(item: mp.Item) -> mp.Outcome:
        if left:
            raise left.pop()
        return mp.Done()

    async def call_async(item: mp.Item) -> mp.Outcome:
        return call(item)

    route.stage("weigh", retry=mp.Backoff(attempts=2))(call_async if is_async else call)
    ledger, clock = opened(route)
    with ledger:
        ledger.submit("parcels", {"id": "1"})
        drain(ledger, clock)
        assert facts(ledger, "1") == ("COMPLETED", 0, ["accepted", "not-yet", "completed"])


@shortages
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_shortage_of_a_batch_is_the_outcome_of_each_item_and_the_batch_is_not_halved(
    shortage: Callable[[], Exception], is_async: bool
) -> None:
    route = mp.Route("parcels", key="id")
    left = [shortage()]
    sizes: list[int] = []

    def call(items: list[mp.Item]) -> list[mp.Outcome]:
        sizes.append(len(items))
        if left:
            raise left.pop()
        return [mp.Done() for _ in items]

    async def call_async(items: list[mp.Item]) -> list[mp.Outcome]:
        return call(items)

    route.stage("weigh", batch=4, concurrency=1, retry=mp.Backoff(attempts=1))(
        call_async if is_async else call
    )
    ledger, clock = opened(route)
    with ledger:
        ledger.submit("parcels", *[{"id": str(number)} for number in range(4)])
        drain(ledger, clock)
        assert sizes == [4, 4]
        assert {facts(ledger, str(number))[:2] for number in range(4)} == {("COMPLETED", 0)}


@shortages
def test_a_shortage_that_verify_meets_counts_no_attempt(shortage: Callable[[], Exception]) -> None:
    route = mp.Route("parcels", key="id")
    left = [shortage()]

    def verify(item: mp.Item) -> bool:
        if left:
            raise left.pop()
        return True

    @route.stage("weigh", retry=mp.Backoff(attempts=2), verify=verify)
    def weigh(item: mp.Item) -> mp.Outcome:
        return mp.Retry("no answer", unknown=True)

    ledger, clock = opened(route)
    with ledger:
        ledger.submit("parcels", {"id": "1"})
        drain(ledger, clock)
        assert facts(ledger, "1") == ("COMPLETED", 1, ["accepted", "retry", "not-yet", "completed"])


def test_a_shortage_is_logged_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    route = mp.Route("parcels", key="id")
    left = [TooManyOpenFiles("too many files are open; raise the limit")]

    @route.stage("weigh")
    def weigh(item: mp.Item) -> mp.Outcome:
        if left:
            raise left.pop()
        return mp.Done()

    ledger, clock = opened(route)
    with ledger:
        ledger.submit("parcels", {"id": "1"})
        drain(ledger, clock)
        [note] = [
            line["note"]
            for line in ledger.show("parcels", "1")["history"]
            if line["reason"] == "not-yet"
        ]
    assert (
        note == "no attempt is counted: TooManyOpenFiles: too many files are open; raise the limit"
    )
    assert f"the call is repeated in 10 s: {note}" in caplog.text


def test_another_error_of_the_ledger_counts_an_attempt() -> None:
    route = mp.Route("parcels", key="id")

    @route.stage("weigh", retry=mp.Backoff(attempts=2))
    def weigh(item: mp.Item) -> mp.Outcome:
        raise LedgerReadOnly("this user may not write the ledger")

    ledger, clock = opened(route)
    with ledger:
        ledger.submit("parcels", {"id": "1"})
        drain(ledger, clock)
        assert facts(ledger, "1")[:2] == ("MAX_RETRIES_EXCEEDED", 2)
