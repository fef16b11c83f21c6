"""The postingest route on AWS: a step function that puts rows, external confirmers, a resender, a
subscriber, and a relay that reads when the test says so."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import boto3
from tests.aws.ledger.synchronous_ledger import PROMPT
from tests.standins import REGION

from milepost.blobs.memory import MemoryBlobs
from milepost.core.events import Envelope, Event
from milepost.core.item import Item
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.values.durations import Span, span_ms
from milepost.engine import resend
from milepost.engine.context import Context
from milepost.engine.events import deliver as telling
from milepost.ports.blobs import Blobs
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.names import ms
from milepost_aws.ledger.relay import StreamRelay
from milepost_aws.ledger.requests.client import Requests
from milepost_aws.ledger.retention import finish
from milepost_aws.ledger.store import StoreSettings
from milepost_aws.ledger.stream import Stream, StreamRecord
from milepost_postingest import postingest
from milepost_postingest.dialects import as_json
from milepost_testing.clock import SeededChance

Image = dict[str, dict[str, Any]]
ASSET = "e2715719-c313-4e95-b5e6-f8759dcc6aed"
OTHER = "ca3bb9d5-c5bf-4da8-9ad7-a937f163b006"
BATCH = "TDR_0cae3480-2b84-42a7-b899-dcce25aee98b"
INPUT = '{"preservationSystemId":"9a83532d-dd26-442d-b259-b1823f668649"}'
PATHS = {"filePaths": ["abc/def/0a1/v1/content/one", "abc/def/0a1/v1/content/two"]}
VOLUMES = {"abc/def/0a1/v1/content/one": ["L03721"], "abc/def/0a1/v1/content/two": ["L03722"]}

AHEAD = ms("2038-01-19T03:14:07.000Z")
"""The scenario list's own moment. It is after the world's, so that stand-ins let no ended row leave
while a test looks at it."""


def text(value: Any) -> dict[str, Any]:
    """As the confirmers write it: JSON in a string."""
    return {"S": json.dumps(value, ensure_ascii=False)}


def assets(queues: Any = None, **options: Any) -> Route:
    """The route that comes with Milepost: on disk, then on tape, both confirmed by somebody
    else."""
    return postingest(queues, **{"name": "assets", **options})


class Sent(NamedTuple):
    """A message as a confirmer finds it: what it says, and the labels on it."""

    body: Any
    labels: dict[str, str]

    @property
    def key(self) -> dict[str, str]:
        """The row that it is about."""
        key: dict[str, str] = json.loads(self.labels["key"])
        return key

    @property
    def asset(self) -> str:
        return self.key["assetId"]


class WallClock:
    """The world's time and a little more: what a test calls days go by at once."""

    def __init__(self, ahead: int = 0) -> None:
        self._ahead = ahead

    def now(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead

    def advance(self, span: Span) -> int:
        self._ahead += span_ms(span, "advance(…)")
        return self.now()


class Told:
    """A subscriber that writes down what it is told: notifications in their own form apart from the
    rest. While it is `deaf` it takes nothing."""

    name = "desk"
    batch = 10

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.envelopes: list[dict[str, Any]] = []
        self.notifications: list[dict[str, Any]] = []
        self.deaf = False

    def tell(self, envelopes: Sequence[Envelope]) -> None:
        if self.deaf:
            raise ConnectionError("nobody listens")
        self.events += [envelope.event for envelope in envelopes]
        self.envelopes += [dict(envelope) for envelope in envelopes if not envelope.formed]
        self.notifications += [dict(envelope) for envelope in envelopes if envelope.formed]


class Postingest:
    """One route on one ledger. Outsiders act by boto3 clients of their own; our side acts when
    `follow` or `resend` is called."""

    def __init__(
        self,
        endpoint: str,
        prefix: str,
        clock: Any,
        route: Route | None = None,
        settings: StoreSettings = PROMPT,
        make: bool = True,
        blobs: Blobs | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.clock = clock
        blobs = blobs or MemoryBlobs()
        self.ledger = AwsLedger(
            Requests(REGION, endpoint, width=4), prefix, blobs, settings=settings, make=make
        )
        self.store = self.ledger.store
        timing = self.ledger.timing
        self.plan = self.ledger.prepare(
            Plan(route or assets(), grace_ms=timing.grace_ms, offer_life_ms=timing.offer_life_ms)
        )
        self.route = self.plan.name
        self.table = self.store.names.rows(self.route)
        layout = self.store.layout(self.route)
        assert layout is not None
        self.prefix = layout.prefix
        """What a confirmation's attribute begins with."""
        self.ctx = Context(self.ledger, {self.route: self.plan}, clock, SeededChance(), blobs)
        self.told = Told()
        self.relay = StreamRelay(self.store, {self.route: self.plan}, lambda: 0.0)
        self.batches: list[list[StreamRecord]] = []
        """Every batch that the relay has been given."""
        self._teller = telling.EventRelay(self.ctx, self.told, "follower")
        self._stream = Stream(
            self.store.requests, self.store.control, self.route, self.table, "follower"
        )
        self.dynamodb = boto3.client("dynamodb", endpoint_url=endpoint)
        self.sqs = boto3.client("sqs", endpoint_url=endpoint)

    def close(self) -> None:
        self.ledger.close()
        self.dynamodb.close()
        self.sqs.close()

    # Outsiders ------------------------------------------------------------------------------------
    @staticmethod
    def key(asset: str = ASSET, batch: str = BATCH) -> Image:
        return {"assetId": {"S": asset}, "batchId": {"S": batch}}

    def put(
        self,
        asset: str = ASSET,
        content: str | None = INPUT,
        batch: str = BATCH,
        **more: dict[str, Any],
    ) -> None:
        """The step function's PutItem, without a condition."""
        told = {} if content is None else {"input": {"S": content}}
        self.dynamodb.put_item(
            TableName=self.table, Item={**self.key(asset, batch), **told, **more}
        )

    def confirm(
        self,
        stage: str,
        value: dict[str, Any],
        asset: str = ASSET,
        *,
        rewrite: str | None = None,
        guarded: bool = True,
        prefix: str | None = None,
        batch: str = BATCH,
    ) -> None:
        """A confirmer's UpdateItem, in the words of the route's dialect unless a `prefix` is given;
        with `rewrite` it gives the next stage's input too, without `guarded` it has no
        condition."""
        more: dict[str, Any] = (
            {"ConditionExpression": "attribute_exists(assetId)"} if guarded else {}
        )
        values = {":x": value}
        if rewrite is not None:
            values[":y"] = {"S": rewrite}
            more["ExpressionAttributeNames"] = {"#input": "input"}
        self.dynamodb.update_item(
            TableName=self.table,
            Key=self.key(asset, batch),
            UpdateExpression=f"SET {self.prefix if prefix is None else prefix}{stage} = :x"
            + ("" if rewrite is None else ", #input = :y"),
            ExpressionAttributeValues=values,
            **more,
        )

    def set(self, attribute: str, value: dict[str, Any], asset: str = ASSET) -> None:
        """Anybody's UpdateItem of one attribute."""
        self.dynamodb.update_item(
            TableName=self.table,
            Key=self.key(asset),
            UpdateExpression="SET #name = :value",
            ExpressionAttributeNames={"#name": attribute},
            ExpressionAttributeValues={":value": value},
        )

    def take_off(self, attribute: str, asset: str = ASSET, batch: str = BATCH) -> None:
        self.dynamodb.update_item(
            TableName=self.table, Key=self.key(asset, batch), UpdateExpression=f"REMOVE {attribute}"
        )

    def delete(self, asset: str = ASSET) -> None:
        """By hand, or when its time to live is over."""
        self.dynamodb.delete_item(TableName=self.table, Key=self.key(asset))

    def received(self, stage: str, url: str | None = None) -> list[Sent]:
        """What a confirmer finds in its queue; it takes all of it."""
        return [
            Sent(as_json(body), labels)
            for body, labels in self.taken(url or self.store.queues.url(self.route, stage))
        ]

    def shown(self, stage: str) -> list[Sent]:
        """Messages of its queue that somebody looks at; they stay there."""
        asked = {
            "MaxNumberOfMessages": 10,
            "VisibilityTimeout": 0,
            "MessageAttributeNames": ["All"],
        }
        found = self.sqs.receive_message(
            QueueUrl=self.store.queues.url(self.route, stage), **asked
        ).get("Messages", [])
        return [Sent(as_json(message["Body"]), _labels(message)) for message in found]

    def taken(self, url: str) -> list[tuple[str, dict[str, str]]]:
        """The same to the letter: text and labels."""
        found: list[tuple[str, dict[str, str]]] = []
        asked = {"QueueUrl": url, "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]}
        while messages := self.sqs.receive_message(**asked).get("Messages", []):
            for message in messages:
                found.append((message["Body"], _labels(message)))
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return found

    def bodies(self, url: str) -> list[str]:
        return [body for body, _ in self.taken(url)]

    # Our side -------------------------------------------------------------------------------------
    def follow(self) -> None:
        """Read the stream to its end, finish rows that have ended, and tell what there is to
        tell."""
        for _ in range(50):
            if not self._stream.poll(self._handle, self.clock):
                break
        else:
            raise AssertionError("the stream never comes to rest")
        self.tell()

    def tell(self) -> None:
        while self._teller.run_once().delivered:
            pass

    def _handle(self, records: list[StreamRecord]) -> None:
        self.batches.append(records)
        now = self.clock.now()
        finish(self.store, self.relay.handle(records, now), now)

    def resend(self) -> resend.ResendSummary:
        """One run of the resender, and what follows from it."""
        summary = resend.Resender(self.ctx).run_once()
        self.follow()
        return summary

    @contextmanager
    def before_each_call(self, act: Callable[[str, dict[str, Any]], None]) -> Iterator[None]:
        """Done before each request of ours; it may raise what AWS would be the trouble for."""
        with self._around(
            lambda operation, params, answer: act(operation, params) if answer is None else None
        ):
            yield

    @contextmanager
    def after_each_call(
        self, act: Callable[[str, dict[str, Any], dict[str, Any]], None]
    ) -> Iterator[None]:
        """Done with each answer that we get."""
        with self._around(
            lambda operation, params, answer: (
                None if answer is None else act(operation, params, answer)
            )
        ):
            yield

    @contextmanager
    def _around(
        self, act: Callable[[str, dict[str, Any], dict[str, Any] | None], None]
    ) -> Iterator[None]:
        attempt = self.store.requests.attempt

        def attempt_with(
            patience: Any, service: str, operation: str, params: dict[str, Any]
        ) -> dict[str, Any]:
            act(operation, params, None)
            answer = attempt(patience, service, operation, params)
            act(operation, params, answer)
            return answer

        self.store.requests.attempt = attempt_with  # type: ignore[method-assign]
        try:
            yield
        finally:
            self.store.requests.attempt = attempt  # type: ignore[method-assign]

    # What there is --------------------------------------------------------------------------------
    def row(self, asset: str = ASSET) -> Image | None:
        found: Image | None = self.dynamodb.get_item(
            TableName=self.table, Key=self.key(asset), ConsistentRead=True
        ).get("Item")
        return found

    def item(self, asset: str = ASSET) -> Item:
        found = self.ledger.get([(self.route, f"{asset}#{BATCH}")])[0]
        assert found is not None, f"there is no item {asset}"
        return found

    def at(self, asset: str = ASSET) -> tuple[str, str]:
        """Where it is, and its status."""
        row = self.item(asset).row
        return row.stage, row.status.value

    def lines(self, asset: str = ASSET) -> list[str]:
        """The reasons in its history."""
        return [
            written.line.reason.value
            for written in self.ledger.history(self.route, f"{asset}#{BATCH}")
        ]

    def notes(self, asset: str = ASSET) -> list[Any]:
        lines = [written.line for written in self.ledger.history(self.route, f"{asset}#{BATCH}")]
        return [line.note for line in lines if line.reason.value == "noted"]

    def events(self, asset: str = ASSET) -> list[tuple[str, str, str]]:
        """Kind, stage and status of each event told of it."""
        return [
            (one.kind, one.stage, one.status.value)
            for one in self.told.events
            if one.key == f"{asset}#{BATCH}"
        ]

    def aside(self) -> list[dict[str, Any]]:
        """What was set aside since this was last asked."""
        return [json.loads(body) for body in self.bodies(self.store.queues.quarantine())]

    def moment(self, attribute: str, asset: str = ASSET) -> int:
        row = self.row(asset)
        assert row is not None
        return ms(row[attribute]["S"])


def _labels(message: dict[str, Any]) -> dict[str, str]:
    return {
        name: label["StringValue"] for name, label in message.get("MessageAttributes", {}).items()
    }


Opener = Callable[..., Postingest]
"""Opens one more: open_at(clock=…, route=…, settings=…)."""


@contextmanager
def opener(endpoint: str, prefix: str, ahead: Span = 0) -> Iterator[Opener]:
    """All that are opened share one ledger, and are closed in the end."""
    opened: list[Postingest] = []

    def open_at(clock: Any = None, **options: Any) -> Postingest:
        opened.append(
            Postingest(endpoint, prefix, clock or WallClock(span_ms(ahead, "ahead")), **options)
        )
        return opened[-1]

    try:
        yield open_at
    finally:
        for one in opened:
            one.close()
