"""While a changed route is announced but not yet in force, no item is claimed or completed;
afterwards work continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.aws.ledger.synchronous_ledger import PROMPT
from tests.standins import REGION

from milepost.blobs.memory import MemoryBlobs
from milepost.core.errors import RouteChanged
from milepost.core.outcome import Done
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import Status
from milepost.engine.acts.bulk import confirm_outside
from milepost.engine.apply import OUTDATED
from milepost.engine.context import Context
from milepost.engine.resend import Resender
from milepost.engine.work.settle import settle
from milepost.ports.runner import JobResult
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.relay import StreamRelay
from milepost_aws.ledger.repair.repair import Repair
from milepost_aws.ledger.requests.client import Requests
from milepost_aws.ledger.retention import finish
from milepost_aws.ledger.stream import Stream, StreamRecord
from milepost_testing.contract.world import World

NOTICE = 60_000


class Announced(World):
    """A process that has the newer version of a route of one stage."""

    def __init__(self, ledger: AwsLedger, external: bool) -> None:
        route = Route("loans")
        if external:
            route.external("CC")
        else:
            route.stage("CC")(lambda item: Done())
        super().__init__(ledger, route)
        timing = ledger.timing
        self.plan = ledger.prepare(
            Plan(route, grace_ms=timing.grace_ms, offer_life_ms=timing.offer_life_ms, version=2)
        )
        self.aws, self.store = ledger, ledger.store
        self.ctx = Context(ledger, {"loans": self.plan}, self.clock, self.chance, MemoryBlobs())
        self.table = self.store.names.rows("loans")
        self._relay = StreamRelay(self.store, {"loans": self.plan}, lambda: 0.0)
        self._stream = Stream(
            self.store.requests, self.store.control, "loans", self.table, "reader"
        )
        self.add("a", "b")
        self.follow()
        self.before = {key: self.row(key).version for key in ("a", "b")}

    def announce(self) -> int:
        """The version that this process has is announced now; from when on it holds."""
        self.set_version(2)
        return self.now + NOTICE

    def follow(self) -> None:
        def handle(records: list[StreamRecord]) -> None:
            finish(self.store, self._relay.handle(records, self.now), self.now)

        while self._stream.poll(handle, self.clock):
            pass

    def confirm_by_attribute(self, key: str) -> None:
        self.store.requests.call(
            "dynamodb",
            "update_item",
            TableName=self.table,
            Key={"id": {"S": key}},
            UpdateExpression="SET ingested_CC = :yes",
            ExpressionAttributeValues={":yes": {"BOOL": True}},
        )

    def nothing_moves(self, *, settled: int) -> None:
        """Whoever looks at the items, or reads of them, completes none; `settled` lines say that
        outcomes were put down undecided."""
        with pytest.raises(RouteChanged, match="stands by"):
            self.follow()
        assert Resender(self.ctx).run_once().decided == 0
        with pytest.raises(RouteChanged, match="stands by"):
            Repair(self.store, self.plan, lambda: 0.0).step(self.clock)
        assert {self.row(key).status for key in ("a", "b")} & {Status.COMPLETED} == set()
        assert sum(self.row(key).version - self.before[key] for key in ("a", "b")) == settled


@pytest.fixture
def announced(endpoint: str, prefix: str) -> Iterator[Callable[[bool], Announced]]:
    made: list[AwsLedger] = []

    def open_it(external: bool) -> Announced:
        settings = replace(PROMPT, notice_ms=NOTICE)
        made.append(
            AwsLedger(
                Requests(REGION, endpoint, width=4),
                prefix,
                MemoryBlobs(),
                settings=settings,
                make=True,
            )
        )
        return Announced(made[-1], external)

    yield open_it
    for ledger in made:
        ledger.close()


def test_nobody_claims_and_a_workers_outcome_is_put_down_undecided_until_the_version_holds(
    announced: Callable[[bool], Any],
) -> None:
    world = announced(False)
    (item,) = world.claim("CC", 1).items
    holds_from = world.announce()
    assert (world.claim("CC").items, world.claim("CC").next_at) == ([], holds_from)
    summary = settle(world.ctx, [JobResult(item, Done({"by": "us"}), 5)])
    assert (summary.written, summary.undecided, summary.refused) == (0, 1, 0)
    world.nothing_moves(settled=1)
    world.clock.advance_to(holds_from - 1)
    assert world.claim("CC").items == []
    world.nothing_moves(settled=1)
    world.clock.advance_to(holds_from)
    assert Resender(world.ctx).run_once().decided == 1
    assert world.row(item.key).status is Status.COMPLETED
    assert world.item(item.key).content.results == {"CC": {"by": "us"}}
    world.follow()
    (other,) = world.claim("CC").items
    assert settle(world.ctx, [JobResult(other, Done(), 5)]).written == 1
    world.follow()
    assert world.count() == {"COMPLETED": 2}
    world.audit()


def test_no_confirmation_completes_an_item_until_the_version_holds(
    announced: Callable[[bool], Any],
) -> None:
    world = announced(True)
    holds_from = world.announce()
    world.confirm_by_attribute("a")
    for moment in (world.now, holds_from - 1):
        world.clock.advance_to(moment)
        assert confirm_outside(world.ctx, "loans", "b", "CC", Done(True), "partner") == OUTDATED
        world.nothing_moves(settled=0)
    world.clock.advance_to(holds_from)
    world.follow()
    assert [world.row(key).status for key in ("a", "b")] == [Status.COMPLETED, Status.QUEUED]
    row = confirm_outside(world.ctx, "loans", "b", "CC", Done(True), "partner")
    assert not isinstance(row, str)
    assert row.status is Status.COMPLETED
    world.follow()
    assert world.count() == {"COMPLETED": 2}
    world.audit()


def test_the_first_version_of_a_route_replaces_none_and_holds_at_once(
    announced: Callable[[bool], Any],
) -> None:
    world = announced(False)
    world.plan = Plan(
        world.plan.route,
        grace_ms=world.aws.timing.grace_ms,
        offer_life_ms=world.aws.timing.offer_life_ms,
        version=1,
    )
    world.set_version(1)
    assert len(world.claim("CC").items) == 2
