"""Queues: one per stage, and the quarantine. No dead-letter queues: the ledger knows the state of
every item, and a lost message is sent again."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_sqs as sqs

from milepost_aws.infra.parts import Parts
from milepost_aws.infra.settings import own_queue_arn, visibility_seconds

RETENTION = Duration.days(14)


def add_queues(parts: Parts) -> None:
    for route, stage in parts.stages():
        id = f"{route.name}.{stage.name}"
        own = own_queue_arn(stage)
        if own is not None:
            region, account, name = own
            arn = f"arn:{parts.stack.partition}:sqs:{region}:{account}:{name}"
            parts.queues[route.name, stage.name] = sqs.Queue.from_queue_arn(
                parts.scope("queues"), id, arn
            )
        else:
            name = parts.names.queue(route.name, stage.name)
            parts.queues[route.name, stage.name] = _queue(
                parts, id, name, Duration.seconds(visibility_seconds(stage))
            )
    parts.quarantine = _queue(
        parts, "quarantine", parts.names.quarantine, Duration.minutes(5), RemovalPolicy.RETAIN
    )


def _queue(
    parts: Parts,
    id: str,
    name: str,
    visibility: Duration,
    removal: RemovalPolicy = RemovalPolicy.DESTROY,
) -> sqs.Queue:
    return sqs.Queue(
        parts.scope("queues"),
        id,
        queue_name=name,
        retention_period=RETENTION,
        visibility_timeout=visibility,
        encryption=sqs.QueueEncryption.SQS_MANAGED
        if parts.key is None
        else sqs.QueueEncryption.KMS,
        encryption_master_key=parts.key,
        # Sending a message costs a fraction of a call to KMS.
        data_key_reuse=None if parts.key is None else Duration.hours(1),
        enforce_ssl=True,
        removal_policy=removal,
    )
