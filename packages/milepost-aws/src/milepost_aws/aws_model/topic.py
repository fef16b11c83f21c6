"""SNS topics in memory, which forward messages to SQS queues."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from milepost_aws.aws_model.errors import AwsError, invalid
from milepost_aws.aws_model.queue import Sqs

LARGEST = 262_144
BATCH = 10


class TopicModel:
    """One topic: every message published on it, and the queues that it forwards to."""

    def __init__(self, name: str, arn: str, attributes: dict[str, str]) -> None:
        self.name, self.arn, self.attributes = name, arn, attributes
        self.published: list[dict[str, Any]] = []
        self.subscriptions: dict[str, dict[str, Any]] = {}


class Sns:
    """The operations of SNS."""

    def __init__(self, region: str, account: str, sqs: Sqs, changed: Callable[[], None]) -> None:
        self.topics: dict[str, TopicModel] = {}
        self._region, self._account, self._sqs, self._changed = region, account, sqs, changed

    def topic(self, arn: Any) -> TopicModel:
        found = self.topics.get(str(arn))
        if found is None:
            raise AwsError("NotFound", "Topic does not exist", 404)
        return found

    def create_topic(self, params: dict[str, Any]) -> dict[str, Any]:
        arn = f"arn:aws:sns:{self._region}:{self._account}:{params['Name']}"
        self.topics.setdefault(
            arn, TopicModel(params["Name"], arn, dict(params.get("Attributes", {})))
        )
        return {"TopicArn": arn}

    def delete_topic(self, params: dict[str, Any]) -> dict[str, Any]:
        self.topics.pop(str(params["TopicArn"]), None)
        return {}

    def list_topics(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"Topics": [{"TopicArn": arn} for arn in self.topics]}

    def get_topic_attributes(self, params: dict[str, Any]) -> dict[str, Any]:
        topic = self.topic(params["TopicArn"])
        return {"Attributes": {"TopicArn": topic.arn, **topic.attributes}}

    def set_topic_attributes(self, params: dict[str, Any]) -> dict[str, Any]:
        self.topic(params["TopicArn"]).attributes[params["AttributeName"]] = params.get(
            "AttributeValue", ""
        )
        return {}

    def subscribe(self, params: dict[str, Any]) -> dict[str, Any]:
        topic = self.topic(params["TopicArn"])
        arn = f"{topic.arn}:{uuid4()}"
        topic.subscriptions[arn] = {
            "Endpoint": params.get("Endpoint", ""),
            "Protocol": params["Protocol"],
            **params.get("Attributes", {}),
        }
        return {"SubscriptionArn": arn}

    def set_subscription_attributes(self, params: dict[str, Any]) -> dict[str, Any]:
        topic = self.topic(params["SubscriptionArn"].rpartition(":")[0])
        topic.subscriptions[params["SubscriptionArn"]][params["AttributeName"]] = params.get(
            "AttributeValue", ""
        )
        return {}

    def unsubscribe(self, params: dict[str, Any]) -> dict[str, Any]:
        self.topic(params["SubscriptionArn"].rpartition(":")[0]).subscriptions.pop(
            params["SubscriptionArn"], None
        )
        return {}

    def publish(self, params: dict[str, Any]) -> dict[str, Any]:
        topic = self.topic(params.get("TopicArn") or params.get("TargetArn"))
        if _size(params) > LARGEST:
            raise AwsError("InvalidParameter", "Invalid parameter: Message too long")
        return {"MessageId": self._publish(topic, params)}

    def publish_batch(self, params: dict[str, Any]) -> dict[str, Any]:
        topic, entries = self.topic(params["TopicArn"]), params["PublishBatchRequestEntries"]
        if not entries:
            raise AwsError("EmptyBatchRequest", "The batch request doesn't contain any entries.")
        if len(entries) > BATCH:
            raise AwsError(
                "TooManyEntriesInBatchRequest",
                "The batch request contains more entries than permissible.",
            )
        if len({entry["Id"] for entry in entries}) != len(entries):
            raise AwsError(
                "BatchEntryIdsNotDistinct",
                "Two or more batch entries in the request have the same Id.",
            )
        if sum(map(_size, entries)) > LARGEST:
            raise AwsError(
                "BatchRequestTooLong",
                "The length of all the batch messages put together is more than the limit.",
            )
        return {
            "Successful": [
                {"Id": entry["Id"], "MessageId": self._publish(topic, entry)} for entry in entries
            ],
            "Failed": [],
        }

    def _publish(self, topic: TopicModel, entry: dict[str, Any]) -> str:
        if not entry.get("Message"):
            raise invalid("Invalid parameter: Empty message")
        id = str(uuid4())
        labels = entry.get("MessageAttributes") or {}
        topic.published.append(
            {"MessageId": id, **{name: value for name, value in entry.items() if name != "Id"}}
        )
        for subscription in topic.subscriptions.values():
            queue = (
                self._sqs.by_arn(subscription["Endpoint"])
                if subscription["Protocol"] == "sqs"
                else None
            )
            if queue is None or not _wanted(subscription, entry):
                continue
            raw = subscription.get("RawMessageDelivery") == "true"
            message: dict[str, Any] = {
                "MessageBody": entry["Message"] if raw else _wrapped(topic, id, entry)
            }
            if raw and labels:
                message["MessageAttributes"] = labels
            for name in ("MessageGroupId", "MessageDeduplicationId"):
                if name in entry and queue.fifo:
                    message[name] = entry[name]
            queue.send(message)
        self._changed()
        return id


def _size(entry: dict[str, Any]) -> int:
    labels = (entry.get("MessageAttributes") or {}).items()
    return len(entry.get("Message", "").encode()) + sum(
        len(name) + len(label["DataType"]) + len(label.get("StringValue", "").encode())
        for name, label in labels
    )


def _wrapped(topic: TopicModel, id: str, entry: dict[str, Any]) -> str:
    labels = {
        name: {"Type": label["DataType"], "Value": label.get("StringValue", "")}
        for name, label in (entry.get("MessageAttributes") or {}).items()
    }
    return json.dumps(
        {
            "Type": "Notification",
            "MessageId": id,
            "TopicArn": topic.arn,
            "Message": entry["Message"],
            "MessageAttributes": labels,
        }
    )


def _wanted(subscription: dict[str, Any], entry: dict[str, Any]) -> bool:
    """Filter policies: each named attribute has one of the listed values, or a prefix, or none of
    those."""
    policy = json.loads(subscription.get("FilterPolicy") or "{}")
    if subscription.get("FilterPolicyScope") == "MessageBody":
        content = json.loads(entry["Message"])
    else:
        content = {
            name: label.get("StringValue")
            for name, label in (entry.get("MessageAttributes") or {}).items()
        }
    return all(
        any(_matches(content.get(name), rule, name in content) for rule in rules)
        for name, rules in policy.items()
    )


def _matches(value: Any, rule: Any, there: bool) -> bool:
    if not isinstance(rule, dict):
        return there and value == rule
    if "exists" in rule:
        return bool(rule["exists"]) == there
    if "prefix" in rule:
        return there and str(value).startswith(rule["prefix"])
    if "anything-but" in rule:
        others = rule["anything-but"]
        return there and value not in (others if isinstance(others, list) else [others])
    return False
