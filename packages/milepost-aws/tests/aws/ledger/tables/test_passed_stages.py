"""Stages that an item has passed, written with its results: one change of the attribute in one
update, as DynamoDB demands."""

from __future__ import annotations

from typing import Any

import pytest

from milepost_aws.aws_model import AwsModel
from milepost_aws.ledger.tables.attribute_rules import _set_passed_stages
from milepost_aws.ledger.tables.conditional_write import Update
from milepost_aws.ledger.tables.keys import Layout

LAYOUT = Layout("parcels", "rows", ("id",), "ingested_")


@pytest.mark.parametrize(
    ("results", "left"),
    [
        ({"two": 1}, {"one", "two"}),
        ({"two": 1, "three": {}}, {"one", "two", "three"}),
        ({"one": None}, set()),
        ({"one": None, "two": None}, set()),
        ({"two": 1, "one": None}, {"two"}),
        ({}, {"one"}),
    ],
)
def test_any_results_are_one_update(results: dict[str, Any], left: set[str]) -> None:
    database = AwsModel().client("dynamodb")
    database.create_table(
        TableName="rows",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    database.put_item(TableName="rows", Item={"id": {"S": "a"}, "through": {"SS": ["one"]}})
    update = Update(LAYOUT, "a")
    update.set("version", {"N": "2"})
    passed = {stage for stage, value in results.items() if value is not None}
    _set_passed_stages(update, frozenset({"one"}), passed, results.keys() - passed)
    database.update_item(**update.params())
    row = database.get_item(TableName="rows", Key={"id": {"S": "a"}})["Item"]
    assert set(row.get("through", {"SS": []})["SS"]) == left
