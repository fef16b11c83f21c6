"""Alarms: conditions that need attention. Each notifies the alarm topic when it begins and when it
is over."""

from __future__ import annotations

from typing import Any

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions

from milepost_aws.infra import metrics
from milepost_aws.infra.functions import LONGEST_NAME as LONGEST_FUNCTION_NAME
from milepost_aws.infra.parts import Parts, fitted
from milepost_aws.infra.settings import late_seconds, visibility_seconds

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
        means="The resender has not finished a run for ten minutes: overdue items are not sent again, and no metrics come. Run:"
        f" aws logs tail {_log(parts, 'resender')} --since 1h. If it was not called, switch its schedule on again.",
    )
    _alarm(
        parts,
        "stream-behind",
        metrics.iterator_age(parts),
        at_least=10 * 60_000,
        periods=2,
        means="Changes have waited for the relay for over ten minutes: no items are offered, no events sent. Run:"
        f" aws logs tail {_log(parts, 'relay')} --since 1h. Errors: correct what it names. None: it is too slow for the load; deploy with a"
        " larger --relay-at-once (docs/scale.md). After 24 hours changes are lost; the repair scan then finds their rows.",
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
            means=f"An item has been at stage {stage.name} of route {route.name} for too long. Run: milepost doctor (pauses, breakers, late work);"
            f" milepost list {route.name} --stage {stage.name} --{'overdue' if stage.overdue_ms else 'status live'};"
            f" milepost show {route.name} KEY. The counters may be wrong by a few until"
            " the daily repair: if no such item is there, wait for it.",
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
                means=f"A message of stage {stage.name} of route {route.name} waits too long: its function fails, or is too slow. Run: aws logs"
                f" tail {_log(parts, route.name, stage.name)} --since 1h; milepost groups {route.name} (errors). Too slow: raise the"
                " concurrency of the stage.",
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
                " messages are moved away, and the resender could not send new ones. Run: milepost doctor (how many);"
                f" milepost resend {route.name} --stage {stage.name} --status QUEUED --by YOU --reason WHY.",
            )
    _alarm(
        parts,
        "quarantine",
        metrics.depth(parts.quarantine),
        at_least=1,
        means="The quarantine has an entry that could not be processed; it is kept for 14 days. Run: milepost quarantine list (with the reason);"
        " correct the cause; milepost quarantine replay ID --by YOU --reason WHY.",
    )


def _functions(parts: Parts) -> None:
    others = [((name,), function) for name, function in parts.functions.items()]
    functions: list[tuple[tuple[str, ...], Any]] = [*parts.workers.items(), *others]
    for path, function in functions:
        name = ".".join(path)
        errors, throttles = metrics.errors(function), metrics.throttles(function)
        _alarm(
            parts,
            f"{name}-errors",
            errors,
            at_least=1,
            means=f"The function failed as a whole; its items are processed again automatically. Run:"
            f" aws logs tail {_log(parts, *path)} --since 1h. Denied requests (no permission, S3, KMS) are named there with the missing action.",
        )
        _alarm(
            parts,
            f"{name}-throttles",
            throttles,
            at_least=1,
            # A burst that ends within a few minutes is AWS scaling up.
            periods=3,
            means=_throttled(name),
        )


def _endpoints(parts: Parts) -> None:
    if parts.endpoints_api is not None:
        _alarm(
            parts,
            "endpoints-server-errors",
            metrics.server_errors(parts.endpoints_api),
            at_least=1,
            means="A caller who wanted to submit an item was answered with an error of ours. Run:"
            f" aws logs tail {_log(parts, 'accept')} --since 1h. The caller may send it again.",
        )


def _tables(parts: Parts) -> None:
    # Not that of the daily heads, which is written to once a day.
    tables = {
        **{f"rows-{route.name}": parts.rows[route.name] for route in parts.settings.routes},
        **parts.shared,
    }
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
                    means=f"DynamoDB has refused requests for a quarter of an hour: a partition of {where} is hot. Requests are tried again for 30"
                    " seconds, so items are late, not lost. Run: milepost status. A new table: deploy with --warm-throughput. Otherwise see the"
                    " table of limits in docs/scale.md; milepost limit ROUTE STAGE --rate R --by YOU --reason WHY slows a stage.",
                )


def _log(parts: Parts, *of: str) -> str:
    """The log group of a function, or of the worker of a stage."""
    name = parts.names.queue(*of) if len(of) == 2 else f"{parts.settings.prefix}-{of[0]}"
    return f"/aws/lambda/{fitted(name, LONGEST_FUNCTION_NAME)}"


def _throttled(name: str) -> str:
    often = "AWS throttles the function for three periods of five minutes. Run: aws lambda get-account-settings (ConcurrentExecutions: ask AWS to raise it)."
    if name == "relay":
        return f"{often} The relay has a reservation of its own and never runs more often: deploy with a larger --relay-at-once."
    return f"{often} A worker never runs more often than the concurrency of its stage: that alone is no throttle."


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
        comparison_operator=comparison.LESS_THAN_THRESHOLD
        if at_least is None
        else comparison.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        evaluation_periods=periods,
        treat_missing_data=missing,
    )
    action = actions.SnsAction(parts.alarm_topic)
    alarm.add_alarm_action(action)
    alarm.add_ok_action(action)
    parts.alarms.append(alarm)
