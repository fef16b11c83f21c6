"""Functions: one worker per stage with a handler; relay, resender, list intake, services and
endpoints once; and their triggers."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_logs as logs

from milepost_aws.infra import access
from milepost_aws.infra.parts import Parts, fitted
from milepost_aws.infra.settings import (
    LONGEST_RUN_S,
    PYTHON,
    RESENDER_AT_ONCE,
    at_once,
    batch_size,
    run_seconds,
    window_seconds,
)

LONGEST_NAME = 64
MEMORY_MB = 512
LISTS_MEMORY_MB = 1024
RELAY_RUN_S = 300
ACCEPT_RUN_S = 29
"""API Gateway waits for 30 seconds."""
ACCEPT_MEMORY_MB = 1024
"""Lambda gives CPU by memory, and a caller waits for the answer."""
LOG_RETENTION = logs.RetentionDays.THREE_MONTHS


def add_functions(parts: Parts) -> None:
    # Of compiled files, only those for the functions' Python.
    compiled = f"!*.cpython-{PYTHON.replace('.', '')}.pyc"
    code = lambda_.Code.from_asset(
        str(parts.settings.code), exclude=["*.egg-info", "*.pyc", compiled]
    )
    for route, stage in parts.stages():
        if not stage.ours:
            continue
        place = route.name, stage.name
        worker = _function(
            parts,
            code,
            f"worker-{route.name}.{stage.name}",
            parts.names.queue(*place),
            "worker",
            run_seconds(stage),
            access.worker(parts, place),
            {"MILEPOST_STAGE": f"{route.name}/{stage.name}"},
        )
        window = window_seconds(stage)
        lambda_.EventSourceMapping(
            parts.scope("mappings"),
            f"queue-{route.name}.{stage.name}",
            target=worker,
            event_source_arn=parts.queues[place].queue_arn,
            batch_size=batch_size(stage),
            max_batching_window=Duration.seconds(window) if window else None,
            report_batch_item_failures=True,
            max_concurrency=at_once(stage),
        )
        parts.workers[place] = worker
    prefix = parts.settings.prefix
    # Workers that fill the account's limit of concurrent functions would otherwise stop relay and
    # resender.
    relays = parts.settings.relay_at_once * len(parts.settings.routes)
    reserved = {"relay": relays, "resender": RESENDER_AT_ONCE} if parts.settings.reserve else {}
    parts.functions["relay"] = _function(
        parts,
        code,
        "relay",
        f"{prefix}-relay",
        "relay",
        RELAY_RUN_S,
        access.relay(parts),
        reserved=reserved.get("relay"),
    )
    # As long as AWS allows: once a day it reads everything.
    parts.functions["resender"] = _function(
        parts,
        code,
        "resender",
        f"{prefix}-resender",
        "resender",
        LONGEST_RUN_S,
        access.resender(parts),
        reserved=reserved.get("resender"),
    )
    parts.functions["lists"] = _function(
        parts,
        code,
        "lists",
        f"{prefix}-lists",
        "lists",
        LONGEST_RUN_S,
        access.lists(parts),
        memory_mb=LISTS_MEMORY_MB,
    )
    if parts.settings.services:
        parts.functions["services"] = _function(
            parts,
            code,
            "services",
            f"{prefix}-services",
            "services",
            LONGEST_RUN_S,
            access.services(parts),
        )
    if parts.settings.endpoints:
        parts.functions["accept"] = _function(
            parts,
            code,
            "accept",
            f"{prefix}-accept",
            "accept",
            ACCEPT_RUN_S,
            access.accept(parts),
            memory_mb=ACCEPT_MEMORY_MB,
        )
    _read_streams(parts)
    _keep_failed_lists(parts)


def _read_streams(parts: Parts) -> None:
    """The relay puts records that it cannot decide into quarantine; failures here are requests to
    AWS, for which the shard may wait. A record that is given up after all is named in quarantine,
    and the repair scan finds its row."""
    window = parts.settings.stream_window_s
    for route, table in parts.rows.items():
        lambda_.EventSourceMapping(
            parts.scope("mappings"),
            f"stream-{route}",
            target=parts.functions["relay"],
            event_source_arn=table.table_stream_arn,
            starting_position=lambda_.StartingPosition.TRIM_HORIZON,
            batch_size=100,
            max_batching_window=Duration.seconds(window) if window else None,
            parallelization_factor=4,
            report_batch_item_failures=True,
            bisect_batch_on_error=True,
            retry_attempts=1000,
            # An hour before the stream itself forgets it.
            max_record_age=Duration.hours(23),
            on_failure=sources.SqsDlq(parts.quarantine),
        )


def _keep_failed_lists(parts: Parts) -> None:
    """A list that could not be accepted, even the third time: its name goes into quarantine with
    the error."""
    target = lambda_.CfnEventInvokeConfig.OnFailureProperty(destination=parts.quarantine.queue_arn)
    lambda_.CfnEventInvokeConfig(
        parts.scope("functions"),
        "lists-failed",
        function_name=parts.functions["lists"].function_name,
        qualifier="$LATEST",
        maximum_retry_attempts=2,
        destination_config=lambda_.CfnEventInvokeConfig.DestinationConfigProperty(
            on_failure=target
        ),
    )


def _function(
    parts: Parts,
    code: lambda_.Code,
    id: str,
    name: str,
    handler: str,
    run_s: int,
    statements: Sequence[iam.PolicyStatement],
    variables: dict[str, str] | None = None,
    memory_mb: int = MEMORY_MB,
    reserved: int | None = None,
) -> lambda_.Function:
    scope = parts.scope("functions")
    name = fitted(name, LONGEST_NAME)
    group = logs.LogGroup(
        scope,
        f"{id}-log",
        log_group_name=f"/aws/lambda/{name}",
        retention=LOG_RETENTION,
        removal_policy=RemovalPolicy.DESTROY,
        encryption_key=parts.key,
    )
    # The policy is part of the role, so that it is in force before the first call of the function.
    role = iam.Role(
        scope,
        f"{id}-role",
        assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        inline_policies={
            "uses": iam.PolicyDocument(
                statements=[*statements, access.own_log(group), access.traces()]
            )
        },
    )
    function = lambda_.Function(
        scope,
        id,
        function_name=name,
        runtime=lambda_.Runtime.PYTHON_3_13,
        architecture=lambda_.Architecture.ARM_64,
        handler=f"milepost_aws.lambdas.{handler}.handler",
        code=code,
        role=role.without_policy_updates(),
        timeout=Duration.seconds(run_s),
        memory_size=memory_mb,
        reserved_concurrent_executions=reserved,
        log_group=group,
        tracing=lambda_.Tracing.ACTIVE,
        environment={
            "MILEPOST_LEDGER": parts.ledger_url,
            "MILEPOST_ROUTES": parts.settings.routes_in_code,
            **(
                {"MILEPOST_APPLICATIONS": parts.settings.applications_in_code}
                if parts.settings.applications_in_code
                else {}
            ),
            **parts.settings.variables,
            # CloudFormation reads the secret when it deploys: the template names it only.
            **{
                name: f"{{{{resolve:secretsmanager:{secret}:SecretString}}}}"
                for name, secret in parts.settings.secrets.items()
            },
            "MILEPOST_TOPIC": parts.events.topic_arn,
            "MILEPOST_BLOBS": parts.blobs_url,
            # No POWERTOOLS_SERVICE_NAME: it would become a dimension of every metric, and no alarm
            # would find its metric.
            "POWERTOOLS_METRICS_NAMESPACE": "Milepost",
            "POWERTOOLS_LOG_LEVEL": "INFO",
            **(variables or {}),
        },
    )
    resource = function.node.default_child
    assert isinstance(resource, lambda_.CfnFunction)
    # It names the role, and therefore waits for it.
    resource.add_deletion_override("DependsOn")
    return function
