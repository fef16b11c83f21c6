"""A whole life on AWS, small and always the same: two parcels are handed in and one is put by an
outsider; they are packed by our own worker (one after a failure and a "not yet", one after its
queue lost the call for it), shipped by somebody else who loses an offer, told to a desk, finished
and pruned.

`Scene` is what outlasts every process: the tables and queues, the time, the outsider, the desk.
`Process` is one that may meet faults or die. Time is the scene's alone, and nobody waits for it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import boto3
import msgspec
from tests.aws.ledger.synchronous_ledger import carry_out
from tests.standins import REGION

from milepost.blobs.memory import MemoryBlobs
from milepost.core.due import Lease
from milepost.core.events import Envelope, events_of
from milepost.core.item import Item
from milepost.core.outcome import Done, NotYet, Outcome, Retry
from milepost.core.routes.backoff import Backoff, Checks
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Limits, Route
from milepost.core.status import TERMINAL, Status
from milepost.engine.context import Context
from milepost.engine.events.cursors import delivered
from milepost.engine.events.deliver import EventRelay as Teller
from milepost.engine.intake import submit
from milepost.engine.resend import Resender
from milepost.engine.work.settle import settle
from milepost.ports.items import ClaimRequest
from milepost.ports.retention import PruneCriteria
from milepost.ports.runner import JobResult
from milepost_aws.ledger.claim.paused_lanes import HeldLanes
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.relay import StreamRelay
from milepost_aws.ledger.requests.client import Requests
from milepost_aws.ledger.retention import SEALED_FOR_MS
from milepost_aws.ledger.store import StoreSettings
from milepost_aws.ledger.stream import HandledBatch, Stream, StreamRecord, clear_lost, lost_records
from milepost_aws.ledger.tables.counters import CounterTally
from milepost_testing.audit import audit, every_item
from milepost_testing.clock import SeededChance, VirtualClock

ROUTE = "parcels"
HANDED_IN = ({"id": "a", "lane": "air"}, {"id": "b", "lane": "sea"})
PUT = {"id": "c", "lane": "air"}
KEYS = {"a", "b", "c"}
LEASE_MS = 60_000
ROUND_MS = 25 * 60_000
MOST_ROUNDS = 40
SETTINGS = StoreSettings(longest_delay_s=0)
"""No message is held back: the queues' time is the world's, and does not pass here."""


class EventLog:
    """Whoever is told; keeps every event it was given."""

    name = "desk"
    batch = 10

    def __init__(self) -> None:
        self.told: list[tuple[str, str, int, str]] = []
        self.said: dict[str, Envelope] = {}
        self.contradictions: list[str] = []

    def tell(self, envelopes: Sequence[Envelope]) -> None:
        for envelope in envelopes:
            event = envelope.event
            self.told.append((event.route, event.key, event.sequence, event.id))
            if self.said.setdefault(event.id, envelope) != envelope:
                self.contradictions.append(event.id)


class Scene:
    """The world around the processes. `clean` clients are the outsider's and the test's own: they
    meet no faults."""

    def __init__(self, endpoint: str, prefix: str) -> None:
        self.endpoint, self.prefix = endpoint, prefix
        # A little ahead of the records' own time, which is the world's: so the first of them are
        # fresh, however slow this machine is.
        self.clock = VirtualClock(int(time.time() * 1000) + 40_000)
        self.blobs = MemoryBlobs()
        self.desk = EventLog()
        self.packed: Counter[str] = Counter()
        """How often the handler was called for a parcel."""
        self.shipped: list[str] = []
        self.offers: Counter[str] = Counter()
        self.lost_at: int | None = None
        self.lost_call = False
        self.receipts: dict[str, str] = {}
        self.started = 0
        self.session = boto3.session.Session(region_name=REGION)
        self.sqs, self.dynamodb = (
            self.session.client(name, endpoint_url=endpoint) for name in ("sqs", "dynamodb")
        )
        maker = AwsLedger(
            self.share(Requests(REGION, endpoint)), prefix, self.blobs, settings=SETTINGS, make=True
        )
        maker.prepare(Plan(self.route()))
        maker.close()
        self._put()

    def route(self) -> Route:
        parcels = Route(ROUTE, key="id")
        limits = {"sea": Limits(rate="50/s", concurrency=5)}
        retry, checks = Backoff(attempts=4, base="1m", jitter=0), Checks(every="1m", up_to="1m")
        parcels.stage(
            "pack",
            retry=retry,
            checks=checks,
            rate="100/s",
            lane=lambda content: content["lane"],
            lanes=limits,
        )(self._pack)
        parcels.external("ship", resend_after="20m")
        return parcels

    def share(self, requests: Requests) -> Requests:
        """A session of its own for every process would take as long as the rest of its life
        here."""
        requests._session = self.session
        return requests

    def close(self) -> None:
        self.sqs.close()
        self.dynamodb.close()

    # Others ---------------------------------------------------------------------------------------
    def _pack(self, item: Item) -> Outcome:
        self.packed[item.key] += 1
        if item.key == "b" and item.row.attempts == 0:
            return Retry("no tape left", category="TAPE")
        if item.key == "b" and item.row.looks == 0:
            return NotYet(note="the tape is on its way")
        return Done({"box": item.key})

    def _put(self) -> None:
        """A parcel that an outsider puts into the table, knowing nothing of Milepost but its
        table's key."""
        row = {"id": {"S": PUT["id"]}, "input": {"S": msgspec.json.encode(PUT).decode()}}
        self.dynamodb.put_item(TableName=f"{self.prefix}-{ROUTE}", Item=row)

    def lose(self) -> None:
        """The queue of "pack" loses its first message for "c"."""
        if self.lost_call:
            return
        url = self._queue("pack")
        for message in self.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0
        ).get("Messages", []):
            if msgspec.json.decode(message["Body"])["key"] == PUT["id"]:
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                self.lost_call = True

    def leap(self) -> None:
        """Fifteen days pass: longer than any queue keeps a message, whether somebody has received
        it or not."""
        self.clock.advance("15d")
        for stage in ("pack", "ship"):
            self.sqs.purge_queue(QueueUrl=self._queue(stage))

    def _queue(self, stage: str) -> str:
        url: str = self.sqs.get_queue_url(QueueName=f"{self.prefix}-{ROUTE}-{stage}")["QueueUrl"]
        return url

    def ship(self) -> None:
        """The outsider takes its offers and confirms each parcel once. What it is offered of "b" at
        first gets lost."""
        url = self._queue("ship")
        while messages := self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get(
            "Messages", []
        ):
            for message in messages:
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                offer = msgspec.json.decode(message["Body"])
                self.offers[offer["key"]] += 1
                assert offer["payload"] == {"box": offer["key"]}
                if offer["key"] == "b":
                    self.lost_at = self.clock.now() if self.lost_at is None else self.lost_at
                if offer["key"] in self.shipped or (
                    offer["key"] == "b" and self.lost_at == self.clock.now()
                ):
                    continue
                self.shipped.append(offer["key"])
                confirm = offer["confirm"]
                self.dynamodb.update_item(
                    TableName=confirm["table"],
                    Key={name: {"S": value} for name, value in confirm["key"].items()},
                    UpdateExpression="SET #done = :done",
                    ExpressionAttributeNames={"#done": confirm["attribute"]},
                    ExpressionAttributeValues={":done": {"S": '{"ship": "Nordstern"}'}},
                )


