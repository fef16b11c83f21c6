"""SQS queues in memory: visibility, delays, retention, dead letters, and duplicate messages."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable
from hashlib import md5
from threading import Condition
from typing import Any
from uuid import uuid4

from milepost_aws.aws_model.errors import AwsError, Malformed

LARGEST = 1 << 20
BATCH = 10
LONGEST_VISIBILITY_S, LONGEST_DELAY_S, LONGEST_WAIT_S = 43_200, 900, 20
DEFAULTS = {
    "VisibilityTimeout": "30",
    "MaximumMessageSize": str(LARGEST),
    "MessageRetentionPeriod": "345600",
    "DelaySeconds": "0",
    "ReceiveMessageWaitTimeSeconds": "0",
}
DEDUPLICATION_S = 300
_UNSENDABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


class QueuedMessage:
    """A message in a queue."""

    def __init__(
        self,
        body: str,
        attributes: dict[str, Any],
        group: str | None,
        sent_at: float,
        visible_at: float,
    ) -> None:
        self.id = str(uuid4())
        self.body, self.attributes, self.group, self.sent_at = body, attributes, group, sent_at
        self.visible_at = visible_at
        self.received = 0
        self.first_received_at: float | None = None
        self.deduplication: str | None = None
        self.handle: str | None = None
        """The latest receipt handle."""


class QueueModel:
    """One queue. Messages come in the order sent, if they are visible."""

    def __init__(
        self, name: str, url: str, arn: str, attributes: dict[str, str], clock: Callable[[], float]
    ) -> None:
        self.name, self.url, self.arn = name, url, arn
        self.attributes = {**DEFAULTS, **attributes}
        self.fifo = name.endswith(".fifo")
        self.messages: OrderedDict[str, QueuedMessage] = OrderedDict()
        self.created_at = clock()
        self._clock = clock
        self._seen: dict[str, tuple[float, str]] = {}

    def number(self, attribute: str) -> int:
        return int(self.attributes[attribute])

    def forget_old(self) -> None:
        """Drop messages older than the queue's retention."""
        oldest = self._clock() - self.number("MessageRetentionPeriod")
        for message in [message for message in self.messages.values() if message.sent_at < oldest]:
            del self.messages[message.id]

    def send(self, entry: dict[str, Any]) -> QueuedMessage:
        body, attributes = entry["MessageBody"], entry.get("MessageAttributes") or {}
        if not isinstance(body, str):
            raise Malformed
        if not body:
            raise AwsError(
                "MissingParameter", "The request must contain the parameter MessageBody."
            )
        found = _UNSENDABLE.search(body)
        if found:
            raise AwsError("InvalidMessageContents", f"Invalid characters found: {found[0]!a}")
        if size_of(entry) > self.number("MaximumMessageSize"):
            raise AwsError(
                "InvalidParameterValue",
                f"One or more parameters are invalid. Reason: Message must be shorter than {self.number('MaximumMessageSize')} bytes.",
            )
        for name, value in attributes.items():
            if not value.get("StringValue") and not value.get("BinaryValue"):
                raise AwsError(
                    "InvalidParameterValue",
                    f"Message (user) attribute '{name}' must contain a non-empty value of type '{value['DataType']}'.",
                )
        delay = entry.get("DelaySeconds", self.number("DelaySeconds"))
        if not 0 <= delay <= LONGEST_DELAY_S:
            raise AwsError(
                "InvalidParameterValue",
                f"Value {delay} for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900.",
            )
        now = self._clock()
        if self.fifo:
            repeated = self._repeated(entry, now)
            if repeated is not None:
                return repeated
        message = QueuedMessage(body, attributes, entry.get("MessageGroupId"), now, now + delay)
        self.messages[message.id] = message
        if self.fifo:
            message.deduplication = _deduplication(entry)
            self._seen[message.deduplication] = now, message.id
        return message

    def _repeated(self, entry: dict[str, Any], now: float) -> QueuedMessage | None:
        if "MessageGroupId" not in entry:
            raise AwsError(
                "MissingParameter", "The request must contain the parameter MessageGroupId."
            )
        known = self._seen.get(_deduplication(entry))
        if known is None or known[0] + DEDUPLICATION_S < now:
            return None
        there = self.messages.get(known[1])
        repeat = there or QueuedMessage(entry["MessageBody"], {}, None, now, now)
        repeat.id = known[1]
        return repeat

    def visible(self, most: int) -> list[QueuedMessage]:
        now = self._clock()
        blocked: set[str | None] = set()
        found: list[QueuedMessage] = []
        for message in self.messages.values():
            if len(found) == most:
                break
            if message.visible_at > now or message.group in blocked:
                if self.fifo:
                    blocked.add(message.group)
                continue
            found.append(message)
        return found

    def next_visible_at(self) -> float | None:
        return min((message.visible_at for message in self.messages.values()), default=None)

    def take(self, message: QueuedMessage, visibility_s: float) -> None:
        """Deliver the message: it is hidden from now on, and only its newest handle is valid."""
        now = self._clock()
        message.received += 1
        message.first_received_at = (
            now if message.first_received_at is None else message.first_received_at
        )
        message.handle = f"model/{message.id}/{message.received}"
        message.visible_at = now + visibility_s

    def held(self, handle: Any) -> QueuedMessage | None:
        """The message of a handle, if it is its latest. Raises for text that is no handle at
        all."""
        parts = handle.split("/") if isinstance(handle, str) else []
        if len(parts) != 3 or parts[0] != "model":
            raise AwsError(
                "ReceiptHandleIsInvalid",
                f'The input receipt handle "{handle}" is not a valid receipt handle.',
                404,
            )
        message = self.messages.get(parts[1])
        return message if message is not None and message.handle == handle else None

    def counts(self) -> dict[str, str]:
        now = self._clock()
        hidden = [message for message in self.messages.values() if message.visible_at > now]
        delayed = [message for message in hidden if not message.received]
        return {
            "ApproximateNumberOfMessages": str(len(self.messages) - len(hidden)),
            "ApproximateNumberOfMessagesNotVisible": str(len(hidden) - len(delayed)),
            "ApproximateNumberOfMessagesDelayed": str(len(delayed)),
        }


