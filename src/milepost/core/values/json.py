"""How deep JSON may be. Reading and writing it takes a call for each level, and how many calls are left depends on who reads: what the
door could just take, a worker or the relay could not read again, and with it nothing of what stands beside it."""

from __future__ import annotations

import re
from itertools import accumulate

DEEPEST = 200
SHALLOW = 2 * DEEPEST
"""JSON of up to so many bytes cannot be deeper: a level takes two of them."""
_TEXTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""A level more, and one less, as signed bytes."""
_OTHERS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def check_depth(text: bytes) -> None:
    """Raise a ValueError if this JSON is nested too deeply to be kept."""
    if len(text) <= SHALLOW or text.count(b"[") + text.count(b"{") <= DEEPEST:
        return
    steps = _TEXTS.sub(b"", text).translate(_STEPS, _OTHERS)
    if max(accumulate(memoryview(steps).cast("b")), default=0) > DEEPEST:
        raise ValueError(f"it is nested more than {DEEPEST} levels deep")


_LONE = re.compile(rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})")
"""The first half of a pair that has no second half."""


def json_fault(data: bytes | str, error: Exception) -> str:
    """What is wrong, for people. The reader takes half a pair of surrogates near the end for an end that came too early."""
    if "truncated" in str(error) and (lone := _LONE.search(data.encode() if isinstance(data, str) else data)):
        return f"{lone[1].decode()} is half of a pair, and stands for no character alone"
    return str(error)
