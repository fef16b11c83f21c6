"""Log warnings for failed attempts, in one form for worker, partner and resender."""

from __future__ import annotations

import logging
from typing import Any

from milepost.core.history import NO_NEXT_TRY
from milepost.core.item import Row
from milepost.core.outcome import bounded_traceback
from milepost.core.status import Reason, Status
from milepost.core.values.durations import retry_time
from milepost.core.values.redaction import hidden_urls

log = logging.getLogger(__name__)


def warn_of_failed_try(after: Row, stage: str, traceback: str | None = None) -> None:
    """Log one warning for a failed attempt at `stage`; the JSON log includes the traceback. `after`
    is the row with the failure."""
    error = after.error
    if error is None or not log.isEnabledFor(logging.WARNING):
        return
    again = (
        ""
        if after.look_at is None
        else f"; retry {retry_time(max(0, after.look_at - after.updated_at))}"
    )
    reason = Reason.EXHAUSTED if after.status is Status.MAX_RETRIES_EXCEEDED else Reason.REJECTED
    next_step = NO_NEXT_TRY[reason] if after.terminal else again
    extra: dict[str, Any] = {
        "route": after.route,
        "key": hidden_urls(after.key),
        "stage": stage,
        "attempt": after.attempts,
        "correlation_id": after.correlation_id,
        "category": error.category,
    }
    if traceback is not None:
        extra["traceback"] = bounded_traceback(traceback)
    place = (after.route, hidden_urls(after.key), after.attempts, stage)
    log.warning(
        "%s/%s: attempt %d at '%s' failed: %s: %s%s",
        *place,
        error.category,
        error.message,
        next_step,
        extra=extra,
    )
