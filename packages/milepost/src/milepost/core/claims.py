"""Check whether the outcome of a claim was written, by its history line.

A line identifies the claim that it ends by a digest of the lease (`core.history.claim_digest`).
Holder and time do not identify a claim: one worker can claim an item twice within a millisecond,
and the line of a lost claim has them too.
"""

from __future__ import annotations

from typing import Any

from milepost.core.failures import CANNOT_BE_STORED, message_of
from milepost.core.history import Line
from milepost.core.item import digest_of
from milepost.core.outcome import Checked, Done, HandedOver, NotYet, Outcome, Reject, Retry
from milepost.core.status import Reason

OUTCOMES = frozenset(
    {
        Reason.ADVANCED,
        Reason.COMPLETED,
        Reason.CONFIRMED,
        Reason.NOT_YET,
        Reason.CHECKED,
        Reason.HANDED_OVER,
        Reason.RETRY,
        Reason.EXHAUSTED,
        Reason.REJECTED,
        Reason.UNDECIDED,
    }
)
"""Reasons of lines that record a worker's outcome, or a kept confirmation of a partner that
replaced it."""
KEPT_BY = "kept"
"""The author of a line that was decided by a kept confirmation, where it is not known who gave
that."""


def kept_author(kept: Any) -> str:
    """Who gave an outcome that is kept on a row (see `Row.kept`)."""
    return (kept.get("by") if isinstance(kept, dict) else None) or KEPT_BY


def without_author(kept: Any) -> Any:
    """A kept outcome without the name of who gave it."""
    return (
        {name: value for name, value in kept.items() if name != "by"}
        if isinstance(kept, dict)
        else kept
    )


def by_kept(line: Line) -> bool:
    """Whether a kept confirmation decided the line. (Lines of earlier versions say so by their
    author.)"""
    return line.kept or line.by == KEPT_BY


def is_outcome_of(line: Line, claim: str) -> bool:
    """Whether this line records the outcome of the claim with this digest. The line of its loss
    does not, even where it ended the item: no worker reported an outcome, so there is no response
    time."""
    if line.claim != claim or line.reason not in OUTCOMES:
        return False
    return line.reason is not Reason.EXHAUSTED or (
        line.attempt is not None and line.attempt.response_ms is not None
    )


def records(line: Line, outcome: Outcome) -> bool:
    """Whether the line records this outcome. A line that was decided otherwise (undecided, by a
    kept confirmation, or because the outcome could not be stored) stands for any outcome of its
    claim."""
    if (
        line.reason is Reason.UNDECIDED
        or by_kept(line)
        or (line.attempt is not None and line.attempt.category == CANNOT_BE_STORED)
    ):
        return True
    if isinstance(outcome, Done):
        output = None if outcome.output is None else digest_of(outcome.output).hex()
        return (
            line.reason in (Reason.ADVANCED, Reason.COMPLETED, Reason.CONFIRMED)
            and line.output == output
        )
    if isinstance(outcome, NotYet):
        return line.reason is Reason.NOT_YET and line.note == outcome.note
    if isinstance(outcome, Checked):
        output = None if outcome.output is None else digest_of(outcome.output).hex()
        return line.reason is Reason.CHECKED and (line.note, line.output) == (outcome.note, output)
    if isinstance(outcome, HandedOver):
        return line.reason is Reason.HANDED_OVER and line.note == outcome.note
    assert isinstance(outcome, (Retry, Reject))
    ends = (Reason.REJECTED,) if isinstance(outcome, Reject) else (Reason.RETRY, Reason.EXHAUSTED)
    error = None if line.attempt is None else (line.attempt.category, line.attempt.message)
    return line.reason in ends and error == (outcome.category, message_of(outcome))
