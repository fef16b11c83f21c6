"""What AWS may do by its own rules: messages twice and out of order, records again, an index that
lags, clocks that differ, a function that is called with parts of a batch. None of it may show in
the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace
from tests.aws.lambdas.event_source_mapping import StreamMapping
from tests.aws.ledger.faults.fault_runs import STORIES
from tests.aws.ledger.faults.fault_scene import (
    ROUTE,
    Process,
    Scene,
    check_gone,
    check_whole,
    see_through,
    take_down,
)

from milepost.core.errors import LedgerBusy
from milepost_aws.ledger.retention import finish
from milepost_aws.ledger.stream import HandledBatch, StreamRecord, from_event
from milepost_aws.ledger.tables.documents import Control


@pytest.fixture
def scene(endpoint: str, prefix: str) -> Iterator[Scene]:
    scene = Scene(endpoint, prefix)
    yield scene
    scene.close()


def live_and_check(
    scene: Scene, *processes: Process, exact: bool = False, evidence: bool = False
) -> None:
    """Everything is seen through by these processes, who take turns; all must be right then, and
    every parcel packed once."""
    turn = 0

    def next_one() -> Process:
        nonlocal turn
        turn += 1
        return processes[turn % len(processes)]

    witness = Process(scene)
    see_through(scene, next_one)
    assert check_whole(scene, witness, exact=exact) == STORIES
    take_down(scene, next_one)
    check_gone(scene, witness, exact=exact, evidence=evidence)
    assert scene.packed == {"a": 1, "b": 3, "c": 1}
    for process in (*processes, witness):
        process.close()


# Messages -----------------------------------------------------------------------------------------
def test_messages_come_twice_and_the_wrong_way_round(scene: Scene) -> None:
    """Every message is sent twice, and what is received is turned round."""
    process = Process(scene)
    queues = process.store.queues
    send, receive = queues.send, queues.receive

    def send_twice(outgoing: Any) -> Any:
        send([*reversed(outgoing)])
        return send(outgoing)

    queues.send = send_twice  # type: ignore[method-assign]
    queues.receive = lambda *args, **more: receive(*args, **more)[::-1]  # type: ignore[method-assign]
    live_and_check(scene, process, exact=True)


def test_old_messages_come_again_at_every_claim(scene: Scene) -> None:
    """A message that was deleted comes again, with its old receipt, whenever anybody asks."""
    process = Process(scene)
    queues, seen = process.store.queues, []
    receive = queues.receive

    def again(*args: Any, **more: Any) -> Any:
        found = receive(*args, **more)
        old = list(seen)
        seen.extend(found)
        return [*old, *found]

    queues.receive = again  # type: ignore[method-assign]
    live_and_check(scene, process, exact=True)
    assert len(seen) > 3


# Records ------------------------------------------------------------------------------------------
class Repeating(Process):
    """Handles what the stream tells it a second time, as a poller does whose word that it was done
    has been lost."""

    def __init__(self, scene: Scene, how: str) -> None:
        super().__init__(scene)
        self.how = how
        self.batches: list[list[StreamRecord]] = []

    def handle(self, records: list[StreamRecord]) -> HandledBatch:
        # What comes straight from the stream may be trusted to be new; a repeat says of itself that
        # it may be one.
        handled = super().handle(records)
        repeated = [replace(record, again=True) for record in records]
        if self.how == "at once":
            super().handle(repeated)
        elif self.batches:
            super().handle(self.batches[-1])
            super().handle([*self.batches[0], *repeated])
        self.batches.append(repeated)
        return handled


@pytest.mark.parametrize("how", ["at once", "an older batch after a newer one"])
def test_records_come_again(scene: Scene, how: str) -> None:
    # A record that comes again when its row has been pruned brings its lines back: nothing tells
    # them from new ones.
    live_and_check(scene, Repeating(scene, how), evidence=how != "at once")


def test_a_batch_whose_place_could_not_be_written_down_is_not_told_twice(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was handled, but that was not to be kept: it comes again, to the same process or to one
    that reads for long already."""
    lost: list[str] = []
    write, put_with = Control.write, Control.put_with

    def forget(kind: str, name: str, value: Any) -> None:
        if kind == "shard" and "seq" in (value or {}) and len(lost) % 3 != 2:
            lost.append(name)
            raise LedgerBusy("the place could not be written down")
        if kind == "shard":
            lost.append("")

    def forgetful(
        self: Control, kind: str, name: str, value: Any, expect: int | None = None
    ) -> bool:
        forget(kind, name, value)
        return write(self, kind, name, value, expect)

    def forgetful_with(
        self: Control, kind: str, name: str, value: Any, expect: int, others: Any
    ) -> int | None:
        forget(kind, name, value)
        return put_with(self, kind, name, value, expect, others)

    monkeypatch.setattr(Control, "write", forgetful)
    monkeypatch.setattr(Control, "put_with", forgetful_with)

    class Stubborn(Process):
        def follow(self) -> None:
            for _ in range(60):
                with suppress(LedgerBusy):
                    super().follow()
                    return

    live_and_check(scene, Stubborn(scene), exact=True)
    assert len(lost) > 10


