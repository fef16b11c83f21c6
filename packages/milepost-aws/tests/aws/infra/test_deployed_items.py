"""The stack with the real functions on a stand-in: items complete, and the topic receives their
events."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import standins
from tests.aws.infra.cloudformation import Client, deploy
from tests.aws.infra.code_folder import synthesise

from milepost.blobs.addresses import NoBlobs
from milepost.core.routes.plan import Plan
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost.engine.routes.versions import register
from milepost.ports.documents import PROCESS
from milepost.route_files import load_routes
from milepost.runners.clock import SystemChance, SystemClock
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.requests.client import Requests

PARCELS = """
from __future__ import annotations

import milepost as mp

parcels = mp.Route("parcels", key="id", evidence=True)


@parcels.stage("weigh", timeout="20s", concurrency=4)
def weigh(item: mp.Item) -> mp.Outcome:
    return mp.Done({"grams": 340})


parcels.external("tape")


@parcels.stage("send")
async def send(item: mp.Item) -> mp.Outcome:
    return mp.Done({"to": item.input.get("to", "nobody")})
"""
PATIENCE_S = 60.0


class World:
    """The deployment as its surroundings see it: somebody who puts rows, a confirmer, a
    subscriber."""

    def __init__(self, client: Client, url: str, folder: Path) -> None:
        self.dynamodb, self.sqs, self.lambda_, self.s3 = (
            client(name) for name in ("dynamodb", "sqs", "lambda", "s3")
        )
        outputs = client("cloudformation").describe_stacks(StackName="test-milepost")["Stacks"][0][
            "Outputs"
        ]
        self.outputs = {one["OutputKey"]: one["OutputValue"] for one in outputs}
        self.bucket = self.outputs["Blobs"].removeprefix("s3://").removesuffix("/blobs")
        self.told = self.sqs.create_queue(QueueName="told")["QueueUrl"]
        arn = self.sqs.get_queue_attributes(QueueUrl=self.told, AttributeNames=["QueueArn"])[
            "Attributes"
        ]["QueueArn"]
        attributes = {"RawMessageDelivery": "true"}
        client("sns").subscribe(
            TopicArn=self.outputs["Events"], Protocol="sqs", Endpoint=arn, Attributes=attributes
        )
        self.events: list[dict[str, Any]] = []
        (route,) = load_routes([str(folder / "parcels.py")])
        ledger = AwsLedger(Requests(standins.REGION, url), "test", NoBlobs("this test needs none"))
        plan = Plan(
            route, grace_ms=ledger.timing.grace_ms, offer_life_ms=ledger.timing.offer_life_ms
        )
        clock = SystemClock()
        self.ctx = Context(
            ledger,
            {"parcels": register(ledger, plan, clock.now(), "test")},
            clock,
            SystemChance(),
            NoBlobs("none"),
        )
        self.ledger = ledger

    def wait(self, what: str, until: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while not (found := until()):
            assert time.monotonic() < deadline, (
                f"it never came to this: {what}; rows: {self.rows()}; set aside: {self.take('test-quarantine')}"
            )
            time.sleep(0.1)
        return found

    def rows(self) -> dict[str, tuple[str, str]]:
        found = self.dynamodb.scan(TableName="test-parcels", ConsistentRead=True)["Items"]
        return {
            row["id"]["S"]: (row.get("queue", {}).get("S", ""), row.get("status", {}).get("S", ""))
            for row in found
        }

    def take(self, queue: str) -> list[dict[str, Any]]:
        url = self.sqs.get_queue_url(QueueName=queue)["QueueUrl"]
        found = []
        while messages := self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get(
            "Messages", []
        ):
            for message in messages:
                found.append(json.loads(message["Body"]))
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return found

    def confirm(self, key: str) -> None:
        """As the README tells those who confirm."""
        self.dynamodb.update_item(
            TableName="test-parcels",
            Key={"id": {"S": key}},
            UpdateExpression="SET ingested_tape = :c",
            ExpressionAttributeValues={":c": {"S": '{"tape": "L03721"}'}},
            ConditionExpression="attribute_exists(id)",
        )

    def kinds(self, key: str) -> set[str]:
        """The kinds of event that the subscriber has been sent of an item."""
        self.events += self.take("told")
        return {
            event["type"].rpartition(".")[2]
            for event in self.events
            if event["subject"].endswith(key)
        }

    def invoke(self, function: str, event: dict[str, Any]) -> Any:
        answer = self.lambda_.invoke(FunctionName=function, Payload=json.dumps(event).encode())
        payload = json.loads(answer["Payload"].read())
        assert "FunctionError" not in answer, payload
        return payload


@pytest.mark.slow
def test_items_go_through_the_deployed_functions(
    ministack: standins.Server, client: Client, account: str, tmp_path: Path
) -> None:
    template = synthesise(tmp_path, "parcels.py", PARCELS)
    deploy(template, client, account, ministack.url)
    world = World(client, ministack.url, tmp_path)

    # One row as a step function puts it, one by our own intake, one by a list.
    world.dynamodb.put_item(
        TableName="test-parcels",
        Item={"id": {"S": "p1"}, "input": {"S": '{"id":"p1","to":"the desk"}'}},
    )
    (receipt,) = submit(world.ctx, "parcels", [{"id": "p2"}])
    assert receipt.answer == "new"
    world.s3.put_object(Bucket=world.bucket, Key="lists/parcels/monday.txt", Body=b"p3\n\n")
    keys = {"p1", "p2", "p3"}
    world.wait(
        "all three are offered to the tape",
        lambda: world.rows() == dict.fromkeys(keys, ("tape", "QUEUED")),
    )
    offers = {offer["key"]: offer for offer in world.take("test-parcels-tape")}
    assert set(offers) == keys
    assert offers["p1"]["confirm"]["attribute"] == "ingested_tape"

    for key in keys:
        world.confirm(key)
    world.wait(
        "all three have come through", lambda: set(world.rows().values()) == {("send", "COMPLETED")}
    )
    for key in keys:
        world.wait(
            f"the subscriber knows that {key} has come through",
            lambda key=key: "completed" in world.kinds(key),
        )
        assert "accepted" in world.kinds(key)
    report = world.wait(
        "the list is reported on", lambda: report_of(world, "reports/parcels/monday.txt.json")
    )
    assert report["counts"]["new"] == 1

    kept = world.s3.list_objects_v2(Bucket=world.bucket, Prefix="blobs/evidence/")["Contents"]
    assert len(kept) == len(keys)

    done = world.invoke("test-resender", {})
    assert (done["resent"], done["daily head"]) == ({}, "up to date")
    world.invoke("test-resender", {"repair": True})
    processes = world.ledger.read(PROCESS)
    assert {"test-resender", "test-relay", "test-parcels-weigh", "test-parcels-send"} <= set(
        processes
    )
    assert world.take("test-quarantine") == []
    history = [written.line.reason.value for written in world.ledger.history("parcels", "p1")]
    assert history[0] in ("accepted", "adopted")
    world.ledger.close()


def report_of(world: World, key: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(
            world.s3.get_object(Bucket=world.bucket, Key=key)["Body"].read()
        )
    except world.s3.exceptions.NoSuchKey:
        return None
    return found
