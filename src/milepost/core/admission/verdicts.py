"""Verdicts for circuit breakers: what a change says about the partner of its item's lane, and the breaker's record after it."""

from __future__ import annotations

from milepost.core.admission.breakers import BreakerRecord, BreakerVerdict, after_failure, after_silence, after_success
from milepost.core.change import Change
from milepost.core.claims import KEPT_BY
from milepost.core.failures import CANNOT_BE_READ
from milepost.core.status import Reason, Status

_ANSWERED = frozenset({Reason.ADVANCED, Reason.COMPLETED, Reason.NOT_YET, Reason.HANDED_OVER, Reason.REJECTED})
"""Outcomes of a worker that show that the stage's partner answers. That it rejects one item says nothing against the partner."""


def verdict_of(change: Change) -> BreakerVerdict | None:
    """The verdict of a change about the partner of its item's lane; None: it ends no claim there."""
    if change.breaker is not None:
        return BreakerVerdict.FAILED
    before, after, line = change.before, change.after, change.line
    if before.claimed_at is None or (after.claimed_at == before.claimed_at and after.lease == before.lease and after.stage == before.stage):
        return None
    if line is None:
        return BreakerVerdict.SUCCEEDED if after.status is Status.WAITING else BreakerVerdict.SILENT
    unreadable = line.attempt is not None and line.attempt.category == CANNOT_BE_READ
    return BreakerVerdict.SUCCEEDED if line.reason in _ANSWERED and line.by != KEPT_BY and not unreadable else BreakerVerdict.SILENT


def breaker_after(record: BreakerRecord | None, change: Change) -> BreakerRecord | None:
    """The record of the lane's breaker after this change; the same object: nothing has changed, None: none is to be kept."""
    verdict, key = verdict_of(change), change.before.key
    if verdict is BreakerVerdict.FAILED:
        assert change.breaker is not None, "that is what makes it a failure"
        attempt = None if change.line is None else change.line.attempt
        error = "the worker was lost" if attempt is None else f"{attempt.category}: {attempt.message}"
        return after_failure(record, change.breaker, key, error, change.after.updated_at)
    if record is None or verdict is None:
        return record
    return after_success(record, key) if verdict is BreakerVerdict.SUCCEEDED else after_silence(record, key)