class Sqs:
    """The operations of SQS. Every call holds `changed`, which notifies calls that wait for a
    message."""

    def __init__(
        self,
        region: str,
        account: str,
        url: str,
        clock: Callable[[], float],
        changed: Condition,
        *,
        waits: bool,
    ) -> None:
        self.queues: dict[str, QueueModel] = {}
        self._region, self._account, self._url = region, account, url
        self._clock, self._changed, self._waits = clock, changed, waits

    def queue(self, url: Any) -> QueueModel:
        """The queue of this URL or name."""
        found = self.queues.get(str(url).rstrip("/").rpartition("/")[2])
        if found is None:
            raise AwsError(
                "AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist."
            )
        found.forget_old()
        return found

    def by_arn(self, arn: str) -> QueueModel | None:
        return next((queue for queue in self.queues.values() if queue.arn == arn), None)

    # Queues ---------------------------------------------------------------------------------------
    def create_queue(self, params: dict[str, Any]) -> dict[str, Any]:
        name, wanted = params["QueueName"], params.get("Attributes", {})
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,75}(\.fifo)?|[A-Za-z0-9_-]{1,80}", name):
            raise AwsError(
                "InvalidParameterValue",
                "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
            )
        there = self.queues.get(name)
        if there is not None:
            if any(
                there.attributes.get(attribute) != str(value) for attribute, value in wanted.items()
            ):
                raise AwsError(
                    "QueueAlreadyExists",
                    "A queue already exists with the same name and a different value for attribute",
                )
            return {"QueueUrl": there.url}
        arn = f"arn:aws:sqs:{self._region}:{self._account}:{name}"
        attributes = {attribute: str(value) for attribute, value in wanted.items()}
        queue = self.queues[name] = QueueModel(
            name, f"{self._url}/{self._account}/{name}", arn, attributes, self._clock
        )
        return {"QueueUrl": queue.url}

    def get_queue_url(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"QueueUrl": self.queue(params["QueueName"]).url}

    def list_queues(self, params: dict[str, Any]) -> dict[str, Any]:
        urls = [
            queue.url
            for name, queue in sorted(self.queues.items())
            if name.startswith(params.get("QueueNamePrefix", ""))
        ]
        return {"QueueUrls": urls} if urls else {}

    def delete_queue(self, params: dict[str, Any]) -> dict[str, Any]:
        del self.queues[self.queue(params["QueueUrl"]).name]
        return {}

    def purge_queue(self, params: dict[str, Any]) -> dict[str, Any]:
        self.queue(params["QueueUrl"]).messages.clear()
        return {}

    def get_queue_attributes(self, params: dict[str, Any]) -> dict[str, Any]:
        queue = self.queue(params["QueueUrl"])
        shown_attributes = {
            **queue.attributes,
            **queue.counts(),
            "QueueArn": queue.arn,
            "CreatedTimestamp": str(int(queue.created_at)),
        }
        wanted = params.get("AttributeNames", ())
        return {
            "Attributes": shown_attributes
            if "All" in wanted
            else {name: shown_attributes[name] for name in wanted if name in shown_attributes}
        }

    def set_queue_attributes(self, params: dict[str, Any]) -> dict[str, Any]:
        self.queue(params["QueueUrl"]).attributes |= {
            name: str(value) for name, value in params["Attributes"].items()
        }
        return {}

    # Messages -------------------------------------------------------------------------------------
    def send_message(self, params: dict[str, Any]) -> dict[str, Any]:
        message = self.queue(params["QueueUrl"]).send(params)
        self._changed.notify_all()
        return _sent(message)

    def send_message_batch(self, params: dict[str, Any]) -> dict[str, Any]:
        queue, entries = self.queue(params["QueueUrl"]), params["Entries"]
        _check_batch(entries)
        if sum(size_of(entry) for entry in entries) > LARGEST:
            raise AwsError(
                "AWS.SimpleQueueService.BatchRequestTooLong",
                f"Batch requests cannot be longer than {LARGEST} bytes.",
            )
        answer = _each(entries, lambda entry: _sent(queue.send(entry)))
        self._changed.notify_all()
        return answer

    def receive_message(self, params: dict[str, Any]) -> dict[str, Any]:
        queue = self.queue(params["QueueUrl"])
        most, wait = (
            params.get("MaxNumberOfMessages", 1),
            params.get("WaitTimeSeconds", queue.number("ReceiveMessageWaitTimeSeconds")),
        )
        visibility = params.get("VisibilityTimeout", queue.number("VisibilityTimeout"))
        _check_range("MaxNumberOfMessages", most, 1, BATCH)
        _check_range("WaitTimeSeconds", wait, 0, LONGEST_WAIT_S)
        _check_range("VisibilityTimeout", visibility, 0, LONGEST_VISIBILITY_S)
        until = self._clock() + wait
        while True:
            queue = self.queue(params["QueueUrl"])
            self._bury(queue)
            found = queue.visible(most)
            left = until - self._clock()
            if found or left <= 0 or not self._waits:
                break
            soon = queue.next_visible_at()
            self._changed.wait(
                left if soon is None else max(0.001, min(left, soon - self._clock()))
            )
        for message in found:
            queue.take(message, visibility)
        return {"Messages": [_received(message, params) for message in found]} if found else {}

    def _bury(self, queue: QueueModel) -> None:
        """Move messages that were received too often to the dead-letter queue."""
        policy = json.loads(queue.attributes.get("RedrivePolicy") or "{}")
        grave = self.by_arn(policy.get("deadLetterTargetArn", ""))
        if grave is None:
            return
        for message in queue.visible(len(queue.messages)):
            if message.received >= int(policy["maxReceiveCount"]):
                del queue.messages[message.id]
                message.handle = None
                grave.messages[message.id] = message

    def delete_message(self, params: dict[str, Any]) -> dict[str, Any]:
        self._delete(self.queue(params["QueueUrl"]), params)
        return {}

    def delete_message_batch(self, params: dict[str, Any]) -> dict[str, Any]:
        queue = self.queue(params["QueueUrl"])
        _check_batch(params["Entries"])
        return _each(params["Entries"], lambda entry: self._delete(queue, entry))

    @staticmethod
    def _delete(queue: QueueModel, entry: dict[str, Any]) -> dict[str, Any]:
        """With an outdated handle nothing is deleted, and SQS reports success."""
        message = queue.held(entry["ReceiptHandle"])
        if message is not None:
            del queue.messages[message.id]
        return {}

    def change_message_visibility(self, params: dict[str, Any]) -> dict[str, Any]:
        self._hide(self.queue(params["QueueUrl"]), params)
        return {}

    def change_message_visibility_batch(self, params: dict[str, Any]) -> dict[str, Any]:
        queue = self.queue(params["QueueUrl"])
        _check_batch(params["Entries"])
        return _each(params["Entries"], lambda entry: self._hide(queue, entry))

    def _hide(self, queue: QueueModel, entry: dict[str, Any]) -> dict[str, Any]:
        seconds = entry.get("VisibilityTimeout", 0)
        _check_range("VisibilityTimeout", seconds, 0, LONGEST_VISIBILITY_S)
        message = queue.held(entry["ReceiptHandle"])
        if message is None or message.visible_at <= self._clock():
            raise AwsError(
                "InvalidParameterValue",
                f"Value {entry['ReceiptHandle']} for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not"
                " available for visibility timeout change.",
            )
        message.visible_at = self._clock() + seconds
        self._changed.notify_all()
        return {}


