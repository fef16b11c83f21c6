"""A key that comes again after its row has left by TTL and its seal was forgotten: its lines stand
apart from the earlier item's."""

from __future__ import annotations

from tests.aws.ledger.synchronous_ledger import SynchronousLedger

from milepost.blobs.memory import MemoryBlobs
from milepost.core.events import events_of
from milepost.core.outcome import Done, Retry
from milepost.core.routes.backoff import Backoff
from milepost.core.routes.route import Route
from milepost.core.status import TERMINAL
from milepost.engine.context import Context
from milepost.engine.views.items import chain_broken_at
from milepost.ports.retention import DeliveredLines, PruneCriteria
from milepost_testing.clock import SeededChance
from milepost_testing.contract.world import World

DAY_MS = 86_400_000


def route() -> Route:
    route = Route("mail", key="id", remember="30d", keep="1h")
    route.stage("deliver", retry=Backoff(attempts=5, base=1, jitter=0))(lambda item: Done())
    return route


def live(world: World, retries: int) -> None:
    assert world.add("m1") == [None]
    for _ in range(retries):
        world.settle(world.take("m1", "deliver"), Retry("503"))
        world.clock.advance("1h")
    world.settle(world.take("m1", "deliver"), Done())


def forget(world: World, ledger: SynchronousLedger) -> None:
    """The row leaves by TTL and the seal is forgotten, but the lines stay, as they do where pruning
    died in between."""
    store = ledger.store
    store.requests.call(
        "dynamodb", "delete_item", TableName=store.names.rows("mail"), Key={"id": {"S": "m1"}}
    )
    ledger.follower.follow(world.now)
    world.clock.advance("40d")
    store.requests.call(
        "dynamodb", "delete_item", TableName=store.names.seen, Key={"key": {"S": "mail/m1"}}
    )


def test_pruning_removes_the_lines_of_its_own_life(ledger: SynchronousLedger) -> None:
    world = World(ledger, route())
    live(world, retries=3)
    forget(world, ledger)
    live(world, retries=0)
    store = ledger.store
    store.requests.call(
        "dynamodb", "delete_item", TableName=store.names.rows("mail"), Key={"id": {"S": "m1"}}
    )
    ledger.follower.follow(world.now)
    world.clock.advance("40d")
    pruned = ledger.prune(
        PruneCriteria(
            "mail",
            TERMINAL,
            world.now,
            world.now - 30 * DAY_MS,
            DeliveredLines(ledger.last_seq()),
            100,
        )
    )
    assert (pruned.lines, pruned.forgotten) == (1, 1)
    assert [written.line.reason.value for written in ledger.feed(0, 100)] == [
        "accepted",
        "retry",
        "retry",
        "retry",
        "completed",
    ]


def test_the_lines_of_an_earlier_life_stay_what_they_were(ledger: SynchronousLedger) -> None:
    world = World(ledger, route())
    live(world, retries=3)
    first = ledger.history("mail", "m1")
    forget(world, ledger)
    live(world, retries=0)
    item, second = world.item("m1"), ledger.history("mail", "m1")
    assert [written.line.reason.value for written in second] == ["accepted", "completed"]
    ctx = Context(ledger, {"mail": world.plan}, world.clock, SeededChance(), MemoryBlobs())
    assert chain_broken_at(ctx, item) is None
    told = ledger.feed(0, 100)
    assert [written.body for written in told] == [written.body for written in [*first, *second]]
    ids = [
        event.id
        for written in told
        for event in events_of(written.line, "mail", "m1", written.correlation_id)
    ]
    assert len(ids) == len(set(ids)) == 7
    forget(world, ledger)
    assert ledger.history("mail", "m1") == []
    world.audit()


def test_an_item_that_has_left_is_found_by_its_seal(ledger: SynchronousLedger) -> None:
    world = World(ledger, route())
    live(world, retries=1)
    before = ledger.history("mail", "m1")
    key = {"id": {"S": "m1"}}
    ledger.store.requests.call(
        "dynamodb", "delete_item", TableName=ledger.store.names.rows("mail"), Key=key
    )
    ledger.follower.follow(world.now)
    assert [written.body for written in ledger.history("mail", "m1")] == [
        written.body for written in before
    ]