class Process:
    """One process with everything in it. `attach` is given its requests before the first of them is
    made."""

    def __init__(
        self, scene: Scene, attach: Callable[[Requests], None] | None = None, *, late_ms: int = 0
    ) -> None:
        self.scene = scene
        scene.started += 1
        self.name = f"process-{scene.started}"
        self._slept = 0.0
        # Jobs one after the other, so that a run is the same every time; pauses take no time, and
        # are soon over.
        patience: dict[str, Any] = {
            "deadline_s": 2.0,
            "sleep": self._sleep,
            "chance": lambda: 1.0,
            "clock": lambda: self._slept,
        }
        self.requests = scene.share(Requests(REGION, scene.endpoint, width=1, **patience))
        if attach is not None:
            attach(self.requests)
        self.clock = Watch(scene.clock, late_ms)
        self.ledger = AwsLedger(self.requests, scene.prefix, scene.blobs, settings=SETTINGS)
        self.store = self.ledger.store
        timing = self.ledger.timing
        self.plan = Plan(
            scene.route(), grace_ms=timing.grace_ms, offer_life_ms=timing.offer_life_ms
        )
        self.ctx = Context(
            self.ledger, {ROUTE: self.plan}, self.clock, SeededChance(scene.started), scene.blobs
        )
        self.relay = StreamRelay(self.store, {ROUTE: self.plan}, lambda: 0.0)
        self.stream = Stream(
            self.requests, self.store.control, ROUTE, self.store.names.rows(ROUTE), self.name
        )
        self.resender = Resender(self.ctx)
        self.author = Teller(self.ctx, scene.desk, self.name)
        self.claims = 0

    def _sleep(self, seconds: float) -> None:
        self._slept += seconds

    def close(self) -> None:
        self.requests.close()

    # What it does, a turn each --------------------------------------------------------------------
    def submit(self) -> None:
        left = [content for content in HANDED_IN if content["id"] not in self.scene.receipts]
        if left:
            for receipt in submit(self.ctx, ROUTE, left, correlation_id="post", by="counter"):
                self.scene.receipts[receipt.key] = receipt.answer

    def follow(self) -> None:
        self.ledger.prepare(self.plan)
        for _ in range(50):
            if not self.stream.poll(self.handle, self.clock):
                break
        else:
            raise AssertionError("the stream never comes to rest")
        lost = lost_records(self.ledger.store.control, ROUTE)
        if lost is not None:
            clear_lost(self.ledger.store.control, ROUTE, lost.version)

    def handle(self, records: list[StreamRecord]) -> HandledBatch:
        return carry_out(self.store, self.relay, records, self.clock.now())

    def work(self) -> None:
        """Claim, hold on for a little longer, do the work, settle; what is fragile is asked for
        alone."""
        for fragile in (False, True):
            now = self.clock.now()
            self.claims += 1
            lease = Lease(f"{self.name}/{self.claims}", self.name, now + LEASE_MS)
            (claimed,) = self.ledger.claim(
                [ClaimRequest(self.plan, "pack", 5, lease, fragile=fragile)], now, 0.0
            )
            if claimed.items:
                rows, tickets = (
                    [item.row for item in claimed.items],
                    [item.ticket for item in claimed.items],
                )
                held = self.ledger.extend(rows, now + 2 * LEASE_MS, now, tickets)
                rans = [
                    JobResult(item, self.scene._pack(item), 5)
                    for item, ours in zip(claimed.items, held, strict=True)
                    if ours
                ]
                settle(self.ctx, rans)
            if not claimed.fragile:
                break

    def resend(self) -> None:
        self.resender.run_once()
        HeldLanes(self.store).resume(self.clock)

    def tell(self) -> None:
        while self.author.run_once().waiting:
            pass

    def prune(self) -> None:
        self.ledger.prune(
            PruneCriteria(ROUTE, TERMINAL, self.clock.now() - 1, None, delivered(self.ctx), 100)
        )


