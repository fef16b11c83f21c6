"""Faults at every call that a whole life on AWS makes: in each run one kind, at every call of one
operation.

What a clean run calls is compared with the operations here, so a call of a new kind has no case and
fails; a new call of a known kind is spoilt with the others. Where a run fails, the faults are
halved until the one that is to blame is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from tests.aws.ledger.faults.fault_runs import MOST_CALLS, Spot, fired, planned, run, to_blame
from tests.aws.ledger.faults.fault_scene import Scene, Turn

from milepost.core.errors import LedgerBusy
from milepost_aws.aws_model import Faults, kinds

READS = {
    "dynamodb": ("GetItem", "BatchGetItem", "Query", "Scan", "DescribeTable"),
    "dynamodbstreams": ("DescribeStream", "GetShardIterator", "GetRecords"),
    "sqs": ("GetQueueUrl", "GetQueueAttributes"),
}
"""These change nothing, whatever becomes of their answer: each kind of fault meets all of them in
one run."""
WRITES = {
    "dynamodb": ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"),
    "sqs": (
        "ReceiveMessage",
        "SendMessageBatch",
        "DeleteMessageBatch",
        "ChangeMessageVisibilityBatch",
    ),
}
READ_KINDS = sorted(
    {
        kind
        for service, some in READS.items()
        for operation in some
        for kind in kinds(service, operation)
    }
)
CASES = [
    (service, operation, kind)
    for service, some in WRITES.items()
    for operation in some
    for kind in kinds(service, operation)
]
ALL = [
    (service, operation)
    for table in (READS, WRITES)
    for service, some in table.items()
    for operation in some
]
SWALLOWED = ("timeout_after", "twice")
"""A receive whose messages nobody gets: they are hidden from everybody. Were it so every time,
nobody could ever be called."""

UNTOLD = ("DeleteMessageBatch", "GetQueueAttributes")
"""Who meets a fault of these does not give up. The message of an item that is written cannot be
deleted: the row says the rest. The depth of a queue cannot be read: the resender logs that, and
compares the queues of the other stages."""


@pytest.fixture
def new_scene(endpoint: str, prefix: str) -> Iterator[Callable[[], Scene]]:
    scenes: list[Scene] = []

    def make() -> Scene:
        scenes.append(Scene(endpoint, f"{prefix}n{len(scenes)}"))
        return scenes[-1]

    yield make
    for scene in scenes:
        scene.close()


def go_through(new_scene: Callable[[], Scene], spots: list[Spot]) -> Faults:
    faults = planned(spots)
    try:
        run(new_scene(), faults)
    except Exception as error:
        pytest.fail(to_blame(new_scene, fired(faults, spots), error))
    assert faults.fired
    return faults


def test_every_call_has_its_cases(new_scene: Callable[[], Scene]) -> None:
    faults = Faults()
    run(new_scene(), faults)
    made = Counter((call.service, call.operation) for call in faults.calls)
    assert made.keys() == set(ALL)


@pytest.mark.parametrize("kind", READ_KINDS)
def test_a_fault_at_every_read(new_scene: Callable[[], Scene], kind: str) -> None:
    met = [
        operation
        for service, some in READS.items()
        for operation in some
        if kind in kinds(service, operation)
    ]
    faults = go_through(
        new_scene, [Spot(operation, nth, kind) for operation in met for nth in range(1, MOST_CALLS)]
    )
    assert {call.operation for call, _ in faults.fired} == set(met)


@pytest.mark.parametrize(("service", "operation", "kind"), CASES)
def test_a_fault_at_every_write(
    new_scene: Callable[[], Scene], service: str, operation: str, kind: str
) -> None:
    if operation == "ReceiveMessage" and kind in SWALLOWED:
        for first in (1, 2, 3):
            go_through(
                new_scene, [Spot(operation, nth, kind) for nth in range(first, MOST_CALLS, 3)]
            )
        return
    faults = go_through(new_scene, [Spot(operation, nth, kind) for nth in range(1, MOST_CALLS)])
    made = sum(call.operation == operation for call in faults.calls)
    # A message that comes twice must have come once; every other call has met its fault, once.
    assert kind == "dup" or len(faults.fired) == (made if kind == "twice" else made / 2)


@pytest.mark.parametrize(("service", "operation"), ALL)
def test_a_fault_that_lasts_now_and_then(
    new_scene: Callable[[], Scene], service: str, operation: str
) -> None:
    """An operation is carried out, but its answers are lost for longer than anybody waits; then it
    works for a while; and so on. Whoever meets it gives up for this turn with LedgerBusy. Nothing
    else may be raised, and at the end nothing may be wrong."""
    faults = Faults()
    # What one turn asks dozens of times must be left alone for longer, or that turn would never be
    # through.
    every = 101 if operation == "Query" else 37
    for nth in range(1, MOST_CALLS):
        if nth % every < 15:
            faults.plan((operation, nth), "timeout_after")
    gave_up: list[LedgerBusy] = []

    def careful(turn: Turn) -> None:
        try:
            turn()
        except LedgerBusy as busy:
            gave_up.append(busy)

    run(new_scene(), faults, careful, exact=False)
    assert faults.fired
    assert gave_up or operation in UNTOLD
