"""Alarms: conditions that need attention. Each notifies the alarm topic when it begins and when it is over."""

from __future__ import annotations

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions

from infra import metrics
from infra.parts import Parts, fitted
from infra.settings import late_seconds, visibility_seconds

LONGEST_NAME = 255
LATE_EVENTS_S = 600
LONG_HELD_S = 86_400
MISSING = cloudwatch.TreatMissingData


def add_alarms(parts: Parts) -> None:
    _stages(parts)
    _queues(parts)
    _functions(parts)
    _endpoints(parts)
    _tables(parts)
    _alarm(
        parts,
        "resender-silent",
        metrics.resender_runs(parts),
        below=1,
        periods=2,
        missing=MISSING.BREACHING,
        means="The resender has not finished a run for ten minutes: overdue items are not sent again. See its log and its schedule.",
    )
    _alarm(
        parts,
        "stream-behind",
        metrics.iterator_age(parts),
        at_least=10 * 60_000,
        periods=2,
        means="Changes have waited for the relay for over ten minutes: no items are offered, no events sent. After 24 hours it loses them.",
    )

    _waiting(parts)


def _waiting(parts: Parts) -> None:
    _alarm(
        parts,
        "events-late",
        metrics.subscriber_lag(parts),
        at_least=LATE_EVENTS_S,
        periods=2,
        # The resender reports it every minute, and has an alarm of its own for its silence.
        missing=MISSING.IGNORE,
        means="Events have waited for over ten minutes. Run: milepost subscribers (who is behind, and why). None has failed: the load is more"
        " than is published (docs/scale.md). Otherwise correct the topic's key, policy or quota; the events follow by themselves.",
    )
    _alarm(
        parts,
        "events-parked",
        metrics.parked_items(parts),
        at_least=1,
        periods=2,
        missing=MISSING.IGNORE,
        means="A subscriber refuses events of an item, and the item's later events wait. Run: milepost subscribers (which, and why); correct"
        " the cause; then: milepost subscribers release NAME ROUTE KEY --by YOU --reason WHY.",
    )
    _alarm(
        parts,
        "items-held",
        metrics.held_age(parts),
        at_least=LONG_HELD_S,
        missing=MISSING.IGNORE,
        means="Items have waited for a day because their route, stage or lane is paused, or its circuit breaker is open. Run: milepost doctor"
        " (which, by whom, and why). Then: milepost resume ROUTE STAGE --by YOU --reason WHY; after that they start again by themselves.",
    )


def _stages(parts: Parts) -> None:
    """By the age of rows: a queue forgets the age of a message that is received again and again."""
    for route, stage in parts.stages():
        _alarm(
            parts,
            f"{route.name}.{stage.name}-oldest-item",
            metrics.oldest_age(parts, route.name, stage.name),
            at_least=late_seconds(stage),
            # The resender reports it every minute, and has an alarm of its own for its silence.
            missing=MISSING.IGNORE,
            means=f"An item has been at stage {stage.name} of route {route.name} for too long; milepost list shows which.",
        )


def _queues(parts: Parts) -> None:
    for route, stage in parts.stages():
        if not stage.external:
            _alarm(
                parts,
                f"{route.name}.{stage.name}-oldest-message",
                metrics.oldest_message(parts, route.name, stage.name),
                # Twice the time that a message takes to come back after its worker was lost.
                at_least=max(3600, 2 * visibility_seconds(stage)),
                means=f"A message of stage {stage.name} of route {route.name} waits too long: its function fails, or is too slow.",
            )
            _alarm(
                parts,
                f"{route.name}.{stage.name}-missing-messages",
                metrics.missing_calls(parts, route.name, stage.name),
                at_least=1,
                # The resender sends such messages again in the run in which it finds them.
                periods=3,
                missing=MISSING.IGNORE,
                means=f"Items wait at stage {stage.name} of route {route.name}, and its queue has no message for them: it was purged, or"
                " messages are moved away. The resender could not send new messages; milepost doctor says how many.",
            )
    _alarm(
        parts,
        "quarantine",
        metrics.depth(parts.quarantine),
        at_least=1,
        means="The quarantine has an entry that could not be processed. It stays in the quarantine queue, with the reason, for 14 days.",
    )


def _functions(parts: Parts) -> None:
    workers = {f"{route}.{stage}": function for (route, stage), function in parts.workers.items()}
    for name, function in {**workers, **parts.functions}.items():
        errors, throttles = metrics.errors(function), metrics.throttles(function)
        _alarm(
            parts,
            f"{name}-errors",
            errors,
            at_least=1,
            means="The function failed as a whole; its log says why. Its items are processed again automatically.",
        )
        _alarm(
            parts,
            f"{name}-throttles",
            throttles,
            at_least=1,
            # A burst that ends within a few minutes is AWS scaling up.
            periods=3,
            means="AWS throttles the function: check the account's limit of concurrent functions.",
        )


def _endpoints(parts: Parts) -> None:
    if parts.endpoints_api is not None:
        _alarm(
            parts,
            "endpoints-server-errors",
            metrics.server_errors(parts.endpoints_api),
            at_least=1,
            means="A caller who wanted to submit an item was answered with an error of ours; the log of the accept function says why.",
        )


def _tables(parts: Parts) -> None:
    # Not that of the daily heads, which is written to once a day.
    tables = {**{f"rows-{route.name}": parts.rows[route.name] for route in parts.settings.routes}, **parts.shared}
    for name, table in tables.items():
        for index in (None, "due") if name.startswith("rows-") else (None,):
            where = "the index" if index else "the table"
            for kind in ("Read", "Write"):
                _alarm(
                    parts,
                    f"{name}-{f'{index}-' if index else ''}{kind.lower()}-throttles",
                    metrics.table_throttles(table, kind, index),
                    at_least=1,
                    periods=3,
                    means=f"DynamoDB has refused requests for a quarter of an hour: a partition of {where} is hot.",
                )


def _alarm(
    parts: Parts,
    name: str,
    metric: cloudwatch.IMetric,
    *,
    means: str,
    at_least: float | None = None,
    below: float | None = None,
    periods: int = 1,
    missing: cloudwatch.TreatMissingData = MISSING.NOT_BREACHING,
) -> None:
    comparison = cloudwatch.ComparisonOperator
    alarm = cloudwatch.Alarm(
        parts.scope("alarms"),
        name,
        alarm_name=fitted(f"{parts.settings.prefix}-{name}", LONGEST_NAME),
        alarm_description=means,
        metric=metric,
        threshold=below if at_least is None else at_least,
        comparison_operator=comparison.LESS_THAN_THRESHOLD if at_least is None else comparison.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        evaluation_periods=periods,
        treat_missing_data=missing,
    )
    action = actions.SnsAction(parts.alarm_topic)
    alarm.add_alarm_action(action)
    alarm.add_ok_action(action)
    parts.alarms.append(alarm)
