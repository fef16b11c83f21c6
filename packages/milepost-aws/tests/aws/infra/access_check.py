"""Checks requests against IAM policies: the actions, resources and leading keys of a request, and
the ones that a policy allows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import pytest
from botocore.client import BaseClient
from tests.aws.infra.templates import Template, listed

from milepost_aws.lambdas import start

PLAIN = {
    "SendMessageBatch": "SendMessage",
    "DeleteMessageBatch": "DeleteMessage",
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibility",
    "PublishBatch": "Publish",
    "CreateMultipartUpload": "PutObject",
    "UploadPart": "PutObject",
    "CompleteMultipartUpload": "PutObject",
}
WRITES = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}
LEADING = {"control": "kind", "history": "item", "seen": "key"}
"""The partition key of each table that all routes share."""
BUCKET = "test-milepost-AWS::AccountId-AWS::Region"


class Use(NamedTuple):
    """One IAM action on one resource. `leading`: the partition keys that the request names, where
    the policies look at them."""

    action: str
    place: str
    leading: frozenset[str] = frozenset()


class Allowed(NamedTuple):
    action: str
    place: str
    leading: tuple[str, ...] | None
    """Patterns that every leading key must match; None: any key, and none at all."""

    def covers(self, use: Use) -> bool:
        if use.action != self.action or not fnmatchcase(use.place, self.place):
            return False
        if self.leading is None:
            return True
        return bool(use.leading) and all(
            any(fnmatchcase(key, one) for one in self.leading) for key in use.leading
        )


def uses_of(service: str, operation: str, params: dict[str, Any]) -> list[Use]:
    """The IAM actions of one request."""
    service = {"dynamodbstreams": "dynamodb"}.get(service, service)
    if operation == "TransactWriteItems":
        done = [next(iter(one.items())) for one in params["TransactItems"]]
        return [
            _of_table(
                f"dynamodb:{WRITES[kind]}", what["TableName"], [what.get("Key") or what["Item"]]
            )
            for kind, what in done
        ]
    action = f"{service}:{PLAIN.get(operation, operation)}"
    if service == "dynamodb":
        return list(_of_dynamodb(action, params))
    if service == "sqs":
        return [
            Use(action, f"queue {params.get('QueueName') or params['QueueUrl'].rpartition('/')[2]}")
        ]
    if service == "sns":
        return [Use(action, f"topic {params['TopicArn'].rpartition(':')[2]}")]
    return [Use(action, f"object {params['Key']}" if "Key" in params else "bucket")]


def _of_dynamodb(action: str, params: dict[str, Any]) -> Iterator[Use]:
    if "RequestItems" in params:
        for table, wanted in params["RequestItems"].items():
            if isinstance(wanted, dict):
                keys = wanted["Keys"]
            else:
                keys = [
                    one["PutRequest"]["Item"]
                    if "PutRequest" in one
                    else one["DeleteRequest"]["Key"]
                    for one in wanted
                ]
            yield _of_table(action, table, keys)
    elif "TableName" not in params:
        yield Use(action, "stream")
    elif "IndexName" in params:
        yield Use(action, f"table {params['TableName']}/index/{params['IndexName']}")
    elif "KeyConditionExpression" in params:
        name, _, value, *_ = params["KeyConditionExpression"].split()
        attribute = params["ExpressionAttributeNames"][name]
        yield _of_table(
            action, params["TableName"], [{attribute: params["ExpressionAttributeValues"][value]}]
        )
    else:
        key = params.get("Key") or params.get("Item")
        yield _of_table(action, params["TableName"], [key] if key else [])


def _of_table(action: str, table: str, keys: Iterable[dict[str, Any]]) -> Use:
    attribute = LEADING.get(table.rpartition("-")[2])
    return Use(
        action,
        f"table {table}",
        frozenset(key[attribute]["S"] for key in keys) if attribute else frozenset(),
    )


def allowed_of(template: Template, statements: Iterable[dict[str, Any]]) -> list[Allowed]:
    """What these statements allow, in the same words; '*' stands for anything."""
    names: dict[str, str] = {}
    for kind, word, attribute in (
        ("DynamoDB::Table", "table", "TableName"),
        ("SQS::Queue", "queue", "QueueName"),
        ("SNS::Topic", "topic", "TopicName"),
    ):
        names |= {
            id: f"{word} {properties[attribute]}" for id, properties in template.of(kind).items()
        }
    found = []
    for statement in statements:
        leading = _leading(statement.get("Condition", {}))
        for resource in listed(statement["Resource"]):
            id, slash, rest = resource.partition("/")
            if id in names:
                place = names[id] + slash + rest
            elif id.endswith(".StreamArn"):
                place = "stream"
            elif BUCKET in resource:
                place = (
                    f"object {resource.partition(BUCKET + '/')[2]}"
                    if f"{BUCKET}/" in resource
                    else "bucket"
                )
            else:
                place = resource
            found += [Allowed(action, place, leading) for action in listed(statement["Action"])]
    return found


def _leading(condition: dict[str, Any]) -> tuple[str, ...] | None:
    for operator in ("ForAllValues:StringEquals", "ForAllValues:StringLike"):
        if "dynamodb:LeadingKeys" in condition.get(operator, {}):
            # All of none is true: without this a request that names no key would pass.
            assert condition["Null"] == {"dynamodb:LeadingKeys": "false"}
            return tuple(listed(condition[operator]["dynamodb:LeadingKeys"]))
    return None


def denied(used: Iterable[Use], allowed: list[Allowed]) -> list[Use]:
    return sorted((use for use in used if not any(one.covers(use) for one in allowed)), key=str)


class Watch:
    """Notes every request that is made while some function, process or person is at work."""

    def __init__(self, patch: pytest.MonkeyPatch, clock: Any) -> None:
        self.uses: dict[str, set[Use]] = defaultdict(set)
        self.clock = clock
        self.containers: dict[str, start.Opened] = {}
        self.function: str | None = None
        inner = BaseClient._make_api_call

        def noted(client: Any, operation: str, params: dict[str, Any]) -> Any:
            if self.function is not None:
                self.uses[self.function].update(
                    uses_of(client.meta.service_model.service_name, operation, params)
                )
            return inner(client, operation, params)

        patch.setattr(BaseClient, "_make_api_call", noted)

    @contextmanager
    def at(self, function: str) -> Iterator[None]:
        self.function = function
        try:
            yield
        finally:
            self.function = None

    def over(
        self, function: str, handler: Callable[..., Any], only: str | None = None
    ) -> Callable[..., Any]:
        """The function in a container of its own, so that its start is noted too. `only`: the one
        route that a worker opens."""

        def called(event: Any, context: Any) -> Any:
            others, start._opened = start._opened, self.containers.get(function)
            try:
                with self.at(function):
                    container = self.containers[function] = start.opened(only)
                    container.ctx.clock = self.clock
                    return handler(event, context)
            finally:
                start._opened = others

        return called
