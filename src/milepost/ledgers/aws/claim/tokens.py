"""Token buckets of rates, one control document for each scope: all processes share them."""

from __future__ import annotations

from msgspec import Struct

from milepost.core.admission.rates import CallRate, TokenBucket, calls_left, next_call_at, refill, spend, was_set_back
from milepost.ledgers.aws.tables.documents import Control
from milepost.ports.documents import read_as

BUCKET = "bucket"


class Grant(Struct, frozen=True):
    """Number of calls that may be made now, and when another one may be made (None: the bucket has more already)."""

    granted: int
    next_at: int | None


def take(control: Control, name: str, rate: CallRate, now: int, wanted: int, spent: int = 0) -> Grant:
    """Take up to `wanted` tokens of a scope; `spent` ones are used already and may leave the bucket in debt. (A negative number
    returns unused tokens.)

    One read; one conditional write if tokens were taken or charged, or if the clock was set back. A lost race is
    repeated: the winners empty the bucket, so this ends soon.
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
