"""The template on a stand-in for CloudFormation: every resource exists and calls its target."""

from __future__ import annotations

import json

import pytest
from tests import standins
from tests.aws.infra.cloudformation import STACK, Client, deploy
from tests.aws.infra.templates import Template


@pytest.fixture(scope="module")
def deployed(
    templates: dict[str, Template], client: Client, account: str, ministack: standins.Server
) -> None:
    """Once for all of these: they only look."""
    deploy(templates["both"], client, account, ministack.url)


@pytest.mark.usefixtures("deployed")
def test_everything_is_there(both: Template, client: Client) -> None:
    assert set(client("dynamodb").list_tables()["TableNames"]) == set(
        both.named("DynamoDB::Table", "TableName")
    )
    queues = {url.rpartition("/")[2] for url in client("sqs").list_queues()["QueueUrls"]}
    assert queues == set(both.named("SQS::Queue", "QueueName"))
    topics = {
        topic["TopicArn"].rpartition(":")[2] for topic in client("sns").list_topics()["Topics"]
    }
    assert topics == {"test-events", "test-alarms"}
    functions = {
        function["FunctionName"] for function in client("lambda").list_functions()["Functions"]
    }
    assert functions == set(both.named("Lambda::Function", "FunctionName"))
    alarms = {
        alarm["AlarmName"] for alarm in client("cloudwatch").describe_alarms()["MetricAlarms"]
    }
    assert alarms == set(both.named("CloudWatch::Alarm", "AlarmName"))
    schedules = {schedule["Name"] for schedule in client("scheduler").list_schedules()["Schedules"]}
    assert schedules == {"test-resend", "test-repair"}


@pytest.mark.usefixtures("deployed")
def test_names_are_those_that_the_ledger_uses(client: Client) -> None:
    outputs = {
        one["OutputKey"]: one["OutputValue"]
        for one in client("cloudformation").describe_stacks(StackName=STACK)["Stacks"][0]["Outputs"]
    }
    assert outputs["Ledger"] == f"dynamodb://{standins.REGION}/test"
    variables = client("lambda").get_function_configuration(FunctionName="test-deposits-metadata")[
        "Environment"
    ]["Variables"]
    assert variables["MILEPOST_LEDGER"] == outputs["Ledger"]
    assert variables["MILEPOST_BLOBS"] == outputs["Blobs"]
    assert variables["MILEPOST_TOPIC"] == outputs["Events"]
    bucket = outputs["Blobs"].removeprefix("s3://").removesuffix("/blobs")
    told = client("s3").get_bucket_notification_configuration(Bucket=bucket)[
        "LambdaFunctionConfigurations"
    ]
    assert [one["LambdaFunctionArn"].rpartition(":")[2] for one in told] == ["test-lists"]


@pytest.mark.usefixtures("deployed")
def test_every_function_runs_its_own_handler(both: Template, client: Client) -> None:
    for name, function in both.named("Lambda::Function", "FunctionName").items():
        answer = json.loads(
            client("lambda").invoke(FunctionName=name, Payload=b"{}")["Payload"].read()
        )
        assert f"{answer['handler']}.handler" == function["Handler"]


@pytest.mark.usefixtures("deployed")
def test_queues_and_streams_call_their_functions(client: Client) -> None:
    mappings = client("lambda").list_event_source_mappings()["EventSourceMappings"]
    called = {
        (
            one["EventSourceArn"].split(":")[5].split("/stream/")[0],
            one["FunctionArn"].rpartition(":")[2],
        )
        for one in mappings
    }
    assert called == {
        ("test-deposits-metadata", "test-deposits-metadata"),
        ("test-deposits-content", "test-deposits-content"),
        ("table/test-assets", "test-relay"),
        ("table/test-deposits", "test-relay"),
    }
