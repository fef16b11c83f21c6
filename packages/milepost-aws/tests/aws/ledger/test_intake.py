"""Intake on DynamoDB: a put whose answer was lost is known for one's own, and seals are looked for
once, not twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.aws.ledger.synchronous_ledger import PROMPT, SynchronousLedger
from tests.standins import REGION

import milepost as mp
from milepost.blobs.memory import MemoryBlobs
from milepost.core.decide import accept
from milepost.core.item import digest_of
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost.ports.items import KnownKey, NewItem
from milepost_aws.ledger.intake import LOOKED_UP_S
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.requests.client import Requests
from milepost_aws.ledger.retention import Sealing, write_seals

NOW = 1_794_770_000_000
CONTENT = {"id": "a"}


class Watch:
    """A clock for requests, in the test's hands."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def ledger(endpoint: str, prefix: str, watch: Watch) -> Iterator[SynchronousLedger]:
    made = SynchronousLedger(
        AwsLedger(
            Requests(REGION, endpoint, clock=watch),
            prefix,
            MemoryBlobs(),
            settings=PROMPT,
            make=True,
        )
    )
    yield made
    made.close()


@pytest.fixture
def plan() -> Plan:
    route = mp.Route("assets", key="id")
    route.external("CC")
    route.external("TC")
    return Plan(route, grace_ms=600_000, offer_life_ms=1_209_600_000)


def new_item(plan: Plan, now: int = NOW, correlation_id: str = "c-1") -> NewItem:
    return NewItem(
        accept(plan, "a", CONTENT, now, correlation_id=correlation_id, digest=digest_of(CONTENT)),
        CONTENT,
    )


def test_ones_own_put_is_known_when_the_item_has_left_its_first_stage(
    ledger: SynchronousLedger, plan: Plan, client: Callable[[str], Any]
) -> None:
    first = new_item(plan)
    assert ledger.add(plan, [first], NOW) == [None]
    table = ledger.store.names.rows("assets")
    client("dynamodb").update_item(
        TableName=table,
        Key={"id": {"S": "a"}},
        UpdateExpression="SET ingested_CC = :done",
        ExpressionAttributeValues={":done": {"S": '{"at":"x"}'}},
    )
    ledger.follower.follow(NOW + 50)
    (image,) = ledger.store.images("assets", ["a"]).values()
    assert (image["queue"]["S"], "createToken" in image) == ("TC", False)
    assert ledger.ledger.add(plan, [first], NOW) == [None], (
        "the same put, repeated after its answer was lost"
    )
    for other in (new_item(plan, NOW + 1), new_item(plan, correlation_id="c-2")):
        (known,) = ledger.ledger.add(plan, [other], NOW)
        assert known is not None
        assert (known.stage, known.sealed) == ("TC", False)


def test_somebody_elses_put_of_the_same_key_is_theirs(
    ledger: SynchronousLedger, plan: Plan
) -> None:
    assert ledger.add(plan, [new_item(plan)], NOW) == [None]
    (known,) = ledger.ledger.add(plan, [new_item(plan)], NOW)
    assert known is not None, "as alike as can be, but put by another call"


def test_seals_are_looked_for_once_unless_that_was_long_ago(
    ledger: SynchronousLedger, plan: Plan, watch: Watch
) -> None:
    ledger.prepare(plan)
    seal = KnownKey("a", Status.COMPLETED, digest_of(CONTENT), "TC", None, True, NOW, b"x" * 32)
    counts = ledger.store.requests.counts
    assert ledger.peek("assets", ["a"]) == [None]
    watch.at += LOOKED_UP_S + 1
    write_seals(ledger.store, [Sealing("assets", seal)], NOW)
    (known,) = ledger.ledger.add(plan, [new_item(plan)], NOW)
    assert known is not None
    assert known.sealed
    assert ledger.peek("assets", ["b"]) == [None]
    asked = counts["dynamodb", "batch_get_item"]
    fresh = NewItem(
        accept(plan, "b", CONTENT, NOW, correlation_id="c-3", digest=digest_of(CONTENT)), CONTENT
    )
    assert ledger.ledger.add(plan, [fresh], NOW) == [None]
    assert counts["dynamodb", "batch_get_item"] == asked
    assert ledger.ledger.add(plan, [fresh], NOW) != [None]
    assert counts["dynamodb", "batch_get_item"] > asked, "what was looked up is believed once"
