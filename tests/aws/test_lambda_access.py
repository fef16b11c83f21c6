"""Every request that a function makes is one that its role may make: the functions run here, and each call is held against the stack."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.client import BaseClient
from lambda_scene import HEAD, Deployment
from pump import Context
from standins import REGION
from tests.infra.code_folder import synthesise
from tests.infra.templates import Template

from milepost.engine.heads import all_heads
from milepost.lambdas import lists, relay, resender, start
from milepost.ports.documents import HOLD, Hold

PARCELS = (
    HEAD
    + """
parcels = mp.Route("parcels", key="id", keep="1d", evidence=True)


@parcels.stage("weigh", rate="100/s", retry=mp.Backoff(attempts=2, base="1s", jitter=0))
def weigh(item: mp.Item) -> mp.Outcome:
    seen.append(item.key)
    if item.key == "bad":
        raise ConnectionError("the scales do not answer")
    return mp.Done({"report": "x" * 9000})


parcels.external("tape")
"""
)
Uses = dict[str, set[tuple[str, str]]]
"""By function: actions, each with what it was done to."""

PLAIN = {
    "SendMessageBatch": "SendMessage",
    "DeleteMessageBatch": "DeleteMessage",
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibility",
    "PublishBatch": "Publish",
    "CreateMultipartUpload": "PutObject",
    "UploadPart": "PutObject",
    "CompleteMultipartUpload": "PutObject",
}
WRITES = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}


def uses_of(service: str, operation: str, params: dict[str, Any]) -> list[tuple[str, str]]:
    """The IAM actions of one request, and on what."""
    if operation == "TransactWriteItems":
        done = [next(iter(one.items())) for one in params["TransactItems"]]
        return [(f"dynamodb:{WRITES[kind]}", f"table {what['TableName']}") for kind, what in done]
    action = f"{service}:{PLAIN.get(operation, operation)}"
    if service == "dynamodb":
        if "RequestItems" in params:
            return [(action, f"table {table}") for table in params["RequestItems"]]
        index = f"/index/{params['IndexName']}" if "IndexName" in params else ""
        return [(action, f"table {params['TableName']}{index}")]
    if service == "sqs":
        return [(action, f"queue {params.get('QueueName') or params['QueueUrl'].rpartition('/')[2]}")]
    if service == "sns":
        return [(action, f"topic {params['TopicArn'].rpartition(':')[2]}")]
    return [(action, f"object {params['Key']}" if "Key" in params else "bucket")]


def allowed_of(template: Template, function: str) -> list[tuple[str, str]]:
    """What a function may do, in the same words; '*' stands for anything."""
    names: dict[str, str] = {}
    for kind, word, attribute in (
        ("DynamoDB::Table", "table", "TableName"),
        ("SQS::Queue", "queue", "QueueName"),
        ("SNS::Topic", "topic", "TopicName"),
    ):
        names |= {id: f"{word} {properties[attribute]}" for id, properties in template.of(kind).items()}
    bucket = "test-milepost-AWS::AccountId-AWS::Region"
    found = []
    for statement in template.statements(function).values():
        for resource in statement["Resource"]:
            id, slash, rest = resource.partition("/")
            if id in names:
                place = names[id] + slash + rest
            elif bucket in resource:
                place = f"object {resource.partition(bucket + '/')[2]}" if f"{bucket}/" in resource else "bucket"
            else:
                place = resource
            found += [(action, place) for action in statement["Action"]]
    return found


class Watch:
    """Notes every request that is made while some function is at work."""

    def __init__(self, patch: pytest.MonkeyPatch, clock: Any) -> None:
        self.uses: Uses = defaultdict(set)
        self.clock = clock
        self.containers: dict[str, start.Opened] = {}
        self.function: str | None = None
        inner = BaseClient._make_api_call

        def noted(client: Any, operation: str, params: dict[str, Any]) -> Any:
            if self.function is not None:
                self.uses[self.function].update(uses_of(client.meta.service_model.service_name, operation, params))
            return inner(client, operation, params)

        patch.setattr(BaseClient, "_make_api_call", noted)

    @contextmanager
    def at(self, function: str) -> Iterator[None]:
        self.function = function
        try:
            yield
        finally:
            self.function = None

    def over(self, function: str, handler: Callable[..., Any]) -> Callable[..., Any]:
        """The function in a container of its own, so that its start is noted too."""

        def called(event: Any, context: Any) -> Any:
            others, start._opened = start._opened, self.containers.get(function)
            try:
                with self.at(function):
                    container = self.containers[function] = start.opened()
                    container.ctx.clock = self.clock
                    return handler(event, context)
            finally:
                start._opened = others

        return called


@pytest.mark.slow
def test_functions_do_only_what_their_roles_allow(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template = synthesise(tmp_path / "stack", "parcels.py", PARCELS)
    one = Deployment(endpoint, "test", tmp_path, PARCELS, monkeypatch)
    s3 = boto3.client("s3", endpoint_url=endpoint)
    s3.create_bucket(Bucket="test-bucket", CreateBucketConfiguration={"LocationConstraint": REGION})
    # From now on as deployed: everything is there, and nothing is made.
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("MILEPOST_LEDGER", f"dynamodb://{REGION}/test")
    monkeypatch.setenv("MILEPOST_BLOBS", "s3://test-bucket/blobs")
    start.forget()
    one.open()
    watch = Watch(monkeypatch, one.clock)
    for pump in (one.stream, *one.own_streams):
        pump._caller.handler = watch.over("test-relay", relay.handler)
    pump = one.queues["weigh"]
    pump._caller.handler = watch.over("test-parcels-weigh", pump._caller.handler)
    resend, take_in = watch.over("test-resender", resender.handler), watch.over("test-lists", lists.handler)

    s3.put_object(Bucket="test-bucket", Key="lists/parcels/full/a.csv", Body=b"id,note\nlisted,\nlong," + b"y" * 9000 + b"\n")
    told = {"bucket": {"name": "test-bucket"}, "object": {"key": "lists/parcels/full/a.csv", "sequencer": "1"}}
    for sequencer in "123":
        told["object"]["sequencer"] = sequencer
        take_in({"Records": [{"s3": told}]}, Context())
    s3.put_object(Bucket="test-bucket", Key="lists/nobody/a.csv", Body=b"a\n")
    told["object"] = {"key": "lists/nobody/a.csv", "sequencer": "4"}
    take_in({"Records": [{"s3": told}]}, Context())
    one.dynamodb.put_item(TableName="test-parcels", Item={"id": {"S": "put"}, "input": {"S": '{"id":"put"}'}})
    one.submit("a", "bad")
    one.dynamodb.put_item(TableName="test-parcels", Item={"id": {"S": "no input"}})
    one.send("weigh", "not JSON")
    one.run(lambda: one.row("bad").status == "MAX_RETRIES_EXCEEDED")
    for key in ("a", "put", "listed"):
        one.dynamodb.update_item(
            TableName="test-parcels",
            Key={"id": {"S": key}},
            UpdateExpression="SET ingested_tape = :c",
            ExpressionAttributeValues={":c": {"S": json.dumps({"tape": "z" * 9000})}},
        )
    one.run()
    one.opened.ledger.write(HOLD, "parcels/weigh", Hold(0, "ops", "stock-taking"))
    one.submit("held")
    one.clock.advance("10s")
    one.run()
    one.opened.ledger.write(HOLD, "parcels/weigh", None)
    one.clock.advance("15d")
    resend({}, Context())
    assert len(all_heads(one.opened.ctx)) == 1
    one.run(lambda: one.row("held").stage == "tape")
    one.dynamodb.put_item(TableName="test-parcels", Item={"id": {"S": "unseen"}, "input": {"S": '{"id":"unseen"}'}})
    one.clock.advance("10m")
    resend({"repair": True}, Context())
    one.clock.advance("10m")
    resend({"repair": True}, Context())
    for container in watch.containers.values():
        container.ledger.close()
    s3.close()
    one.close()

    for function, used in watch.uses.items():
        allowed = allowed_of(template, function)
        denied = sorted(use for use in used if not any(use[0] == action and fnmatchcase(use[1], place) for action, place in allowed))
        assert not denied, f"{function} may not: {denied}"
    assert set(watch.uses) == {"test-relay", "test-parcels-weigh", "test-resender", "test-lists"}
    assert ("sns:Publish", "topic test-events") in watch.uses["test-relay"]
    assert ("dynamodb:Scan", "table test-parcels") in watch.uses["test-resender"]
    assert ("dynamodb:PutItem", "table test-heads") in watch.uses["test-resender"]
    assert any(use[0] == "s3:PutObject" and use[1].startswith("object blobs/heads/") for use in watch.uses["test-resender"])
    assert any(use[0] == "s3:PutObject" and use[1].startswith("object blobs/evidence/") for use in watch.uses["test-relay"])
    assert any(use[0] == "s3:PutObject" and use[1].startswith("object blobs/") for use in watch.uses["test-parcels-weigh"])
