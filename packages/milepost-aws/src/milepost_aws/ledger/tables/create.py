"""Creation of a deployment's tables and queues on a stand-in for AWS, where no stack is
deployed."""

from __future__ import annotations

from typing import Any

from milepost.core.routes.plan import Plan
from milepost_aws.ledger.names import ResourceNames
from milepost_aws.ledger.requests.client import AwsRefused, Requests
from milepost_aws.ledger.tables.keys import key_attributes

RETENTION_S = 14 * 86_400


def make_common(requests: Requests, names: ResourceNames) -> None:
    """Create what all routes share: history, seals, control documents and the quarantine queue."""
    _table(requests, names.control, [("kind", "S"), ("name", "S")])
    _table(requests, names.history, [("item", "S"), ("version", "N")])
    _table(requests, names.seen, [("key", "S")])
    _queue(requests, names.quarantine)


def make_route(requests: Requests, names: ResourceNames, plan: Plan) -> None:
    """Create a route's table with its stream and index, and a queue for each stage that has no
    queue of its own."""
    index = {
        "IndexName": "due",
        "KeySchema": [
            {"AttributeName": "dueShard", "KeyType": "HASH"},
            {"AttributeName": "dueAt", "KeyType": "RANGE"},
        ],
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }
    made = _table(
        requests,
        names.rows(plan.name),
        [(name, "S") for name in key_attributes(plan.route)],
        others=[("dueShard", "S"), ("dueAt", "S")],
        GlobalSecondaryIndexes=[index],
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    if made:
        ttl = {"Enabled": True, "AttributeName": "ttl"}
        requests.call(
            "dynamodb",
            "update_time_to_live",
            TableName=names.rows(plan.name),
            TimeToLiveSpecification=ttl,
        )
    for stage in plan.stages:
        if stage.queue is None:
            _queue(requests, names.queue(plan.name, stage.name))


def _table(
    requests: Requests,
    table: str,
    key: list[tuple[str, str]],
    others: list[tuple[str, str]] | None = None,
    **more: Any,
) -> bool:
    kinds = ("HASH", "RANGE")
    try:
        requests.call(
            "dynamodb",
            "create_table",
            TableName=table,
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": kind}
                for name, kind in [*key, *(others or [])]
            ],
            KeySchema=[
                {"AttributeName": name, "KeyType": kind}
                for (name, _), kind in zip(key, kinds, strict=False)
            ],
            BillingMode="PAY_PER_REQUEST",
            **more,
        )
    except AwsRefused as refused:
        if refused.code != "ResourceInUseException":
            raise
        return False
    return True


def _queue(requests: Requests, queue: str) -> None:
    requests.call(
        "sqs",
        "create_queue",
        QueueName=queue,
        Attributes={"MessageRetentionPeriod": str(RETENTION_S)},
    )
