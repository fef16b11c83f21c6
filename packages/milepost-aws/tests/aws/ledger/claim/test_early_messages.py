"""A message that arrives before the write it was sent for: its receiver finds the item still
leased."""

from __future__ import annotations

from typing import Any

import pytest
from tests.aws.ledger.synchronous_ledger import PROMPT
from tests.standins import REGION

from milepost.blobs.memory import MemoryBlobs
from milepost.core.change import Change
from milepost.core.decide import given_back
from milepost.core.due import look
from milepost.core.status import Status
from milepost_aws.ledger import apply
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.requests.client import Requests
from milepost_testing.contract import World
from milepost_testing.contract.world import LEASE


def lost(world: World) -> Change:
    world.clock.advance(2 * LEASE // 1000)
    change = look(world.item("p1"), world.plan, world.now, 0.0, None)
    assert change is not None
    return change


def let_go(world: World) -> Change:
    return given_back(world.row("p1"), world.now, why="the worker is stopping")


@pytest.mark.parametrize("end", [lost, let_go])
def test_a_call_that_overtakes_its_write_is_kept(
    endpoint: str, prefix: str, end: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = AwsLedger(
        Requests(REGION, endpoint), prefix, MemoryBlobs(), settings=PROMPT, make=True
    )
    world = World(ledger)
    world.add("p1")
    call = apply.message_for(ledger.store, world.item("p1"), world.plan.first)
    ledger.store.queues.send([call])
    world.take("p1")
    change = end(world)
    write = apply._write
    overtaken: list[Any] = []

    def dawdle(*args: Any) -> Any:
        if not overtaken:
            overtaken.append(world.claim().items)
        return write(*args)

    monkeypatch.setattr(apply, "_write", dawdle)
    assert world.apply(change) is None
    assert overtaken == [[]]
    assert world.row("p1").status is Status.QUEUED
    world.take("p1")
    # And one that comes when all is over calls nobody.
    ledger.store.queues.send([call])
    assert world.claim().items == []
    assert ledger.store.queues.depth(call.url)[0] == 0
    ledger.close()