# The index ----------------------------------------------------------------------------------------
def test_an_index_that_lags(scene: Scene) -> None:
    """Every read of the index shows what the same read showed the time before."""
    process = Process(scene)
    query, before = process.requests.query, dict[str, list[Any]]()

    def stale(table: str, start: Any = None, **params: Any) -> Iterator[Any]:
        if params.get("IndexName") != "due":
            return query(table, start, **params)
        shard = params["ExpressionAttributeValues"][":shard"]["S"]
        now = list(query(table, start, **params))
        old, before[shard] = before.get(shard, []), now
        return iter(old)

    process.requests.query = stale  # type: ignore[method-assign]
    live_and_check(scene, process, exact=True)


# Clocks -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("late_ms", [5_000, -5_000])
def test_two_machines_whose_clocks_differ(scene: Scene, late_ms: int) -> None:
    live_and_check(scene, Process(scene), Process(scene, late_ms=late_ms))


# A function ---------------------------------------------------------------------------------------
class Called(Process):
    """Follows the stream as a function does: two copies of it, over pretended shards, with batches
    that fail in part."""

    def __init__(self, scene: Scene, **options: Any) -> None:
        super().__init__(scene)
        self.others = [Process(scene), Process(scene)]
        self.calls = 0
        arn = scene.dynamodb.describe_table(TableName=f"{scene.prefix}-{ROUTE}")["Table"][
            "LatestStreamArn"
        ]
        streams = scene.session.client("dynamodbstreams", endpoint_url=scene.endpoint)
        self.mapping = StreamMapping(streams, arn, self.function, batch_size=4, shards=3, **options)

    def function(self, event: dict[str, Any], context: object) -> dict[str, Any]:
        """Fails outright at some calls after all was done, says at others that it came only half
        way."""
        self.calls += 1
        copy = self.others[self.calls % 2]
        records = from_event(event, {self.store.names.rows(ROUTE): ROUTE})
        done = records[: max(1, len(records) // 2)] if self.calls % 3 == 0 else records
        now = copy.clock.now()
        ended = copy.relay.handle(done, now)
        if ended:
            finish(copy.store, ended, now)
        if self.calls % 4 == 1:
            raise RuntimeError("it was done, but the function fell over its answer")
        left = records[len(done) :]
        return {"batchItemFailures": [{"itemIdentifier": left[0].seq}] if left else []}

    def follow(self) -> None:
        self.ledger.prepare(self.plan)
        self.mapping.drain()

    def close(self) -> None:
        for other in self.others:
            other.close()
        self.mapping.streams.close()
        super().close()


@pytest.mark.parametrize(
    "options",
    [{}, {"bisect": True}, {"twice": True}],
    ids=["as one again", "cut in two", "every batch twice"],
)
def test_a_function_that_fails_in_part(scene: Scene, options: dict[str, Any]) -> None:
    called = Called(scene, **options)
    live_and_check(scene, called)
    assert called.mapping.errors
    assert not called.mapping.failed
