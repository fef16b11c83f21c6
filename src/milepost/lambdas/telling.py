"""Telling the topic, by whichever function is at it: the relay as lines come, the resender what could not be told then."""

from __future__ import annotations

from milepost.core.errors import LedgerError
from milepost.lambdas.start import Call, Opened, log


def tell(ready: Opened, call: Call, reserve_ms: int) -> str | None:
    """Tell page after page while the time lasts. None: nothing waits any more; else why something may. A topic that takes nothing,
    or that another function tells, is no error here: what is not told now is told later."""
    teller = ready.teller()
    while call.get_remaining_time_in_millis() > reserve_ms:
        try:
            summary = teller.run_once()
        except LedgerError as error:
            log.error("the topic could not be told: %s", error)
            return str(error)
        if summary.standing_by is not None:
            return summary.standing_by
        if not summary.waiting:
            return None
    return "the function's time is over"
