"""Pure checks: made without a lease, and valid only for the row as it was read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.aws.ledger.synchronous_ledger import SynchronousLedger, open_synchronous_ledger
from tests.standins import REGION

from milepost.blobs.memory import MemoryBlobs
from milepost.core.item import Item
from milepost.core.outcome import Done, NotYet, Outcome, Retry
from milepost.core.status import Status
from milepost.engine.context import Context
from milepost.engine.work.settle import give_back, settle
from milepost.ports.runner import JobResult
from milepost_aws.ledger.claim.claim import MOST_LOOKS
from milepost_testing.contract import World
from milepost_testing.contract.world import LEASE, sample_route


class Looking(World):
    """A world whose first stage is a pure check."""

    ledger: SynchronousLedger  # type: ignore[assignment]

    def __init__(self, ledger: Any) -> None:
        super().__init__(ledger, sample_route(claims=False))
        self.ctx = Context(
            ledger, {self.plan.name: self.plan}, self.clock, self.chance, MemoryBlobs()
        )

    def say(self, item: Item, outcome: Outcome) -> Any:
        return settle(self.ctx, [JobResult(item, outcome, 1)])

    @property
    def url(self) -> str:
        return self.ledger.store.queues.url(self.plan.name, "weigh")


@pytest.fixture
def world(endpoint: str, prefix: str) -> Iterator[Looking]:
    ledger = open_synchronous_ledger(endpoint, prefix, REGION)
    yield Looking(ledger)
    ledger.close()


def test_a_look_writes_nothing_and_its_outcome_is_written_once(world: Looking) -> None:
    world.add("p1")
    before = world.row("p1")
    item = world.take("p1")
    assert item.row.lease is None
    assert world.row("p1") == before
    assert world.say(item, NotYet(note="nothing there")).written == 1
    row = world.row("p1")
    assert (row.status, row.looks, row.note, row.lease, row.holder) == (
        Status.WAITING,
        1,
        "nothing there",
        None,
        None,
    )
    assert [(line.reason.value, line.by) for line in world.lines("p1")] == [
        ("accepted", None),
        ("not-yet", "worker"),
    ]
    assert world.ledger.store.queues.depth(world.url) == (0, 0, 0)
    world.audit()


def test_what_is_there_moves_on(world: Looking) -> None:
    world.add("p1", "p2")
    items = world.claim().items
    assert world.say(items[0], Done({"grams": 1})).written == 1
    assert world.say(items[1], Retry("the scales are out")).written == 1
    assert {(key, world.row(key).stage, world.row(key).status.value) for key in ("p1", "p2")} == {
        (items[0].key, "stamp", "QUEUED"),
        (items[1].key, "weigh", "RETRY_SCHEDULED"),
    }
    world.audit()


def test_two_may_look_at_once_and_one_moves_it_on(world: Looking) -> None:
    world.add("p1")
    item = world.take("p1")
    other = Item(replace(item.row, holder="another"), item.content)
    assert world.say(item, Done()).written == 1
    assert world.say(other, Done()).refused == 1
    assert world.row("p1").stage == "stamp"
    assert world.reasons("p1") == ["accepted", "advanced"]
    world.audit()


def test_a_look_at_an_item_that_has_gone_on_says_nothing(world: Looking) -> None:
    world.add("p1")
    item = world.take("p1")
    world.confirm("p1", "weigh")
    for outcome in (NotYet(), Retry("too late"), Done()):
        assert world.say(item, outcome).refused == 1
    assert (world.row("p1").stage, world.row("p1").attempts) == ("stamp", 0)
    assert world.reasons("p1") == ["accepted", "confirmed"]


def test_a_note_that_was_added_meanwhile_does_no_harm(world: Looking) -> None:
    """The row has another version, and is still at the same stage and round."""
    world.add("p1")
    item = world.take("p1")
    world.confirm("p1", "delivered")
    assert world.reasons("p1") == ["accepted", "kept"]
    assert world.say(item, Done()).written == 1
    assert world.row("p1").stage == "stamp"
    world.audit()


def test_what_was_not_finished_is_left_to_its_message(world: Looking) -> None:
    world.add("p1")
    item = world.take("p1")
    assert give_back(world.ctx, [item], "the worker is stopping") == 0
    assert world.reasons("p1") == ["accepted"]
    assert world.ledger.store.queues.depth(world.url) == (0, 1, 0)


def test_a_long_look_keeps_its_message(world: Looking) -> None:
    world.add("p1")
    item = world.take("p1")
    assert world.ledger.extend([item.row], world.now + LEASE, world.now) == [True]
    assert world.row("p1").lease is None


def test_an_item_whose_looks_never_end_is_claimed_so_that_losses_count(world: Looking) -> None:
    world.add("p1")
    store = world.ledger.store
    for _ in range(MOST_LOOKS):
        item = world.take("p1")
        assert item.row.lease is None
        assert item.ticket is not None
        store.queues.release([item.ticket])
    assert world.take("p1").row.lease is not None
    assert world.row("p1").status is Status.PROCESSING
