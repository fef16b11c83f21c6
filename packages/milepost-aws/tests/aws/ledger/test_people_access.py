"""Processes outside Lambda, operators and viewers make only requests that the stack's managed
policies allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest
from tests.aws.infra.access_check import Watch, allowed_of, denied
from tests.aws.infra.code_folder import synthesise
from tests.aws.infra.templates import Template
from tests.cli.aws_command_line import ROUTES, SIGNED, AwsCommandLine, address
from tests.standins import REGION

pytestmark = pytest.mark.wire


def people(template: Template) -> dict[str, list[dict[str, Any]]]:
    policies = template.named("IAM::ManagedPolicy", "ManagedPolicyName")
    return {
        who: [
            one
            for part in ("", "-messages")
            for one in policies[f"test-milepost-{who}{part}"]["PolicyDocument"]["Statement"]
        ]
        for who in ("process", "operator", "viewer")
    }


@pytest.mark.slow
def test_processes_and_people_do_only_what_their_policies_allow(
    endpoint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    may = people(template := synthesise(tmp_path / "stack", "parcels.py", ROUTES))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILEPOST_LEDGER", raising=False)
    s3 = boto3.client("s3", endpoint_url=endpoint)
    s3.create_bucket(
        Bucket="people-bucket", CreateBucketConfiguration={"LocationConstraint": REGION}
    )
    s3.close()
    monkeypatch.setenv("MILEPOST_BLOBS", "s3://people-bucket/blobs")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    command_line = AwsCommandLine(tmp_path, capsys, address(endpoint, "test"))
    command_line.submit({"id": "first"})
    # From now on as deployed: everything is there, and nothing is made.
    command_line.settle(f"dynamodb://{REGION}/test")
    watch = Watch(monkeypatch, None)
    command_line.write(
        "list.jsonl",
        '{"id":"A"}\n{"id":"B","torn":true}\n{"id":"C","busy":true}\n{"id":"D","note":"'
        + "x" * 9000
        + '"}\n',
    )
    with watch.at("operator"):
        command_line.ok("submit", "parcels", "list.jsonl")
        command_line.signed("limit", "parcels", "weigh", "--rate", "100/s")
    dynamodb = boto3.client("dynamodb", endpoint_url=endpoint)
    for key in ("ghost", "other"):
        dynamodb.update_item(
            TableName="test-parcels",
            Key={"id": {"S": key}},
            UpdateExpression="SET ingested_delivered = :yes",
            ExpressionAttributeValues={":yes": {"BOOL": True}},
        )
    with watch.at("process"):
        command_line.up()
        command_line.up()
    with watch.at("operator"):
        command_line.ok("status")
        command_line.signed("retry", "parcels", "--status", "failed", "--yes")
        command_line.signed("pause", "parcels", "weigh")
        command_line.signed("resume", "parcels", "weigh")
        command_line.signed("confirm", "parcels", "A", "--stage", "delivered")
        command_line.signed("cancel", "parcels", "B")
        command_line.ok("resend")
        command_line.ok("routes")
        command_line.ok("subscribers")
        ghosts = [
            one["id"] for one in command_line.ok("quarantine", "list", "--json").json["set_aside"]
        ]
        assert len(ghosts) == 2
        dynamodb.update_item(
            TableName="test-parcels",
            Key={"id": {"S": "ghost"}},
            UpdateExpression="SET #input = :input REMOVE ingested_delivered",
            ExpressionAttributeNames={"#input": "input"},
            ExpressionAttributeValues={":input": {"S": '{"id":"ghost"}'}},
        )
        command_line("quarantine", "replay", *ghosts, *SIGNED)
        command_line.signed("quarantine", "drop", "--all")
        command_line.signed("skip", "parcels", "first")
        command_line.signed("keys", "new", "w1", "--scope", "work")
        command_line.signed("prune", "parcels", "--older-than", "0s", "--yes")
    with watch.at("process"):
        command_line.up()
    with watch.at("viewer"):
        for command in (
            ("status",),
            ("list", "parcels"),
            ("show", "parcels", "A"),
            ("groups",),
            ("lists",),
            ("acts",),
            ("export", "parcels"),
        ):
            command_line.ok(*command)
        command_line("doctor")
    dynamodb.close()
    for who, used in watch.uses.items():
        refused = denied(used, allowed_of(template, may[who]))
        assert not refused, f"{who} may not: {refused}"
    assert set(watch.uses) == {"process", "operator", "viewer"}
