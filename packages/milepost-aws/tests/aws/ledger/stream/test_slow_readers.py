"""A reader whose page takes minutes keeps its shard; of two readers of one batch only one counts
it, and subscribers get each line once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace
from tests.aws.ledger.repair.repair_scene import Scene, scene_at

from milepost.core.counters import HOUR
from milepost_aws.ledger.relay import StreamRelay
from milepost_aws.ledger.stream import LEASE_MS, HandledBatch, Stream, StreamRecord
from milepost_aws.ledger.tables.counters import MOST_CELLS, RowChange
from milepost_testing.contract.world import sample_route


@pytest.fixture
def scene(endpoint: str, prefix: str) -> Iterator[Scene]:
    with scene_at(endpoint, prefix, sample_route()) as made:
        yield made


class Reader:
    """A process that reads the stream. `before` and `after` are called at each batch, before it is
    handled and before it is counted."""

    def __init__(self, scene: Scene, name: str) -> None:
        store = scene.open(scene.process).store
        store.load_route(scene.plan)
        self._relay = StreamRelay(store, {scene.plan.name: scene.plan}, lambda: 0.0)
        self.stream = Stream(store.requests, store.control, scene.plan.name, scene.table, name)
        self._clock = scene.clock
        self.batches = 0
        self.before: Callable[[], object] = lambda: None
        self.after: Callable[[], object] = lambda: None

    def handle(self, records: list[StreamRecord]) -> HandledBatch:
        self.batches += 1
        self.before()
        batch = self._relay.carry_out(records, self._clock.now())
        self.after()
        return HandledBatch(batch.changes)

    def poll(self) -> int:
        return self.stream.poll(self.handle, self._clock)

    def read_all(self) -> None:
        while self.poll():
            pass


def add_many(scene: Scene, n: int) -> None:
    for start in range(0, n, 500):
        scene.add(*(f"p{number:05}" for number in range(start, min(n, start + 500))))


def delivered(scene: Scene) -> Counter[tuple[str, int]]:
    """How often a new subscriber gets each line."""
    return Counter((written.key, written.line.version) for written in scene.aws.feed(0, 100_000))


def test_a_reader_that_takes_minutes_for_a_page_keeps_its_shard(scene: Scene) -> None:
    slow, other = Reader(scene, "slow"), Reader(scene, "other")
    slow.poll()
    add_many(scene, 1000)
    left: list[int] = []

    def advance() -> None:
        scene.clock.advance("7s")
        left.append(min(held.place.until for held in slow.stream.shards.held.values()) - scene.now)
        other.poll()

    slow.before = advance
    assert slow.poll() == 1000
    assert min(left) > LEASE_MS // 2 - 7_000, "the lease is renewed with the present time"
    assert other.batches == 0
    other.read_all()
    slow.read_all()
    assert set(delivered(scene).values()) == {1}
    assert scene.count() == {"QUEUED": 1000}


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_batch_that_two_readers_have_handled_is_counted_once(scene: Scene, moment: str) -> None:
    stopped, other = Reader(scene, "stopped"), Reader(scene, "other")
    stopped.poll()
    add_many(scene, 300)

    def overtaken() -> None:
        if stopped.batches == 2:
            scene.clock.advance("3m")
            other.read_all()
            scene.clock.advance("10s")
            other.read_all()

    setattr(stopped, moment, overtaken)
    stopped.poll()
    assert other.batches
    scene.clock.advance("10s")
    stopped.read_all()
    other.read_all()
    assert scene.count() == {"QUEUED": 300}


def test_a_line_that_two_readers_have_placed_is_delivered_once(scene: Scene) -> None:
    stopped, other = Reader(scene, "stopped"), Reader(scene, "other")
    stopped.poll()
    add_many(scene, 150)
    append = stopped._relay._store.journal.append

    def overtaken(entries: list[object], *, again: bool = False) -> list[int]:
        if not other.batches:
            scene.clock.advance("3m")
            other.read_all()
            scene.clock.advance("10s")
            other.read_all()
        return append(entries)  # type: ignore[arg-type]

    stopped._relay._store.journal.append = overtaken  # type: ignore[method-assign, assignment]
    stopped.poll()
    other.read_all()
    assert scene.aws.last_seq() == 250, "some lines have two places"
    found = delivered(scene)
    assert len(found) == 150
    assert sum(found.values()) <= 151, (
        "only the newest place is read though it is a repeat, so that a subscriber comes to the end"
    )
    last = scene.aws.feed(0, 100_000)[-1].seq
    assert (last, scene.aws.feed(last, 100)) == (scene.aws.last_seq(), [])


def test_changes_of_more_cells_than_a_transaction_takes_are_counted_in_portions(
    scene: Scene,
) -> None:
    reader = Reader(scene, "reader")
    reader.poll()
    add_many(scene, 100)
    handle, sums = reader.handle, Counter[int]()

    def long_ago(records: list[StreamRecord]) -> HandledBatch:
        """Every item entered its stage in another hour."""
        handled = handle(records)
        changes = []
        for nth, change in enumerate(handled.changes):
            assert change.after is not None
            at = scene.now - nth * HOUR
            sums[at // HOUR] += 1
            changes.append(
                RowChange(change.before, replace(change.after, entered_at=at), change.seq)
            )
        return HandledBatch(changes)

    reader.handle = long_ago  # type: ignore[method-assign]
    scene.process.counts.clear()
    assert reader.poll() == 100
    assert scene.process.counts["dynamodb", "transact_write_items"] == 2, (
        f"{MOST_CELLS} cells, and the rest"
    )
    assert {
        count.hour: count.n
        for count in scene.aws.counts("parcels")
        if count.status.value == "PENDING"
    } == dict(sums)


def test_a_function_that_gets_a_batch_again_counts_it_once(scene: Scene) -> None:
    """Where no other batch has changed the same cells in between."""
    add_many(scene, 3)
    batches: list[list[StreamRecord]] = []
    scene.stream.poll(lambda records: batches.append(records), scene.clock)  # type: ignore[func-returns-value]
    for _ in range(2):
        scene.relay.handle(batches[0], scene.now)
    assert scene.count() == {"PENDING": 3}