class Watch:
    """A machine's clock: the scene's time, or a little off."""

    def __init__(self, clock: VirtualClock, late_ms: int) -> None:
        self._clock, self._late_ms = clock, late_ms

    def now(self) -> int:
        return self._clock.now() - self._late_ms


Turn = Callable[[], None]
Careful = Callable[[Turn], None]
"""Takes a turn; decides what may go wrong in it."""


def plainly(turn: Turn) -> None:
    turn()


ROLES = ("submit", "follow", "lose", "resend", "follow", "work", "follow", "ship", "follow", "tell")
OUTSIDE = ("lose", "ship")
"""What the scene does: no process of ours takes part in it."""


def take_turns(
    scene: Scene, process: Callable[[], Process], careful: Careful, roles: Sequence[str]
) -> None:
    for role in roles:
        careful(
            getattr(scene, role)
            if role in OUTSIDE
            else lambda role=role: getattr(process(), role)()
        )  # type: ignore[misc]


def rows(scene: Scene) -> dict[str, dict[str, Any]]:
    images = scene.dynamodb.scan(TableName=f"{scene.prefix}-{ROUTE}", ConsistentRead=True)["Items"]
    return {image["id"]["S"]: image for image in images}


def see_through(scene: Scene, process: Callable[[], Process], careful: Careful = plainly) -> None:
    """Rounds until every parcel has arrived and the desk has been told; when nothing is left but to
    wait, time makes a leap."""
    before: dict[str, dict[str, Any]] = {}
    for _ in range(MOST_ROUNDS):
        take_turns(scene, process, careful, ROLES)
        scene.clock.advance(ROUND_MS / 1000)
        found = rows(scene)
        ended = {
            key
            for key, image in found.items()
            if image.get("status") == {"S": Status.COMPLETED.value}
        }
        if scene.receipts.keys() >= {"a", "b"} and ended >= KEYS:
            take_turns(scene, process, careful, ("follow", "tell", "follow"))
            return
        if found == before:
            # A message that was received and never answered comes again in the world's time, which
            # does not pass here; so its queue drops it, and its item is called again.
            scene.leap()
        before = found
    raise AssertionError(
        f"after {MOST_ROUNDS} rounds the parcels are {_shown(scene)}; receipts {scene.receipts}"
    )


