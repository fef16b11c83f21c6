"""Policies for partners that confirm external stages: one each, to be attached to their role."""

from __future__ import annotations

from aws_cdk import aws_iam as iam

from milepost.core.routes.route import Route, Stage
from milepost_aws.infra import access
from milepost_aws.infra.parts import Parts, fitted
from milepost_aws.ledger.tables.keys import CONFIRMED_BY, PREFIXES, WAITING, key_attributes

LONGEST_NAME = 128


def add_confirmers(parts: Parts) -> None:
    for route, stage in parts.stages():
        if stage.external:
            _policy(parts, route, stage)


def confirmable(route: Route, stage: Stage) -> list[str]:
    """The attributes that a confirmer may name: the row's key, its own confirmation with its
    author, its waiting note, and the input of the next stage."""
    return [
        *key_attributes(route),
        f"{PREFIXES[route.dialect]}{stage.name}",
        f"{CONFIRMED_BY}{stage.name}",
        f"{WAITING}{stage.name}",
        "input",
    ]


def _policy(parts: Parts, route: Route, stage: Stage) -> None:
    update = iam.PolicyStatement(
        sid="Confirm",
        actions=["dynamodb:UpdateItem"],
        resources=[parts.rows[route.name].table_arn],
        conditions={
            "ForAllValues:StringEquals": {"dynamodb:Attributes": confirmable(route, stage)},
            # "All" of an empty set is true: a request must name attributes.
            "Null": {"dynamodb:Attributes": "false"},
            # Other return values would show the whole row.
            "StringEqualsIfExists": {
                "dynamodb:ReturnValues": ["NONE", "UPDATED_OLD", "UPDATED_NEW"]
            },
        },
    )
    # A payload that is too large for its message is read from the row. It may be any attribute: the
    # input, or the answer of an earlier stage. A request without a projection names no attributes,
    # so no condition on attributes is possible.
    read = iam.PolicyStatement(
        sid="ReadPayload",
        actions=["dynamodb:GetItem"],
        resources=[parts.rows[route.name].table_arn],
    )
    aside = iam.PolicyStatement(
        sid="SetAside", actions=["sqs:SendMessage"], resources=[parts.quarantine.queue_arn]
    )
    take = iam.PolicyStatement(
        sid="TakeOffers",
        actions=[
            "sqs:ReceiveMessage",
            "sqs:DeleteMessage",
            "sqs:ChangeMessageVisibility",
            "sqs:GetQueueAttributes",
            "sqs:GetQueueUrl",
        ],
        resources=[parts.queues[route.name, stage.name].queue_arn],
    )
    # Messages and rows are encrypted with the customer-managed key, if there is one.
    key = access.use_key(parts, "Decrypt", "DescribeKey", "GenerateDataKey")
    attribute = f"{PREFIXES[route.dialect]}{stage.name}"
    iam.ManagedPolicy(
        parts.scope("confirmers"),
        f"{route.name}.{stage.name}",
        managed_policy_name=fitted(
            f"{parts.settings.prefix}-{route.name}-{stage.name}-confirmer", LONGEST_NAME
        ),
        # Descriptions are plain ASCII for IAM.
        description=(
            f"Confirms stage {stage.name} of route {route.name}: takes offers and writes {attribute}. "
            f"Always update with the condition attribute_exists({key_attributes(route)[0]}): "
            "no policy can forbid an update that makes a row which is not there."
        ),
        # A queue of their own needs no permission here.
        statements=[*([] if stage.queue is not None else [take]), update, read, aside, *key],
    )
