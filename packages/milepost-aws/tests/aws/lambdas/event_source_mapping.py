"""Event source mappings of AWS Lambda for streams and queues, which the stand-ins lack or do wrong.

    pump = StreamPump(streams, arn, handler, batch_size=100, report_failures=True, bisect=False, retries=-1)
    pump.poll()       # one round: every shard hands over batches until it has no more, or one fails
    pump.drain()      # rounds until nothing is left

A record is either handled or listed in `failed`, the on-failure destination; never skipped. A
failed batch blocks its shard until the next round, as it does on AWS until the next try.
"""

from __future__ import annotations

import base64
import json
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]
Handler = Callable[[Event, Any], Any]


class Context:
    """As much of Lambda's context as a handler may ask for."""

    function_name = "function"

    def __init__(self) -> None:
        self.aws_request_id = str(uuid.uuid4())

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def stream_event(records: Sequence[Event], arn: str) -> Event:
    """What GetRecords gives, in the shape that Lambda hands over: binary values as text, times as
    seconds, another spelling of who did it."""
    return {"Records": [_stream_record(record, arn) for record in records]}


def sqs_event(
    messages: Sequence[Event], arn: str = "arn:aws:sqs:eu-central-1:000000000000:queue"
) -> Event:
    """What ReceiveMessage gives, in the shape that Lambda hands over."""
    return {
        "Records": [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message.get("Attributes", {}),
                "messageAttributes": {
                    name: {
                        field[0].lower() + field[1:]: _plain(part) for field, part in value.items()
                    }
                    for name, value in message.get("MessageAttributes", {}).items()
                },
                "md5OfBody": message.get("MD5OfBody", ""),
                "eventSource": "aws:sqs",
                "eventSourceARN": arn,
                "awsRegion": arn.split(":")[3],
            }
            for message in messages
        ]
    }


def failing(answer: Any, ids: Sequence[str]) -> set[int]:
    """Which places of a batch a function reports as failed; what AWS cannot make sense of means all
    of them."""
    answer = {} if answer is None else answer
    reported = (answer.get("batchItemFailures") or []) if isinstance(answer, dict) else [answer]
    named = [entry.get("itemIdentifier") if isinstance(entry, dict) else None for entry in reported]
    if any(name not in ids for name in named):
        return set(range(len(ids)))
    return {ids.index(name) for name in named}


def _stream_record(record: Event, arn: str) -> Event:
    change = record["dynamodb"]
    images = {
        name: {key: _plain(value) for key, value in change[name].items()}
        for name in ("Keys", "NewImage", "OldImage")
        if name in change
    }
    rest = {
        name: change[name]
        for name in ("SequenceNumber", "SizeBytes", "StreamViewType")
        if name in change
    }
    at = {"ApproximateCreationDateTime": change["ApproximateCreationDateTime"].timestamp()}
    who = record.get("userIdentity")
    identity = (
        {}
        if not who
        else {"userIdentity": {"type": who["Type"], "principalId": who["PrincipalId"]}}
    )
    named = {
        name: record[name]
        for name in ("eventID", "eventName", "eventVersion", "eventSource", "awsRegion")
        if name in record
    }
    return named | identity | {"dynamodb": at | images | rest, "eventSourceARN": arn}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def _sequence_number(record: Event) -> str:
    return record["dynamodb"]["SequenceNumber"]


