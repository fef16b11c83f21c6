"""The event source mappings of these tests keep AWS's promises about streams and queues."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.aws.lambdas.event_source_mapping import (
    QueueMapping,
    StreamMapping,
    failing,
    sqs_event,
    stream_event,
)

Client = Callable[[str], Any]


class Scene:
    """A table with a stream, and a function that keeps a list of what it was given."""

    def __init__(self, client: Client) -> None:
        self.dynamodb, self.streams = client("dynamodb"), client("dynamodbstreams")
        made = self.dynamodb.create_table(
            TableName="rows",
            KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
        self.arn = made["TableDescription"]["LatestStreamArn"]
        self.calls: list[list[str]] = []
        self.bad: set[str] = set()

    def put(self, *keys: str, n: int = 0) -> None:
        for key in keys:
            self.dynamodb.put_item(TableName="rows", Item={"key": {"S": key}, "n": {"N": f"{n}"}})

    def mapping(self, handler: Callable[[Any, Any], Any], **knobs: Any) -> StreamMapping:
        return StreamMapping(self.streams, self.arn, handler, **knobs)

    def told(self, event: Any) -> list[str]:
        self.calls.append([key_of(record) for record in event["Records"]])
        return self.calls[-1]

    def reports(self, event: Any, context: Any) -> Any:
        """Says which records failed."""
        self.told(event)
        numbers = [
            record["dynamodb"]["SequenceNumber"]
            for record in event["Records"]
            if key_of(record) in self.bad
        ]
        return {"batchItemFailures": [{"itemIdentifier": number} for number in reversed(numbers)]}

    def raises(self, event: Any, context: Any) -> None:
        """Says only that something did."""
        if self.bad & set(self.told(event)):
            raise RuntimeError("something failed")


def key_of(record: Any) -> str:
    return record["dynamodb"]["Keys"]["key"]["S"]


@pytest.fixture
def scene(client: Client) -> Scene:
    return Scene(client)


def test_batches_in_order(scene: Scene) -> None:
    scene.put(*"abcde")
    mapping = scene.mapping(scene.reports, batch_size=2)
    assert mapping.poll() == 5
    assert scene.calls == [["a", "b"], ["c", "d"], ["e"]]
    scene.put("f")
    assert mapping.drain() == 1
    assert scene.calls[3:] == [["f"]]
    assert mapping.poll() == 0
    assert len(scene.calls) == 4


def test_records_have_the_shape_that_lambda_gives(scene: Scene) -> None:
    scene.dynamodb.put_item(
        TableName="rows",
        Item={
            "key": {"S": "a"},
            "b": {"B": b"\xff"},
            "l": {"L": [{"B": b"\x00"}, {"BS": [b"\x01"]}]},
        },
    )
    scene.dynamodb.delete_item(TableName="rows", Key={"key": {"S": "a"}})
    mapping = scene.mapping(scene.reports)
    mapping.drain()
    [event] = mapping.events
    inserted, removed = event["Records"]
    image = {"key": {"S": "a"}, "b": {"B": "/w=="}, "l": {"L": [{"B": "AA=="}, {"BS": ["AQ=="]}]}}
    assert [record["eventName"] for record in event["Records"]] == ["INSERT", "REMOVE"]
    assert inserted["dynamodb"]["NewImage"] == image == removed["dynamodb"]["OldImage"]
    assert "OldImage" not in inserted["dynamodb"]
    assert "NewImage" not in removed["dynamodb"]
    assert inserted["eventSourceARN"] == scene.arn
    assert isinstance(inserted["dynamodb"]["ApproximateCreationDateTime"], float)
    assert "userIdentity" not in removed


def test_who_removed_it_is_spelled_as_lambda_does() -> None:
    change = {
        "Keys": {},
        "SequenceNumber": "1",
        "ApproximateCreationDateTime": datetime(2026, 11, 15, tzinfo=UTC),
    }
    record = {
        "eventName": "REMOVE",
        "dynamodb": change,
        "userIdentity": {"PrincipalId": "dynamodb.amazonaws.com", "Type": "Service"},
    }
    [shaped] = stream_event([record], "arn")["Records"]
    assert shaped["userIdentity"] == {"principalId": "dynamodb.amazonaws.com", "type": "Service"}


def test_retried_from_the_lowest_failure(scene: Scene) -> None:
    scene.put(*"abcde")
    scene.bad = {"b", "d"}
    mapping = scene.mapping(scene.reports)
    assert mapping.poll() == 1
    assert mapping.waiting == 4
    scene.bad = {"d"}
    assert mapping.poll() == 2
    scene.bad = set()
    assert mapping.drain() == 2
    assert scene.calls == [["a", "b", "c", "d", "e"], ["b", "c", "d", "e"], ["d", "e"]]
    assert mapping.failed == []


def test_an_exception_fails_the_whole_batch(scene: Scene) -> None:
    scene.put(*"ab")
    scene.bad = {"b"}
    mapping = scene.mapping(scene.raises)
    assert mapping.poll() == 0
    scene.bad = set()
    scene.put("c")
    assert mapping.drain() == 3
    assert scene.calls == [["a", "b"], ["a", "b"], ["c"]]
    assert [str(error) for error in mapping.errors] == ["something failed"]


def test_a_report_is_not_read_when_it_was_not_agreed(scene: Scene) -> None:
    scene.put(*"ab")
    scene.bad = {"a"}
    assert scene.mapping(scene.reports, report_failures=False).drain() == 2
    assert scene.calls == [["a", "b"]]


def test_bisecting_finds_the_bad_record(scene: Scene) -> None:
    scene.put(*"abcd")
    scene.bad = {"c"}
    mapping = scene.mapping(scene.raises, bisect=True, retries=1)
    assert mapping.drain() == 4
    assert scene.calls == [["a", "b", "c", "d"], ["a", "b"], ["c", "d"], ["c"], ["c"], ["d"]]
    [given_up] = mapping.failed
    assert given_up["requestContext"] == {
        "condition": "RetryAttemptsExhausted",
        "approximateInvokeCount": 2,
    }
    assert given_up["DDBStreamBatchInfo"]["batchSize"] == 1


def test_bisecting_at_a_reported_place_keeps_the_rest_whole(scene: Scene) -> None:
    scene.put(*"abcd")
    scene.bad = {"b"}
    mapping = scene.mapping(scene.reports, bisect=True)
    mapping.poll()
    mapping.poll()
    scene.bad = set()
    mapping.drain()
    assert scene.calls == [["a", "b", "c", "d"], ["b", "c", "d"], ["b"], ["c", "d"]]


def test_given_up_after_the_last_retry_and_listed(scene: Scene) -> None:
    scene.put(*"abc")
    scene.bad = {"b"}
    mapping = scene.mapping(scene.reports, batch_size=2, retries=2)
    assert mapping.drain() == 3
    assert scene.calls == [["a", "b"], ["b"], ["b"], ["c"]]
    number = mapping.events[1]["Records"][0]["dynamodb"]["SequenceNumber"]
    info = mapping.failed[0]["DDBStreamBatchInfo"]
    assert (info["startSequenceNumber"], info["endSequenceNumber"], info["streamArn"]) == (
        number,
        number,
        scene.arn,
    )


def test_what_never_succeeds_is_said(scene: Scene) -> None:
    scene.put("a")
    scene.bad = {"a"}
    with pytest.raises(AssertionError, match="1 records are still waiting") as said:
        scene.mapping(scene.raises).drain(most_rounds=3)
    assert str(said.value.__cause__) == "something failed"


def test_a_batch_comes_twice(scene: Scene) -> None:
    scene.put(*"abcd")
    scene.mapping(scene.reports, batch_size=2, twice={3}).drain()
    assert scene.calls == [["a", "b"], ["c", "d"]]
    scene.calls.clear()
    scene.mapping(scene.reports, batch_size=2, twice={1}).drain()
    assert scene.calls == [["a", "b"], ["a", "b"], ["c", "d"]]
    scene.calls.clear()
    scene.mapping(scene.reports, batch_size=2, twice=True).drain()
    assert scene.calls == [["a", "b"], ["a", "b"], ["c", "d"], ["c", "d"]]


def test_pretended_shards_keep_the_order_of_a_key_and_do_not_wait_for_each_other(
    scene: Scene,
) -> None:
    keys = [f"k{n}" for n in range(12)]
    for n in range(3):
        scene.put(*keys, n=n)
    scene.bad = {"k0"}
    mapping = scene.mapping(scene.reports, batch_size=4, shards=3)
    mapping.poll()
    blocked = [shard for shard in mapping.shards if shard.waiting]
    assert len(blocked) == 1
    assert all(shard.waiting == 0 for shard in mapping.shards if shard is not blocked[0])
    scene.bad = set()
    mapping.drain()
    seen: dict[str, list[int]] = {key: [] for key in keys}
    for event in mapping.events:
        for record in event["Records"]:
            seen[key_of(record)].append(int(record["dynamodb"]["NewImage"]["n"]["N"]))
    assert all(
        list(dict.fromkeys(numbers)) == [0, 1, 2] and numbers == sorted(numbers)
        for numbers in seen.values()
    )
    shards = {
        key: {
            n
            for n, event in enumerate(mapping.events)
            for record in event["Records"]
            if key_of(record) == key
        }
        for key in keys
    }
    assert len({frozenset(events) for events in shards.values()}) > 1


def test_a_crash_in_the_middle_loses_nothing(scene: Scene) -> None:
    class Crash(BaseException): ...

    def crash(event: Any, context: Any) -> None:
        raise Crash

    scene.put(*"ab")
    mapping = scene.mapping(crash)
    with pytest.raises(Crash):
        mapping.poll()
    assert mapping.waiting == 2


def test_a_child_is_read_after_its_parent() -> None:
    class Streams:
        """Two shards, the child listed first; the parent has nothing for a while, then one more
        record, and is closed."""

        pages = {
            "p1": ("b", "p2"),
            "p2": ("", "p3"),
            "p3": ("c", None),
            "c1": ("d", "c2"),
            "c2": ("", "c2"),
        }

        def describe_stream(self, StreamArn: str, ExclusiveStartShardId: str = "") -> Any:
            child = {
                "Shards": [{"ShardId": "child", "ParentShardId": "parent"}],
                "LastEvaluatedShardId": "child",
            }
            parent = {"Shards": [{"ShardId": "parent", "ParentShardId": "trimmed away"}]}
            return {"StreamDescription": parent if ExclusiveStartShardId else child}

        def get_shard_iterator(self, StreamArn: str, ShardId: str, ShardIteratorType: str) -> Any:
            assert ShardIteratorType == "TRIM_HORIZON"
            return {"ShardIterator": ShardId[0] + "1"}

        def get_records(self, ShardIterator: str) -> Any:
            key, following = self.pages[ShardIterator]
            change = {
                "Keys": {"key": {"S": key}},
                "SequenceNumber": key,
                "ApproximateCreationDateTime": datetime.now(UTC),
            }
            more = {} if following is None else {"NextShardIterator": following}
            return {"Records": [{"dynamodb": change}] if key else []} | more

    calls: list[str] = []
    mapping = StreamMapping(
        Streams(),
        "arn",
        lambda event, _: calls.extend(key_of(record) for record in event["Records"]),
    )
    mapping.poll()
    assert calls == ["b"]
    mapping.drain()
    assert calls == ["b", "c", "d"]


@pytest.mark.parametrize(
    "answer", [None, {}, {"batchItemFailures": None}, {"batchItemFailures": []}]
)
def test_answers_that_mean_success(answer: Any) -> None:
    assert failing(answer, ["1", "2"]) == set()


@pytest.mark.parametrize(
    "entry",
    [
        {"itemIdentifier": ""},
        {"itemIdentifier": None},
        {"identifier": "1"},
        {"itemIdentifier": "9"},
        "1",
    ],
)
def test_answers_that_mean_all_failed(entry: Any) -> None:
    assert failing({"batchItemFailures": [{"itemIdentifier": "2"}, entry]}, ["1", "2"]) == {0, 1}
    assert failing("done", ["1", "2"]) == {0, 1}
    assert failing({"batchItemFailures": [{"itemIdentifier": "2"}]}, ["1", "2"]) == {1}


def test_a_queue_gives_again_what_failed_and_deletes_the_rest(client: Client) -> None:
    sqs = client("sqs")
    url = sqs.create_queue(QueueName="q")["QueueUrl"]
    attribute = {"kind": {"DataType": "Binary", "BinaryValue": b"\xff"}}
    for n in range(3):
        sqs.send_message(
            QueueUrl=url, MessageBody=json.dumps({"n": n}), MessageAttributes=attribute
        )
    bad, calls = {1}, []

    def handler(event: Any, context: Any) -> Any:
        records = {json.loads(record["body"])["n"]: record for record in event["Records"]}
        calls.append(sorted(records))
        return {
            "batchItemFailures": [
                {"itemIdentifier": record["messageId"]} for n, record in records.items() if n in bad
            ]
        }

    mapping = QueueMapping(sqs, url, handler)
    assert mapping.poll() == 2
    bad.clear()
    assert mapping.poll() == 1
    assert mapping.poll() == 0
    assert calls == [[0, 1, 2], [1]]
    [again] = mapping.events[1]["Records"]
    assert again["attributes"]["ApproximateReceiveCount"] == "2"
    assert again["messageAttributes"]["kind"]["binaryValue"] == base64.b64encode(b"\xff").decode()
    assert again["eventSourceARN"] == mapping.arn


def test_a_queue_gives_all_again_after_an_exception(client: Client) -> None:
    sqs = client("sqs")
    url = sqs.create_queue(QueueName="q")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="a")

    def handler(event: Any, context: Any) -> None:
        if len(mapping.events) < 2:
            raise RuntimeError("not yet")

    mapping = QueueMapping(sqs, url, handler)
    assert [mapping.poll(), mapping.poll(), mapping.poll()] == [0, 1, 0]
    assert len(mapping.errors) == 1


def test_an_event_by_hand() -> None:
    [record] = sqs_event([{"MessageId": "1", "ReceiptHandle": "h", "Body": "{}"}])["Records"]
    assert (record["messageId"], record["receiptHandle"], record["body"], record["awsRegion"]) == (
        "1",
        "h",
        "{}",
        "eu-central-1",
    )
