"""Token buckets of rates, one control document for each scope: all processes share them."""

from __future__ import annotations

from msgspec import Struct

from milepost.core.admission.rates import CallRate, TokenBucket, calls_left, next_call_at, refill, spend, was_set_back
from milepost.ledgers.aws.tables.documents import Control
from milepost.ports.documents import read_as

BUCKET = "bucket"


class Grant(Struct, frozen=True):
    """How many calls may be made now, and when another one may be made (None: there is more to be had already)."""

    granted: int
    next_at: int | None


def take(control: Control, name: str, rate: CallRate, now: int, wanted: int, spent: int = 0) -> Grant:
    """Take up to `wanted` tokens of a scope; `spent` ones are gone already and may leave the bucket in debt. (A negative number
    returns tokens that were not used.)

    One read; one conditional write where anything was taken or charged, or where the clock was set back. A lost race is run
    again: those who win it empty the bucket, so it does not go on for long.
    """
    while True:
        document = control.get(BUCKET, name)
        kept = None if document is None else read_as(TokenBucket, document.value)
        bucket = spend(refill(kept, rate, now), rate, spent)
        granted = min(wanted, calls_left(bucket))
        bucket = spend(bucket, rate, granted)
        if not granted and not spent and not (kept is not None and was_set_back(kept, now)):
            break
        if control.write(BUCKET, name, bucket, expect=0 if document is None else document.version):
            break
    return Grant(granted, None if calls_left(bucket) else next_call_at(bucket, rate))
