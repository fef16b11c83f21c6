"""Warnings in the log for counted tries, in one form, whoever counted them: a worker, a partner or the resender."""

from __future__ import annotations

import logging
from typing import Any

from milepost.core.item import Row
from milepost.core.outcome import bounded_traceback
from milepost.core.status import Status
from milepost.core.values.durations import short_span

log = logging.getLogger(__name__)


def warn_of_failed_try(after: Row, stage: str, traceback: str | None = None) -> None:
    """One warning for a counted try at `stage`, with the item's name; a log in JSON has the traceback too. `after`: the row with it."""
    error = after.error
    if error is None or not log.isEnabledFor(logging.WARNING):
        return
    again = "" if after.look_at is None else f"; again in {short_span(max(0, after.look_at - after.updated_at))}"
    next_step = "; no tries are left" if after.status is Status.MAX_RETRIES_EXCEEDED else "; for good" if after.terminal else again
    extra: dict[str, Any] = {
        "route": after.route,
        "key": after.key,
        "stage": stage,
        "attempt": after.attempts,
        "correlation_id": after.correlation_id,
        "category": error.category,
    }
    if traceback is not None:
        extra["traceback"] = bounded_traceback(traceback)
    place = (after.route, after.key, after.attempts, stage)
    log.warning("%s/%s: try %d at '%s' failed: %s: %s%s", *place, error.category, error.message, next_step, extra=extra)
