"""Calls of AWS in short scripts, whose answers must be the same on the model and on each stand-in.

A script is given a function that makes boto3 clients and a name that no other script uses, and
yields its answers: what was said, without what differs from run to run, or the code of the error.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from botocore.exceptions import ClientError

Client = Callable[[str], Any]
Answers = Iterator[Any]
Script = Callable[[Client, str], Answers]

KEY = {"id": {"S": "a"}, "at": {"S": "1"}}
UNSAID = (
    "ResponseMetadata",
    "MessageId",
    "MD5OfMessageBody",
    "MD5OfBody",
    "ReceiptHandle",
    "MD5OfMessageAttributes",
)


def said(call: Callable[..., Any], **params: Any) -> Any:
    """The answer, or the code of the error, with the row where the refusal shows it."""
    try:
        answer = call(**params)
    except ClientError as error:
        shown = [reason.get("Code") for reason in error.response.get("CancellationReasons", ())]
        return (
            error.response["Error"]["Code"].rpartition(".")[2],
            shown,
            _sorted(error.response.get("Item")),
        )
    return {name: _sorted(value) for name, value in answer.items() if name not in UNSAID}


def _sorted(value: Any) -> Any:
    """The same with sets in a certain order: DynamoDB's have none."""
    if isinstance(value, dict):
        return {
            name: sorted(one) if name in ("SS", "NS", "BS") else _sorted(one)
            for name, one in value.items()
        }
    return [_sorted(one) for one in value] if isinstance(value, list) else value


