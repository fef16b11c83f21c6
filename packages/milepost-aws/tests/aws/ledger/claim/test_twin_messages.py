"""Two messages of one item in one receive: the call that a loss has just made, and the older one
that brought the lost worker."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.standins import REGION

from milepost.blobs.memory import MemoryBlobs
from milepost.core.due import look
from milepost.core.routes.route import Limits
from milepost.core.status import Status
from milepost.engine.context import Context
from milepost.engine.resend import Resender
from milepost_aws.ledger import apply
from milepost_aws.ledger.claim.claim import FunctionMessages
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.offers import message_for
from milepost_aws.ledger.requests.client import Requests
from milepost_aws.ledger.requests.queues import SqsMessage
from milepost_aws.ledger.store import StoreSettings
from milepost_testing.clock import SeededChance
from milepost_testing.contract.world import LEASE, World, sample_route

PROMPT = StoreSettings(fresh_ms=0, longest_delay_s=0, resend_delay_ms=0, notice_ms=0)
ROUNDS = int(os.environ.get("MILEPOST_TWIN_ROUNDS", "6"))
"""How often the race without fault points is run; 200 take a few minutes."""


@pytest.fixture
def ledger(endpoint: str, prefix: str) -> Iterator[AwsLedger]:
    ledger = AwsLedger(
        Requests(REGION, endpoint), prefix, MemoryBlobs(), settings=PROMPT, make=True
    )
    yield ledger
    ledger.close()


def call(world: World, *keys: str) -> None:
    """Send each item's first call, as the relay does."""
    store = world.ledger.store  # type: ignore[attr-defined]
    store.queues.send([message_for(store, world.item(key), world.plan.first) for key in keys])


@pytest.mark.parametrize("way", ["process", "function"])
def test_the_newest_of_two_calls_survives(
    ledger: AwsLedger, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    world = World(ledger)
    world.add("p1")
    call(world, "p1")
    # The worker that claimed with the first message is gone, and that message's visibility has run
    # out.
    ledger.store.queues.release([world.take("p1").ticket])
    world.clock.advance(2 * LEASE // 1000)
    loss = look(world.item("p1"), world.plan, world.now, 0.0, None)
    write, received = apply._write, []

    def receive_first(*args: object) -> object:
        """Between the send and the write another worker receives both messages."""
        if not received:
            received.append(way)
            if way == "process":
                assert world.claim(holder="B").items == []
            else:
                answer_both(world, ledger)
        return write(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(apply, "_write", receive_first)
    assert world.apply(loss) is None
    assert world.row("p1").status is Status.QUEUED
    assert world.take("p1", holder="C").row.losses == 1


@pytest.mark.parametrize("way", ["process", "function"])
def test_a_message_that_is_received_twice_at_once_stays_while_its_item_cannot_be_claimed(
    ledger: AwsLedger, way: str
) -> None:
    route = sample_route(lanes={"crm": Limits(concurrency=1)})
    world = World(ledger, route)
    world.add("p1", lane="crm")
    call(world, "p1")
    queues = ledger.store.queues
    url, receive = queues.url("parcels", "weigh"), queues.receive

    def receive_twice(*args: Any, **options: Any) -> list[SqsMessage]:
        return [message for message in receive(*args, **options) for _ in range(2)]

    queues.receive = receive_twice  # type: ignore[method-assign]
    if way == "process":
        assert world.claim(held={"crm": 1}).items == [], "its lane is full"
    else:
        batch = queues.receive(url, 10, 60)
        answered = FunctionMessages(ledger.store).answer(
            world.ask(held={"crm": 1}), batch, world.now, 0.0
        )
        assert [message.id for message in answered.waiting] == [batch[0].id]
        queues.release(answered.waiting)
    assert sum(queues.depth(url)) == 1
    queues.receive = receive  # type: ignore[method-assign]
    assert [item.key for item in world.claim().items] == ["p1"]


def answer_both(world: World, ledger: AwsLedger) -> None:
    """What a function does with a batch in which both messages are; its event source deletes what
    it does not report."""
    store = ledger.store
    url = store.queues.url("parcels", "weigh")
    batch = store.queues.receive(url, 10, 60)
    assert len(batch) == 2
    for messages in (batch, batch[::-1]):
        chosen = FunctionMessages(store)._distinct(world.ask(), [*messages])
        assert [message.body.get("version", 0) > 0 for message in chosen] == [True]
    answered = FunctionMessages(store).answer(world.ask(), chosen, world.now, 0.0)
    assert answered.items == []
    assert answered.failed == []


def test_no_item_is_left_without_a_call_when_visibility_ends_as_the_resender_comes(
    ledger: AwsLedger, endpoint: str, prefix: str
) -> None:
    """No fault point: a worker died with six items, and their messages become visible at about the
    time of the resender's run."""
    other = AwsLedger(Requests(REGION, endpoint), prefix, MemoryBlobs(), settings=PROMPT)
    world = World(ledger)
    second = World(other, clock=world.clock)
    second.chance = world.chance
    stuck: list[str] = []
    dice = random.Random(7)
    for number in range(ROUNDS):
        keys = [f"p{number}-{n}" for n in range(6)]
        world.add(*keys)
        call(world, *keys)
        held = []
        while len(held) < len(keys):
            held += world.claim(want=6, holder="A").items
        world.clock.advance(2 * LEASE // 1000)
        over = threading.Event()

        def receive(over: threading.Event = over) -> None:
            while not over.is_set():
                second.claim(want=100, holder="B")
                time.sleep(dice.uniform(0, 0.02))

        def run_out(held: list[object] = held) -> None:
            time.sleep(dice.uniform(0, 0.15))
            ledger.store.queues.release([item.ticket for item in held])  # type: ignore[attr-defined]

        threads = [threading.Thread(target=job) for job in (receive, run_out)]
        for thread in threads:
            thread.start()
        Resender(
            Context(
                ledger, {world.plan.name: world.plan}, world.clock, SeededChance(), MemoryBlobs()
            )
        ).run_once()
        threads[1].join()
        # A copy that was put off comes back at once here; three empty receives in a row show that
        # no message is left.
        for _ in range(100):
            if all(world.row(key).status is not Status.QUEUED for key in keys):
                break
            time.sleep(0.05)
        over.set()
        threads[0].join()
        stuck += [key for key in keys if world.row(key).status is Status.QUEUED]
    assert stuck == []
    other.close()