class _Caller:
    """Calls the handler as Lambda would: what goes in and what comes out is JSON, and any exception
    is a failed call."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.events: list[Event] = []
        """Every event that the function was called with."""
        self.errors: list[Exception] = []
        """Every exception that it raised."""

    def call(self, event: Event) -> tuple[bool, Any]:
        text = json.dumps(event)
        self.events.append(json.loads(text))
        try:
            return True, json.loads(json.dumps(self.handler(json.loads(text), Context())))
        except Exception as error:
            self.errors.append(error)
            return False, None


@dataclass
class Batch:
    records: list[Event]
    failures: int = 0
    repeated: bool = False


@dataclass
class Shard:
    name: str
    records: deque[Event] = field(default_factory=deque)
    batches: deque[Batch] = field(default_factory=deque)
    """Those under way: one, or the parts that it was cut into."""

    @property
    def waiting(self) -> int:
        return len(self.records) + sum(len(batch.records) for batch in self.batches)


class StreamMapping:
    """From a DynamoDB stream to a function.

    `shards`: this many pretended ones, records spread over them by key, so that the order of one
    key is kept. `twice`: which batches, counted from 1 as calls are, come again after they were
    done (True: all), as when AWS forgets how far it was. `retries`: of a batch, after which what is
    left of it goes to `failed`; -1: without end. Cutting a batch in two is no retry.
    """

    def __init__(
        self,
        streams: Any,
        arn: str,
        handler: Handler,
        *,
        batch_size: int = 100,
        report_failures: bool = True,
        bisect: bool = False,
        retries: int = -1,
        shards: int = 1,
        twice: bool | Container[int] = False,
    ) -> None:
        self.streams, self.arn = streams, arn
        self.batch_size, self.report_failures, self.bisect, self.retries, self.twice = (
            batch_size,
            report_failures,
            bisect,
            retries,
            twice,
        )
        self.failed: list[Event] = []
        self._caller = _Caller(handler)
        self.events, self.errors = self._caller.events, self._caller.errors
        self.shards = [Shard(f"shardId-{n:08d}") for n in range(shards)]
        self._iterators: dict[str, str | None] = {}

    @property
    def waiting(self) -> int:
        """Records that were read and are neither handled nor given up."""
        return sum(shard.waiting for shard in self.shards)

    def poll(self) -> int:
        """One round, the shards in turn; how many records were done with."""
        for record in self._read():
            key = json.dumps(_plain(record["dynamodb"]["Keys"]), sort_keys=True)
            self.shards[zlib.crc32(key.encode()) % len(self.shards)].records.append(record)
        before = self.waiting
        moving = self.shards
        while moving := [shard for shard in moving if shard.waiting and self._step(shard)]:
            pass
        return before - self.waiting

    def drain(self, most_rounds: int = 200) -> int:
        """Until the stream has no more, what the function itself writes included; how many records
        were done with."""
        done = 0
        for _ in range(most_rounds):
            now = self.poll()
            done += now
            if now == 0 and self.waiting == 0:
                return done
        raise AssertionError(
            f"{self.waiting} records are still waiting after {most_rounds} rounds"
        ) from (self.errors or [None])[-1]

    def _step(self, shard: Shard) -> bool:
        """One call; whether the shard may go on at once."""
        if not shard.batches:
            shard.batches.append(
                Batch(
                    [
                        shard.records.popleft()
                        for _ in range(min(self.batch_size, len(shard.records)))
                    ]
                )
            )
        batch = shard.batches[0]
        went_well, answer = self._caller.call(stream_event(batch.records, self.arn))
        if went_well:
            numbers = [_sequence_number(record) for record in batch.records]
            first = min(failing(answer, numbers) if self.report_failures else set(), default=None)
            if first is None:
                if batch.repeated or not self._again():
                    shard.batches.popleft()
                batch.repeated = True
                return True
        else:
            first = 0
        self._failed(shard, batch, first)
        return False

    def _again(self) -> bool:
        return self.twice if isinstance(self.twice, bool) else len(self.events) in self.twice

    def _failed(self, shard: Shard, batch: Batch, first: int) -> None:
        """What comes before the first failure is done. The rest is tried again: as one where the
        function said how far it came, else cut."""
        rest = batch.records[first:]
        shard.batches.popleft()
        if self.bisect and first == 0 and len(rest) > 1:
            half = len(rest) // 2
            shard.batches.extendleft(
                [Batch(rest[half:], batch.failures), Batch(rest[:half], batch.failures)]
            )
        elif 0 <= self.retries <= batch.failures:
            self.failed.append(self._given_up(shard, rest, batch.failures + 1))
        else:
            shard.batches.appendleft(Batch(rest, batch.failures + 1))

    def _given_up(self, shard: Shard, records: list[Event], calls: int) -> Event:
        """As AWS tells its on-failure destination: where the records were, not what they were."""
        return {
            "requestContext": {
                "condition": "RetryAttemptsExhausted",
                "approximateInvokeCount": calls,
            },
            "DDBStreamBatchInfo": {
                "shardId": shard.name,
                "startSequenceNumber": _sequence_number(records[0]),
                "endSequenceNumber": _sequence_number(records[-1]),
                "batchSize": len(records),
                "streamArn": self.arn,
            },
        }

    def _read(self) -> Iterator[Event]:
        """All that is there now, a shard only after its parent has been read to its end."""
        listed = self._listed()
        for name in sorted(listed, key=lambda name: _ancestors(listed, name)):
            if self._iterators.get(listed[name]) is not None:
                continue
            if name not in self._iterators:
                asked = self.streams.get_shard_iterator(
                    StreamArn=self.arn, ShardId=name, ShardIteratorType="TRIM_HORIZON"
                )
                self._iterators[name] = asked["ShardIterator"]
            while (iterator := self._iterators[name]) is not None:
                page = self.streams.get_records(ShardIterator=iterator)
                self._iterators[name] = page.get("NextShardIterator")
                yield from page["Records"]
                if not page["Records"]:
                    break

    def _listed(self) -> dict[str, str]:
        """Every shard of the stream with its parent."""
        listed: dict[str, str] = {}
        more: dict[str, str] = {}
        while True:
            page = self.streams.describe_stream(StreamArn=self.arn, **more)["StreamDescription"]
            listed |= {shard["ShardId"]: shard.get("ParentShardId", "") for shard in page["Shards"]}
            if "LastEvaluatedShardId" not in page:
                return listed
            more = {"ExclusiveStartShardId": page["LastEvaluatedShardId"]}


def _ancestors(listed: dict[str, str], name: str) -> int:
    return 1 + _ancestors(listed, listed[name]) if name in listed else 0


class QueueMapping:
    """From an SQS queue to a function. What did not fail is deleted; what failed is visible again
    at once, unless `hurry` is off: then the message waits for as long as it was hidden, or as the
    function itself decided.
    """

    def __init__(
        self,
        sqs: Any,
        url: str,
        handler: Handler,
        *,
        batch_size: int = 10,
        report_failures: bool = True,
        hurry: bool = True,
    ) -> None:
        self.sqs, self.url, self.batch_size, self.report_failures, self.hurry = (
            sqs,
            url,
            batch_size,
            report_failures,
            hurry,
        )
        self.arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])[
            "Attributes"
        ]["QueueArn"]
        self._caller = _Caller(handler)
        self.events, self.errors = self._caller.events, self._caller.errors

    def poll(self) -> int:
        """One batch, if there is one; how many messages are done with."""
        asked = {
            "MaxNumberOfMessages": self.batch_size,
            "MessageSystemAttributeNames": ["All"],
            "MessageAttributeNames": ["All"],
        }
        messages = self.sqs.receive_message(QueueUrl=self.url, **asked).get("Messages", [])
        if not messages:
            return 0
        went_well, answer = self._caller.call(sqs_event(messages, self.arn))
        again = set(range(len(messages)))
        if went_well:
            again = (
                failing(answer, [message["MessageId"] for message in messages])
                if self.report_failures
                else set()
            )
        entries = [
            {"Id": f"{n}", "ReceiptHandle": message["ReceiptHandle"]}
            for n, message in enumerate(messages)
        ]
        if done := [entry for n, entry in enumerate(entries) if n not in again]:
            self.sqs.delete_message_batch(QueueUrl=self.url, Entries=done)
        if again and self.hurry:
            shown = [
                entry | {"VisibilityTimeout": 0} for n, entry in enumerate(entries) if n in again
            ]
            self.sqs.change_message_visibility_batch(QueueUrl=self.url, Entries=shown)
        return len(done)
