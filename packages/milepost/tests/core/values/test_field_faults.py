"""Validation errors for people."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta, Struct

from milepost.core.values.field_faults import field_fault


class Parcel(Struct, forbid_unknown_fields=True):
    grams: Annotated[int, Meta(ge=1)] = 1
    weights: list[float] = []
    price: Annotated[float, Meta(gt=0)] = 1.0
    since: datetime | None = None
    tags: dict[str, str] = {}
    fragile: bool = False
    kept: str | float = "1d"


@pytest.mark.parametrize(
    ("given", "field", "sentence"),
    [
        ({"grams": "3"}, "grams", "expected a whole number, at least 1, got text"),
        ({"grams": 0}, "grams", "Expected `int` >= 1"),
        ({"price": 0.0}, "price", "Expected `float` > 0.0"),
        ({"weights": 3}, "weights", "expected a list, got a whole number"),
        ({"weights": [True]}, "weights[0]", "expected a number, got a boolean"),
        ({"tags": []}, "tags", "expected an object, got a list"),
        ({"tags": {"a": {}}}, "tags", "expected text, got an object"),
        ({"fragile": 1.5}, "fragile", "expected true or false, got a number"),
        ({"kept": None}, "kept", "expected text or a number, got null"),
        ({"kept": date(2026, 1, 31)}, "kept", "expected text or a number, got a date"),
        ({"since": 3.5}, "since", "Expected `datetime | null`, got `float`"),
        (
            {"weigth": 3},
            "weigth",
            "Object contains unknown field `weigth`; expected grams, weights, price, since, tags, fragile, kept",
        ),
    ],
)
def test_a_fault_says_once_what_is_expected(given: Any, field: str, sentence: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(given, Parcel)
    fault = field_fault(raised.value, Parcel)
    assert (fault.field, fault.sentence) == (field, sentence)
