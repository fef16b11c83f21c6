"""A ledger on a stand-in whose stream is read at once after every write, and whose time is the
test's: for the contract suite, which asks for everything to have followed when it looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from threading import RLock
from typing import Any

from milepost.blobs.memory import MemoryBlobs
from milepost.core.errors import RouteChanged
from milepost.core.routes.plan import Plan
from milepost.engine.context import Context
from milepost.engine.resend import Resender
from milepost.ports.items import ClaimRequest, ClaimResult
from milepost_aws.ledger.claim.paused_lanes import HeldLanes
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.names import iso
from milepost_aws.ledger.relay import StreamRelay
from milepost_aws.ledger.requests.client import Requests, RowRefused
from milepost_aws.ledger.retention import finish
from milepost_aws.ledger.store import AwsStore, StoreSettings
from milepost_aws.ledger.stream import HandledBatch, Stream, StreamRecord
from milepost_aws.ledger.tables.conditional_write import Update
from milepost_testing.clock import SeededChance

PROMPT = StoreSettings(fresh_ms=0, longest_delay_s=0, resend_delay_ms=0, notice_ms=0)
"""No document is believed without reading it, no message is held back (the world's time does not
pass here), and the resender waits for nobody."""


def carry_out(
    store: AwsStore, relay: StreamRelay, records: list[StreamRecord], now: int
) -> HandledBatch:
    """What a process that reads a stream does with a batch."""
    batch = relay.carry_out(records, now)
    finish(store, batch.ended, now)
    return HandledBatch(batch.changes, counted=partial(relay.remove_blobs, batch))


class Follower:
    """Reads the streams of all routes that were used, and sends again what is due; one for all
    handles on a ledger."""

    def __init__(self, ledger: AwsLedger) -> None:
        self.ledger = ledger
        self.plans: dict[str, Plan] = {}
        self.lock = RLock()
        self.now = 0
        self._relay = StreamRelay(ledger.store, self.plans, lambda: 0.0)
        self._streams: dict[str, Stream] = {}

    def load_route(self, plan: Plan) -> None:
        with self.lock:
            self.plans[plan.name] = plan

    def follow(self, now: int | None = None) -> None:
        with self.lock:
            now = self.now = self.now if now is None else now
            for _ in range(50):
                try:
                    if not sum([self._poll(route, now) for route in list(self.plans)]):
                        return
                except RouteChanged:
                    return  # it stands by; a newer one reads what waits
            raise AssertionError("the stream never comes to rest")

    def resend(self, now: int) -> None:
        with self.lock:
            if any(self._due(route, now) for route in self.plans):
                context = Context(
                    self.ledger, self.plans, Moment(now), SeededChance(), MemoryBlobs()
                )
                Resender(context).run_once()
            HeldLanes(self.ledger.store).resume(Moment(now))
            self.follow(now)

    def _due(self, route: str, now: int) -> bool:
        """Has the resender anything to do? One look at the whole index; itself it asks partition by
        partition, and with every claim of the contract that was half of all requests."""
        store = self.ledger.store
        due = store.requests.scan(
            store.names.rows(route),
            IndexName="due",
            FilterExpression="#due <= :now",
            ExpressionAttributeNames={"#due": "dueAt"},
            ExpressionAttributeValues={":now": {"S": iso(now)}},
        )
        return next(iter(due), None) is not None

    def _poll(self, route: str, now: int) -> int:
        store = self.ledger.store
        if route not in self._streams:
            self._streams[route] = Stream(
                store.requests, store.control, route, store.names.rows(route), "follower"
            )

        return self._streams[route].poll(
            lambda records: carry_out(store, self._relay, records, now), Moment(now)
        )


class Moment:
    def __init__(self, now: int) -> None:
        self._now = now

    def now(self) -> int:
        return self._now


class SynchronousLedger:
    """Like the ledger, but everything follows before the next word is said."""

    def __init__(self, ledger: AwsLedger, follower: Follower | None = None) -> None:
        self.ledger = ledger
        self.follower = follower or Follower(ledger)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ledger, name)

    def another(self) -> SynchronousLedger:
        """A second handle on the same ledger, as another process would have it, but for one thing:
        the stream is read once."""
        first = self.store.requests
        requests = Requests(first.region, first.endpoint, endpoints=first.endpoints)
        return SynchronousLedger(
            AwsLedger(requests, self.store.names.prefix, MemoryBlobs(), settings=PROMPT, make=True),
            self.follower,
        )

    def add(self, plan: Plan, new_items: Sequence[Any], now: int) -> Any:
        self.follower.load_route(plan)
        answer = self.ledger.add(plan, new_items, now)
        self.follower.follow(now)
        return answer

    def claim(self, asks: Sequence[ClaimRequest], now: int, jitter: float) -> list[ClaimResult]:
        for ask in asks:
            self.ledger.prepare(ask.plan)
            self.follower.load_route(ask.plan)
        self.follower.resend(now)
        answer = self.ledger.claim(asks, now, jitter)
        self.follower.follow(now)
        return answer

    def apply(self, changes: Sequence[Any], now: int, versions: Any = None) -> Any:
        answer = self.ledger.apply(changes, now, versions)
        self.follower.follow(now)
        return answer

    def extend(self, rows: Sequence[Any], until: int, now: int, tickets: Sequence[Any] = ()) -> Any:
        answer = self.ledger.extend(rows, until, now, tickets)
        self.follower.follow(now)
        return answer

    def rename_stage(self, route: str, old: str, new: str) -> None:
        self.ledger.rename_stage(route, old, new)
        self.follower.follow()

    def reclaim(self, holders: Sequence[str], now: int) -> int:
        answer = self.ledger.reclaim(holders, now)
        self.follower.follow(now)
        return answer

    def prune(self, *args: Any) -> Any:
        answer = self.ledger.prune(*args)
        self.follower.follow()
        return answer

    def forget(self, *args: Any) -> Any:
        answer = self.ledger.forget(*args)
        self.follower.follow()
        return answer


def open_synchronous_ledger(
    endpoint: str, prefix: str, region: str, endpoints: Mapping[str, str] | None = None
) -> SynchronousLedger:
    requests = Requests(region, endpoint, endpoints=endpoints)
    return SynchronousLedger(AwsLedger(requests, prefix, MemoryBlobs(), settings=PROMPT, make=True))


def damage(ledger: SynchronousLedger, route: str, key: str, what: str) -> None:
    """Make the "content" of an item, or its "row", one that cannot be read any more."""
    layout = ledger.store.layout(route)
    assert layout is not None
    gone = {"M": {"blob": {"S": "nowhere"}, "sha256": {"S": "0"}, "size": {"N": "1"}}}
    update = Update(layout, key)
    if what == "content":
        update.set("input", gone)
    else:
        update.set("lastError", {"S": "{"})
    ledger.store.requests.call("dynamodb", "update_item", **update.params())


def fill_row(store: AwsStore, route: str, key: str, name: str) -> None:
    """Fill a row with one attribute until DynamoDB takes no more."""
    layout = store.layout(route)
    assert layout is not None
    for size in range(409_600, 0, -30):
        update = Update(layout, key)
        update.set(name, {"S": "x" * size})
        try:
            store.requests.call("dynamodb", "update_item", **update.params())
        except RowRefused:
            continue
        return
