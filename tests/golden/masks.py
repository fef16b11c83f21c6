"""Masks for values that say nothing about a format: tokens, chain digests, milliseconds, paths and
secrets.

A chain digest covers every line before it, so one changed word would change all of them and hide
what has changed. How digests are made is recorded by itself (see `test_golden_evidence`)."""

from __future__ import annotations

import json
import re
from typing import Any

_MASKS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), instead)
    for pattern, instead in (
        # How many tokens were drawn before this one does not matter.
        (r"\b(?:token|scene|test)-\d{5}\b", "TOKEN"),
        (r"\b[0-9a-f]{64}\b", "SHA256"),
        (r'(\\*"(?:claim|settled)\\*": ?\\*")[0-9a-f]{12}', r"\1CLAIM"),
        # The simulator's dice give each handler call a few milliseconds.
        (r"\b(20\d{8})\d{3}\b", r"\g<1>000"),
        (r"(T\d\d:\d\d:\d\d)\.\d{3}Z", r"\1.000Z"),
        (r'(\\*"response_(?:ms|time)\\*": ?)[\d.]+', r"\g<1>0"),
        (r'(\\*"responseTime\\*": ?{\\*"N\\*": ?\\*")[\d.]+', r"\g<1>0"),
        (r'("lastLease": \{"S": ")[0-9a-f]{12}', r"\1CLAIM"),
        # Tracebacks: where the file is, and the marks below a line, which differ between versions
        # of Python.
        (r'(File \\*")[^"]*/', r"\1"),
        (r"(?:\\+n|\n) *[~^]+(?=\\+n|\n)", ""),
        # What the doctor says of the machine.
        (r"(\b(?:size|sqlite|log) +)\d[\d.,]*", r"\1N"),
        (r'("(?:free_bytes|log_bytes|bytes)": )\d+', r"\g<1>0"),
        (r'("sqlite": ")[\d.]+', r"\1N"),
        (r"\bmilepost \d+\.\d+\.\d+\b", "milepost VERSION"),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
        (r"mp_[A-Za-z0-9_-]{20,}", "KEY"),
    )
)


def steady(text: str) -> str:
    """The text with what differs from run to run replaced."""
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    return text


def masked(value: Any) -> Any:
    """A JSON value with what differs from run to run replaced; ids of keys, which are random,
    too."""
    return _without_key_ids(json.loads(steady(json.dumps(value, ensure_ascii=False))))


def _without_key_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_key_ids(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    inner = {name: _without_key_ids(one) for name, one in value.items()}
    if isinstance(inner.get("id"), str) and (
        "scopes" in inner or str(inner.get("scope")).startswith("key ")
    ):
        inner["id"] = "KEY-ID"
    return inner
