"""JSON: its canonical form, a limit of its depth, names given twice, and faults in words for people."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from typing import Any

import msgspec

canonical_json: Callable[[Any], bytes] = msgspec.json.Encoder(order="deterministic").encode
"""JSON with sorted names and without spaces: equal content gives equal bytes."""

DEEPEST = 200
"""Levels. Reading and writing takes one call per level, and a worker or relay may have fewer calls left than the process that accepted the
value."""
SHALLOW = 2 * DEEPEST
"""JSON of up to so many bytes cannot be deeper, because a level takes two of them."""
_TEXTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""One level deeper, and one less, as signed bytes."""
_OTHERS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def check_depth(text: bytes) -> None:
    """Raise a ValueError if this JSON is nested too deeply to be stored."""
    if len(text) <= SHALLOW or text.count(b"[") + text.count(b"{") <= DEEPEST:
        return
    steps = _TEXTS.sub(b"", text).translate(_STEPS, _OTHERS)
    if max(accumulate(memoryview(steps).cast("b")), default=0) > DEEPEST:
        raise ValueError(f"it is nested more than {DEEPEST} levels deep")


_LONE = re.compile(rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})")
"""The first half of a surrogate pair without a second half."""


def json_fault(data: bytes | str, error: Exception) -> str:
    """The fault in JSON, for people. The decoder reports half a surrogate pair near the end as a premature end."""
    if "truncated" in str(error) and (lone := _LONE.search(data.encode() if isinstance(data, str) else data)):
        return f"{lone[1].decode()} is half of a surrogate pair and no character by itself"
    return str(error)


class _NameTwice(Exception):
    pass


def _each_name_once(pairs: list[tuple[str, Any]]) -> None:
    names = {name for name, _ in pairs}
    if len(names) < len(pairs):
        given = [name for name, _ in pairs]
        raise _NameTwice(next(name for name in given if given.count(name) > 1))


def name_given_twice(text: bytes | str) -> str | None:
    """A name that an object of this JSON gives twice, at any depth. The decoder keeps the last value and drops the others without a word."""
    try:
        # (Numbers as text: Python refuses to read very long ones.)
        json.loads(text, object_pairs_hook=_each_name_once, parse_int=str, parse_float=str)
    except _NameTwice as error:
        return str(error)
    except RecursionError:
        # What is nested so deeply is refused for that.
        return None
    return None


def each_name_once(lines: Sequence[bytes], objects: Collection[dict[str, Any]]) -> bool:
    """Whether the lines, of which these are the objects, can be seen to give no name twice. Each name has a colon, so lines with no more
    colons than names have none twice; False: they have more, and each must be looked at."""
    return b"\n".join(lines).count(b":") == sum(map(len, objects))