def make_table(client: Client, name: str, *, stream: bool = False) -> Any:
    """A table with a hash key, a range key and a sparse index, as a route's is."""
    dynamodb = client("dynamodb")
    names = ("id", "at", "part", "due")
    more: dict[str, Any] = (
        {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}}
        if stream
        else {}
    )
    dynamodb.create_table(
        TableName=name,
        KeySchema=[
            {"AttributeName": "id", "KeyType": "HASH"},
            {"AttributeName": "at", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[{"AttributeName": one, "AttributeType": "S"} for one in names],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "due",
                "KeySchema": [
                    {"AttributeName": "part", "KeyType": "HASH"},
                    {"AttributeName": "due", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
        BillingMode="PAY_PER_REQUEST",
        **more,
    )
    return dynamodb


def row(id: str = "a", at: str = "1", **more: dict[str, Any]) -> dict[str, Any]:
    return {"id": {"S": id}, "at": {"S": at}, **more}


# DynamoDB -----------------------------------------------------------------------------------------
def conditional_writes(client: Client, name: str) -> Answers:
    db = make_table(client, name)
    absent = {
        "ConditionExpression": "attribute_not_exists(id)",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    yield said(db.put_item, TableName=name, Item=row(n={"N": "1"}), **absent)
    yield said(db.put_item, TableName=name, Item=row(n={"N": "2"}), **absent)
    yield said(db.put_item, TableName=name, Item=row(n={"N": "3"}), ReturnValues="ALL_OLD")
    yield said(db.get_item, TableName=name, Key=KEY)
    yield said(db.get_item, TableName=name, Key={**KEY, "at": {"S": "2"}})
    change = {
        "UpdateExpression": "SET n = n + :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }
    for returned in ("ALL_NEW", "UPDATED_NEW", "UPDATED_OLD", "ALL_OLD", "NONE"):
        yield said(db.update_item, TableName=name, Key=KEY, **change, ReturnValues=returned)
    yield said(
        db.update_item,
        TableName=name,
        Key={**KEY, "at": {"S": "2"}},
        ConditionExpression="attribute_exists(id)",
        **change,
    )
    yield said(
        db.delete_item,
        TableName=name,
        Key=KEY,
        ConditionExpression="n = :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
    )
    yield said(db.delete_item, TableName=name, Key=KEY, ReturnValues="ALL_OLD")
    yield said(db.delete_item, TableName=name, Key=KEY)
    yield said(db.get_item, TableName=name, Key=KEY)


def updates(client: Client, name: str) -> Answers:
    db = make_table(client, name)

    def update(
        expression: str, names: dict[str, str] | None = None, **values: dict[str, Any]
    ) -> Any:
        more: dict[str, Any] = {"ExpressionAttributeNames": names} if names else {}
        if values:
            more["ExpressionAttributeValues"] = {f":{one}": value for one, value in values.items()}
        return said(
            db.update_item,
            TableName=name,
            Key=KEY,
            UpdateExpression=expression,
            ReturnValues="ALL_NEW",
            **more,
        )

    yield update(
        "SET #l = list_append(if_not_exists(#l, :none), :more)",
        {"#l": "trail"},
        none={"L": []},
        more={"L": [{"S": "x"}]},
    )
    yield update(
        "SET #l = list_append(if_not_exists(#l, :none), :more)",
        {"#l": "trail"},
        none={"L": []},
        more={"L": [{"B": b"\x00\xff"}]},
    )
    yield update("SET n = if_not_exists(n, :none) + :one", none={"N": "5"}, one={"N": "1"})
    yield update(
        "SET n = n - :one, m = :map", one={"N": "0.50"}, map={"M": {"a": {"M": {"b": {"N": "1"}}}}}
    )
    yield update("SET m.a.c = :x, trail[2] = :x REMOVE m.a.b", x={"S": "deep"})
    yield update("SET trail[0] = :x REMOVE trail[1]", x={"BOOL": True})
    yield update("ADD n :one, tags :set", one={"N": "-3"}, set={"SS": ["red", "blue"]})
    yield update("ADD tags :set", set={"SS": ["green"]})
    yield update("DELETE tags :set", set={"SS": ["red", "none"]})
    yield update("DELETE tags :set", set={"SS": ["blue", "green"]})
    yield update("SET kept = if_not_exists(gone, n) REMOVE n")
    yield update("SET a = kept, kept = :x", x={"NULL": True})
    yield update("REMOVE gone, a")
    yield update("SET x = gone")
    yield update("SET x.y = :x", x={"S": "no such map"})
    yield update("ADD kept :x", x={"N": "1"})
    yield update("ADD x :x", x={"S": "no number"})
    yield said(
        db.update_item, TableName=name, Key={**KEY, "at": {"S": "new"}}, ReturnValues="ALL_NEW"
    )


CONDITIONS = {
    "n = :n": True,
    "n <> :n": False,
    "n < :more": True,
    "n >= :more": False,
    "n BETWEEN :n AND :more": True,
    "n IN (:more, :n)": True,
    "n IN (:more)": False,
    "n = :s": False,
    "n < :s": False,
    "gone = :n": False,
    "gone <> :n": True,
    "gone < :n": False,
    "attribute_exists(m.deep)": True,
    "attribute_exists(m.gone)": False,
    "attribute_not_exists(l[3])": True,
    "l[0] = :s": True,
    "m.deep = :n": True,
    "attribute_type(n, :kind)": True,
    "attribute_type(s, :kind)": False,
    "begins_with(s, :te)": True,
    "begins_with(gone, :te)": False,
    "contains(s, :te)": True,
    "contains(tags, :s)": True,
    "contains(l, :s)": True,
    "contains(tags, :te)": False,
    "size(s) = :four": True,
    "size(l) > :four": False,
    "size(tags) < :four": True,
    "NOT n = :n": False,
    "NOT (n = :more OR gone = :n)": True,
    "n = :more OR n = :n AND s = :s": True,
    "(n = :more OR n = :n) AND s = :te": False,
}


def conditions(client: Client, name: str) -> Answers:
    db = make_table(client, name)
    content = {
        "n": {"N": "7"},
        "s": {"S": "text"},
        "m": {"M": {"deep": {"N": "7.0"}}},
        "l": {"L": [{"S": "text"}]},
        "tags": {"SS": ["text", "other"]},
    }
    db.put_item(TableName=name, Item=row(**content))
    values = {
        ":n": {"N": "7"},
        ":more": {"N": "10"},
        ":s": {"S": "text"},
        ":te": {"S": "te"},
        ":four": {"N": "4"},
        ":kind": {"S": "N"},
    }
    for condition, holds in CONDITIONS.items():
        used = {
            one: value
            for one, value in values.items()
            if one in condition.replace("(", " ").replace(")", " ").replace(",", " ").split()
        }
        more: dict[str, Any] = {"ExpressionAttributeValues": used} if used else {}
        answer = said(
            db.delete_item,
            TableName=name,
            Key=KEY,
            ConditionExpression=f"({condition}) AND attribute_exists(never)",
            **more,
        )
        assert answer[0] == "ConditionalCheckFailedException", (condition, answer)
        found = said(
            db.put_item, TableName=name, Item=row(**content), ConditionExpression=condition, **more
        )
        yield condition, found
        assert (found == {}) == holds, condition


def refusals(client: Client, name: str) -> Answers:
    db = make_table(client, name)
    value = {"ExpressionAttributeValues": {":x": {"S": "x"}}}

    def update(**params: Any) -> Any:
        return said(db.update_item, TableName=name, **{"Key": KEY, **params})

    yield said(db.get_item, TableName=f"{name}-not", Key=KEY)
    yield said(db.get_item, TableName=name, Key={"id": {"S": "a"}})
    yield said(db.get_item, TableName=name, Key={"id": {"N": "1"}, "at": {"S": "1"}})
    yield said(db.get_item, TableName=name, Key={**KEY, "more": {"S": "1"}})
    yield said(db.put_item, TableName=name, Item={"id": {"S": "a"}})
    yield said(db.put_item, TableName=name, Item=row(id=""))
    yield said(db.put_item, TableName=name, Item=row(id="x" * 2049))
    yield said(db.put_item, TableName=name, Item=row(at="x" * 1025))
    yield said(db.put_item, TableName=name, Item=row(tags={"SS": []}))
    yield said(db.put_item, TableName=name, Item=row(n={"N": "many"}))
    yield said(db.put_item, TableName=name, Item=row(n={"N": "1" * 39}))
    yield said(db.put_item, TableName=name, Item=row(long={"S": "x" * 410_000}))
    yield said(db.put_item, TableName=name, Item=row(part={"N": "1"}, due={"S": "1"}))
    yield update(UpdateExpression="SET a = :x")
    yield update(UpdateExpression="SET #a = :x", **value)
    yield update(UpdateExpression="SET a = :x", ExpressionAttributeNames={"#unused": "b"}, **value)
    yield update(UpdateExpression="REMOVE a", **value)
    yield update(UpdateExpression="SET id = :x", **value)
    yield update(UpdateExpression="SET owner = :x", **value)
    yield update(UpdateExpression="SET a = :x", ConditionExpression="a = ", **value)
    query = {"TableName": name, "ExpressionAttributeValues": {":x": {"S": "x"}}}
    yield said(db.query, KeyConditionExpression="part = :x", IndexName="none", **query)
    yield said(
        db.query, KeyConditionExpression="part = :x", IndexName="due", ConsistentRead=True, **query
    )
    yield said(db.query, KeyConditionExpression="owner_of = :x", **query)
    yield said(db.query, KeyConditionExpression="id > :x", **query)
    yield said(
        db.transact_write_items, TransactItems=[{"Put": {"TableName": name, "Item": row()}}] * 2
    )
    yield said(db.batch_write_item, RequestItems={name: [{"PutRequest": {"Item": row()}}] * 2})
    yield said(db.batch_get_item, RequestItems={name: {"Keys": [KEY, KEY]}})
    yield said(
        db.batch_write_item,
        RequestItems={name: [{"PutRequest": {"Item": row(str(n))}} for n in range(26)]},
    )
    yield said(db.scan, TableName=name)["Count"]


def queries(client: Client, name: str) -> Answers:
    db = make_table(client, name)
    for n in range(9):
        more = {"part": {"S": "s"}, "due": {"S": f"2026-{n % 4}"}} if n % 3 else {}
        db.put_item(
            TableName=name, Item=row("a" if n < 6 else "b", str(n), n={"N": str(n)}, **more)
        )

    def found(**params: Any) -> Any:
        """All rows, page by page."""
        items, pages = [], 0
        while True:
            answer = db.query(TableName=name, **params)
            items += answer.get("Items", [])
            pages += 1
            if "LastEvaluatedKey" not in answer:
                return items
            params["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    a, due = {":id": {"S": "a"}}, {":s": {"S": "s"}}
    yield found(KeyConditionExpression="id = :id", ExpressionAttributeValues=a)
    yield found(
        KeyConditionExpression="id = :id",
        ExpressionAttributeValues=a,
        Limit=2,
        ScanIndexForward=False,
    )
    for condition in (
        "#at > :x",
        "#at <= :x",
        "#at BETWEEN :x AND :x",
        "begins_with(#at, :x)",
        "#at = :x",
    ):
        yield found(
            KeyConditionExpression=f"id = :id AND {condition}",
            ExpressionAttributeNames={"#at": "at"},
            ExpressionAttributeValues={**a, ":x": {"S": "3"}},
        )
    yield found(
        KeyConditionExpression="id = :id",
        FilterExpression="n > :n",
        ProjectionExpression="n",
        ExpressionAttributeValues={**a, ":n": {"N": "2"}},
        Limit=2,
    )
    yield sorted(
        (one["due"]["S"], one["at"]["S"])
        for one in found(
            IndexName="due",
            KeyConditionExpression="part = :s",
            ExpressionAttributeValues=due,
            Limit=1,
        )
    )
    yield [
        one["due"]["S"]
        for one in found(
            IndexName="due",
            KeyConditionExpression="part = :s AND due <= :d",
            ExpressionAttributeValues={**due, ":d": {"S": "2026-1"}},
        )
    ]
    counted = db.query(
        TableName=name,
        KeyConditionExpression="id = :id",
        ExpressionAttributeValues=a,
        Select="COUNT",
    )
    yield counted["Count"], "Items" in counted
    parts = [db.scan(TableName=name, Segment=n, TotalSegments=3)["Items"] for n in range(3)]
    yield sorted(one["at"]["S"] for part in parts for one in part)
    yield sorted(one["at"]["S"] for one in db.scan(TableName=name, IndexName="due")["Items"])


def transactions(client: Client, name: str) -> Answers:
    db = make_table(client, name)
    db.put_item(TableName=name, Item=row(n={"N": "1"}))
    absent = {
        "ConditionExpression": "attribute_not_exists(id)",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    put = {"Put": {"TableName": name, "Item": row("b")}}
    refused = {"Put": {"TableName": name, "Item": row(), **absent}}
    add = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}
    try:
        db.transact_write_items(TransactItems=[put, refused])
    except ClientError as error:
        yield [
            (reason["Code"], reason.get("Item")) for reason in error.response["CancellationReasons"]
        ]
    yield said(db.get_item, TableName=name, Key=row("b"))
    for _ in range(2):
        yield said(
            db.transact_write_items,
            TransactItems=[put, {"Update": {"TableName": name, "Key": KEY, **add}}],
            ClientRequestToken=f"{name}-token",
        )
    yield said(db.transact_write_items, TransactItems=[put], ClientRequestToken=f"{name}-token")[0]
    check = {
        "TableName": name,
        "Key": KEY,
        "ConditionExpression": "n = :n",
        "ExpressionAttributeValues": {":n": {"N": "2"}},
    }
    yield said(
        db.transact_write_items,
        TransactItems=[{"ConditionCheck": check}, {"Delete": {"TableName": name, "Key": row("b")}}],
    )
    yield said(
        db.transact_get_items,
        TransactItems=[{"Get": {"TableName": name, "Key": key}} for key in (KEY, row("b"))],
    )


def batches(client: Client, name: str) -> Answers:
    db = make_table(client, name)
    yield said(
        db.batch_write_item,
        RequestItems={name: [{"PutRequest": {"Item": row(str(n))}} for n in range(25)]},
    )
    yield said(
        db.batch_write_item,
        RequestItems={
            name: [{"DeleteRequest": {"Key": row("3")}}, {"PutRequest": {"Item": row("x")}}]
        },
    )
    answer = db.batch_get_item(
        RequestItems={name: {"Keys": [row(str(n)) for n in range(30)], "ConsistentRead": True}}
    )
    yield sorted(one["id"]["S"] for one in answer["Responses"][name]), answer["UnprocessedKeys"]


def capacity(client: Client, name: str) -> Answers:
    db = make_table(client, name)
    metered = {"TableName": name, "ReturnConsumedCapacity": "INDEXES"}

    def units(call: Callable[..., Any], **params: Any) -> Any:
        told = call(**params)["ConsumedCapacity"]
        told = told[0] if isinstance(told, list) else told
        shares = {
            index: part["CapacityUnits"]
            for index, part in told.get("GlobalSecondaryIndexes", {}).items()
            if part["CapacityUnits"]
        }
        return told["CapacityUnits"], shares

    large = {"S": "x" * 2500}
    yield units(db.put_item, Item=row(), **metered)
    yield units(db.put_item, Item=row(large=large), **metered)
    yield units(db.put_item, Item=row("b", part={"S": "s"}, due={"S": "1"}), **metered)
    due = {"UpdateExpression": "SET due = :x", "ExpressionAttributeValues": {":x": {"S": "2"}}}
    yield units(db.update_item, Key=row("b"), **due, **metered)
    yield units(
        db.update_item,
        Key=row("b"),
        UpdateExpression="SET n = :x",
        ExpressionAttributeValues={":x": {"S": "2"}},
        **metered,
    )
    yield units(db.update_item, Key=row("b"), UpdateExpression="REMOVE due", **metered)
    yield units(db.get_item, Key=KEY, ConsistentRead=True, **metered)
    yield units(db.get_item, Key=KEY, **metered)
    yield units(
        db.query,
        KeyConditionExpression="id = :id",
        ExpressionAttributeValues={":id": {"S": "a"}},
        ConsistentRead=True,
        **metered,
    )
    yield units(
        db.transact_write_items,
        TransactItems=[{"Put": {"TableName": name, "Item": row("c")}}],
        ReturnConsumedCapacity="INDEXES",
    )
    yield units(db.delete_item, Key=KEY, **metered)


def at_random(client: Client, name: str) -> Answers:
    """Writes such as the ledger makes, chosen by a seed."""
    chance = random.Random(7)
    db = make_table(client, name)
    for _ in range(250):
        key = row(chance.choice("abc"), chance.choice("12"))
        n = {"N": str(chance.randrange(4))}
        values: dict[str, Any] = {":n": n}
        parts = ["SET n = :n"]
        if chance.random() < 0.4:
            parts[0] += ", trail = list_append(if_not_exists(trail, :none), :line)"
            values |= {":none": {"L": []}, ":line": {"L": [{"B": bytes([chance.randrange(256)])}]}}
        if chance.random() < 0.5:
            parts[0] += ", part = :s, due = :s"
            values[":s"] = {"S": chance.choice("xyz")}
        elif chance.random() < 0.5:
            parts.append("REMOVE part, due")
        if chance.random() < 0.3:
            parts.append("ADD tags :t")
            values[":t"] = {"SS": [chance.choice("pqr")]}
        condition = chance.choice(
            [
                "",
                "attribute_not_exists(n)",
                "n = :old",
                "n <> :old",
                "size(trail) < :old",
                "attribute_exists(part)",
            ]
        )
        more: dict[str, Any] = {}
        if condition:
            more = {
                "ConditionExpression": condition,
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
            if ":old" in condition:
                values[":old"] = {"N": str(chance.randrange(4))}
        kind = chance.random()
        if kind < 0.1:
            used = (
                {"ExpressionAttributeValues": {":old": values[":old"]}} if ":old" in values else {}
            )
            yield said(db.delete_item, TableName=name, Key=key, **more, **used)
        elif kind < 0.2:
            write = {
                "TableName": name,
                "Key": key,
                "UpdateExpression": " ".join(parts),
                "ExpressionAttributeValues": values,
                **more,
            }
            yield said(db.transact_write_items, TransactItems=[{"Update": write}])
        else:
            update = {
                "UpdateExpression": " ".join(parts),
                "ExpressionAttributeValues": values,
                **more,
            }
            yield said(db.update_item, TableName=name, Key=key, ReturnValues="ALL_NEW", **update)
    for index in ({}, {"IndexName": "due"}):
        rows = _sorted(db.scan(TableName=name, **index)["Items"])
        yield sorted(rows, key=lambda one: (one["id"]["S"], one["at"]["S"]))


def stream(client: Client, name: str) -> Answers:
    db, streams = make_table(client, name, stream=True), client("dynamodbstreams")
    arn = db.describe_table(TableName=name)["Table"]["LatestStreamArn"]
    db.put_item(TableName=name, Item=row(n={"N": "1"}))
    db.update_item(
        TableName=name,
        Key=KEY,
        UpdateExpression="SET n = :n",
        ExpressionAttributeValues={":n": {"N": "2"}},
    )
    said(db.put_item, TableName=name, Item=row(), ConditionExpression="attribute_not_exists(id)")
    db.transact_write_items(TransactItems=[{"Put": {"TableName": name, "Item": row("b")}}])
    db.delete_item(TableName=name, Key=KEY)
    db.delete_item(TableName=name, Key=KEY)
    (shard,) = streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]

    def read(kind: str, **more: str) -> list[Any]:
        asked = {"StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": kind, **more}
        records: list[Any] = streams.get_records(
            ShardIterator=streams.get_shard_iterator(**asked)["ShardIterator"]
        )["Records"]
        return records

    records = read("TRIM_HORIZON")
    yield [
        (
            one["eventName"],
            one["dynamodb"]["Keys"],
            one["dynamodb"].get("OldImage"),
            one["dynamodb"].get("NewImage"),
        )
        for one in records
    ]
    numbers = [one["dynamodb"]["SequenceNumber"] for one in records]
    assert [int(number) for number in numbers] == sorted(int(number) for number in numbers)
    yield (
        len(read("AFTER_SEQUENCE_NUMBER", SequenceNumber=numbers[1])),
        len(read("AT_SEQUENCE_NUMBER", SequenceNumber=numbers[1])),
    )
    yield read("LATEST")


# SQS, SNS, S3 -------------------------------------------------------------------------------------
def messages(client: Client, name: str) -> Answers:
    sqs = client("sqs")
    url = sqs.create_queue(QueueName=name, Attributes={"MessageRetentionPeriod": "1209600"})[
        "QueueUrl"
    ]
    yield said(sqs.get_queue_url, QueueName=f"{name}-not")[0]
    yield sqs.get_queue_attributes(
        QueueUrl=url, AttributeNames=["MessageRetentionPeriod", "VisibilityTimeout"]
    )["Attributes"]
    label = {"kind": {"DataType": "String", "StringValue": "offer"}}
    entries = [
        {"Id": str(n), "MessageBody": f"body {n}", "MessageAttributes": label} for n in range(3)
    ]
    sent = sqs.send_message_batch(
        QueueUrl=url, Entries=[*entries, {"Id": "late", "MessageBody": "late", "DelaySeconds": 900}]
    )
    yield sorted(one["Id"] for one in sent["Successful"])
    counted = [
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
    ]
    yield sqs.get_queue_attributes(QueueUrl=url, AttributeNames=counted)["Attributes"]
    asked = {
        "QueueUrl": url,
        "MaxNumberOfMessages": 10,
        "MessageSystemAttributeNames": ["ApproximateReceiveCount"],
    }
    got = sqs.receive_message(**asked, MessageAttributeNames=["All"])["Messages"]
    yield sorted(
        (
            one["Body"],
            one["Attributes"]["ApproximateReceiveCount"],
            one["MessageAttributes"]["kind"]["StringValue"],
        )
        for one in got
    )
    yield said(sqs.receive_message, QueueUrl=url)
    yield sqs.get_queue_attributes(QueueUrl=url, AttributeNames=counted)["Attributes"]
    shown = [
        {"Id": str(n), "ReceiptHandle": one["ReceiptHandle"], "VisibilityTimeout": 0}
        for n, one in enumerate(got[:2])
    ]
    yield len(sqs.change_message_visibility_batch(QueueUrl=url, Entries=shown)["Successful"])
    again = sqs.receive_message(**asked)["Messages"]
    yield sorted(one["Attributes"]["ApproximateReceiveCount"] for one in again)
    handles = [
        {"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]}
        for n, one in enumerate([*again, got[2]])
    ]
    yield sorted(
        one["Id"] for one in sqs.delete_message_batch(QueueUrl=url, Entries=handles)["Successful"]
    )
    yield sqs.get_queue_attributes(QueueUrl=url, AttributeNames=counted)["Attributes"]
    yield said(sqs.purge_queue, QueueUrl=url)
    yield said(sqs.send_message, QueueUrl=url, MessageBody="")[0] != {}
    yield said(sqs.send_message_batch, QueueUrl=url, Entries=[])[0]
    yield said(sqs.send_message_batch, QueueUrl=url, Entries=[{"Id": "0", "MessageBody": "a"}] * 2)[
        0
    ]
    yield said(sqs.receive_message, QueueUrl=url, MaxNumberOfMessages=11)[0]
    yield said(sqs.delete_queue, QueueUrl=url)
    yield said(sqs.send_message, QueueUrl=url, MessageBody="a")[0]


def dead_letters(client: Client, name: str) -> Answers:
    sqs = client("sqs")
    grave = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=grave, AttributeNames=["QueueArn"])["Attributes"][
        "QueueArn"
    ]
    policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": "2"}}'
    url = sqs.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="poison")
    for _ in range(3):
        yield [
            one["Body"]
            for one in sqs.receive_message(QueueUrl=url, VisibilityTimeout=0).get("Messages", ())
        ]
    yield [one["Body"] for one in sqs.receive_message(QueueUrl=grave).get("Messages", ())]


def topics(client: Client, name: str) -> Answers:
    sqs, sns = client("sqs"), client("sns")
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"][
        "QueueArn"
    ]
    topic = sns.create_topic(Name=name)["TopicArn"]
    sns.subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=arn,
        Attributes={"RawMessageDelivery": "true", "FilterPolicy": '{"kind": ["a", "b"]}'},
    )
    entries = [
        {
            "Id": kind,
            "Message": f"of {kind}",
            "MessageAttributes": {"kind": {"DataType": "String", "StringValue": kind}},
        }
        for kind in "abc"
    ]
    yield sorted(
        one["Id"]
        for one in sns.publish_batch(TopicArn=topic, PublishBatchRequestEntries=entries)[
            "Successful"
        ]
    )
    got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])[
        "Messages"
    ]
    yield sorted((one["Body"], one["MessageAttributes"]["kind"]["StringValue"]) for one in got)
    yield said(sns.publish_batch, TopicArn=f"{topic}-not", PublishBatchRequestEntries=entries)[0]


def objects(client: Client, name: str) -> Answers:
    s3 = client("s3")
    place = {"Bucket": name, "Key": "a/b"}
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    yield said(s3.get_object, **place)[0]
    etag = s3.put_object(**place, Body=b"0123456789")["ETag"]
    yield etag, s3.get_object(**place)["Body"].read()
    part = s3.get_object(**place, Range="bytes=2-4", IfMatch=etag)
    yield part["Body"].read(), part["ContentRange"]
    yield (
        said(s3.get_object, **place, Range="bytes=10-20")[0],
        said(s3.get_object, **place, IfMatch='"other"')[0],
    )
    copy = {"Bucket": name, "Key": "a/copy", "CopySource": place}
    yield said(s3.copy_object, **copy, CopySourceIfMatch='"other"')[0]
    s3.copy_object(**copy, CopySourceIfMatch=etag)
    page = s3.list_objects_v2(Bucket=name, Prefix="a/", MaxKeys=1)
    yield [one["Key"] for one in page["Contents"]], page["IsTruncated"]
    page = s3.list_objects_v2(
        Bucket=name, Prefix="a/", MaxKeys=1, ContinuationToken=page["NextContinuationToken"]
    )
    yield [one["Key"] for one in page["Contents"]], page["IsTruncated"]
    upload = {**place, "UploadId": s3.create_multipart_upload(**place)["UploadId"]}
    parts = []
    for number, body in enumerate((b"x" * (5 << 20), b"end"), start=1):
        parts.append(
            {
                "PartNumber": number,
                "ETag": s3.upload_part(**upload, PartNumber=number, Body=body)["ETag"],
            }
        )
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    yield s3.head_object(**place)["ContentLength"]
    s3.delete_object(**place)
    s3.delete_object(**place)
    yield said(s3.head_object, **place)[0]


DYNAMODB: tuple[Script, ...] = (
    conditional_writes, updates, conditions, refusals, queries, transactions, batches, capacity, at_random, stream,
)  # fmt: skip
OTHERS: tuple[Script, ...] = (messages, dead_letters, topics, objects)
