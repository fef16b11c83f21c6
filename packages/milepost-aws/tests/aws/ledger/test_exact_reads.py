"""Decisions read the tables, not counters and indexes that lag."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.aws.ledger.synchronous_ledger import PROMPT
from tests.standins import REGION

from milepost.blobs.memory import MemoryBlobs
from milepost.core.errors import UsageError
from milepost.core.outcome import Done
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.engine.context import Context
from milepost.engine.routes.versions import apply_route, register
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.requests.client import Requests
from milepost_testing.clock import SeededChance
from milepost_testing.contract.world import World


@pytest.fixture
def ledger(endpoint: str, prefix: str) -> Iterator[AwsLedger]:
    """Nobody reads its stream, so its counters stay empty."""
    ledger = AwsLedger(
        Requests(REGION, endpoint), prefix, MemoryBlobs(), settings=PROMPT, make=True
    )
    yield ledger
    ledger.close()


def route(*stages: str) -> Route:
    made = Route("parcels", key="id")
    for name in stages:
        made.stage(name)(lambda item: Done())
    return made


def test_a_stage_is_not_removed_while_items_are_there_that_no_counter_has_seen(
    ledger: AwsLedger,
) -> None:
    world = World(ledger, route("weigh", "stamp"))
    register(ledger, world.plan, world.now, "test")
    world.add("k1", "k2", "k3")
    assert ledger.counts("parcels") == []
    plan = Plan(
        route("stamp"), grace_ms=ledger.timing.grace_ms, offer_life_ms=ledger.timing.offer_life_ms
    )
    ctx = Context(ledger, {"parcels": plan}, world.clock, SeededChance(), MemoryBlobs())
    with pytest.raises(UsageError, match=r"3 at 'weigh' \(k\d, k\d, k\d\)"):
        apply_route(ctx, plan, mapping={}, by="ops", reason="no scales any more")
    applied = apply_route(
        ctx, plan, mapping={"weigh": "stamp"}, by="ops", reason="no scales any more"
    )
    assert (applied.version, applied.moved, applied.left) == (2, 3, {})
    assert [world.row(key).stage for key in ("k1", "k2", "k3")] == ["stamp"] * 3
