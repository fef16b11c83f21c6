"""Messages that Lambda puts into quarantine when it gives up: understood, shown, and replayed by
the repair scan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.aws.lambdas.deployment import HEAD, Deployment
from tests.aws.lambdas.event_source_mapping import Context

from milepost_aws.lambdas import resender
from milepost_aws.ledger.repair.quarantine import BATCH, LIST, read_failure
from milepost_aws.ledger.stream import GAP

# The form that AWS documents for on-failure destinations of DynamoDB streams.
GIVEN_UP = {
    "requestContext": {
        "requestId": "316aa6d0-8154-xmpl-9af7-85d5f4a6bc81",
        "functionArn": "arn:aws:lambda:eu-west-2:123456789012:function:test-relay",
        "condition": "RetryAttemptsExhausted",
        "approximateInvokeCount": 1001,
    },
    "responseContext": {
        "statusCode": 200,
        "executedVersion": "$LATEST",
        "functionError": "Unhandled",
    },
    "version": "1.0",
    "timestamp": "2026-11-14T00:13:49.717Z",
    "DDBStreamBatchInfo": {
        "shardId": "shardId-00000001573689847184-864758bb",
        "startSequenceNumber": "800000000003126276362",
        "endSequenceNumber": "800000000003126276399",
        "approximateArrivalOfFirstRecord": "2026-11-14T00:13:19Z",
        "approximateArrivalOfLastRecord": "2026-11-14T00:13:20Z",
        "batchSize": 3,
        "streamArn": "arn:aws:dynamodb:eu-west-2:123456789012:table/test-parcels/stream/2026-11-14T00:13:19.450",
    },
}
NO_LIST = {
    "requestContext": {"condition": "RetriesExhausted"},
    "requestPayload": {
        "Records": [
            {"s3": {"bucket": {"name": "b"}, "object": {"key": "lists/parcels/monday.csv"}}}
        ]
    },
    "responsePayload": {"errorMessage": "the ledger is busy"},
}
PARCELS = (
    HEAD
    + """
parcels = mp.Route("parcels", key="id")
parcels.external("tape")
"""
)


def test_a_batch_that_lambda_gave_up_is_told_in_a_sentence() -> None:
    told = read_failure(GIVEN_UP)
    assert told is not None
    kind, reason = told
    assert kind == BATCH
    assert reason.startswith(
        "Lambda gave up 3 changes of the table test-parcels, made from 2026-11-14T00:13:19Z to 2026-11-14T00:13:20Z"
        " (sequence numbers 800000000003126276362 to 800000000003126276399 of shardId-00000001573689847184-864758bb):"
        " it failed on every allowed attempt."
    )


def test_a_list_that_lambda_gave_up_names_its_object_and_the_error() -> None:
    told = read_failure(NO_LIST)
    assert told is not None
    assert told == (
        LIST,
        "Lambda gave up taking in s3://b/lists/parcels/monday.csv: it failed on every allowed attempt; the last error: the ledger is busy",
    )


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "text",
        {},
        {"requestContext": 1},
        {"requestContext": {}, "requestPayload": {"Records": [1]}},
    ],
)
def test_other_messages_are_none_of_lambdas(body: object) -> None:
    assert read_failure(body) is None


def test_replaying_a_given_up_batch_has_the_rows_repaired(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Deployment(endpoint, "test", tmp_path, PARCELS, monkeypatch)
    try:
        one.open()
        resender.handler({"repair": True}, Context())
        one.run()
        store = one.opened.ledger.store
        quarantine = one.opened.ledger.quarantine
        one.dynamodb.put_item(
            TableName="test-parcels",
            Item={"id": {"S": "unseen"}, "input": {"S": '{"id":"unseen"}'}},
        )
        # The relay never hears of the put: Lambda gave it up.
        for mapping in (one.stream, *one.own_streams):
            mapping._caller.handler = lambda event, context: {"batchItemFailures": []}
        one.run()
        store.requests.call(
            "sqs",
            "send_message",
            QueueUrl=store.queues.quarantine(),
            MessageBody=json.dumps(GIVEN_UP),
        )
        [aside], more = quarantine.entries(10)
        assert (aside.kind, more) == (BATCH, False)
        now = one.clock.now()
        [answer] = quarantine.replay(one.opened.ctx.plans, [aside.id], now, by="ops", why="test")
        assert answer.done, answer.why
        assert quarantine.entries(10) == ([], False)
        held = store.control.read_one(GAP, "parcels")
        assert held is not None
        assert list(held.value) == [GIVEN_UP["DDBStreamBatchInfo"]["shardId"]]  # type: ignore[index]
        for _ in range(20):
            one.clock.advance("5m")
            resender.handler({}, Context())
            held = store.control.read_one(GAP, "parcels")
            if held is None or not held.value:
                break
        assert one.row("unseen").stage == "tape"
    finally:
        one.close()
