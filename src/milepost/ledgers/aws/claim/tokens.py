"""Rates: a bucket of tokens for each scope, kept among the control documents and shared by all processes."""

from __future__ import annotations

import math

from msgspec import Struct

from milepost.ledgers.aws.tables.documents import Control
from milepost.ports.documents import read_as

BUCKET = "bucket"
SAVED_S = 0.1
"""So many seconds' worth of calls may be saved up, and one call in any case."""
SET_BACK_MS = 10_000
"""A clock that is further behind than this was set back; one that is less is only another machine's."""

# Tokens are fractions: what is missing by rounding alone must neither refuse a call nor put it off.
_SLACK = 1e-9
_SLACK_MS = 1e-6


class Grant(Struct, frozen=True):
    """How many calls may be made now, and when there will be another one (None: there is more to be had already)."""

    granted: int
    next_at: int | None


class _Bucket(Struct, frozen=True):
    tokens: float
    at: int


def take(control: Control, name: str, rate_per_s: float, now: int, wanted: int, spent: int = 0) -> Grant:
    """Take up to `wanted` tokens of a scope; `spent` ones are gone already and may leave the bucket in debt. (Fewer than none
    are spent by whoever gives tokens back that were not used.)

    One read; one conditional write where anything was taken or charged, or where the clock was set back. A lost race is run
    again: those who win it empty the bucket, so it does not go on for long.
    """
    burst = max(1.0, rate_per_s * SAVED_S)
    while True:
        document = control.get(BUCKET, name)
        bucket = _Bucket(burst, now) if document is None else read_as(_Bucket, document.value)
        set_back = now < bucket.at - SET_BACK_MS
        since = now if set_back else bucket.at
        tokens = min(burst, min(burst, bucket.tokens + max(0, now - since) * rate_per_s / 1000) - spent)
        at = max(since, now)
        granted = max(0, min(wanted, math.floor(tokens + _SLACK)))
        tokens -= granted
        if not granted and not spent and not set_back:
            break
        # A reset clock is written down too: otherwise it would begin anew with every look, and nothing would ever flow in.
        if control.write(BUCKET, name, _Bucket(tokens, at), expect=0 if document is None else document.version):
            break
    if math.floor(tokens + _SLACK) > 0:
        return Grant(granted, None)
    return Grant(granted, at + max(1, math.ceil((1 - tokens) * 1000 / rate_per_s - _SLACK_MS)))
