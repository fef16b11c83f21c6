"""A deployment whose functions run in this process: queues and the stream call them when the test
says so."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import pytest
from tests.aws.lambdas.event_source_mapping import Context, QueueMapping, StreamMapping
from tests.postingest.aws_scene import WallClock
from tests.standins import REGION

from milepost.core.item import Row
from milepost.core.routes.plan import Plan
from milepost.engine.intake import submit
from milepost_aws.lambdas import relay, resender, start, worker

HEAD = """
from __future__ import annotations

import asyncio
import threading

import milepost as mp

seen: list[str] = []
"""

PARCELS = (
    HEAD
    + """
parcels = mp.Route("parcels", key="id")


@parcels.stage("weigh")
def weigh(item: mp.Item) -> mp.Outcome:
    seen.append(f"weigh {item.key}")
    return mp.Done({"grams": len(item.key)})


@parcels.stage("send")
async def send(item: mp.Item) -> mp.Outcome:
    seen.append(f"send {item.key}")
    await asyncio.sleep(0)
    return mp.Done()
"""
)


class Countdown(Context):
    """A call whose time really runs out."""

    def __init__(self, ms: int) -> None:
        super().__init__()
        self._until = time.monotonic() + ms / 1000

    def get_remaining_time_in_millis(self) -> int:
        return max(0, round((self._until - time.monotonic()) * 1000))


def named(call: Context, function: str) -> Context:
    call.function_name = function
    return call


class Deployment:
    """One route on one ledger. `module` is the route file, with `seen`, what its handlers were
    called for."""

    def __init__(
        self, endpoint: str, prefix: str, folder: Path, source: str, patch: pytest.MonkeyPatch
    ) -> None:
        self.endpoint, self.prefix, self.folder = endpoint, prefix, folder
        path = folder / f"routes_{prefix}.py"
        path.write_text(source)
        self.sns = boto3.client("sns", endpoint_url=endpoint)
        self.sqs = boto3.client("sqs", endpoint_url=endpoint)
        self.dynamodb = boto3.client("dynamodb", endpoint_url=endpoint)
        self.streams = boto3.client("dynamodbstreams", endpoint_url=endpoint)
        self.topic = self.sns.create_topic(Name=f"{prefix}-events")["TopicArn"]
        self.told = self.sqs.create_queue(QueueName=f"{prefix}-told")["QueueUrl"]
        arn = self.sqs.get_queue_attributes(QueueUrl=self.told, AttributeNames=["QueueArn"])[
            "Attributes"
        ]["QueueArn"]
        self.sns.subscribe(
            TopicArn=self.topic,
            Protocol="sqs",
            Endpoint=arn,
            Attributes={"RawMessageDelivery": "true"},
        )
        patch.setenv("MILEPOST_LEDGER", f"dynamodb://{REGION}/{prefix}?endpoint={endpoint}")
        patch.setenv("MILEPOST_BLOBS", str(folder / "blobs"))
        patch.setenv("MILEPOST_ROUTES", str(path))
        patch.setenv("MILEPOST_TOPIC", self.topic)
        self._patch = patch
        self.clock = WallClock()
        self.opened = self.open()
        self.module: ModuleType = sys.modules[path.stem]
        self.plan, *own = self.opened.ctx.plans.values()
        self.stream = self.stream_of(self.plan.name)
        self.own_streams = [self.stream_of(plan.name) for plan in own]
        """Of the route that Milepost adds where evidence is kept."""
        self.queues = {
            stage.name: self.queue(stage.name) for stage in self.plan.stages if not stage.external
        }

    def open(self) -> start.Opened:
        """A container's start; its time is the test's."""
        self.opened = start.opened()
        self.opened.ctx.clock = self.clock
        return self.opened

    def close(self) -> None:
        start.forget()
        for one in (self.sns, self.sqs, self.dynamodb, self.streams):
            one.close()

    def stream_of(self, route: str) -> StreamMapping:
        table = self.dynamodb.describe_table(TableName=self.opened.store.names.rows(route))["Table"]
        return StreamMapping(self.streams, table["LatestStreamArn"], relay.handler)

    # What calls the functions ---------------------------------------------------------------------
    def queue(self, stage: str, call: Callable[[], Context] = Context) -> QueueMapping:
        """The event source of a stage: what the function reports stays hidden for as long as the
        function decided."""

        def called(event: dict[str, Any], _: Any) -> Any:
            self._patch.setenv("MILEPOST_STAGE", f"{self.plan.name}/{stage}")
            return worker.handler(event, named(call(), f"{self.prefix}-{self.plan.name}-{stage}"))

        return QueueMapping(
            self.sqs, self.opened.store.queues.url(self.plan.name, stage), called, hurry=False
        )

    def resend(self, call: Context | None = None, **event: Any) -> dict[str, Any]:
        return resender.handler(event, named(call or Context(), f"{self.prefix}-resender"))

    def run(self, until: Callable[[], bool] | None = None, seconds: float = 30.0) -> None:
        """Streams and queues call the functions until nothing moves, or, with `until`, until that
        is so."""
        deadline = time.monotonic() + seconds
        while True:
            moved = sum(
                mapping.poll()
                for mapping in (self.stream, *self.own_streams, *self.queues.values())
            )
            if moved == 0 and until is None:
                break
            if until is not None and until():
                break
            assert time.monotonic() < deadline, (
                f"it never comes to that: {[(row.key, row.stage, row.status) for row in self.rows()][:20]}"
            )
            if moved == 0:
                time.sleep(0.05)  # a delayed message
        self.check()

    def check(self) -> None:
        """No function has failed as a whole."""
        for mapping in (self.stream, *self.own_streams, *self.queues.values()):
            if mapping.errors:
                raise mapping.errors[0]

    # Items ----------------------------------------------------------------------------------------
    def submit(self, *keys: str, **more: Any) -> None:
        receipts = submit(self.opened.ctx, self.plan.name, [{"id": key, **more} for key in keys])
        assert all(receipt.answer == "new" for receipt in receipts), receipts

    def row(self, key: str) -> Row:
        (item,) = self.opened.ledger.get([(self.plan.name, key)])
        assert item is not None, f"there is no item {key}"
        return item.row

    def image(self, key: str) -> dict[str, Any]:
        table = self.opened.store.names.rows(self.plan.name)
        found: dict[str, Any] = self.dynamodb.get_item(
            TableName=table, Key={"id": {"S": key}}, ConsistentRead=True
        )["Item"]
        return found

    def rows(self) -> list[Row]:
        return [
            self.row(image["id"]["S"])
            for image in self.dynamodb.scan(TableName=self.opened.store.names.rows(self.plan.name))[
                "Items"
            ]
        ]

    def all_at(self, *statuses: str) -> bool:
        return {row.status.value for row in self.rows()} <= set(statuses)

    def lines(self, key: str) -> list[str]:
        return [
            written.line.reason.value for written in self.opened.ledger.history(self.plan.name, key)
        ]

    def events(self) -> list[dict[str, Any]]:
        """What the topic's subscriber has been sent since this was last asked."""
        return [json.loads(body) for body in self.bodies(self.told)]

    def aside(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.bodies(self.opened.store.queues.quarantine())]

    def bodies(self, url: str) -> list[str]:
        found: list[str] = []
        while messages := self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get(
            "Messages", []
        ):
            for message in messages:
                found.append(message["Body"])
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return found

    def depth(self, stage: str) -> tuple[int, int, int]:
        """Messages that are visible, in flight and delayed."""
        return self.opened.store.queues.depth(self.opened.store.queues.url(self.plan.name, stage))

    def send(self, stage: str, *bodies: str) -> None:
        for body in bodies:
            self.sqs.send_message(
                QueueUrl=self.opened.store.queues.url(self.plan.name, stage), MessageBody=body
            )

    def call_for(self, stage: str, *keys: str) -> Sequence[str]:
        """Messages as the relay sends them."""
        bodies = [json.dumps({"route": self.plan.name, "key": key, "stage": stage}) for key in keys]
        self.send(stage, *bodies)
        return bodies

    @property
    def store(self) -> Any:
        return self.opened.store

    def plan_again(self) -> Plan:
        return self.opened.ctx.plans[self.plan.name]


Deploy = Callable[[str], Deployment]


@contextmanager
def deployments(endpoint: str, prefix: str, folder: Path) -> Iterator[Deploy]:
    made: list[Deployment] = []
    with pytest.MonkeyPatch.context() as patch:

        def deploy(source: str = PARCELS) -> Deployment:
            made.append(Deployment(endpoint, f"{prefix}{len(made)}", folder, source, patch))
            return made[-1]

        try:
            yield deploy
        finally:
            for one in made:
                one.close()
