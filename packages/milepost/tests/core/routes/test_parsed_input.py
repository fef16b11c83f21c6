"""Keys of a batch: checked together, they are the same as one by one."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.seeds import seeds

from milepost.core.errors import MalformedInput
from milepost.core.routes.parsed_input import LONGEST_PART, Key, key_in, keys_in

VALUES: tuple[Any, ...] = (
    "a", "b c", "ä#%", "k-1", 7, 0,
    " x", "y ", "", " ", "\t", "a\x00b", "\u2028", "x" * LONGEST_PART, "x" * (LONGEST_PART + 1), None, True, 1.5, ["a"], {"a": 1},
)  # fmt: skip
KEYS: tuple[Key, ...] = ("id", ("id", "batch"), lambda content: content["id"])


def one_by_one(contents: list[Any], key: Key) -> list[str] | str:
    try:
        return [key_in(content, key) for content in contents]
    except MalformedInput as error:
        return str(error)


def together(contents: list[Any], key: Key) -> list[str] | str:
    try:
        return keys_in(contents, key)
    except MalformedInput as error:
        return str(error)


@pytest.mark.parametrize("seed", seeds(5, quick=2))
@pytest.mark.parametrize("key", KEYS)
def test_a_batch_has_the_keys_that_its_inputs_have_alone(key: Key, seed: int) -> None:
    dice = Random(seed)
    for _ in range(300):
        plain = dice.random() < 0.5
        usual = VALUES[:4] if plain else VALUES
        contents: list[Any] = [
            {"id": dice.choice(usual), "batch": dice.choice(usual)}
            for _ in range(dice.randrange(4))
        ]
        if dice.random() < 0.2:
            contents.append(dice.choice(({}, {"batch": "b"}, "id", ["id"], 5, None)))
        assert together(contents, key) == one_by_one(contents, key)
