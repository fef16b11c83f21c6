"""The template taken by a stand-in for CloudFormation: everything that is asked for is there, and calls what it should."""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from tests.aws import standins
from tests.infra.templates import Template

STACK = "test-milepost"
Client = Callable[[str], Any]


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> str:
    fresh = standins.new_account()
    for name, value in standins.environment(fresh).items():
        monkeypatch.setenv(name, value)
    return fresh


@pytest.fixture
def client(ministack: standins.Server, account: str) -> Iterator[Client]:
    made = []

    def make(service: str) -> Any:
        made.append(boto3.session.Session().client(service, endpoint_url=ministack.url))
        return made[-1]

    yield make
    for one in made:
        one.close()


def zipped(folder: Path) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return content.getvalue()


def deploy(template: Template, client: Client, account: str, url: str) -> None:
    """What `cdk bootstrap` and `cdk deploy` do: the code into a bucket, then the stack."""
    bucket = f"cdk-hnb659fds-assets-{account}-{standins.REGION}"
    client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": standins.REGION})
    client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String")
    assets = json.loads((template.folder / f"{STACK}.assets.json").read_text())["files"]
    for asset in assets.values():
        path = template.folder / asset["source"]["path"]
        (place,) = asset["destinations"].values()
        body = zipped(path) if asset["source"]["packaging"] == "zip" else path.read_bytes()
        client("s3").put_object(Bucket=bucket, Key=place["objectKey"], Body=body)
    (key,) = (one["destinations"].popitem()[1]["objectKey"] for one in assets.values() if one["source"]["packaging"] == "file")
    cloudformation = client("cloudformation")
    cloudformation.create_stack(StackName=STACK, TemplateURL=f"{url}/{bucket}/{key}", Capabilities=["CAPABILITY_NAMED_IAM"])
    while (status := cloudformation.describe_stacks(StackName=STACK)["Stacks"][0]["StackStatus"]).endswith("IN_PROGRESS"):
        time.sleep(0.02)
    events = cloudformation.describe_stack_events(StackName=STACK)["StackEvents"]
    assert status == "CREATE_COMPLETE", [event for event in events if "FAILED" in event["ResourceStatus"]]


@pytest.fixture
def deployed(both: Template, client: Client, account: str, ministack: standins.Server) -> None:
    deploy(both, client, account, ministack.url)


@pytest.mark.usefixtures("deployed")
def test_everything_is_there(both: Template, client: Client) -> None:
    assert set(client("dynamodb").list_tables()["TableNames"]) == set(both.named("DynamoDB::Table", "TableName"))
    queues = {url.rpartition("/")[2] for url in client("sqs").list_queues()["QueueUrls"]}
    assert queues == set(both.named("SQS::Queue", "QueueName"))
    topics = {topic["TopicArn"].rpartition(":")[2] for topic in client("sns").list_topics()["Topics"]}
    assert topics == {"test-events", "test-alarms"}
    functions = {function["FunctionName"] for function in client("lambda").list_functions()["Functions"]}
    assert functions == set(both.named("Lambda::Function", "FunctionName"))
    alarms = {alarm["AlarmName"] for alarm in client("cloudwatch").describe_alarms()["MetricAlarms"]}
    assert alarms == set(both.named("CloudWatch::Alarm", "AlarmName"))
    schedules = {schedule["Name"] for schedule in client("scheduler").list_schedules()["Schedules"]}
    assert schedules == {"test-resend", "test-repair"}


@pytest.mark.usefixtures("deployed")
def test_names_are_those_that_the_ledger_uses(client: Client) -> None:
    outputs = {
        one["OutputKey"]: one["OutputValue"] for one in client("cloudformation").describe_stacks(StackName=STACK)["Stacks"][0]["Outputs"]
    }
    assert outputs["Ledger"] == f"dynamodb://{standins.REGION}/test"
    variables = client("lambda").get_function_configuration(FunctionName="test-deposits-metadata")["Environment"]["Variables"]
    assert variables["MILEPOST_LEDGER"] == outputs["Ledger"]
    assert variables["MILEPOST_BLOBS"] == outputs["Blobs"]
    assert variables["MILEPOST_TOPIC"] == outputs["Events"]
    bucket = outputs["Blobs"].removeprefix("s3://").removesuffix("/blobs")
    told = client("s3").get_bucket_notification_configuration(Bucket=bucket)["LambdaFunctionConfigurations"]
    assert [one["LambdaFunctionArn"].rpartition(":")[2] for one in told] == ["test-lists"]


@pytest.mark.usefixtures("deployed")
def test_every_function_runs_its_own_handler(both: Template, client: Client) -> None:
    for name, function in both.named("Lambda::Function", "FunctionName").items():
        answer = json.loads(client("lambda").invoke(FunctionName=name, Payload=b"{}")["Payload"].read())
        assert f"{answer['handler']}.handler" == function["Handler"]


@pytest.mark.usefixtures("deployed")
def test_queues_and_streams_call_their_functions(client: Client) -> None:
    mappings = client("lambda").list_event_source_mappings()["EventSourceMappings"]
    called = {(one["EventSourceArn"].split(":")[5].split("/stream/")[0], one["FunctionArn"].rpartition(":")[2]) for one in mappings}
    assert called == {
        ("test-deposits-metadata", "test-deposits-metadata"),
        ("test-deposits-content", "test-deposits-content"),
        ("table/test-assets", "test-relay"),
        ("table/test-deposits", "test-relay"),
    }
