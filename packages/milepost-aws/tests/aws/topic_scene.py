"""An SNS topic with queues behind it, events for it, and faults on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import milepost as mp
from milepost.core.events import Envelope, cloud_event, events_of
from milepost_aws.topic import Topic
from milepost_testing import SeededChance, VirtualClock

Form = Callable[[dict[str, Any]], dict[str, Any] | None]


class Scene:
    """A topic with a queue behind it, and the requests that were made to it."""

    def __init__(self, client: Callable[[str], Any], name: str = "prod-events") -> None:
        self.sns, self.sqs = client("sns"), client("sqs")
        self.fifo = {"FifoTopic": "true"} if name.endswith(".fifo") else {}
        self.arn = self.sns.create_topic(Name=name, Attributes=self.fifo)["TopicArn"]
        self.all = self.queue("all")
        self.topic = Topic(self.arn, client=self.sns)
        self.requests: list[list[str]] = []
        self.sns.meta.events.register("before-parameter-build.sns.PublishBatch", self._note)

    def queue(self, name: str, policy: dict[str, Any] | None = None) -> str:
        made = self.sqs.create_queue(
            QueueName=f"{name}.fifo" if self.fifo else name,
            Attributes={"FifoQueue": "true"} if self.fifo else {},
        )
        url: str = made["QueueUrl"]
        arn = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])[
            "Attributes"
        ]["QueueArn"]
        attributes = {
            "RawMessageDelivery": "true",
            **({} if policy is None else {"FilterPolicy": json.dumps(policy)}),
        }
        self.sns.subscribe(TopicArn=self.arn, Protocol="sqs", Endpoint=arn, Attributes=attributes)
        return url

    def received(self, url: str | None = None) -> list[dict[str, Any]]:
        """The messages that have come since the last look."""
        found: list[dict[str, Any]] = []
        while True:
            answer = self.sqs.receive_message(
                QueueUrl=url or self.all,
                MaxNumberOfMessages=10,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=["All"],
            )
            if not answer.get("Messages"):
                return found
            found += answer["Messages"]
            for message in answer["Messages"]:
                self.sqs.delete_message(
                    QueueUrl=url or self.all, ReceiptHandle=message["ReceiptHandle"]
                )

    def ids(self, url: str | None = None) -> list[str]:
        return [json.loads(message["Body"])["id"] for message in self.received(url)]

    def by_item(self) -> dict[str, list[str]]:
        """The kinds of the events that have come, in their order, by item."""
        found: dict[str, list[str]] = {}
        for message in self.received():
            event = json.loads(message["Body"])
            found.setdefault(event["subject"], []).append(event["data"]["reason"])
        return found

    def lose(self, failures: dict[str, dict[str, Any] | None]) -> None:
        """From now on, events of these keys do not reach the topic, and its answer has this for
        them (None: nothing at all)."""
        lost: dict[str, dict[str, Any] | None] = {}
        kept: list[dict[str, Any]] = []

        def take_out(params: dict[str, Any], **_: Any) -> dict[str, Any]:
            lost.clear()
            kept.clear()
            for entry in params["PublishBatchRequestEntries"]:
                key = json.loads(entry["Message"])["subject"]
                if key in failures:
                    lost[entry["Id"]] = failures[key]
                else:
                    kept.append(entry)
            return {**params, "PublishBatchRequestEntries": list(kept)}

        def none_left(**_: Any) -> Any:
            return None if kept else (SimpleNamespace(status_code=200), {"ResponseMetadata": {}})

        def answer_for(parsed: dict[str, Any], **_: Any) -> None:
            parsed["Failed"] = [
                {"Id": name, **failed} for name, failed in lost.items() if failed is not None
            ]

        self.sns.meta.events.register_first("provide-client-params.sns.PublishBatch", take_out)
        self.sns.meta.events.register("before-call.sns.PublishBatch", none_left)
        self.sns.meta.events.register("after-call.sns.PublishBatch", answer_for)

    def _note(self, params: dict[str, Any], **_: Any) -> None:
        self.requests.append([entry["Id"] for entry in params["PublishBatchRequestEntries"]])


def parcels(form: Form | None = None) -> mp.Route:
    route = mp.Route("parcels", key="id", form=form)
    route.stage("weigh")(lambda item: mp.Done({"grams": 340}))
    route.stage("stamp")(lambda item: mp.Done())
    return route


def accepted(*keys: str, form: Form | None = None) -> list[Envelope]:
    """What is told when these have been taken in."""
    with mp.open(
        "memory:", routes=[parcels(form)], clock=VirtualClock(), chance=SeededChance(1)
    ) as post:
        post.submit("parcels", *({"id": key} for key in keys))
        plan = post.context.plans["parcels"]
        lines = post.context.ledger.feed(0, 500)
        return [
            cloud_event(event, plan)
            for written in lines
            for event in events_of(written.line, written.route, written.key, written.correlation_id)
        ]


def fails(service: Any, *, at: int, error: Exception | tuple[int, str]) -> Callable[[], None]:
    """The request with this number (from 1) fails as a whole, and those after it, until what this
    gives is called."""
    seen = 0

    def fail(**_: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen < at:
            return None
        if isinstance(error, Exception):
            raise error
        status, code = error
        return SimpleNamespace(status_code=status), {
            "Error": {"Code": code, "Message": "not now"},
            "ResponseMetadata": {},
        }

    service.meta.events.register("before-call.sns.PublishBatch", fail)
    return lambda: service.meta.events.unregister("before-call.sns.PublishBatch", fail)
