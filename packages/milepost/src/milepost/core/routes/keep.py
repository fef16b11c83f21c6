"""The route option `keep`: how long the rows of ended items stay, by status."""

from __future__ import annotations

from collections.abc import Mapping

from milepost.core.errors import RouteMistake
from milepost.core.routes import mistakes
from milepost.core.status import FAILED, TERMINAL, Status
from milepost.core.values.durations import Span, span_ms

STATUSES: dict[str, frozenset[Status]] = {
    "failed": FAILED,
    **{status.value.lower(): frozenset({status}) for status in sorted(TERMINAL)},
}
"""The words of the option; `failed` comes first, so that a single status named beside it has its
own time."""


def keep_by_status(keep: Span | Mapping[str, Span] | None, subject: str) -> dict[Status, int]:
    """Time in ms after which a row that ended with this status leaves; a status without one stays.
    One time alone is that of completed items: rows of failed and cancelled ones leave only if their
    status is named."""
    if keep is None:
        return {}
    spans = keep if isinstance(keep, Mapping) else {"completed": keep}
    unknown = [word for word in spans if not isinstance(word, str) or word.lower() not in STATUSES]
    if unknown or not spans:
        named = f"has the status {unknown[0]!r}" if unknown else "names no status"
        raise RouteMistake(
            f"{subject} {named}; use {', '.join(STATUSES)}, as in {{'completed': '0s', 'rejected': '30d'}}"
        )
    by_word = {
        word.lower(): mistakes.parse_option(span_ms, span, f"{subject}[{word!r}]")
        for word, span in spans.items()
    }
    return {
        status: by_word[word]
        for word, statuses in STATUSES.items()
        if word in by_word
        for status in statuses
    }
