"""Every request that a function makes is one that its role may make: the functions run here, and
each call is held against the stack."""

from __future__ import annotations

import json
from pathlib import Path

import boto3
import pytest
from tests.aws.infra.access_check import Watch, allowed_of, denied
from tests.aws.infra.code_folder import synthesise
from tests.aws.lambdas.deployment import HEAD, Deployment
from tests.aws.lambdas.event_source_mapping import Context
from tests.standins import REGION

from milepost.core.admission.controls import Hold
from milepost.engine.heads.daily import all_heads
from milepost.ports.documents import HOLD
from milepost_aws.lambdas import lists, relay, resender, start

pytestmark = pytest.mark.wire

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
audits = mp.Route("audits", key="id", not_before="at")
audits.external("look")
parcels.then(audits, lambda item, at: {"id": item.key, "at": at.isoformat(), "report": "x" * 9000})
"""
)


@pytest.mark.slow
def test_functions_do_only_what_their_roles_allow(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    for mapping in (one.stream, *one.own_streams):
        mapping._caller.handler = watch.over("test-relay", relay.handler)
    mapping = one.queues["weigh"]
    mapping._caller.handler = watch.over("test-parcels-weigh", mapping._caller.handler, "parcels")
    resend, take_in = (
        watch.over("test-resender", resender.handler),
        watch.over("test-lists", lists.handler),
    )

    s3.put_object(
        Bucket="test-bucket",
        Key="lists/parcels/full/a.csv",
        Body=b"id,note\nlisted,\nlong," + b"y" * 9000 + b"\n",
    )
    told = {
        "bucket": {"name": "test-bucket"},
        "object": {"key": "lists/parcels/full/a.csv", "sequencer": "1"},
    }
    for sequencer in "123":
        told["object"]["sequencer"] = sequencer
        take_in({"Records": [{"s3": told}]}, Context())
    s3.put_object(Bucket="test-bucket", Key="lists/nobody/a.csv", Body=b"a\n")
    told["object"] = {"key": "lists/nobody/a.csv", "sequencer": "4"}
    take_in({"Records": [{"s3": told}]}, Context())
    one.dynamodb.put_item(
        TableName="test-parcels", Item={"id": {"S": "put"}, "input": {"S": '{"id":"put"}'}}
    )
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
    ends = one.clock.now() + 3_600_000
    one.opened.ledger.write(
        HOLD, "parcels/weigh", Hold(0, "ops", "stock-taking", until=ends, drain="50/s")
    )
    one.submit("held")
    one.clock.advance("10s")
    one.run()
    one.clock.advance("15d")
    resend({}, Context())
    assert not one.opened.ledger.read(HOLD), "the pause has ended by itself"
    assert len(all_heads(one.opened.ctx)) == 1
    one.run(lambda: one.row("held").stage == "tape")
    one.dynamodb.put_item(
        TableName="test-parcels", Item={"id": {"S": "unseen"}, "input": {"S": '{"id":"unseen"}'}}
    )
    one.clock.advance("10m")
    resend({"repair": True}, Context())
    one.clock.advance("10m")
    resend({"repair": True}, Context())
    for container in watch.containers.values():
        container.ledger.close()
    s3.close()
    one.close()

    for function, used in watch.uses.items():
        refused = denied(used, allowed_of(template, template.statements(function).values()))
        assert not refused, f"{function} may not: {refused}"
    assert set(watch.uses) == {"test-relay", "test-parcels-weigh", "test-resender", "test-lists"}
    used = {
        function: {(use.action, use.place) for use in uses} for function, uses in watch.uses.items()
    }
    assert ("sns:Publish", "topic test-events") in used["test-relay"]
    assert ("dynamodb:PutItem", "table test-audits") in used["test-relay"]
    assert ("dynamodb:Scan", "table test-parcels") in used["test-resender"]
    assert ("dynamodb:PutItem", "table test-heads") in used["test-resender"]
    puts = {
        function: [place for action, place in uses if action == "s3:PutObject"]
        for function, uses in used.items()
    }
    assert any(place.startswith("object blobs/heads/") for place in puts["test-resender"])
    assert any(place.startswith("object blobs/evidence/") for place in puts["test-relay"])
    assert any(place.startswith("object blobs/parcels/") for place in puts["test-parcels-weigh"])
