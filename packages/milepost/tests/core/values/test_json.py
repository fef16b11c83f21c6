"""What JSON can hold: the greatest depth, numbers, lists, names given twice, and texts with half a
character."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.values.json import (
    DEEPEST,
    canonical_json,
    check_depth,
    check_json,
    each_name_once,
    name_given_twice,
    storable_text,
)


def nested(levels: int, opening: str = "[", inner: str = "", closing: str = "]") -> bytes:
    return (opening * levels + inner + closing * levels).encode()


@pytest.mark.parametrize(
    "text",
    [
        nested(DEEPEST),
        nested(DEEPEST, '{"a":', "1", "}"),
        b"[" + b",".join([b"[{}]"] * 1_000) + b"]",
        json.dumps(["[" * 1_000, '"[{' * 500, "\\" * 7 + "[" * 300, {"{" * 300: "]"}]).encode(),
        b"1",
    ],
)
def test_what_is_wide_or_only_speaks_of_brackets_is_not_deep(text: bytes) -> None:
    check_depth(text)


@pytest.mark.parametrize(
    "text",
    [
        nested(DEEPEST + 1),
        nested(DEEPEST + 1, '{"a":', "1", "}"),
        nested(DEEPEST // 2 + 1, '[{"]":', "1", "}]"),
        b'["]]]]",' * 5_000 + b"1" + b"]" * 5_000,
    ],
)
def test_what_is_deep_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="nested more than 200 levels deep"):
        check_depth(text)


NAMES = st.sampled_from(["a", "b", "a:b", '"'])
VALUES = st.recursive(
    st.integers() | st.sampled_from(["x", '":', "10:00"]),
    lambda inner: st.lists(st.tuples(NAMES, inner), max_size=3),
    max_leaves=6,
)


def written(value: object, separator: str) -> str:
    """JSON of a value in which an object is a list of its names and values."""
    if not isinstance(value, list):
        return json.dumps(value)
    return (
        "{"
        + ", ".join(
            f"{json.dumps(name)}{separator}{written(inner, separator)}" for name, inner in value
        )
        + "}"
    )


def repeats(value: object) -> bool:
    if not isinstance(value, list):
        return False
    names = [name for name, _ in value]
    return len(set(names)) < len(names) or any(repeats(inner) for _, inner in value)


@given(st.lists(st.tuples(NAMES, VALUES), max_size=4), st.sampled_from([":", ": ", " : "]))
def test_a_name_given_twice_is_noticed_at_any_depth(
    pairs: list[tuple[str, object]], separator: str
) -> None:
    text = written(pairs, separator).encode()
    assert (name_given_twice(text) is not None) == repeats(pairs)
    if repeats(pairs):
        assert not each_name_once([text], [json.loads(text)])


def test_very_long_numbers_and_very_deep_values_are_left_to_other_checks() -> None:
    assert name_given_twice(b'{"a": ' + b"9" * 10_000 + b"}") is None
    assert name_given_twice(nested(100_000)) is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        [1.5, None, True],
        {"a": [None, {"b": (1, "null")}]},
        "null [",
        1e308,
        {"nan": "nan"},
        [datetime(2026, 1, 1, tzinfo=UTC)],
    ],
)
def test_what_json_gives_back_is_fine(value: object) -> None:
    check_json(value, canonical_json(value))


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (math.nan, "it is nan"),
        ([1, [math.inf]], r"\[1\]\[0\] is inf"),
        ({"a": {"b": -math.inf}}, "a.b is -inf"),
        ({"a": [set()]}, r"a\[0\] is a set"),
        (({"a": frozenset("x")},), r"\[0\].a is a frozenset"),
    ],
)
def test_what_json_would_change_is_refused_with_its_path(value: object, fault: str) -> None:
    with pytest.raises(ValueError, match=f"^{fault}"):
        check_json(value, canonical_json(value))


def test_half_a_character_is_written_out() -> None:
    assert storable_text("caf\u00e9 \ud800 \U0001f600") == "caf\u00e9 \\ud800 \U0001f600"
