"""Messages that cannot be used or answered keep no other message from its worker: those of another
stage, and those whose claim fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.aws.ledger.synchronous_ledger import PROMPT
from tests.standins import REGION

from milepost.blobs.memory import MemoryBlobs
from milepost.core.due import Lease
from milepost.core.errors import LedgerBusy
from milepost.core.status import Reason, Status
from milepost.ports.items import ClaimRequest
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.offers import message_for
from milepost_aws.ledger.requests.client import Requests
from milepost_aws.ledger.requests.queues import Outgoing
from milepost_testing.contract import World

WRONG = {"route": "parcels", "key": "p1", "stage": "stamp"}


@pytest.fixture
def ledger(endpoint: str, prefix: str) -> Iterator[AwsLedger]:
    made = AwsLedger(Requests(REGION, endpoint), prefix, MemoryBlobs(), settings=PROMPT, make=True)
    yield made
    made.close()


def put_wrong_message(world: World, ledger: AwsLedger) -> str:
    world.add("p1")
    url = ledger.store.queues.url("parcels", "weigh")
    ledger.store.queues.send([Outgoing(url, json.dumps(WRONG))])
    return url


def test_it_is_set_aside_and_replayed_as_it_was(ledger: AwsLedger) -> None:
    world = World(ledger)
    url = put_wrong_message(world, ledger)
    assert world.claim("weigh").items == []
    [entry], _ = ledger.quarantine.entries(10)
    assert entry.kind == "message"
    assert "not a message for stage 'weigh'" in entry.reason
    assert (entry.content["url"], json.loads(entry.content["body"])) == (url, WRONG)
    assert ledger.store.queues.depth(url) == (0, 0, 0)
    [replayed] = ledger.quarantine.replay(
        {"parcels": world.plan}, [entry.id], world.now, by="ops", why="a test"
    )
    assert replayed.done, replayed.why
    assert [message.body for message in ledger.store.queues.receive(url, 10, 60)] == [WRONG]


def test_without_a_quarantine_it_stays_and_the_others_are_claimed(ledger: AwsLedger) -> None:
    world = World(ledger)
    url = put_wrong_message(world, ledger)
    ledger.store.queues.send([Outgoing(url, json.dumps({**WRONG, "stage": "weigh"}))])
    ledger.store.requests.call("sqs", "delete_queue", QueueUrl=ledger.store.queues.quarantine())
    world.take("p1")
    assert sum(ledger.store.queues.depth(url)) == 2, "the claimed one and the wrong one"


def test_an_item_that_cannot_be_claimed_now_leaves_the_claimed_ones_with_their_worker(
    ledger: AwsLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(ledger)
    world.add("a", "b", "c")
    for key in "abc":
        ledger.store.queues.send([message_for(ledger.store, world.item(key), world.plan.first)])
    call = ledger.store.requests.call

    def fail(service: str, operation: str, /, **params: Any) -> dict[str, Any]:
        if operation == "update_item" and params["Key"] in failing:
            raise LedgerBusy("throttled")
        return call(service, operation, **params)

    failing = [{"id": {"S": "b"}}]
    monkeypatch.setattr(ledger.store.requests, "call", fail)
    assert sorted(item.key for item in world.claim(want=10).items) == ["a", "c"]
    ledger.store.queues.send([message_for(ledger.store, world.item("b"), world.plan.first)])
    with pytest.raises(LedgerBusy):
        world.claim(want=10)
    failing.clear()
    ledger.store.queues.send([message_for(ledger.store, world.item("b"), world.plan.first)])
    assert [item.key for item in world.claim(want=10).items] == ["b"]


def test_a_stage_that_cannot_be_claimed_for_now_leaves_the_items_of_another_with_their_worker(
    ledger: AwsLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(ledger)
    world.add("a")
    ledger.store.queues.send([message_for(ledger.store, world.item("a"), world.plan.first)])
    call, closed = ledger.store.requests.call, ledger.store.queues.url("parcels", "stamp")

    def fail(service: str, operation: str, /, **params: Any) -> dict[str, Any]:
        if operation == "receive_message" and params["QueueUrl"] == closed:
            raise LedgerBusy("throttled")
        return call(service, operation, **params)

    monkeypatch.setattr(ledger.store.requests, "call", fail)
    lease = Lease("token", "holder", world.now + 60_000)
    asks = [ClaimRequest(world.plan, stage, 10, lease) for stage in ("weigh", "stamp")]
    claimed, failed = ledger.claim(asks, world.now, 0.0)
    assert [item.key for item in claimed.items] == ["a"]
    assert (failed.items, failed.next_at) == ([], world.now + PROMPT.poll_ms)
    with pytest.raises(LedgerBusy):
        ledger.claim(asks, world.now, 0.0)


def test_an_item_whose_content_cannot_be_read_for_now_is_given_back_and_not_lost(
    ledger: AwsLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(ledger)
    world.add("big", text="x" * 9000)

    def away(*_: object) -> None:
        raise OSError("the bucket does not answer")

    for _ in range(3):
        ledger.store.queues.send([message_for(ledger.store, world.item("big"), world.plan.first)])
        with monkeypatch.context() as outage:
            outage.setattr(MemoryBlobs, "read", away)
            with pytest.raises(LedgerBusy, match="the bucket does not answer"):
                world.claim()
        row = world.row("big")
        assert (row.status, row.lease, row.losses, row.attempts) == (Status.QUEUED, None, 0, 0)
    ledger.store.queues.send([message_for(ledger.store, world.item("big"), world.plan.first)])
    assert world.take("big").input["text"] == "x" * 9000
    given = [
        line for line in ledger.history("parcels", "big") if line.line.reason is Reason.GIVEN_BACK
    ]
    assert len(given) == 3
