"""A message in the queue of another stage: it is set aside so that it can be sent again, and keeps no other message from its worker."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.ledgers.aws.synchronous_ledger import PROMPT
from tests.standins import REGION

from milepost.blobs.memory import MemoryBlobs
from milepost.ledgers.aws.ledger import AwsLedger
from milepost.ledgers.aws.requests.client import Requests
from milepost.ledgers.aws.requests.queues import Outgoing
from milepost.testing.contract import World

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
    [replayed] = ledger.quarantine.replay({"parcels": world.plan}, [entry.id], world.now, by="ops", why="a test")
    assert replayed.done, replayed.why
    assert [message.body for message in ledger.store.queues.receive(url, 10, 60)] == [WRONG]


def test_without_a_quarantine_it_stays_and_the_others_are_claimed(ledger: AwsLedger) -> None:
    world = World(ledger)
    url = put_wrong_message(world, ledger)
    ledger.store.queues.send([Outgoing(url, json.dumps({**WRONG, "stage": "weigh"}))])
    ledger.store.requests.call("sqs", "delete_queue", QueueUrl=ledger.store.queues.quarantine())
    world.take("p1")
    assert sum(ledger.store.queues.depth(url)) == 2, "the claimed one and the wrong one"
