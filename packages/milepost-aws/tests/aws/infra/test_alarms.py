"""Alarms with a recipient, and the dashboard."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from tests.aws.infra.templates import TOPIC, Template

from milepost.route_files import load_routes
from milepost_aws.ledger.cost.prices import Prices, standing

DAY = 86_400


def test_every_alarm_tells_when_it_begins_and_ends(
    template: Template, templates: dict[str, Template]
) -> None:
    topic = (
        TOPIC
        if template is templates["topic"]
        else template.id_of("SNS::Topic", "TopicName", "test-alarms")
    )
    for alarm in template.of("CloudWatch::Alarm").values():
        assert alarm["AlarmActions"] == alarm["OKActions"] == [topic]
        assert alarm.get("ActionsEnabled", True)
        assert alarm["AlarmDescription"]


def test_every_alarm_names_a_command(template: Template) -> None:
    for name, alarm in template.named("CloudWatch::Alarm", "AlarmName").items():
        text = str(alarm["AlarmDescription"])
        assert (
            "milepost " in text
            or "aws logs tail /aws/lambda/test-" in text
            or "aws lambda " in text
        ), name
        assert len(text) <= 1024, name


def test_which_alarms_there_are(both: Template) -> None:
    functions = ("deposits.metadata", "deposits.content", "relay", "resender", "lists")
    tables = (
        "rows-assets",
        "rows-assets-due",
        "rows-deposits",
        "rows-deposits-due",
        "history",
        "seen",
        "control",
    )
    expected = {
        "quarantine",
        "resender-silent",
        "stream-behind",
        "events-late",
        "events-parked",
        "items-held",
    }
    expected |= {f"{function}-{what}" for function in functions for what in ("errors", "throttles")}
    expected |= {f"{table}-{what}-throttles" for table in tables for what in ("read", "write")}
    stages = (
        "assets.CC",
        "assets.Scout",
        "deposits.metadata",
        "deposits.content",
        "deposits.submit",
        "deposits.theirs",
    )
    expected |= {f"{stage}-oldest-item" for stage in stages}
    called = ("deposits.metadata", "deposits.content")
    expected |= {
        f"{stage}-{what}" for stage in called for what in ("oldest-message", "missing-messages")
    }
    assert set(both.named("CloudWatch::Alarm", "AlarmName")) == {
        f"test-{name}" for name in expected
    }


def test_the_alarms_and_metrics_that_the_cost_model_counts_are_those_of_the_stack(
    both: Template,
) -> None:
    routes = load_routes([str(both.folder.parent / name) for name in ("assets.py", "deposits.py")])
    free = Prices(**dict.fromkeys(Prices.__struct_fields__, 0.0))
    alarms = both.of("CloudWatch::Alarm").values()
    assert standing(routes, replace(free, alarms=1.0)) == len(alarms)
    ours = {json.dumps(metric(alarm)) for alarm in alarms if alarm["Namespace"] == "Milepost"}
    # Items, for the dashboard, is the one metric without an alarm.
    assert standing(routes, replace(free, metrics=1.0)) == len(ours) + sum(
        len(route.stages) for route in routes
    )


def metric(alarm: dict) -> tuple[str, str, dict[str, str]]:
    return (
        alarm["Namespace"],
        alarm["MetricName"],
        {one["Name"]: one["Value"] for one in alarm["Dimensions"]},
    )


@pytest.mark.parametrize(
    ("stage", "late"),
    [
        ("assets.CC", 14 * DAY),
        ("assets.Scout", 30 * DAY),
        ("deposits.metadata", 2 * DAY),
        ("deposits.content", DAY),
    ],
)
def test_an_item_that_is_old(both: Template, stage: str, late: int) -> None:
    alarm = both.named("CloudWatch::Alarm", "AlarmName")[f"test-{stage}-oldest-item"]
    route, name = stage.split(".")
    assert metric(alarm) == (
        "Milepost",
        "OldestAge",
        {"Prefix": "test", "Route": route, "Stage": name},
    )
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (
        late,
        "GreaterThanOrEqualToThreshold",
    )


def test_items_whose_messages_are_missing(both: Template) -> None:
    alarm = both.named("CloudWatch::Alarm", "AlarmName")["test-deposits.metadata-missing-messages"]
    assert metric(alarm) == (
        "Milepost",
        "MissingCalls",
        {"Prefix": "test", "Route": "deposits", "Stage": "metadata"},
    )
    assert (alarm["Threshold"], alarm["EvaluationPeriods"]) == (1, 3)


def test_one_message_in_quarantine_is_enough(both: Template) -> None:
    alarm = both.named("CloudWatch::Alarm", "AlarmName")["test-quarantine"]
    queue = both.id_of("SQS::Queue", "QueueName", "test-quarantine")
    assert metric(alarm) == ("AWS/SQS", "ApproximateNumberOfMessagesVisible", {"QueueName": queue})
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (1, "GreaterThanOrEqualToThreshold")


def test_a_silent_resender_is_told(both: Template) -> None:
    alarm = both.named("CloudWatch::Alarm", "AlarmName")["test-resender-silent"]
    assert metric(alarm) == ("Milepost", "ResenderRun", {"Prefix": "test"})
    assert alarm["TreatMissingData"] == "breaching"
    assert (alarm["Threshold"], alarm["ComparisonOperator"], alarm["Statistic"]) == (
        1,
        "LessThanThreshold",
        "Sum",
    )


def test_a_stream_that_waits_is_told(both: Template) -> None:
    alarm = both.named("CloudWatch::Alarm", "AlarmName")["test-stream-behind"]
    relay = both.id_of("Lambda::Function", "FunctionName", "test-relay")
    assert metric(alarm) == ("AWS/Lambda", "IteratorAge", {"FunctionName": relay})


@pytest.mark.parametrize(
    ("name", "metric_name", "threshold", "command"),
    [
        ("events-late", "SubscriberLag", 600, "milepost subscribers"),
        ("events-parked", "ParkedItems", 1, "milepost subscribers release"),
        ("items-held", "HeldAge", DAY, "milepost resume"),
    ],
)
def test_what_waits_without_an_error_raises_an_alarm(
    both: Template, name: str, metric_name: str, threshold: int, command: str
) -> None:
    alarm = both.named("CloudWatch::Alarm", "AlarmName")[f"test-{name}"]
    assert metric(alarm) == ("Milepost", metric_name, {"Prefix": "test"})
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (
        threshold,
        "GreaterThanOrEqualToThreshold",
    )
    assert command in alarm["AlarmDescription"]


def test_a_hot_index_is_told_apart_from_its_table(both: Template) -> None:
    alarm = both.named("CloudWatch::Alarm", "AlarmName")["test-rows-assets-due-write-throttles"]
    table = both.id_of("DynamoDB::Table", "TableName", "test-assets")
    assert metric(alarm) == (
        "AWS/DynamoDB",
        "WriteThrottleEvents",
        {"TableName": table, "GlobalSecondaryIndexName": "due"},
    )


def test_the_dashboard_shows_every_stage(both: Template) -> None:
    (dashboard,) = both.of("CloudWatch::Dashboard").values()
    body = dashboard["DashboardBody"]
    for route, stage in (
        ("assets", "CC"),
        ("assets", "Scout"),
        ("deposits", "metadata"),
        ("deposits", "content"),
        ("deposits", "theirs"),
    ):
        dimensions = f'"Prefix","test","Route","{route}","Stage","{stage}"'
        assert f'"Milepost","Items",{dimensions}' in body
        assert f'"Milepost","OldestAge",{dimensions}' in body
    assert "IteratorAge" in body
    assert "ApproximateNumberOfMessagesVisible" in body
