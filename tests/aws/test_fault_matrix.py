"""Faults at every call that a whole life on AWS makes: one kind at every call of one operation in each run.

Where a run fails, each of its faults is tried alone, and the first that is to blame is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from fault_scene import ROUTE, Process, Scene, Turn, check_gone, check_whole, plainly, see_through, take_down
from faults import Call, Faults, kinds

from milepost.core.errors import LedgerBusy

OPERATIONS = {
    "dynamodb": (
        *("GetItem", "BatchGetItem", "Query", "Scan", "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem"),
        "DescribeTable",
    ),
    "dynamodbstreams": ("DescribeStream", "GetShardIterator", "GetRecords"),
    "sqs": (
        *("GetQueueUrl", "GetQueueAttributes", "ReceiveMessage", "SendMessageBatch", "DeleteMessageBatch"),
        "ChangeMessageVisibilityBatch",
    ),
}
"""Every call of the clean run is one of these. One that is not has no case: `test_every_call_has_its_cases` says so."""

CASES = [(service, operation, kind) for service, some in OPERATIONS.items() for operation in some for kind in kinds(service, operation)]
UNANSWERED = ("timeout_after", "twice")
"""A receive whose messages nobody gets: they are hidden from everybody. Were it so every time, nobody could ever be called."""
NOT_TRIED_AGAIN = ("twice", "dup")

STORIES = {
    "a": [
        *(("accepted", "pack", "PENDING"), ("advanced", "pack", "PENDING"), ("offered", "ship", "QUEUED")),
        ("confirmed", "ship", "COMPLETED"),
    ],
    "b": [
        *(("accepted", "pack", "PENDING"), ("retry", "pack", "RETRY_SCHEDULED"), ("not-yet", "pack", "WAITING")),
        *(("advanced", "pack", "PENDING"), ("offered", "ship", "QUEUED"), ("resent", "ship", "QUEUED")),
        ("confirmed", "ship", "COMPLETED"),
    ],
}
STORIES["c"] = STORIES["a"]


@pytest.fixture
def new_scene(endpoint: str, prefix: str) -> Iterator[Callable[[], Scene]]:
    scenes: list[Scene] = []

    def make() -> Scene:
        scenes.append(Scene(endpoint, f"{prefix}n{len(scenes)}"))
        return scenes[-1]

    yield make
    for scene in scenes:
        scene.close()


def run(scene: Scene, faults: Faults, careful: Callable[[Turn], None] = plainly, *, exact: bool = True) -> None:
    """The whole life with these faults, and everything that must be true of it, as a process that meets none sees it."""
    process, witness = Process(scene, faults.attach), Process(scene)
    try:
        see_through(scene, lambda: process, careful)
        stories = check_whole(scene, witness, exact=exact)
        take_down(scene, lambda: process, careful)
        check_gone(scene, witness, exact=exact)
    finally:
        process.close()
        witness.close()
    if exact:
        assert stories == STORIES
        assert scene.packed == {"a": 1, "b": 3, "c": 1}
        assert scene.receipts == {"a": "new", "b": "new"}


def to_blame(new_scene: Callable[[], Scene], fired: list[tuple[Call, str]], error: BaseException) -> str:
    for call, kind in dict.fromkeys(fired):
        alone = Faults()
        alone.plan((call.operation, call.nth), kind)
        try:
            run(new_scene(), alone)
        except Exception as again:
            return f"{kind} at {call.operation} number {call.nth} alone is enough: {type(again).__name__}: {again}"
    return f"only several {fired[0][1]} at {fired[0][0].operation} together do this: {type(error).__name__}: {error}"


def test_every_call_has_its_cases(new_scene: Callable[[], Scene]) -> None:
    faults = Faults()
    run(new_scene(), faults)
    made = Counter((call.service, call.operation) for call in faults.calls)
    assert made.keys() == {(service, operation) for service, some in OPERATIONS.items() for operation in some}


@pytest.mark.parametrize(("service", "operation", "kind"), CASES)
def test_a_fault_at_every_call(new_scene: Callable[[], Scene], service: str, operation: str, kind: str) -> None:
    every = 1 if kind in NOT_TRIED_AGAIN else 2
    runs = [range(1, 5000, every)]
    if operation == "ReceiveMessage" and kind in UNANSWERED:
        runs = [range(first, 5000, 4) for first in (1, 2, 3, 4)]
    for spoilt in runs:
        faults = Faults()
        for nth in spoilt:
            faults.plan((operation, nth), kind)
        try:
            run(new_scene(), faults)
        except Exception as error:
            pytest.fail(to_blame(new_scene, faults.fired, error))
        # What is tried again is a call too: every second one. So each call that the ledger wished to make has met the fault.
        made = sum(call.operation == operation for call in faults.calls)
        assert kind == "dup" or len(faults.fired) == len(range(1, made + 1)[spoilt.start - 1 :: spoilt.step]) > 0
        assert kind != "dup" or faults.fired


LASTING = ("500", "timeout_after")


@pytest.mark.parametrize("kind", LASTING)
@pytest.mark.parametrize(("service", "operation"), [(service, one) for service, some in OPERATIONS.items() for one in some])
def test_a_fault_that_lasts_now_and_then(new_scene: Callable[[], Scene], service: str, operation: str, kind: str) -> None:
    """An operation fails for longer than anybody waits, works for a while, fails again. Whoever meets it gives up for this turn with
    LedgerBusy; nothing else may be raised, and at the end nothing may be wrong."""
    faults = Faults()
    for nth in range(1, 5000):
        if nth % 40 < 15:
            faults.plan((operation, nth), kind)
    gave_up: list[LedgerBusy] = []

    def careful(turn: Turn) -> None:
        try:
            turn()
        except LedgerBusy as busy:
            gave_up.append(busy)

    run(new_scene(), faults, careful, exact=False)
    assert gave_up