def size_of(entry: dict[str, Any]) -> int:
    """The bytes that SQS counts for a message: its body, and the names, types and values of its
    attributes."""
    total = (
        len(entry["MessageBody"].encode("utf-8", "surrogatepass"))
        if isinstance(entry["MessageBody"], str)
        else 0
    )
    for name, value in (entry.get("MessageAttributes") or {}).items():
        content = value.get("BinaryValue") or value.get("StringValue", "").encode(
            "utf-8", "surrogatepass"
        )
        total += len(name) + len(value["DataType"]) + len(content)
    return total


def _deduplication(entry: dict[str, Any]) -> str:
    return str(
        entry.get("MessageDeduplicationId")
        or md5(entry["MessageBody"].encode(), usedforsecurity=False).hexdigest()
    )


def _check_range(name: str, value: Any, least: int, most: int) -> None:
    if not isinstance(value, int):
        raise Malformed
    if not least <= value <= most:
        raise AwsError(
            "InvalidParameterValue",
            f"Value {value} for parameter {name} is invalid. Reason: must be >= {least} and <= {most}, if provided.",
        )


def _check_batch(entries: list[dict[str, Any]]) -> None:
    if not entries:
        raise AwsError(
            "AWS.SimpleQueueService.EmptyBatchRequest",
            "There should be at least one entry in the request.",
        )
    if len(entries) > BATCH:
        raise AwsError(
            "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {BATCH}.",
        )
    names = [entry["Id"] for entry in entries]
    if len(set(names)) != len(names):
        raise AwsError(
            "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
            "Two or more batch entries in the request have the same Id.",
        )
    if not all(_ENTRY_ID.fullmatch(name) for name in names):
        raise AwsError(
            "AWS.SimpleQueueService.InvalidBatchEntryId",
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores.",
        )


