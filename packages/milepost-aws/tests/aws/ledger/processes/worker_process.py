"""A worker process on an AWS ledger: short leases, a clock that may be wrong, and a point at which
it is killed.

Points are reached by the code as it is; `arm` puts them in from outside, in this process alone.
Dying is SIGKILL, nothing less.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import boto3
import msgspec
from msgspec import Struct

import milepost as mp
from milepost.blobs.folder import FolderBlobs
from milepost.core.routes.plan import Plan
from milepost.engine import resend
from milepost.engine.context import Context
from milepost.engine.events import deliver as telling
from milepost.engine.intake import submit
from milepost.engine.routes.versions import register
from milepost.runners.clock import SystemChance, SystemClock
from milepost.station import Station
from milepost_aws.ledger import apply, stream, upkeep
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.relay import StreamRelay
from milepost_aws.ledger.requests.client import Requests
from milepost_aws.ledger.store import AwsStore, StoreSettings
from milepost_aws.ledger.tables.documents import Control
from milepost_aws.ledger.tables.journal import Journal

ROUTE = "hearts"
POINTS = {
    "accepted": "some of a batch of new items have been put",
    "claimed": "leases are written, nothing runs yet",
    "running": "a handler has done its work and not said so",
    "settling": "outcomes are known, nothing is written",
    "settled": "outcomes are written, their messages not deleted",
    "called": "a stage has been called, the row does not say so yet",
    "lines": "lines are in the history, their block is not",
    "placed": "the block is there, nothing else has followed",
    "followed": "all has followed but the counters",
    "counted": "a batch of records is counted and the shard moved on, and nothing else",
    "finishing": "the first of several ended rows has been finished",
    "told": "events are told, the cursor is not moved on",
}
"""Where a process can be told to die."""


class Life(Struct, kw_only=True, frozen=True):
    """What a process is to be and do."""

    endpoint: str
    prefix: str
    folder: str
    region: str
    endpoints: dict[str, str] = {}
    external: bool = False
    """Has the route a third stage, which somebody else confirms?"""
    roles: tuple[str, ...] = ("worker", "resender", "relay")
    holder: str = "heart"
    items: tuple[str, ...] = ()
    """Handed over by this process before it starts to work."""
    skew_ms: int = 0
    lease_ms: int = 1_500
    shard_lease_ms: int = 1_000
    resend_delay_ms: int = 300
    deadline_s: float = 30.0
    slowness_s: float = 0.02
    at_most_s: float | None = None
    """It stops by itself after so long, its point reached or not."""
    point: str = ""
    passes: int = 1


class WrongClock:
    """Goes as fast as the others', and is off by so much."""

    def __init__(self, skew_ms: int) -> None:
        self._clock, self._skew = SystemClock(), skew_ms

    def now(self) -> int:
        return self._clock.now() + self._skew


class Fault:
    """Dies at the n-th passing of its point."""

    def __init__(self, point: str = "", passes: int = 1) -> None:
        assert not point or point in POINTS, point
        self._point, self._left, self._lock = point, passes, threading.Lock()

    def reach(self, point: str) -> None:
        if point == self._point:
            with self._lock:
                self._left -= 1
                if self._left <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)


