"""Delivery of events to the functions' subscribers: by the relay function as lines come, and by the resender function later."""

from __future__ import annotations

from milepost.core.errors import LedgerError
from milepost.engine.events.deliver import EventRelay
from milepost.lambdas.start import LambdaContext, Opened, log


def deliver(ready: Opened, call: LambdaContext, reserve_ms: int) -> str | None:
    """Deliver to the topic, then to subscribers that make follow-up items, page by page while time is left. None: nothing is left to
    deliver; else why something may be."""
    waits = [f"{relay.name}: {reason}" for relay in ready.event_relays if (reason := _deliver(relay, call, reserve_ms)) is not None]
    return "; ".join(waits) or None


def _deliver(relay: EventRelay, call: LambdaContext, reserve_ms: int) -> str | None:
    """Deliver to one subscriber. It is no error if it accepts nothing, or if another function delivers to it: the rest follows later."""
    while call.get_remaining_time_in_millis() > reserve_ms:
        try:
            summary = relay.run_once()
        except LedgerError as error:
            log.error("cannot deliver events to %s: %s", relay.name, error)
            return str(error)
        if summary.standing_by is not None:
            return summary.standing_by
        if not summary.waiting:
            return None
    return "the function call has timed out"
