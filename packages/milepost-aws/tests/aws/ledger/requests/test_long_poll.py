"""Idle queues: they are waited for at SQS, without holding up a worker, other stages or the end of
a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.polling import wait_until
from tests.standins import REGION

from milepost.blobs.memory import MemoryBlobs
from milepost.core.item import Item
from milepost.core.outcome import Done
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.offers import message_for
from milepost_aws.ledger.requests.client import CONNECTIONS, LONG_POLL, Requests
from milepost_aws.ledger.requests.queues import IDLE_POLLS
from milepost_aws.ledger.store import StoreSettings
from milepost_testing.contract.world import World

WAITING = StoreSettings(
    fresh_ms=0, longest_delay_s=0, resend_delay_ms=0, notice_ms=0, long_poll_s=20
)
RECEIVE = ("sqs", "receive_message")


@pytest.fixture
def world(endpoint: str, prefix: str) -> Iterator[World]:
    ledger = AwsLedger(
        Requests(REGION, endpoint), prefix, MemoryBlobs(), settings=WAITING, make=True
    )
    yield World(ledger)
    ledger.close()


def idle(world: World, stage: str = "weigh") -> int:
    """Nothing is there so often that the queue is waited for. How many receives there were in
    all."""
    for _ in range(IDLE_POLLS):
        assert world.claim(stage).items == []
    return receives(world)


def receives(world: World) -> int:
    return world.ledger.store.requests.counts[RECEIVE]  # type: ignore[attr-defined, no-any-return]


def call(world: World, key: str) -> None:
    store = world.ledger.store  # type: ignore[attr-defined]
    world.add(key)
    store.queues.send([message_for(store, world.item(key), world.plan.first)])


def test_an_idle_queue_is_asked_once_and_a_message_is_claimed_when_it_comes(world: World) -> None:
    wait_until(lambda: idle(world) == IDLE_POLLS + 1)
    for _ in range(50):
        answer = world.claim()
        assert answer.items == []
        assert answer.next_at is not None
        assert answer.next_at > world.now
    assert receives(world) == IDLE_POLLS + 1
    call(world, "p1")
    items: list[Item] = []
    wait_until(lambda: items or items.extend(world.claim().items))
    assert [item.key for item in items] == ["p1"]
    assert world.settle(items[0], Done()) is None
    # The wait brought it, and looked once whether there were more.
    assert receives(world) <= IDLE_POLLS + 2


def test_another_stage_is_not_held_up(world: World) -> None:
    idle(world, "stamp")
    call(world, "p1")
    world.take("p1")


def test_what_comes_to_a_paused_stage_is_given_back(world: World) -> None:
    idle(world)
    store = world.ledger.store  # type: ignore[attr-defined]
    url = store.queues.url("parcels", "weigh")
    call(world, "p1")
    wait_until(lambda: not world.ledger._claims._polls.waiting(url))  # type: ignore[attr-defined]
    assert store.queues.depth(url) == (0, 1, 0)
    world.hold("parcels/weigh")
    assert world.claim().items == []
    assert store.queues.depth(url) == (1, 0, 0)


def test_closing_waits_for_no_poll_and_gives_back_what_came(endpoint: str, prefix: str) -> None:
    ledger = AwsLedger(
        Requests(REGION, endpoint), prefix, MemoryBlobs(), settings=WAITING, make=True
    )
    world = World(ledger)
    idle(world)
    idle(world, "stamp")
    waits = dict(ledger._claims._polls._waits)
    url = ledger.store.queues.url("parcels", "weigh")
    call(world, "p1")
    wait_until(waits[url].done.is_set)
    ledger.close()
    assert [address for address, wait in waits.items() if wait.thread.is_alive()] == [
        address for address in waits if address != url
    ], "the other wait is still under way"
    later = AwsLedger(Requests(REGION, endpoint), prefix, MemoryBlobs(), settings=WAITING)
    World(later, clock=world.clock).take("p1")
    later.close()


def test_a_queue_that_is_asked_by_url_is_waited_for(endpoint: str) -> None:
    requests = Requests(REGION, endpoint)
    try:
        assert requests._timeouts("sqs", "receive_message", {"WaitTimeSeconds": 20}) == LONG_POLL
        assert (
            requests.client("sqs").meta.config.max_pool_connections == CONNECTIONS > requests.width
        )
    finally:
        requests.close()
