"""Metrics: those of the resender, in the namespace Milepost, and those of AWS. Without labels: an
alarm on a labelled metric becomes one on a formula."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

from milepost_aws.infra.parts import Parts

NAMESPACE = "Milepost"
PERIOD = Duration.minutes(5)


def oldest_age(parts: Parts, route: str, stage: str) -> cloudwatch.Metric:
    """Seconds that the oldest item has been at the stage; 0 if there is none."""
    return _ours(
        "OldestAge", "Maximum", {"Prefix": parts.settings.prefix, "Route": route, "Stage": stage}
    )


def items(parts: Parts, route: str, stage: str) -> cloudwatch.Metric:
    """Number of items at the stage that have not ended."""
    return _ours(
        "Items", "Maximum", {"Prefix": parts.settings.prefix, "Route": route, "Stage": stage}
    )


def missing_calls(parts: Parts, route: str, stage: str) -> cloudwatch.Metric:
    """Number of items that wait for a worker, but have no message in the stage's queue."""
    return _ours(
        "MissingCalls", "Maximum", {"Prefix": parts.settings.prefix, "Route": route, "Stage": stage}
    )


def resender_runs(parts: Parts) -> cloudwatch.Metric:
    """1 for every complete run."""
    return _ours("ResenderRun", "Sum", {"Prefix": parts.settings.prefix})


def subscriber_lag(parts: Parts) -> cloudwatch.Metric:
    """Seconds since the first line was written that a subscriber has not received; of the
    subscriber that is furthest behind."""
    return _ours("SubscriberLag", "Maximum", {"Prefix": parts.settings.prefix})


def parked_items(parts: Parts) -> cloudwatch.Metric:
    """Number of items with an event that a subscriber refuses."""
    return _ours("ParkedItems", "Maximum", {"Prefix": parts.settings.prefix})


def held_age(parts: Parts) -> cloudwatch.Metric:
    """Seconds for which rows of a lane have been held, because of a pause or an open breaker; of
    the lane that waits longest."""
    return _ours("HeldAge", "Maximum", {"Prefix": parts.settings.prefix})


def oldest_message(parts: Parts, route: str, stage: str) -> cloudwatch.Metric:
    return parts.queues[route, stage].metric_approximate_age_of_oldest_message(
        period=PERIOD, statistic="Maximum"
    )


def depth(queue: sqs.IQueue) -> cloudwatch.Metric:
    return queue.metric_approximate_number_of_messages_visible(period=PERIOD, statistic="Maximum")


def iterator_age(parts: Parts) -> cloudwatch.Metric:
    """Milliseconds that the last change had waited for the relay."""
    return parts.functions["relay"].metric("IteratorAge", period=PERIOD, statistic="Maximum")


def errors(function: lambda_.Function) -> cloudwatch.Metric:
    return function.metric_errors(period=PERIOD, statistic="Sum")


def throttles(function: lambda_.Function) -> cloudwatch.Metric:
    return function.metric_throttles(period=PERIOD, statistic="Sum")


def server_errors(api: apigateway.HttpApi) -> cloudwatch.Metric:
    """Requests that API Gateway answered with a status from 500 on."""
    return api.metric_server_error(period=PERIOD, statistic="Sum")


def table_throttles(table: dynamodb.Table, kind: str, index: str | None) -> cloudwatch.Metric:
    """Requests of one kind, Read or Write, that DynamoDB refused; those of an index are counted
    separately."""
    dimensions = {
        "TableName": table.table_name,
        **({"GlobalSecondaryIndexName": index} if index else {}),
    }
    return cloudwatch.Metric(
        namespace="AWS/DynamoDB",
        metric_name=f"{kind}ThrottleEvents",
        dimensions_map=dimensions,
        period=PERIOD,
        statistic="Sum",
    )


def _ours(name: str, statistic: str, dimensions: dict[str, str]) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=name,
        dimensions_map=dimensions,
        period=PERIOD,
        statistic=statistic,
    )