def append(path: Path, lines: Sequence[str]) -> None:
    """In one write, which the kernel keeps even if the process is killed right after."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, "".join(f"{line}\n" for line in lines).encode())
    finally:
        os.close(descriptor)


class FileSubscriber:
    name = "file"
    batch = 10

    def __init__(self, path: Path, fault: Fault) -> None:
        self._path, self._fault = path, fault

    def tell(self, envelopes: Sequence[dict[str, Any]]) -> None:
        append(self._path, [json.dumps(envelope) for envelope in envelopes])
        self._fault.reach("told")


def route_of(life: Life, fault: Fault) -> mp.Route:
    """Two stages of ours, which write each call down; the second one's partner is busy now and
    then."""
    route = mp.Route(ROUTE, key="id")
    calls = Path(life.folder) / "calls"

    def work(item: mp.Item) -> None:
        append(calls, ["\t".join((item.stage, item.key, item.work_id, life.holder))])
        time.sleep(random.uniform(0.2, 1.0) * life.slowness_s)
        fault.reach("running")

    @route.stage("one", concurrency=3)
    def one(item: mp.Item) -> mp.Outcome:
        work(item)
        return mp.Done({"by": "one"})

    @route.stage("two", concurrency=3, retry=mp.Backoff(attempts=3, base=0.01, cap=0.05))
    def two(item: mp.Item) -> mp.Outcome:
        work(item)
        if item.attempt == 1 and item.key.endswith("7"):
            return mp.Retry("the partner is busy", http_status=503)
        return mp.Done()

    if life.external:
        route.external("three")
    return route


def open_process_ledger(life: Life, fault: Fault | None = None) -> Context:
    """The ledger with its route, as this process has it."""
    requests = Requests(
        life.region, life.endpoint, endpoints=life.endpoints, deadline_s=life.deadline_s
    )
    blobs = FolderBlobs(str(Path(life.folder) / "blobs"))
    settings = StoreSettings(
        fresh_ms=200, poll_ms=200, resend_delay_ms=life.resend_delay_ms, grace_ms=2_000
    )
    ledger = AwsLedger(requests, life.prefix, blobs, settings=settings, make=True)
    clock = WrongClock(life.skew_ms)
    plan = Plan(
        route_of(life, fault or Fault()),
        grace_ms=settings.grace_ms,
        offer_life_ms=settings.offer_life_ms,
    )
    plan = register(ledger, ledger.prepare(plan), clock.now(), life.holder)
    return Context(ledger, {ROUTE: plan}, clock, SystemChance(), blobs)


def live(life: Life) -> None:
    """Work until SIGTERM, or death."""
    fault = Fault(life.point, life.passes)
    shorten_waits(life)
    arm(fault)
    ctx = open_process_ledger(life, fault)
    if life.items:
        submit(ctx, ROUTE, [{"id": name} for name in life.items])
    subscriber = FileSubscriber(Path(life.folder) / "told", fault)
    station = Station(ctx, subscribers=[subscriber], roles=life.roles, holder=life.holder)
    if station.worker is not None:
        station.worker.lease_ms = life.lease_ms
    signal.signal(signal.SIGTERM, lambda *_: station.stop())
    until = None if life.at_most_s is None else time.monotonic() + life.at_most_s

    def look_at_the_time() -> None:
        if until is not None and time.monotonic() > until:
            station.stop()

    station.run(on_tick=look_at_the_time)
    ctx.ledger.close()


def shorten_waits(life: Life) -> None:
    """What is minutes in earnest is seconds here."""
    stream.LEASE_MS = life.shard_lease_ms
    stream.LOOK_MS = 200
    telling.LEASE_MS = life.shard_lease_ms
    telling.POLL = telling.STAND_BY = 0.2
    resend.EVERY = 0.3
    upkeep.SWEEP_S, upkeep.STAND_BY_S = 1.0, 0.2


def arm(fault: Fault) -> None:
    """Put the points in."""

    def around(
        owner: Any,
        name: str,
        *,
        before: Callable[..., bool] | None = None,
        after: Callable[..., bool] | None = None,
        point: str,
    ) -> None:
        """Reach the point before or after a call; `before` and `after` say whether this call is one
        that counts."""
        call = getattr(owner, name)

        def wrapped(*args: Any, **options: Any) -> Any:
            if before is not None and before(*args):
                fault.reach(point)
            answer = call(*args, **options)
            if after is not None and after(answer, *args):
                fault.reach(point)
            return answer

        setattr(owner, name, wrapped)

    def settles(changes: Sequence[Any]) -> bool:
        return any(
            change.before.lease is not None and change.after.lease is None for change in changes
        )

    def puts_an_item(
        _: Any, me: Any, patience: Any, service: str, operation: str, params: dict[str, Any]
    ) -> bool:
        return operation == "put_item" and "createToken" in params["Item"]

    around(Requests, "attempt", after=puts_an_item, point="accepted")
    around(
        AwsLedger,
        "claim",
        after=lambda answer, *_: any(claimed.items for claimed in answer),
        point="claimed",
    )
    around(AwsLedger, "apply", before=lambda me, changes, *_: settles(changes), point="settling")
    around(AwsLedger, "drop_tickets", before=lambda me, tickets: bool(tickets), point="settled")
    around(
        apply,
        "_send_offers",
        after=lambda _, store, changes, contents: any(map(apply.records_offer, changes)),
        point="called",
    )
    around(Journal, "_place", before=lambda *_: True, point="lines")
    around(Journal, "_place", after=lambda *_: True, point="placed")
    around(StreamRelay, "_carry_out", after=lambda *_: True, point="followed")
    around(Control, "put_with", after=lambda *_: True, point="counted")
    finish = upkeep.finish

    def finish_one(store: AwsStore, ended: Sequence[Any], now: int) -> int:
        if len(ended) > 1:
            finish(store, ended[:1], now)
            fault.reach("finishing")
        return finish(store, ended, now)

    upkeep.finish = finish_one


def confirm(life: Life) -> None:
    """Not ours: somebody who knows boto3 and the offer. Takes every offer of the third stage and
    says that it is done."""
    sqs = boto3.client(
        "sqs", region_name=life.region, endpoint_url=life.endpoints.get("sqs", life.endpoint)
    )
    dynamodb = boto3.client("dynamodb", region_name=life.region, endpoint_url=life.endpoint)
    queue = sqs.get_queue_url(QueueName=f"{life.prefix}-{ROUTE}-three")["QueueUrl"]
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    while not stopped.is_set():
        for message in sqs.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=1
        ).get("Messages", ()):
            offer = json.loads(message["Body"])
            where = offer["confirm"]
            dynamodb.update_item(
                TableName=where["table"],
                Key={name: {"S": value} for name, value in where["key"].items()},
                UpdateExpression="SET #done = :done",
                ExpressionAttributeNames={"#done": where["attribute"]},
                ExpressionAttributeValues={":done": {"S": f"by {life.holder}"}},
            )
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])


def run_process(kind: str, told: dict[str, Any]) -> None:
    """A process of this kind begins here, and ends when this returns."""
    {"live": live, "confirm": confirm}[kind](msgspec.convert(told, Life))
