"""Words of deposits: the stages and their partners, and the statuses of a DOI as librarians name
them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import milepost as mp
from milepost_deposits.settings import DepositsApp

METADATA, CONTENT, SUBMIT = "metadata", "content", "submit"
CLEAN = "clean"
"""The stage of the follow-up route."""
PRESENT = "present"
"""The field of the metadata stage's output that has the item that DSpace had already."""
IMPORTED = "import"
"""`via` of a DOI that another system has deposited."""
PARTNERS = {METADATA: "Crossref", CONTENT: "the publisher", SUBMIT: "DSpace"}

PROCESSING, SUCCESS, RETRIES, FAILED = (
    "Processing",
    "Success",
    "Failed and will retry",
    "Failed after too many attempts",
)
ABANDONED = "Abandoned"
WORDS = (PROCESSING, SUCCESS, RETRIES, FAILED, ABANDONED)

_ENDS = {
    mp.Status.COMPLETED: SUCCESS,
    mp.Status.RETRY_SCHEDULED: RETRIES,
    mp.Status.MAX_RETRIES_EXCEEDED: FAILED,
    mp.Status.REJECTED: FAILED,
    mp.Status.CANCELLED: ABANDONED,
}
NOTES = frozenset(
    reason.value
    for reason in (
        mp.Reason.NOTED,
        mp.Reason.KEPT,
        mp.Reason.LATE,
        mp.Reason.OVERDUE,
        mp.Reason.UNDECIDED,
    )
)
"""Reasons of history lines that change no status: a late result or a claim, for example, is only
noted."""


def word_of(status: str) -> str:
    return _ENDS.get(mp.Status(status), PROCESSING)


def result_in(view: Mapping[str, Any] | None, stage: str) -> Mapping[str, Any]:
    """The result of a DOI's stage; `view` is as `show` gives it. Empty if there is none: an
    operator may have confirmed the stage with any value."""
    result = ((view or {}).get("results") or {}).get(stage)
    return result if isinstance(result, Mapping) else {}


def handle_in(view: Mapping[str, Any] | None) -> str | None:
    """The handle of a deposited DOI; None: it has none, or it is not known."""
    handle = result_in(view, SUBMIT).get("handle")
    return None if handle is None else str(handle)


def counts_by_word(statuses: Mapping[str, int]) -> dict[str, int]:
    """How many DOIs each word stands for, in the usual order; "Abandoned" only where there are
    any."""
    found = dict.fromkeys(WORDS, 0)
    for status, count in statuses.items():
        found[word_of(status)] += count
    return {word: count for word, count in found.items() if count or word != ABANDONED}


def word_counts(app: DepositsApp) -> dict[str, int]:
    """How many DOIs of the route have each status, in the words of librarians."""
    return counts_by_word(app.status()["routes"].get(app.settings.route, {}).get("statuses", {}))
