"""JSON: its canonical form, a limit of its depth, names given twice, and faults in words for
people."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from math import isfinite
from typing import Any

import msgspec

canonical_json: Callable[[Any], bytes] = msgspec.json.Encoder(order="deterministic").encode
"""JSON with sorted names and without spaces: equal content gives equal bytes."""

DEEPEST = 200
"""Levels. Reading and writing takes one call per level, and a worker or relay may have fewer calls
left than the process that accepted the value."""
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


def check_json(value: Any, text: bytes) -> None:
    """Raise a ValueError if the value, of which `text` is the JSON, is nested too deeply, or holds
    what JSON would not give back: NaN and infinities would become null, a set a list."""
    check_depth(text)
    if b"null" in text or b"[" in text:
        _check_parts(value)


def _check_parts(value: Any) -> None:
    parts: list[tuple[str, Any]] = [("", value)]
    while parts:
        path, part = parts.pop()
        if isinstance(part, float) and not isfinite(part):
            raise ValueError(
                f"{path or 'it'} is {part}, which is no number in JSON; use None, or a text"
            )
        if isinstance(part, (set, frozenset)):
            raise ValueError(
                f"{path or 'it'} is a {type(part).__name__}, which JSON does not have; use a list"
            )
        parts += _parts_of(part, path)


def _parts_of(value: Any, path: str) -> list[tuple[str, Any]]:
    """What the value consists of, each with its path; nothing for a plain value."""
    if isinstance(value, dict):
        return [(_inside(path, str(name)), part) for name, part in value.items()]
    if isinstance(value, (list, tuple)):
        return [(f"{path}[{place}]", part) for place, part in enumerate(value)]
    fields = getattr(value, "__struct_fields__", ()) or getattr(value, "__dataclass_fields__", ())
    return [(_inside(path, name), getattr(value, name, None)) for name in fields]


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def storable_text(text: str) -> str:
    """The text with halves of surrogate pairs written as \\udXXX: JSON cannot hold them."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


_LONE = re.compile(
    rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)
"""The first half of a surrogate pair without a second half."""


def json_fault(data: bytes | str, error: Exception) -> str:
    """The fault in JSON, for people. The decoder reports half a surrogate pair near the end as a
    premature end."""
    if "truncated" in str(error) and (
        lone := _LONE.search(data.encode() if isinstance(data, str) else data)
    ):
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
    """A name that an object of this JSON gives twice, at any depth. The decoder keeps the last
    value and drops the others without a word."""
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
    """Whether the lines, of which these are the objects, can be seen to give no name twice. Each
    name has a colon, so lines with no more colons than names have none twice; False: they have
    more, and each must be looked at."""
    return b"\n".join(lines).count(b":") == sum(map(len, objects))