def take_down(scene: Scene, process: Callable[[], Process], careful: Careful = plainly) -> None:
    """The rows go, once their seals are old enough."""
    for _ in range(5):
        scene.clock.advance((SEALED_FOR_MS + 1000) / 1000)
        take_turns(scene, process, careful, ("follow", "tell", "prune", "follow"))
        if not rows(scene):
            return
    raise AssertionError(f"the rows stay: {_shown(scene)}")


def _shown(scene: Scene) -> dict[str, str]:
    return {
        key: f"{image.get('status', {}).get('S')} at {image.get('queue', {}).get('S')}"
        for key, image in rows(scene).items()
    }


# What must be true --------------------------------------------------------------------------------
def story(process: Process, key: str) -> list[tuple[str, str, str]]:
    """An item's lines without their times: (reason, stage, status)."""
    lines = [written.line for written in process.ledger.history(ROUTE, key)]
    return [(line.reason.value, line.stage, line.status.value) for line in lines]


def repair(process: Process) -> None:
    """What the daily scan does for the counters."""
    truth = CounterTally()
    for item in every_item(process.ledger, ROUTE):
        truth.present(item.row)
    process.store.counters.replace(ROUTE, truth, process.clock.now())


def check_whole(
    scene: Scene, process: Process, *, exact: bool
) -> dict[str, list[tuple[str, str, str]]]:
    """All promises, while the rows are still there; `exact`: no record was told twice, so counters
    need no repair. The stories."""
    if not exact:
        repair(process)
    assert audit(process.ledger, ROUTE, process.plan) == len(KEYS)
    images = rows(scene)
    assert images.keys() == KEYS
    assert all("version" in image and "input" in image for image in images.values()), "a ghost"
    assert set_aside(scene) == []
    stories = {key: story(process, key) for key in sorted(KEYS)}
    for key, lines in stories.items():
        assert [status for _, _, status in lines].count("COMPLETED") == 1, f"{key}: {lines}"
    feed = process.ledger.feed(0, 1000)
    assert [written.seq for written in feed] == list(range(1, len(feed) + 1))
    lines = [(written.key, written.line.version) for written in feed]
    assert sorted(lines) == sorted(
        (key, number + 1) for key, story in stories.items() for number in range(len(story))
    ), "lost or doubled"
    expected = [
        (written.route, written.key, event.sequence, event.id)
        for written in feed
        for event in events_of(
            written.line, written.route, written.key, written.correlation_id, written.payload
        )
    ]
    assert set(scene.desk.told) == set(expected)
    assert scene.desk.contradictions == []
    firsts = list(dict.fromkeys(scene.desk.told))
    for key in KEYS:
        assert [event for event in firsts if event[1] == key] == [
            event for event in expected if event[1] == key
        ], "told out of order"
    if exact:
        assert len(scene.desk.told) == len(expected), "told twice"
    return stories


def check_gone(scene: Scene, process: Process, *, exact: bool, evidence: bool = False) -> None:
    """The rows have left: their memory stays, nothing else. (Whoever comes no further than the row
    leaves its lines as `evidence`.)"""
    if not exact:
        repair(process)
    assert process.ledger.counts(ROUTE) == []
    assert [group for group in process.ledger.groups(ROUTE) if group.now] == []
    for known in process.ledger.peek(ROUTE, sorted(KEYS)):
        assert known is not None, "forgotten"
        assert (known.sealed, known.status) == (True, Status.COMPLETED)
    assert evidence or [story(process, key) for key in sorted(KEYS)] == [[], [], []]
    again = submit(process.ctx, ROUTE, HANDED_IN, correlation_id="post", by="counter")
    assert [receipt.answer for receipt in again] == ["known", "known"]
    assert set_aside(scene) == []


def set_aside(scene: Scene) -> list[Any]:
    url = scene.sqs.get_queue_url(QueueName=f"{scene.prefix}-quarantine")["QueueUrl"]
    return [
        msgspec.json.decode(one["Body"])
        for one in scene.sqs.receive_message(QueueUrl=url, VisibilityTimeout=0).get("Messages", [])
    ]
