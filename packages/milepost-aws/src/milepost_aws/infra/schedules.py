"""Schedules: the resender every minute, and its repair scan once a day; each service of an
application at its interval. Each schedule has a role that may call only its function."""

from __future__ import annotations

import json

from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler

from milepost_aws.infra.parts import Parts, fitted

LONGEST_NAME = 64


def add_schedules(parts: Parts) -> None:
    # It is called again a minute later anyway.
    _schedule(parts, "resend", "resender", "rate(1 minute)", {}, retries=0)
    _schedule(parts, "repair", "resender", "cron(17 3 * * ? *)", {"repair": True}, retries=10)
    for service, every_ms in parts.settings.services.items():
        _schedule(parts, service, "services", _rate(every_ms), {"service": service}, retries=0)


def _rate(every_ms: int) -> str:
    """In the scheduler's notation; its shortest interval is a minute."""
    minutes = max(1, round(every_ms / 60_000))
    return f"rate({minutes} {'minute' if minutes == 1 else 'minutes'})"


def _schedule(
    parts: Parts, name: str, called: str, when: str, event: dict[str, object], *, retries: int
) -> None:
    function = parts.functions[called]
    scope = parts.scope("schedules")
    role = iam.Role(
        scope,
        f"{name}-role",
        assumed_by=iam.ServicePrincipal(
            "scheduler.amazonaws.com",
            conditions={"StringEquals": {"aws:SourceAccount": parts.stack.account}},
        ),
        inline_policies={
            "call": iam.PolicyDocument(
                statements=[
                    iam.PolicyStatement(
                        sid="Call",
                        actions=["lambda:InvokeFunction"],
                        resources=[function.function_arn],
                    )
                ]
            )
        },
    )
    scheduler.CfnSchedule(
        scope,
        name,
        name=fitted(f"{parts.settings.prefix}-{name}", LONGEST_NAME),
        schedule_expression=when,
        flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
        target=scheduler.CfnSchedule.TargetProperty(
            arn=function.function_arn,
            role_arn=role.role_arn,
            input=json.dumps(event),
            retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                maximum_retry_attempts=retries, maximum_event_age_in_seconds=3600 if retries else 60
            ),
        ),
    )
