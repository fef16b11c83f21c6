"""Reasons in the quarantine name the attribute and the right value."""

from __future__ import annotations

from typing import Any

import pytest

from milepost.blobs.memory import MemoryBlobs
from milepost.core.decide import accept
from milepost.core.item import digest_of
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost_aws.ledger.refused_rows import EXPECTED, fault_in, why_unreadable
from milepost_aws.ledger.tables.conditional_write import put_of
from milepost_aws.ledger.tables.item_rows import row_of
from milepost_aws.ledger.tables.keys import Image, Layout
from milepost_aws.ledger.tables.values import Values

VALUES = Values(MemoryBlobs())


def stored() -> tuple[Image, Layout]:
    route = Route("parcels", key="id")
    route.external("tape")
    plan = Plan(route, grace_ms=600_000, offer_life_ms=1_000_000)
    layout = Layout.of(plan, "t-parcels")
    change = accept(
        plan, "p1", {"id": "p1"}, 1_000_000, correlation_id="c", digest=digest_of({"id": "p1"})
    )
    return put_of(change, {"id": "p1"}, layout, VALUES, "token"), layout


def test_a_good_row_has_no_fault() -> None:
    image, layout = stored()
    assert fault_in(image, layout) is None
    assert row_of(image, layout, VALUES).key == "p1"
    assert image.keys() & EXPECTED.keys() >= {"head", "version", "trail"}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("status", {"N": "7"}, "the attribute 'status' is a number (N) and must be text (S)"),
        (
            "status",
            {"S": "ASLEEP"},
            "the attribute 'status' is 'ASLEEP' and must be one of PENDING, ",
        ),
        ("version", {"N": "1.5"}, "the attribute 'version' is '1.5' and must be a whole number"),
        ("version", {"S": "1"}, "the attribute 'version' is text (S) and must be a number (N)"),
        (
            "dueAt",
            {"S": "soon"},
            "the attribute 'dueAt' is 'soon' and must be a time such as 2026-01-31T12:00:00.000Z",
        ),
        ("head", {"S": "abc"}, "the attribute 'head' is text (S) and must be binary (B)"),
        (
            "head",
            {"B": b"abc"},
            "the attribute 'head' has 3 bytes and must have 32 (a SHA-256 digest)",
        ),
        ("kept", {"S": "{"}, "the attribute 'kept' is '{' and must be JSON"),
        (
            "queue",
            None,
            "the attribute 'queue' is missing; it is text (S) on every row that Milepost has taken in",
        ),
        ("id", {"N": "7"}, "the key attribute 'id' is a number (N) and must be text (S)"),
        ("id", None, "the key attribute 'id' is missing"),
    ],
)
def test_a_fault_names_its_attribute_and_what_is_right(
    name: str, value: dict[str, Any] | None, said: str
) -> None:
    image, layout = stored()
    if value is None:
        del image[name]
    else:
        image[name] = value
    told = fault_in(image, layout)
    assert told is not None
    assert told.startswith(said)
    assert why_unreadable(KeyError("S"), image, layout) == told


def test_a_row_that_others_put_is_judged_by_its_key_alone() -> None:
    _, layout = stored()
    assert fault_in({"id": {"S": "p1"}, "status": {"N": "7"}}, layout) is None
    assert fault_in({"id": {"N": "1"}}, layout) is not None
    assert why_unreadable(ValueError("odd"), {"id": {"S": "p1"}}, layout) == "ValueError: odd"