def _each(
    entries: list[dict[str, Any]], act: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Execute each entry; failures do not affect the others."""
    done, failed = [], []
    for entry in entries:
        try:
            done.append({"Id": entry["Id"], **act(entry)})
        except AwsError as error:
            failed.append(
                {
                    "Id": entry["Id"],
                    "SenderFault": True,
                    "Code": error.code,
                    "Message": error.message,
                }
            )
    return {name: some for name, some in (("Successful", done), ("Failed", failed)) if some}


def _digest(text: str) -> str:
    return md5(text.encode(), usedforsecurity=False).hexdigest()


def _sent(message: QueuedMessage) -> dict[str, Any]:
    return {"MessageId": message.id, "MD5OfMessageBody": _digest(message.body)}


def _received(message: QueuedMessage, params: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "MessageId": message.id,
        "ReceiptHandle": message.handle,
        "MD5OfBody": _digest(message.body),
        "Body": message.body,
    }
    system = {
        "ApproximateReceiveCount": str(message.received),
        "SentTimestamp": str(int(message.sent_at * 1000)),
        "ApproximateFirstReceiveTimestamp": str(int((message.first_received_at or 0) * 1000)),
        "SenderId": "model",
    }
    if message.group is not None:
        system["MessageGroupId"] = message.group
    if message.deduplication is not None:
        system["MessageDeduplicationId"] = message.deduplication
    wanted = {*params.get("MessageSystemAttributeNames", ()), *params.get("AttributeNames", ())}
    if shown_attributes := {
        name: value for name, value in system.items() if "All" in wanted or name in wanted
    }:
        shown["Attributes"] = shown_attributes
    names = params.get("MessageAttributeNames", ())
    labels = {
        name: dict(value) for name, value in message.attributes.items() if _asked(name, names)
    }
    if labels:
        shown["MessageAttributes"] = labels
    return shown


def _asked(name: str, names: Any) -> bool:
    return any(
        one in ("All", ".*", name) or (one.endswith(".*") and name.startswith(one[:-1]))
        for one in names
    )
