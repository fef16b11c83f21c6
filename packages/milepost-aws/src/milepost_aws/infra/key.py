"""The optional customer-managed key: tables, queues, topics, bucket and logs are encrypted with
it."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms

from milepost_aws.infra.parts import Parts


def add_key(parts: Parts) -> None:
    """An existing key is used as it is: its own policy must allow what `_let_in` allows here."""
    wanted = parts.settings.key
    if wanted is None:
        return
    scope = parts.scope("storage")
    if wanted != "new":
        parts.key = kms.Key.from_key_arn(scope, "key", wanted)
        return
    key = kms.Key(
        scope,
        "key",
        alias=f"alias/{parts.settings.prefix}-milepost",
        description=f"Milepost {parts.settings.prefix}: rows, messages, blobs and logs",
        enable_key_rotation=True,
        removal_policy=RemovalPolicy.RETAIN,
    )
    _let_in(parts, key)
    parts.key = key


def _let_in(parts: Parts, key: kms.Key) -> None:
    """AWS services, which have no role of ours, publish alarms to the alarm topic and write the log
    groups."""
    account = {"StringEquals": {"aws:SourceAccount": parts.stack.account}}
    key.add_to_resource_policy(
        iam.PolicyStatement(
            sid="AlarmsOfThisAccount",
            principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
            actions=["kms:Decrypt", "kms:GenerateDataKey"],
            resources=["*"],
            conditions=account,
        )
    )
    logs = f"arn:{parts.stack.partition}:logs:{parts.stack.region}:{parts.stack.account}:log-group:/aws/lambda/{parts.settings.prefix}-*"
    key.add_to_resource_policy(
        iam.PolicyStatement(
            sid="LogsOfTheFunctions",
            principals=[iam.ServicePrincipal(f"logs.{parts.stack.region}.amazonaws.com")],
            actions=[
                "kms:Decrypt",
                "kms:DescribeKey",
                "kms:Encrypt",
                "kms:GenerateDataKey",
                "kms:ReEncryptFrom",
                "kms:ReEncryptTo",
            ],
            resources=["*"],
            conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": logs}},
        )
    )
