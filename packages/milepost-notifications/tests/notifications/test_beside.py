"""Beside an existing system on AWS whose table has the seed's shape: both run, senders change over
one by one, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3
import pytest
from boto3.dynamodb.conditions import Attr
from tests.notifications.partners import ROUTE, Partner, Service, answers, message, service
from tests.project import ROOT
from tests.standins import REGION

from milepost_client import MessageClient

TIME = "2026-01-31T08:00:00.000Z"


class OldSystem:
    """The existing system: a table of the seed's shape, a queue, and a worker that delivers what
    the queue names."""

    def __init__(self, endpoint: str, prefix: str) -> None:
        dynamodb = boto3.resource("dynamodb", region_name=REGION, endpoint_url=endpoint)
        self.sqs = boto3.client("sqs", region_name=REGION, endpoint_url=endpoint)
        self.queue = self.sqs.create_queue(QueueName=f"{prefix}-old")["QueueUrl"]
        self.table = dynamodb.create_table(
            TableName=f"{prefix}-old-messages",
            KeySchema=[
                {"AttributeName": "pk", "KeyType": "HASH"},
                {"AttributeName": "sk", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")
            ],
            BillingMode="PAY_PER_REQUEST",
        )

    def accept(self, sent: dict[str, Any], *, queued: bool = True) -> None:
        key = {
            "pk": f"{sent['messageId']}#{sent['senderId']}",
            "sk": f"{sent['timestamp']}#{sent['targetUrl']}",
        }
        body = json.dumps(sent["body"])
        self.table.put_item(
            Item={
                **key,
                **sent,
                "body": body,
                "status": "QUEUED" if queued else "PENDING",
                "attempts": 0,
            }
        )
        if queued:
            self.sqs.send_message(QueueUrl=self.queue, MessageBody=json.dumps(key))

    def work(self) -> None:
        while told := self.sqs.receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10).get(
            "Messages"
        ):
            for one in told:
                self._deliver(json.loads(one["Body"]))
                self.sqs.delete_message(QueueUrl=self.queue, ReceiptHandle=one["ReceiptHandle"])

    def _deliver(self, key: dict[str, str]) -> None:
        if not self.take(key, "QUEUED", "PROCESSING"):
            return
        row = self.table.get_item(Key=key)["Item"]
        urlopen(
            Request(
                row["targetUrl"],
                row["body"].encode(),
                {"X-Message-ID": row["messageId"], "X-By": "old"},
            ),
            timeout=60,
        ).close()
        self.take(key, "PROCESSING", "SUCCESS")

    def take(self, key: dict[str, str], before: str, after: str) -> bool:
        try:
            self.table.update_item(
                Key=key,
                UpdateExpression="SET #s = :after",
                ConditionExpression="#s = :before",
                ExpressionAttributeNames={"#s": "status"},
                ExpressionAttributeValues={":before": before, ":after": after},
            )
        except self.table.meta.client.exceptions.ConditionalCheckFailedException:
            return False
        return True


@pytest.fixture
def old(endpoint: str, prefix: str) -> OldSystem:
    return OldSystem(endpoint, prefix)


@pytest.fixture
def at(endpoint: str, prefix: str, tmp_path: Path) -> Iterator[Service]:
    with service(
        f"dynamodb://{REGION}/{prefix}?endpoint={endpoint}&blobs={tmp_path / 'blobs'}",
        retry={"base": "0.05s"},
    ) as opened:
        yield opened


def hand_over(old: OldSystem, at: Service) -> int:
    """Run the program of the guide, for the shop; the number of messages that were new to
    Milepost."""
    page = (ROOT / "docs" / "guides" / "notifications.md").read_text()
    [program] = [
        block.split("```")[0]
        for block in page.split("```python no-run\n")
        if block.startswith("todo =")
    ]
    before = at.milepost.status()["routes"][ROUTE]["total"]
    with MessageClient(at.url, sender="shop") as client:
        exec(
            compile(program, "the guide", "exec"),
            {"Attr": Attr, "old_table": old.table, "client": client},
        )
    return int(at.milepost.status()["routes"][ROUTE]["total"] - before)


def received(partner: Partner) -> dict[str, str]:
    assert len({one.headers["x-message-id"] for one in partner.requests}) == len(
        partner.requests
    ), "each once"
    return {
        one.headers["x-message-id"]: one.headers.get("x-by", "milepost") for one in partner.requests
    }


def test_senders_change_over_one_by_one_and_back(old: OldSystem, at: Service) -> None:
    with Partner(answers(200)) as partner:
        for sender in ("shop", "desk"):
            old.accept(message(partner.url, messageId=f"{sender}-1", senderId=sender))
        old.work()
        # The shop changes over, with two messages that the old system has not begun; the desk
        # stays.
        old.accept(message(partner.url, messageId="shop-2"))
        old.accept(message(partner.url, messageId="shop-3"), queued=False)
        old.accept(message(partner.url, messageId="desk-2", senderId="desk"))
        at.post(message(partner.url, messageId="shop-4"))
        assert (hand_over(old, at), hand_over(old, at)) == (2, 0), (
            "a repeat hands over nothing twice"
        )
        old.work()
        at.milepost.run(until_idle=1)
        # And back: what Milepost has accepted it delivers, what comes from now on the old system
        # does.
        at.post(message(partner.url, messageId="shop-5"))
        old.accept(message(partner.url, messageId="shop-6"))
        old.work()
        at.milepost.run(until_idle=1)
        assert not at.milepost.items(ROUTE, statuses=["live"], limit=1), "nothing is left here"
        by = received(partner)
        assert {name for name, who in by.items() if who == "old"} == {
            "shop-1",
            "desk-1",
            "desk-2",
            "shop-6",
        }
        assert {name for name, who in by.items() if who == "milepost"} == {
            "shop-2",
            "shop-3",
            "shop-4",
            "shop-5",
        }


def test_rows_that_a_program_puts_into_milepost_table(
    at: Service, endpoint: str, prefix: str
) -> None:
    table = boto3.resource("dynamodb", region_name=REGION, endpoint_url=endpoint).Table(
        f"{prefix}-{ROUTE}"
    )
    with Partner(answers(200)) as partner:
        long = f"{partner.url}?text={'x' * 950}"
        sk = f"{TIME}#{partner.url}"
        put = {
            "plain": {
                "sk": sk,
                "input": json.dumps(
                    {"targetUrl": partner.url, "method": "PUT", "body": {"paid": True}}
                ),
            },
            "long": {
                "sk": f"{TIME}#sha256:{sha256(long.encode()).hexdigest()}",
                "fullKey": f"long#shop#{TIME}#{long}",
                "input": json.dumps({"targetUrl": long}),
            },
            "seed's": {
                "sk": sk,
                **message(partner.url, messageId="seed's", body="x"),
                "status": "PENDING",
                "attempts": 0,
            },
        }
        for name, row in put.items():
            table.put_item(
                Item={"pk": f"{name}#shop", **row}, ConditionExpression="attribute_not_exists(pk)"
            )
        at.milepost.run(until_idle=1)
        assert received(partner).keys() == {"plain", "long"}
        [aside], _ = at.ctx.ledger.quarantine.entries(10)
        assert ("seed's" in str(aside.content), "it has no input" in aside.reason) == (True, True)
