"""Documents whose stored text is no JSON: the others of their kind are read, and what they are
about is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.aws.ledger.synchronous_ledger import Moment, SynchronousLedger, open_synchronous_ledger
from tests.standins import REGION

from milepost.core.admission.controls import Limit
from milepost.core.errors import LedgerDamaged
from milepost.core.outcome import Done
from milepost.ports.documents import (
    ACT,
    BREAKER,
    HOLD,
    LIMIT,
    ROUTE,
    Act,
    read_each,
    read_versioned,
)
from milepost_aws.ledger.claim.paused_lanes import HeldLanes
from milepost_aws.ledger.refused_rows import QUARANTINED, forget_absent
from milepost_aws.ledger.stream import POLLER, SHARD
from milepost_aws.ledger.tables.documents import BUCKET, HOLDING, LAYOUT
from milepost_testing.contract.world import World


@pytest.fixture
def ledger(endpoint: str, prefix: str) -> Iterator[SynchronousLedger]:
    with closing(open_synchronous_ledger(endpoint, prefix, REGION)) as opened:
        yield opened


@pytest.fixture
def world(ledger: SynchronousLedger) -> World:
    return World(ledger)


def damage(ledger: SynchronousLedger, kind: str, name: str) -> None:
    """Write a document, and make its text one that is no JSON."""
    ledger.write(kind, name, {})
    [row] = [
        row
        for row in ledger.store.requests.scan(ledger.store.names.control, ConsistentRead=True)
        if row["name"]["S"] == name and row["kind"]["S"].partition("#")[0] == kind.partition("#")[0]
    ]
    ledger.store.requests.call(
        "dynamodb",
        "put_item",
        TableName=ledger.store.names.control,
        Item={**row, "value": {"S": "{"}},
    )


def test_the_other_documents_of_the_kind_are_read_and_the_damaged_one_is_named(
    ledger: SynchronousLedger,
) -> None:
    ledger.write(ACT, "sound", Act("sound", "pause", "parcels", "ops", "test", 1))
    damage(ledger, ACT, "damaged")
    assert list(read_each(ledger, ACT, Act)) == ["sound"]
    with pytest.raises(
        LedgerDamaged, match="the row kind='act', name='damaged' of the control table is damaged"
    ):
        read_versioned(ledger, ACT, "damaged", Act)


@pytest.mark.parametrize("kind", [HOLD, LIMIT, BREAKER, HOLDING, ROUTE])
def test_claims_of_other_lanes_and_the_held_rows_go_on(
    ledger: SynchronousLedger, world: World, kind: str
) -> None:
    world.add("a", lane="north")
    damage(ledger, kind, "letters" if kind == ROUTE else "parcels/weigh/south")
    item = world.take("a")
    assert world.settle(item, Done()) is None
    lanes = HeldLanes(ledger.store)
    assert lanes.oldest(world.now) == 0
    assert lanes.resume(Moment(world.now)).ended


def test_a_lane_with_a_damaged_limit_is_paused(ledger: SynchronousLedger, world: World) -> None:
    ledger.write(LIMIT, "parcels/weigh/north", Limit(concurrency=3))
    damage(ledger, LIMIT, "parcels/weigh/south")
    assert ledger.store.holds(world.now) == {"parcels/weigh/south"}
    assert list(ledger.store.limits(world.now)) == ["parcels/weigh/north"]


def test_a_shard_whose_position_is_damaged_is_read_anew(
    ledger: SynchronousLedger, world: World
) -> None:
    world.add("a")
    shards = [name for name in ledger.store.control.read(SHARD) if name.startswith("parcels/")]
    for name in shards:
        damage(ledger, SHARD, name)
    damage(ledger, POLLER, "parcels/gone")
    another = ledger.another()
    another.follower = type(ledger.follower)(another.ledger)
    another.follower.load_route(world.plan)
    another.follower.follow(world.now)
    assert [position.value["stream"] for position in ledger.store.control.read(SHARD).values()]
    another.close()


def test_a_damaged_record_of_a_quarantined_row_stops_no_other(
    ledger: SynchronousLedger, world: World
) -> None:
    world.add("a")
    damage(ledger, f"{QUARANTINED}parcels", "a")
    forget_absent(ledger.store, "parcels", world.now)


def test_a_rate_whose_bucket_is_damaged_is_named(ledger: SynchronousLedger, world: World) -> None:
    ledger.write(LAYOUT, "parcels", {"key": ["id"], "prefix": "ingested_"})
    damage(ledger, BUCKET, "parcels/weigh")
    with pytest.raises(LedgerDamaged, match="bucket"):
        read_versioned(ledger, BUCKET, "parcels/weigh", Limit)
