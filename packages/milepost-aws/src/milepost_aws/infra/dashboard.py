"""CloudWatch dashboard: for each route the items by stage and their ages, and below it the state of
functions and streams."""

from __future__ import annotations

from aws_cdk import aws_cloudwatch as cloudwatch

from milepost.core.routes.route import Route
from milepost_aws.infra import metrics
from milepost_aws.infra.parts import Parts

HEIGHT = 6


def add_dashboard(parts: Parts) -> None:
    rows = [_row_of(parts, route) for route in parts.settings.routes]
    cloudwatch.Dashboard(
        parts.scope("dashboard"),
        "dashboard",
        dashboard_name=f"{parts.settings.prefix}-milepost",
        widgets=[
            *(row for pair in rows for row in pair),
            _head("Everything runs"),
            _running(parts),
            [_alarms(parts)],
        ],
    )


def _row_of(parts: Parts, route: Route) -> list[list[cloudwatch.IWidget]]:
    """The funnel: the stages in their order."""
    names = [stage.name for stage in route.stages]
    items = {name: metrics.items(parts, route.name, name) for name in names}
    ages = {name: metrics.oldest_age(parts, route.name, name) for name in names}
    waiting = {name: metrics.depth(parts.queues[route.name, name]) for name in names}
    errors = {
        stage: metrics.errors(worker)
        for (owner, stage), worker in parts.workers.items()
        if owner == route.name
    }
    funnel = cloudwatch.SingleValueWidget(
        title=f"{route.name}: items", width=24, height=3, metrics=_labelled(items)
    )
    return [
        [funnel],
        [
            _graph("Items by stage", items, stacked=True),
            _graph("Oldest item, seconds", ages),
            _graph("Messages waiting", waiting),
            _graph("Worker errors", errors),
        ],
    ]


def _running(parts: Parts) -> list[cloudwatch.IWidget]:
    return [
        _graph("Stream to relay, milliseconds", {"age": metrics.iterator_age(parts)}),
        _graph("Events waiting, seconds", {"age": metrics.subscriber_lag(parts)}),
        _graph("Resender runs", {"runs": metrics.resender_runs(parts)}),
        _graph("Quarantine", {"entries": metrics.depth(parts.quarantine)}),
        _graph(
            "Errors", {name: metrics.errors(function) for name, function in parts.functions.items()}
        ),
    ]


def _alarms(parts: Parts) -> cloudwatch.IWidget:
    return cloudwatch.AlarmStatusWidget(
        title="Alarms", width=24, height=HEIGHT, alarms=parts.alarms[:100]
    )


def _head(text: str) -> list[cloudwatch.IWidget]:
    return [cloudwatch.TextWidget(markdown=f"## {text}", width=24, height=1)]


def _graph(
    title: str, shown: dict[str, cloudwatch.Metric], *, stacked: bool = False
) -> cloudwatch.IWidget:
    axis = cloudwatch.YAxisProps(min=0)
    return cloudwatch.GraphWidget(
        title=title,
        width=6,
        height=HEIGHT,
        left=_labelled(shown),
        stacked=stacked,
        left_y_axis=axis,
    )


def _labelled(shown: dict[str, cloudwatch.Metric]) -> list[cloudwatch.IMetric]:
    return [metric.with_(label=label) for label, metric in shown.items()]
