"""Why JSON cannot be read, where the reader's own words would mislead."""

from __future__ import annotations

import re

_LONE = re.compile(rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})")
"""The first half of a pair that has no second half."""


def json_fault(data: bytes | str, error: Exception) -> str:
    """What is wrong, for people. The reader takes half a pair of surrogates near the end for an end that came too early."""
    if "truncated" in str(error) and (lone := _LONE.search(data.encode() if isinstance(data, str) else data)):
        return f"{lone[1].decode()} is half of a pair, and stands for no character alone"
    return str(error)
