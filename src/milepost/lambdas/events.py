"""Delivers events to the functions' subscribers: the relay function as lines come, the resender function what could not be delivered then."""

from __future__ import annotations

from milepost.core.errors import LedgerError
from milepost.engine.events.deliver import EventRelay as Teller
from milepost.lambdas.start import LambdaContext, Opened, log


def tell(ready: Opened, call: LambdaContext, reserve_ms: int) -> str | None:
    """Deliver to the topic, then to those who make follow-up items, page after page while the time lasts. None: nothing waits any more;
    else why something may."""
    waits = [f"{author.name}: {reason}" for author in ready.tellers() if (reason := _tell(author, call, reserve_ms)) is not None]
    return "; ".join(waits) or None


def _tell(author: Teller, call: LambdaContext, reserve_ms: int) -> str | None:
    """A subscriber that takes nothing, or that another function delivers to, is no error here: the rest is delivered later."""
    while call.get_remaining_time_in_millis() > reserve_ms:
        try:
            summary = author.run_once()
        except LedgerError as error:
            log.error("%s could not be told: %s", author.name, error)
            return str(error)
        if summary.standing_by is not None:
            return summary.standing_by
        if not summary.waiting:
            return None
    return "the function's time is over"
