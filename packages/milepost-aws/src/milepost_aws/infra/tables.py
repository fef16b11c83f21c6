"""Tables: one per route, with its stream and its index of due rows, one for the daily heads if
evidence is kept, and three shared tables."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb

from milepost_aws.infra.parts import Parts
from milepost_aws.infra.settings import WARM_READS
from milepost_aws.ledger.tables.keys import key_attributes

TEXT, NUMBER = dynamodb.AttributeType.STRING, dynamodb.AttributeType.NUMBER


def add_tables(parts: Parts) -> None:
    for route in (*parts.settings.routes, *parts.settings.heads):
        key = [(name, TEXT) for name in key_attributes(route)]
        parts.rows[route.name] = _rows(parts, route.name, key)
    names = parts.names
    parts.shared["history"] = _table(
        parts, "history", names.history, [("item", TEXT), ("version", NUMBER)]
    )
    parts.shared["seen"] = _table(parts, "seen", names.seen, [("key", TEXT)])
    parts.shared["control"] = _table(
        parts, "control", names.control, [("kind", TEXT), ("name", TEXT)]
    )


def _rows(
    parts: Parts, route: str, key: list[tuple[str, dynamodb.AttributeType]]
) -> dynamodb.Table:
    table = _table(
        parts,
        f"rows-{route}",
        parts.names.rows(route),
        key,
        # The relay compares the row before with the row after.
        stream=dynamodb.StreamViewType.NEW_AND_OLD_IMAGES,
        time_to_live_attribute="ttl",
        warm_throughput=_warm(parts, route),
    )
    # Keys only: a row is read again before it is processed, and every copied attribute is paid for
    # on every write.
    table.add_global_secondary_index(
        index_name="due",
        partition_key=dynamodb.Attribute(name="dueShard", type=TEXT),
        sort_key=dynamodb.Attribute(name="dueAt", type=TEXT),
        projection_type=dynamodb.ProjectionType.KEYS_ONLY,
        warm_throughput=_warm(parts, route),
    )
    return table


def _warm(parts: Parts, route: str) -> dynamodb.WarmThroughput | None:
    """Not for the daily heads, which get a row a day."""
    units = parts.settings.warm_units
    if units is None or route in {one.name for one in parts.settings.heads}:
        return None
    return dynamodb.WarmThroughput(
        write_units_per_second=units, read_units_per_second=WARM_READS * units
    )


def _table(
    parts: Parts, id: str, name: str, key: list[tuple[str, dynamodb.AttributeType]], **more: object
) -> dynamodb.Table:
    attributes = [dynamodb.Attribute(name=attribute, type=kind) for attribute, kind in key]
    return dynamodb.Table(
        parts.scope("tables"),
        id,
        table_name=name,
        partition_key=attributes[0],
        sort_key=attributes[1] if len(attributes) > 1 else None,
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        deletion_protection=True,
        encryption=dynamodb.TableEncryption.DEFAULT
        if parts.key is None
        else dynamodb.TableEncryption.CUSTOMER_MANAGED,
        encryption_key=parts.key,
        removal_policy=RemovalPolicy.RETAIN,
        **more,
    )
