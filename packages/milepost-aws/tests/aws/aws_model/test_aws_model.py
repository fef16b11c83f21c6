"""The model of AWS agrees with the stand-ins: the same calls give the same answers and errors. And
what it does that no stand-in can."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ParamValidationError
from tests.aws.aws_model.call_scripts import (
    DYNAMODB,
    KEY,
    OTHERS,
    Client,
    Script,
    make_table,
    row,
    said,
)
from tests.standins import REGION, Server

from milepost.core.errors import LedgerError
from milepost_aws.aws_model import AwsModel, Faults
from milepost_aws.ledger.requests.client import Requests
from milepost_testing.clock import VirtualClock


@contextmanager
def at(url: str) -> Iterator[Client]:
    """Clients of a stand-in, made once each. (Dynoxide names shards more shortly than boto3
    allows.)"""
    made: dict[str, Any] = {}

    def client(service: str) -> Any:
        if service not in made:
            config = Config(
                retries={"total_max_attempts": 1}, parameter_validation=service != "dynamodbstreams"
            )
            made[service] = boto3.session.Session().client(service, endpoint_url=url, config=config)
        return made[service]

    yield client
    for one in made.values():
        one.close()


@pytest.fixture
def model() -> AwsModel:
    return AwsModel(REGION)


@pytest.mark.wire
@pytest.mark.parametrize("script", [*DYNAMODB, *OTHERS], ids=lambda script: script.__name__)
def test_as_ministack(model: AwsModel, endpoint: str, prefix: str, script: Script) -> None:
    with at(endpoint) as client:
        assert list(script(model.client, prefix)) == list(script(client, prefix))


@pytest.mark.usefixtures("account")
@pytest.mark.wire
@pytest.mark.parametrize("script", DYNAMODB, ids=lambda script: script.__name__)
def test_as_dynoxide(model: AwsModel, dynoxide: Server, prefix: str, script: Script) -> None:
    with at(dynoxide.url) as client:
        assert list(script(model.client, prefix)) == list(script(client, prefix))


@pytest.mark.parametrize("script", [*DYNAMODB, *OTHERS], ids=lambda script: script.__name__)
def test_the_scripts_run_on_the_model(model: AwsModel, script: Script) -> None:
    assert list(script(model.client, "name"))


# What AWS refuses and a stand-in takes ------------------------------------------------------------
def test_one_attribute_is_changed_once_in_an_update(model: AwsModel) -> None:
    db = make_table(model.client, "rows")
    for expression in ("ADD tags :a, tags :b", "SET a = :a REMOVE a", "SET m.x = :a, m = :b"):
        update = {
            "UpdateExpression": expression,
            "ExpressionAttributeValues": {":a": {"SS": ["a"]}, ":b": {"SS": ["b"]}},
        }
        assert (
            said(db.update_item, TableName="rows", Key=KEY, **update)[0] == "ValidationException"
        ), expression


@pytest.mark.parametrize(
    "expression",
    [
        "",
        " ",
        "SET a",
        "SET a = ",
        "SET a = :x,",
        "SET = :x",
        "SET a : :x",
        "SET a = :x SET b = :x",
        "GIVE a :x",
    ],
)
def test_what_is_no_update_is_refused(model: AwsModel, expression: str) -> None:
    db = make_table(model.client, "rows")
    value = {"ExpressionAttributeValues": {":x": {"S": "x"}}} if ":x" in expression else {}
    assert (
        said(db.update_item, TableName="rows", Key=KEY, UpdateExpression=expression, **value)[0]
        == "ValidationException"
    )


def test_lists_are_lists_and_numbers_are_numbers(model: AwsModel) -> None:
    db = make_table(model.client, "rows")
    db.put_item(TableName="rows", Item=row(flag={"BOOL": True}))
    one = {"ExpressionAttributeValues": {":x": {"N": "1"}}}
    assert (
        said(
            db.update_item, TableName="rows", Key=KEY, UpdateExpression="SET a = flag + :x", **one
        )[0]
        == "ValidationException"
    )
    value = {"ExpressionAttributeValues": {":x": {"L": []}}}
    assert (
        said(db.update_item, TableName="rows", Key=KEY, UpdateExpression="REMOVE trail[0]")[0]
        == "ValidationException"
    )
    assert (
        said(
            db.update_item,
            TableName="rows",
            Key=KEY,
            UpdateExpression="SET a = list_append(flag, :x)",
            **value,
        )[0]
        == "ValidationException"
    )


def test_parameters_are_checked_by_boto3_itself(model: AwsModel) -> None:
    db = make_table(model.client, "rows")
    with pytest.raises(ParamValidationError, match="Unknown parameter in input"):
        db.get_item(TableName="rows", Keys=KEY)
    with pytest.raises(ParamValidationError, match="Missing required parameter"):
        db.get_item(TableName="rows")
    with pytest.raises(ParamValidationError, match=r"Invalid type for parameter Item\.n\.N"):
        db.put_item(TableName="rows", Item=row(n={"N": 1}))
    with pytest.raises(db.exceptions.ResourceNotFoundException):
        db.get_item(TableName="none", Key=KEY)


@pytest.mark.parametrize(
    "condition",
    [
        "id = :empty",
        "id = :x AND #at = :empty",
        "id = :x AND #at < :empty",
        "id = :x AND #at >= :empty",
        "id = :x AND #at BETWEEN :empty AND :x",
        "id = :x AND begins_with(#at, :empty)",
    ],
)
def test_an_empty_text_in_a_key_condition_is_refused(model: AwsModel, condition: str) -> None:
    db = make_table(model.client, "rows")
    names = {"ExpressionAttributeNames": {"#at": "at"}} if "#at" in condition else {}
    values = {":empty": {"S": ""}, **({":x": {"S": "x"}} if ":x" in condition else {})}
    with pytest.raises(
        ClientError,
        match=r"ValidationException.* cannot contain an empty string value\. Key: (id|at)",
    ):
        db.query(
            TableName="rows",
            KeyConditionExpression=condition,
            ExpressionAttributeValues=values,
            **names,
        )


def test_what_was_read_is_nobody_elses(model: AwsModel) -> None:
    db = make_table(model.client, "rows")
    put = row(m={"M": {"a": {"L": []}}})
    db.put_item(TableName="rows", Item=put)
    put["m"]["M"]["a"]["L"].append({"S": "by the writer"})
    db.get_item(TableName="rows", Key=KEY)["Item"]["m"]["M"]["a"]["L"].append({"S": "by a reader"})
    assert db.get_item(TableName="rows", Key=KEY)["Item"]["m"] == {"M": {"a": {"L": []}}}


# Lag, shards, time --------------------------------------------------------------------------------
def in_index(db: Any) -> list[str]:
    found = db.query(
        TableName="rows",
        IndexName="due",
        KeyConditionExpression="part = :s",
        ExpressionAttributeValues={":s": {"S": "s"}},
    )
    return [one["id"]["S"] for one in found["Items"]]


def test_an_index_lags_until_it_is_released(model: AwsModel) -> None:
    db = make_table(model.client, "rows")
    due = {"part": {"S": "s"}, "due": {"S": "1"}}
    db.put_item(TableName="rows", Item=row("a", **due))
    index = model.table("rows").indexes["due"]
    index.hold()
    db.put_item(TableName="rows", Item=row("b", **due))
    db.delete_item(TableName="rows", Key=row("a"))
    assert in_index(db) == ["a"]
    index.release()
    assert in_index(db) == ["b"]


def test_an_index_lags_by_seconds_of_the_models_clock() -> None:
    clock = VirtualClock()
    model = AwsModel(REGION, clock=lambda: clock.now() / 1000)
    db = make_table(model.client, "rows")
    model.table("rows").indexes["due"].lag = 2.0
    db.put_item(TableName="rows", Item=row("a", part={"S": "s"}, due={"S": "1"}))
    assert in_index(db) == []
    clock.advance("2s")
    assert in_index(db) == ["a"]


class Reader:
    """Reads a shard of a table's stream."""

    def __init__(self, model: AwsModel) -> None:
        self.streams = model.client("dynamodbstreams")
        self.arn = model.client("dynamodb").describe_table(TableName="rows")["Table"][
            "LatestStreamArn"
        ]

    def shards(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.streams.describe_stream(StreamArn=self.arn)[
            "StreamDescription"
        ]["Shards"]
        return found

    def iterator(self, shard: dict[str, Any], kind: str = "TRIM_HORIZON", **more: str) -> str:
        asked = {
            "StreamArn": self.arn,
            "ShardId": shard["ShardId"],
            "ShardIteratorType": kind,
            **more,
        }
        found: str = self.streams.get_shard_iterator(**asked)["ShardIterator"]
        return found

    def read(self, iterator: str) -> tuple[list[str], str | None]:
        answer = self.streams.get_records(ShardIterator=iterator)
        return [one["dynamodb"]["Keys"]["id"]["S"] for one in answer["Records"]], answer.get(
            "NextShardIterator"
        )


def test_shards_end_and_others_take_over(model: AwsModel) -> None:
    db = make_table(model.client, "rows", stream=True)
    reader = Reader(model)
    db.put_item(TableName="rows", Item=row("before"))
    (first,) = reader.shards()
    stream = model.table("rows").stream
    assert stream is not None
    stream.split()
    for n in range(20):
        db.put_item(TableName="rows", Item=row(f"{n}"))
    parent, *children = reader.shards()
    assert parent["ShardId"] == first["ShardId"]
    assert [child["ParentShardId"] for child in children] == [first["ShardId"]] * 2
    assert reader.read(reader.iterator(parent)) == (["before"], None)
    both = [reader.read(reader.iterator(child))[0] for child in children]
    assert all(both)
    assert sorted([*both[0], *both[1]], key=int) == [f"{n}" for n in range(20)]


def test_records_are_trimmed_held_and_iterators_expire() -> None:
    clock = VirtualClock()
    model = AwsModel(REGION, clock=lambda: clock.now() / 1000)
    db = make_table(model.client, "rows", stream=True)
    reader, stream = Reader(model), model.table("rows").stream
    assert stream is not None
    for key in "abc":
        db.put_item(TableName="rows", Item=row(key))
    (shard,) = reader.shards()
    begin = reader.iterator(shard)
    first = reader.streams.get_records(ShardIterator=begin)["Records"][0]["dynamodb"][
        "SequenceNumber"
    ]
    stream.trim(keep=1)
    with pytest.raises(ClientError, match="TrimmedDataAccessException"):
        reader.read(begin)
    with pytest.raises(ClientError, match="TrimmedDataAccessException"):
        reader.iterator(shard, "AFTER_SEQUENCE_NUMBER", SequenceNumber=first)
    stream.hold()
    db.put_item(TableName="rows", Item=row("d"))
    read, following = reader.read(reader.iterator(shard))
    assert read == ["c"]
    assert following is not None
    assert reader.read(following)[0] == []
    stream.release()
    assert reader.read(following)[0] == ["d"]
    clock.advance("16m")
    with pytest.raises(ClientError, match="ExpiredIteratorException"):
        reader.read(following)


def test_rows_leave_when_their_time_to_live_is_over() -> None:
    clock = VirtualClock()
    model = AwsModel(REGION, clock=lambda: clock.now() / 1000)
    db = make_table(model.client, "rows", stream=True)
    db.update_time_to_live(
        TableName="rows", TimeToLiveSpecification={"Enabled": True, "AttributeName": "ttl"}
    )
    db.put_item(TableName="rows", Item=row("a", ttl={"N": str(clock.now() // 1000 + 60)}))
    db.put_item(TableName="rows", Item=row("b"))
    assert model.expire() == 0
    clock.advance("2m")
    assert model.expire() == 1
    reader = Reader(model)
    records = reader.streams.get_records(ShardIterator=reader.iterator(reader.shards()[0]))[
        "Records"
    ]
    assert records[-1]["eventName"] == "REMOVE"
    assert records[-1]["userIdentity"] == {
        "PrincipalId": "dynamodb.amazonaws.com",
        "Type": "Service",
    }


def test_messages_are_hidden_delayed_and_forgotten_by_the_models_clock() -> None:
    clock = VirtualClock()
    model = AwsModel(REGION, clock=lambda: clock.now() / 1000)
    sqs = model.client("sqs")
    url = sqs.create_queue(QueueName="q", Attributes={"MessageRetentionPeriod": "3600"})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="a", DelaySeconds=60)
    assert said(sqs.receive_message, QueueUrl=url, WaitTimeSeconds=20) == {}
    clock.advance("1m")
    (message,) = sqs.receive_message(QueueUrl=url, VisibilityTimeout=30)["Messages"]
    assert said(sqs.receive_message, QueueUrl=url) == {}
    clock.advance("30s")
    (again,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert said(sqs.delete_message, QueueUrl=url, ReceiptHandle=message["ReceiptHandle"]) == {}
    assert len(model.queue("q").messages) == 1, "a handle that is out of date deletes nothing"
    assert again["MessageId"] == message["MessageId"]
    clock.advance("1h")
    assert said(sqs.receive_message, QueueUrl=url) == {}
    assert not model.queue("q").messages


# Put in the place of boto3 ------------------------------------------------------------------------
def test_boto3_gives_out_its_clients_while_it_is_served(model: AwsModel) -> None:
    with model.served() as url:
        boto3.client("sqs", endpoint_url=url).create_queue(QueueName="q")
        assert boto3.session.Session().client("sqs", endpoint_url=url).list_queues()[
            "QueueUrls"
        ] == [f"{url}/000000000000/q"]
    assert AwsModel(REGION).client("sqs").list_queues().get("QueueUrls") is None, (
        "each model is an account of its own"
    )


def test_the_ledgers_requests_take_it_for_a_session(model: AwsModel) -> None:
    requests, faults = Requests(REGION, session=model, sleep=lambda _: None), Faults()
    faults.attach(model)
    faults.plan("ListTables", "throttle", times=2)
    make_table(model.client, "rows")
    assert requests.call("dynamodb", "list_tables")["TableNames"] == ["rows"]
    assert requests.counts["dynamodb", "list_tables"] == 3
    with pytest.raises(LedgerError):
        requests.call("dynamodb", "get_item", TableName="none", Key=KEY)
    requests.close()


def test_what_it_does_not_know_is_said(model: AwsModel) -> None:
    with pytest.raises(NotImplementedError, match="the model has no lambda; it has dynamodb"):
        model.client("lambda")
    with pytest.raises(NotImplementedError, match="does not know create_backup of dynamodb"):
        model.client("dynamodb").create_backup(TableName="rows", BackupName="b")
