"""Requests to AWS: retries and their limits, error classes, complete batches, and threads that
end."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError
from tests.aws.ledger.metered_requests import MeteredRequests
from tests.standins import REGION
from urllib3 import HTTPResponse

from milepost.core.errors import (
    ConfigMistake,
    LedgerBusy,
    LedgerError,
    LedgerMissing,
    LedgerReadOnly,
)
from milepost_aws.aws_model import Faults
from milepost_aws.ledger.names import ResourceNames, b64, due_shard, iso, ms, unb64
from milepost_aws.ledger.requests.client import (
    AwsRefused,
    ConditionFailed,
    Image,
    Requests,
    TransactionRefused,
)

pytestmark = pytest.mark.wire

PUT = ("dynamodb", "put_item")


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def requests(endpoint: str, clock: Time) -> Iterator[MeteredRequests]:
    made = MeteredRequests(
        REGION,
        endpoint,
        deadline_s=5.0,
        width=4,
        sleep=clock.sleep,
        chance=lambda: 1.0,
        clock=lambda: clock.now,
    )
    made.call(
        "dynamodb",
        "create_table",
        TableName="rows",
        KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in ("key", "dueShard")
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "due",
                "KeySchema": [{"AttributeName": "dueShard", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    made.counts.clear()
    yield made
    made.close()


@pytest.fixture
def faults(requests: Requests) -> Faults:
    made = Faults()
    made.attach(requests)
    return made


def row(key: str, **more: str) -> Image:
    return {name: {"S": value} for name, value in {"key": key, **more}.items()}


def put(requests: Requests, key: str = "a", **params: Any) -> dict[str, Any]:
    return requests.call("dynamodb", "put_item", TableName="rows", Item=row(key), **params)


def keys(requests: Requests) -> list[str]:
    return sorted(found["key"]["S"] for found in requests.scan("rows", ConsistentRead=True))


def answer(status: int, body: bytes) -> AWSResponse:
    return AWSResponse("", status, {}, HTTPResponse(io.BytesIO(body), preload_content=False))


def answering(requests: Requests, status: int, body: dict[str, Any], operation: str = "") -> None:
    """Every such request to DynamoDB is answered with this from now on."""
    content = json.dumps(body).encode()
    event = f"before-send.dynamodb.{operation}".rstrip(".")
    requests.client("dynamodb").meta.events.register(event, lambda **_: answer(status, content))


def error(code: str, **more: Any) -> dict[str, Any]:
    return {"__type": f"com.amazonaws#{code}", "message": "said by a test", **more}


# What passes --------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["throttle", "500", "conflict", "timeout_before", "timeout_after"])
def test_what_passes_is_tried_again(
    requests: Requests, faults: Faults, clock: Time, kind: str
) -> None:
    faults.plan("PutItem", kind, times=3)
    put(requests)
    assert keys(requests) == ["a"]
    assert requests.counts[PUT] == 4
    assert clock.slept == [0.05, 0.1, 0.2]


def test_pauses_are_full_jitter(requests: Requests, faults: Faults, clock: Time) -> None:
    requests.chance = lambda: 0.5
    faults.plan("PutItem", "throttle", times=8)
    put(requests)
    assert clock.slept == [0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_nobody_sleeps_past_the_deadline(requests: Requests, faults: Faults, clock: Time) -> None:
    faults.plan("PutItem", "throttle", times=100)
    with pytest.raises(
        LedgerBusy,
        match=r"put_item of rows in http.*ProvisionedThroughput.*in 5 s.*Try again later",
    ) as busy:
        put(requests)
    assert sum(clock.slept) == pytest.approx(5.0)
    assert requests.counts[PUT] == len(clock.slept) + 1
    assert f"after {requests.counts[PUT]} tries" in str(busy.value)
    assert busy.value.__cause__ is not None


@pytest.mark.parametrize(
    "error",
    [ConnectTimeoutError(endpoint_url="there"), EndpointConnectionError(endpoint_url="there")],
)
def test_no_connection_is_tried_again(requests: Requests, clock: Time, error: Exception) -> None:
    failing = [error, error]

    def fail(**_: Any) -> None:
        if failing:
            raise failing.pop()

    requests.client("dynamodb").meta.events.register("before-send.dynamodb", fail)
    put(requests)
    assert keys(requests) == ["a"]
    assert len(clock.slept) == 2


@pytest.mark.parametrize("body", [b"", b'{"Item": {"key"', b"<html>log in first</html>"])
def test_an_answer_that_cannot_be_read_is_no_answer(requests: Requests, body: bytes) -> None:
    put(requests)
    torn = [answer(200, body)]
    requests.client("dynamodb").meta.events.register(
        "before-send.dynamodb", lambda **_: torn.pop() if torn else None
    )
    assert requests.call("dynamodb", "get_item", TableName="rows", Key=row("a"))["Item"] == row("a")
    assert requests.counts["dynamodb", "get_item"] == 2


@pytest.mark.parametrize("status", [429, 503])
def test_a_status_alone_says_that_it_passes(requests: Requests, status: int) -> None:
    answering(requests, status, {})
    with pytest.raises(LedgerBusy):
        put(requests)


def test_a_transaction_whose_answer_was_lost_is_not_made_twice(
    requests: Requests, faults: Faults
) -> None:
    faults.plan("TransactWriteItems", "timeout_after")
    only_new = {
        "TableName": "rows",
        "Item": row("a"),
        "ConditionExpression": "attribute_not_exists(#k)",
        "ExpressionAttributeNames": {"#k": "key"},
    }
    requests.call("dynamodb", "transact_write_items", TransactItems=[{"Put": only_new}])
    assert requests.counts["dynamodb", "transact_write_items"] == 2


# Refusals -----------------------------------------------------------------------------------------
ONLY_NEW = {
    "ConditionExpression": "attribute_not_exists(#k)",
    "ExpressionAttributeNames": {"#k": "key"},
}


def test_a_failed_condition_brings_the_row_where_it_was_asked_for(
    requests: Requests, clock: Time
) -> None:
    requests.call("dynamodb", "put_item", TableName="rows", Item=row("a", colour="red"))
    with pytest.raises(ConditionFailed) as failed:
        put(requests, **ONLY_NEW, ReturnValuesOnConditionCheckFailure="ALL_OLD")
    assert failed.value.image == row("a", colour="red")
    with pytest.raises(ConditionFailed) as failed:
        put(requests, **ONLY_NEW)
    assert failed.value.image is None
    with pytest.raises(ConditionFailed) as failed:
        requests.call(
            "dynamodb",
            "delete_item",
            TableName="rows",
            Key=row("gone"),
            ConditionExpression="attribute_exists(#k)",
            ExpressionAttributeNames={"#k": "key"},
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    assert failed.value.image is None
    assert clock.slept == []


def test_a_refused_transaction_says_which_action_and_why(requests: Requests, clock: Time) -> None:
    requests.call("dynamodb", "put_item", TableName="rows", Item=row("a", colour="red"))
    guarded = {
        "TableName": "rows",
        "Item": row("a"),
        **ONLY_NEW,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    with pytest.raises(TransactionRefused, match="transact_write_items of rows") as refused:
        requests.call(
            "dynamodb",
            "transact_write_items",
            TransactItems=[{"Put": {"TableName": "rows", "Item": row("b")}}, {"Put": guarded}],
        )
    assert [reason["Code"] for reason in refused.value.reasons] == [
        "None",
        "ConditionalCheckFailed",
    ]
    assert refused.value.reasons[1]["Item"] == row("a", colour="red")
    assert keys(requests) == ["a"]
    assert clock.slept == []


def test_a_transaction_in_conflict_is_tried_again(
    requests: Requests, faults: Faults, clock: Time
) -> None:
    faults.plan("TransactWriteItems", "conflict", times=2)
    requests.call(
        "dynamodb",
        "transact_write_items",
        TransactItems=[{"Put": {"TableName": "rows", "Item": row(key)}} for key in "ab"],
    )
    assert keys(requests) == ["a", "b"]
    assert len(clock.slept) == 2


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (["TransactionConflict", "ConditionalCheckFailed"], TransactionRefused),
        (["ThrottlingError", "TransactionConflict"], LedgerBusy),
        (["ValidationError", "ConditionalCheckFailed"], AwsRefused),
    ],
)
def test_mixed_reasons(requests: Requests, codes: list[str], expected: type[Exception]) -> None:
    answering(
        requests,
        400,
        error(
            "TransactionCanceledException", CancellationReasons=[{"Code": code} for code in codes]
        ),
    )
    with pytest.raises(expected) as raised:
        requests.call(
            "dynamodb",
            "transact_write_items",
            TransactItems=[{"Put": {"TableName": "rows", "Item": row("a")}}],
        )
    assert type(raised.value) is expected


@pytest.mark.parametrize(
    ("code", "expected", "cure"),
    [
        ("AccessDeniedException", LedgerReadOnly, "policy"),
        ("ExpiredTokenException", LedgerError, "log in again"),
        ("ResourceNotFoundException", LedgerMissing, "prefix"),
        ("ItemCollectionSizeLimitExceededException", AwsRefused, "said by a test"),
    ],
)
def test_refused_at_once(
    requests: Requests, clock: Time, code: str, expected: type[Exception], cure: str
) -> None:
    answering(requests, 400, error(code))
    with pytest.raises(expected, match=f"put_item of rows.*{code}.*{cure}") as raised:
        put(requests)
    assert type(raised.value) is expected
    assert clock.slept == []
    assert requests.counts[PUT] == 1


def test_what_is_not_there(requests: Requests) -> None:
    with pytest.raises(LedgerMissing, match="get_item of none"):
        requests.call("dynamodb", "get_item", TableName="none", Key=row("a"))
    with pytest.raises(LedgerMissing, match="get_queue_url of none"):
        requests.call("sqs", "get_queue_url", QueueName="none")


def test_the_code_of_any_other_refusal_is_told(requests: Requests) -> None:
    with pytest.raises(AwsRefused, match="ValidationException") as refused:
        requests.call("dynamodb", "get_item", TableName="rows", Key={"colour": {"S": "red"}})
    assert refused.value.code == "ValidationException"
    with pytest.raises(AwsRefused) as refused:
        requests.call("dynamodb", "get_item", TableName="rows", Key="a")
    assert refused.value.code == "ParamValidationError"


def test_without_credentials(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    nobody = Requests(REGION, endpoint)
    with pytest.raises(LedgerError, match="set AWS_PROFILE or AWS_ACCESS_KEY_ID"):
        nobody.call("dynamodb", "list_tables")
    nobody.close()


def test_a_region_that_cannot_be(endpoint: str) -> None:
    astray = Requests("no region", endpoint)
    with pytest.raises(LedgerError, match="dynamodb://REGION/PREFIX"):
        astray.call("dynamodb", "list_tables")
    astray.close()


# Batches ------------------------------------------------------------------------------------------
def test_batches_are_chunked_and_repeated_keys_asked_once(requests: Requests) -> None:
    names = [f"k{number:03d}" for number in range(260)]
    requests.batch_write("rows", [row(name) for name in names])
    assert requests.counts["dynamodb", "batch_write_item"] == 11
    found = requests.batch_get("rows", [row(name) for name in [*names, *names, "none"]])
    assert sorted(image["key"]["S"] for image in found) == names
    assert requests.counts["dynamodb", "batch_get_item"] == 3
    requests.batch_write("rows", [row("new")], [row(name) for name in names])
    assert keys(requests) == ["new"]
    requests.batch_write("rows")
    assert requests.batch_get("rows", []) == []


def test_what_was_left_undone_is_done_after_a_pause(
    requests: Requests, faults: Faults, clock: Time
) -> None:
    faults.plan("BatchWriteItem", "unprocessed", times=3)
    faults.plan("BatchGetItem", "unprocessed", times=3)
    requests.batch_write("rows", [row(f"k{number}") for number in range(20)])
    assert len(keys(requests)) == 20
    assert clock.slept == [0.05, 0.1, 0.2]
    assert len(requests.batch_get("rows", [row(f"k{number}") for number in range(20)])) == 20
    assert clock.slept == [0.05, 0.1, 0.2] * 2


@pytest.mark.parametrize("operation", ["BatchWriteItem", "BatchGetItem"])
def test_what_is_left_undone_too_long(requests: Requests, operation: str) -> None:
    left = (
        {"rows": [{"PutRequest": {"Item": row("a")}}]}
        if operation == "BatchWriteItem"
        else {"rows": {"Keys": [row("a")]}}
    )
    answering(
        requests,
        200,
        {"UnprocessedItems" if operation == "BatchWriteItem" else "UnprocessedKeys": left},
        operation,
    )
    with pytest.raises(LedgerBusy, match=r"of rows: 1 (writes|keys) are still"):
        if operation == "BatchWriteItem":
            requests.batch_write("rows", [row("a")])
        else:
            requests.batch_get("rows", [row("a")])


def test_one_that_is_refused_does_not_keep_the_others_out(requests: Requests) -> None:
    rows = [row(f"k{number:02d}") for number in range(25)]
    rows[7] = row("k07", colour="x" * 500_000)
    with pytest.raises(AwsRefused, match="size"):
        requests.batch_write("rows", rows)
    assert keys(requests) == [f"k{number:02d}" for number in range(25) if number != 7]


def test_a_key_written_twice_ends_as_the_later_one(requests: Requests) -> None:
    requests.batch_write("rows", [row("a", colour="red"), row("b"), row("a", colour="blue")])
    assert keys(requests) == ["a", "b"]
    assert requests.batch_get("rows", [row("a")]) == [row("a", colour="blue")]


def test_all_pages(requests: Requests) -> None:
    requests.batch_write("rows", [row(f"k{number:02d}", dueShard="s") for number in range(25)])
    assert len(list(requests.scan("rows", Limit=10))) == 25
    condition = {
        "KeyConditionExpression": "dueShard = :s",
        "ExpressionAttributeValues": {":s": {"S": "s"}},
    }
    found = [
        image["key"]["S"]
        for image in requests.query("rows", IndexName="due", Limit=10, **condition)
    ]
    assert sorted(found) == [f"k{number:02d}" for number in range(25)]
    assert requests.counts["dynamodb", "query"] == 3


def test_units_by_table_and_index(requests: MeteredRequests) -> None:
    put(requests)
    assert not requests.units
    requests.measure = True
    requests.batch_write("rows", [row("a", dueShard="s"), row("b")])
    assert requests.units == {("rows", "write"): 2, ("rows/due", "write"): 1}
    requests.call("dynamodb", "get_item", TableName="rows", Key=row("a"), ConsistentRead=True)
    put(requests, "c")
    assert requests.units == {("rows", "write"): 3, ("rows/due", "write"): 1, ("rows", "read"): 1}


# Side by side -------------------------------------------------------------------------------------
def pool_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("milepost-aws")]


def test_jobs_run_side_by_side_and_keep_their_order(requests: Requests) -> None:
    together = threading.Barrier(4, timeout=30)

    def job(number: int) -> int:
        together.wait()
        return number

    assert requests.each([lambda number=number: job(number) for number in range(4)]) == [0, 1, 2, 3]


def test_the_first_error_comes_after_all_jobs_have_ended(requests: Requests) -> None:
    ended = []
    others = threading.Event()

    def fail(why: str) -> None:
        raise ValueError(why)

    def last() -> None:
        others.wait(30)
        ended.append("last")

    with pytest.raises(ValueError, match="first"):
        requests.each([lambda: fail("first"), last, lambda: fail("second"), others.set])
    assert ended == ["last"]


def test_jobs_within_jobs_do_not_wait_for_themselves(requests: Requests) -> None:
    inner = [lambda number=number: number for number in range(3)]
    assert requests.each([lambda: requests.each(inner)] * 12) == [[0, 1, 2]] * 12


def test_a_single_job_needs_no_thread_and_close_ends_all(requests: Requests) -> None:
    assert requests.each([threading.current_thread]) == [threading.current_thread()]
    assert requests.each([]) == []
    assert pool_threads() == []
    requests.each([lambda: None] * 8)
    assert 1 <= len(pool_threads()) <= 4
    requests.close()
    assert pool_threads() == []
    with pytest.raises(LedgerError, match="closed"):
        requests.each([lambda: None] * 2)
    with pytest.raises(LedgerError, match="closed"):
        put(requests)


def test_counts_of_many_threads(requests: Requests) -> None:
    requests.each([lambda number=number: put(requests, f"k{number}") for number in range(60)])
    assert requests.counts[PUT] == 60
    assert len(keys(requests)) == 60


# Names --------------------------------------------------------------------------------------------
LAST = 253_402_300_799_999


def test_times_there_and_back() -> None:
    moments = [
        0,
        1,
        999,
        1000,
        951_782_400_123,
        1_794_771_000_123,
        LAST - 1000,
        LAST,
        *range(0, LAST, LAST // 5000),
    ]
    assert [ms(iso(moment)) for moment in moments] == moments
    assert sorted(map(iso, moments)) == [iso(moment) for moment in sorted(moments)]
    assert iso(1_794_771_000_123) == "2026-11-15T19:30:00.123Z"
    assert (iso(-1), iso(LAST + 1)) == ("1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-15T19:30:00Z",
        "2026-11-15 19:30:00.123Z",
        "2026-W46-7T19:30:00.123Z",
        "2026-11-15T19:30:00.12 Z",
        "2026-11-15T19:30+01.000Z",
        "2026-11-15T19:30:00.１２３Z",
        "1969-12-31T23:59:59.999Z",
        "2026-02-30T00:00:00.000Z",
        "2026-11-15T24:00:00.000Z",
    ],
)
def test_other_times_are_not_ours(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        ms(text)


def test_digests_there_and_back() -> None:
    for length in range(40):
        assert unb64(b64(bytes(range(200, 200 + length)))) == bytes(range(200, 200 + length))
    assert len(b64(b"\xff" * 32)) == 43
    for text in ("a", "+/+/", "YQ==", "YR", "é"):
        with pytest.raises(ValueError):
            unb64(text)


def test_shards_are_the_same_everywhere() -> None:
    assert due_shard("send", "10.1/a") == "send#4"
    assert {due_shard("send", f"k{number}") for number in range(200)} == {
        f"send#{shard}" for shard in range(8)
    }
    assert due_shard("send", "\ud800").startswith("send#")


def test_names_that_aws_takes_and_that_differ() -> None:
    names = ResourceNames("acme")
    assert (names.rows("orders"), names.queue("orders", "send")) == (
        "acme-orders",
        "acme-orders-send",
    )
    assert names.rows("history") != names.history
    odd = [
        names.queue("orders", "a.b"),
        names.queue("orders", "a-b"),
        names.queue("r" * 64, "s" * 64),
        names.queue("r" * 64, "s" * 63),
    ]
    assert len(set(odd)) == 4
    assert all(len(name) <= 80 and "." not in name for name in odd)
    with pytest.raises(ConfigMistake, match=r"'b-c' of route 'a'.*'c' of route 'a-b'"):
        names.queue("a-b", "c")
        names.queue("a", "b-c")
