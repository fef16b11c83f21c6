"""The greatest depth of JSON values."""

from __future__ import annotations

import json

import pytest

from milepost.core.values.json import DEEPEST, check_depth


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
