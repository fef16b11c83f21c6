"""Each planned fault has the promised effect, on the model and on a stand-in: in the answer, and in
the stored data."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError
from tests.standins import REGION

from milepost.core.errors import LedgerReadOnly
from milepost_aws.aws_model import AwsCall, Faults, kinds
from milepost_aws.ledger.requests.client import Requests

Client = Callable[[str], Any]
ROW = {"TableName": "rows", "Key": {"key": {"S": "a"}}}
ADD = ROW | {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}


@pytest.fixture(params=["model", pytest.param("ministack", marks=pytest.mark.wire)], autouse=True)
def place(request: pytest.FixtureRequest) -> str:
    """Where the calls are made; `endpoint` goes by the mark."""
    return str(request.param)


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def single(endpoint: str) -> Client:
    """A client that tries everything once only, so that a fault reaches the caller."""
    return lambda service: boto3.client(
        service, endpoint_url=endpoint, config=Config(retries={"total_max_attempts": 1})
    )


@pytest.fixture
def dynamodb(single: Client) -> Any:
    made = single("dynamodb")
    made.create_table(
        TableName="rows",
        KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return made


def counted(client: Client) -> int:
    return int(
        client("dynamodb")
        .get_item(**ROW, ConsistentRead=True)
        .get("Item", {})
        .get("n", {"N": "0"})["N"]
    )


REFUSALS = [
    ("throttle", 400, "ProvisionedThroughputExceededException"),
    ("500", 500, "InternalServerError"),
    ("conflict", 400, "TransactionConflictException"),
]


@pytest.mark.parametrize(("kind", "status", "code"), REFUSALS)
def test_refused_and_not_carried_out(
    kind: str, status: int, code: str, dynamodb: Any, client: Client, faults: Faults
) -> None:
    faults.attach(dynamodb)
    faults.plan("UpdateItem", kind)
    with pytest.raises(ClientError) as refused:
        dynamodb.update_item(**ADD)
    assert refused.value.response["Error"]["Code"] == code
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert counted(client) == 0
    dynamodb.update_item(**ADD)
    assert counted(client) == 1


@pytest.mark.parametrize(("kind", "carried_out"), [("timeout_before", 0), ("timeout_after", 1)])
def test_the_answer_is_lost(
    kind: str, carried_out: int, dynamodb: Any, client: Client, faults: Faults
) -> None:
    faults.attach(dynamodb)
    faults.plan(1, kind)
    with pytest.raises(ReadTimeoutError):
        dynamodb.update_item(**ADD)
    assert counted(client) == carried_out


def test_twice(dynamodb: Any, client: Client, faults: Faults) -> None:
    faults.attach(dynamodb)
    faults.plan(1, "twice")
    assert dynamodb.update_item(**ADD, ReturnValues="UPDATED_NEW")["Attributes"] == {
        "n": {"N": "1"}
    }
    assert counted(client) == 2


@pytest.mark.parametrize(
    ("kind", "moved"),
    [("throttle", 1), ("500", 1), ("timeout_before", 1), ("timeout_after", 2), ("twice", 2)],
)
def test_a_call_that_is_tried_again_is_counted_again(
    kind: str, moved: int, dynamodb: Any, client: Client, endpoint: str, faults: Faults
) -> None:
    requests = Requests(REGION, endpoint, sleep=lambda _: None)
    faults.attach(requests)
    faults.plan(("UpdateItem", 1), kind)
    requests.call("dynamodb", "update_item", **ADD)
    requests.close()
    assert counted(client) == moved
    assert len(faults.calls) == (1 if kind == "twice" else 2)


@pytest.mark.parametrize("kind", ["timeout_after", "twice"])
def test_a_refusal_is_lost_like_any_other_answer(kind: str, dynamodb: Any, faults: Faults) -> None:
    faults.attach(dynamodb)
    faults.plan("PutItem", kind)
    put = {
        "TableName": "rows",
        "Item": {"key": {"S": "a"}},
        "ConditionExpression": "attribute_exists(#key)",
    }
    with pytest.raises(
        ReadTimeoutError
        if kind == "timeout_after"
        else dynamodb.exceptions.ConditionalCheckFailedException
    ):
        dynamodb.put_item(**put, ExpressionAttributeNames={"#key": "key"})


@pytest.mark.parametrize(
    ("service", "operation"),
    [("dynamodb", "list_tables"), ("sqs", "list_queues"), ("sns", "list_topics")],
)
def test_a_call_can_be_denied(service: str, operation: str, endpoint: str, faults: Faults) -> None:
    requests = Requests(REGION, endpoint)
    faults.attach(requests)
    faults.plan(1, "denied")
    with pytest.raises(LedgerReadOnly, match=r"AccessDenied|AuthorizationError"):
        requests.call(service, operation)
    requests.close()


def test_a_conflict_within_a_transaction(dynamodb: Any, client: Client, faults: Faults) -> None:
    faults.attach(dynamodb)
    faults.plan("TransactWriteItems", "conflict")
    other = {"Put": {"TableName": "rows", "Item": {"key": {"S": "b"}}}}
    with pytest.raises(dynamodb.exceptions.TransactionCanceledException) as refused:
        dynamodb.transact_write_items(TransactItems=[other, {"Update": ADD}])
    assert [reason["Code"] for reason in refused.value.response["CancellationReasons"]] == [
        "None",
        "TransactionConflict",
    ]
    assert client("dynamodb").scan(TableName="rows")["Count"] == 0


def test_calls_are_counted_in_order_and_per_operation(
    dynamodb: Any, client: Client, faults: Faults
) -> None:
    faults.attach(dynamodb)
    faults.attach(dynamodb)
    faults.plan(("UpdateItem", 2), "throttle", times=2)
    faults.plan(5, "twice")
    dynamodb.update_item(**ADD)
    dynamodb.get_item(**ROW)
    for _ in range(2):
        with pytest.raises(ClientError):
            dynamodb.update_item(**ADD)
    dynamodb.update_item(**ADD)
    updates = [AwsCall("dynamodb", "UpdateItem", nth) for nth in (1, 2, 3, 4)]
    assert faults.calls == [updates[0], AwsCall("dynamodb", "GetItem", 1), *updates[1:]]
    assert faults.fired == [
        (updates[1], "throttle"),
        (updates[2], "throttle"),
        (updates[3], "twice"),
    ]
    assert counted(client) == 3
    faults.clear()
    dynamodb.get_item(**ROW)
    assert faults.calls == [AwsCall("dynamodb", "GetItem", 1)]


def test_attached_to_a_ledgers_requests(
    endpoint: str, dynamodb: Any, client: Client, faults: Faults
) -> None:
    requests = Requests(REGION, endpoint, sleep=lambda _: None)
    faults.attach(requests)
    faults.plan(("UpdateItem", 10), "timeout_after")
    requests.each([lambda: requests.call("dynamodb", "update_item", **ADD)] * 20)
    requests.call("sqs", "list_queues")
    requests.close()
    assert sorted(faults.calls) == [
        *(AwsCall("dynamodb", "UpdateItem", nth) for nth in range(1, 22)),
        AwsCall("sqs", "ListQueues", 1),
    ]
    assert faults.fired == [(AwsCall("dynamodb", "UpdateItem", 10), "timeout_after")]
    assert counted(client) == 21


def test_a_fault_that_cannot_be_is_a_mistake(dynamodb: Any, faults: Faults) -> None:
    with pytest.raises(ValueError, match="no fault 'flood'"):
        faults.plan(1, "flood")
    faults.attach(dynamodb)
    faults.plan("ListTables", "partial")
    with pytest.raises(ValueError, match="ListTables of dynamodb cannot have"):
        dynamodb.list_tables()
    assert "partial" in kinds("sns", "PublishBatch")
    assert "partial" not in kinds("sns", "Publish")


@pytest.mark.parametrize(("number", "written"), [(5, 3), (2, 1)])
def test_unprocessed_writes_are_not_written(
    number: int, written: int, dynamodb: Any, client: Client, faults: Faults
) -> None:
    faults.attach(dynamodb)
    faults.plan("BatchWriteItem", "unprocessed")
    puts = [
        {"PutRequest": {"Item": {"key": {"S": f"{n}"}, "b": {"B": bytes([n, 255])}}}}
        for n in range(number)
    ]
    answer = dynamodb.batch_write_item(RequestItems={"rows": puts})
    assert answer["UnprocessedItems"] == {"rows": puts[written:]}
    there = client("dynamodb").scan(TableName="rows")["Items"]
    assert sorted(item["key"]["S"] for item in there) == [f"{n}" for n in range(written)]
    assert (
        dynamodb.batch_write_item(RequestItems=answer["UnprocessedItems"])["UnprocessedItems"] == {}
    )
    assert client("dynamodb").scan(TableName="rows")["Count"] == number


def test_unprocessed_reads_are_not_read(dynamodb: Any, faults: Faults) -> None:
    keys = [{"key": {"S": f"{n}"}} for n in range(4)]
    dynamodb.batch_write_item(
        RequestItems={"rows": [{"PutRequest": {"Item": key}} for key in keys]}
    )
    faults.attach(dynamodb)
    faults.plan("BatchGetItem", "unprocessed")
    asked = {"rows": {"Keys": keys, "ConsistentRead": True}}
    answer = dynamodb.batch_get_item(RequestItems=asked)
    assert sorted(item["key"]["S"] for item in answer["Responses"]["rows"]) == ["0", "1"]
    assert answer["UnprocessedKeys"] == {"rows": {"Keys": keys[2:], "ConsistentRead": True}}


def test_nothing_at_all_processed_is_a_throttle(
    dynamodb: Any, client: Client, faults: Faults
) -> None:
    faults.attach(dynamodb)
    faults.plan("BatchWriteItem", "unprocessed")
    with pytest.raises(dynamodb.exceptions.ProvisionedThroughputExceededException):
        dynamodb.batch_write_item(
            RequestItems={"rows": [{"PutRequest": {"Item": {"key": {"S": "a"}}}}]}
        )
    assert client("dynamodb").scan(TableName="rows")["Count"] == 0


def bodies(sqs: Any, url: str) -> list[str]:
    return sorted(
        message["Body"]
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    )


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("kind", ["partial", "partial_lost"])
def test_an_entry_reported_as_failed(
    kind: str, number: int, single: Client, client: Client, faults: Faults
) -> None:
    sqs = single("sqs")
    url = sqs.create_queue(QueueName="q")["QueueUrl"]
    faults.attach(sqs)
    faults.plan("SendMessageBatch", kind)
    entries = [{"Id": f"{n}", "MessageBody": f"body {n}"} for n in range(number)]
    answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in answer.get("Successful", [])] == [
        f"{n}" for n in range(number - 1)
    ]
    assert [(one["Id"], one["SenderFault"]) for one in answer["Failed"]] == [
        (f"{number - 1}", False)
    ]
    assert bodies(client("sqs"), url) == [
        f"body {n}" for n in range(number if kind == "partial" else number - 1)
    ]


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("kind", ["partial", "partial_lost"])
def test_an_event_reported_as_failed(
    kind: str, number: int, single: Client, client: Client, faults: Faults
) -> None:
    sqs, sns = client("sqs"), single("sns")
    url = sqs.create_queue(QueueName="q")["QueueUrl"]
    queue = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"][
        "QueueArn"
    ]
    topic = sns.create_topic(Name="events")["TopicArn"]
    sns.subscribe(
        TopicArn=topic, Protocol="sqs", Endpoint=queue, Attributes={"RawMessageDelivery": "true"}
    )
    faults.attach(sns)
    faults.plan("PublishBatch", kind)
    entries = [{"Id": f"{n}", "Message": json.dumps({"n": n})} for n in range(number)]
    answer = sns.publish_batch(TopicArn=topic, PublishBatchRequestEntries=entries)
    assert [one["Id"] for one in answer["Successful"]] == [f"{n}" for n in range(number - 1)]
    assert [(one["Id"], one["SenderFault"]) for one in answer["Failed"]] == [
        (f"{number - 1}", False)
    ]
    assert bodies(sqs, url) == [
        json.dumps({"n": n}) for n in range(number if kind == "partial" else number - 1)
    ]


@pytest.mark.parametrize(
    ("service", "operation", "code"),
    [("sqs", "list_queues", "RequestThrottled"), ("sns", "list_topics", "Throttled")],
)
def test_throttles_go_by_the_names_of_their_service(
    service: str, operation: str, code: str, single: Client, faults: Faults
) -> None:
    made = single(service)
    faults.attach(made)
    faults.plan(1, "throttle")
    with pytest.raises(ClientError) as refused:
        getattr(made, operation)()
    assert refused.value.response["Error"]["Code"] == code


@pytest.mark.parametrize("most", [1, 10])
def test_a_message_comes_again(most: int, single: Client, faults: Faults) -> None:
    sqs = single("sqs")
    url = sqs.create_queue(QueueName="q")["QueueUrl"]
    faults.attach(sqs)
    faults.plan(("ReceiveMessage", 1), "dup")
    faults.plan(("ReceiveMessage", 3), "dup")
    assert bodies(sqs, url) == []
    sqs.send_message(QueueUrl=url, MessageBody="first")
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    sqs.send_message(QueueUrl=url, MessageBody="second")
    again = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=most)["Messages"]
    assert again[-1] == message
    assert [one["Body"] for one in again[:-1]] == ["second"][: most - 1]
    assert faults.fired == [(AwsCall("sqs", "ReceiveMessage", 3), "dup")]
