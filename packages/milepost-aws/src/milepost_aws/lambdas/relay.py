"""Relay function: called by the tables' streams; carries out the consequences of each change and
publishes events on the topic."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from milepost.core.errors import LedgerError, RouteChanged
from milepost.core.item import Row
from milepost_aws.lambdas.start import (
    LambdaContext,
    Opened,
    Trace,
    called,
    deliver,
    forget,
    log,
    opened,
)
from milepost_aws.ledger.relay import StreamRelay
from milepost_aws.ledger.retention import finish
from milepost_aws.ledger.stream import from_event

RESERVE_MS = 30_000
"""Time reserved for the work after delivery; in a short run, half."""
DELIVERY_MS = 3_000
"""How long one call delivers: the changes behind it wait for its end. Other calls, and the
resender, continue."""
STAND_BY_S, LOOK_AGAIN_S = 120.0, 5.0
"""How long one call waits for a changed route, at most half of its time, and how often it
checks."""


def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Handle an event of one table's stream. After a problem with AWS or a route change the stream
    delivers the whole batch again."""
    until = time.monotonic() + min(STAND_BY_S, context.get_remaining_time_in_millis() / 2000)
    with called(context) as trace:
        try:
            done = _handle_in_time(event, context, trace, until)
        except RouteChanged as error:
            log.warning("the stream delivers the whole batch again: %s", error)
        except LedgerError as error:
            log.error("the stream delivers the whole batch again: %s", error)
        else:
            log.info("relayed", extra=done)
            trace.note(done=done)
            return {"batchItemFailures": []}
        return {
            "batchItemFailures": [
                {"itemIdentifier": event["Records"][0]["dynamodb"]["SequenceNumber"]}
            ]
        }


def _handle_in_time(
    event: Mapping[str, Any], call: LambdaContext, trace: Trace, until: float
) -> dict[str, int]:
    """Handle the batch. While a changed route is only announced, or newer than in this container,
    wait: a stream repeats a batch at once and only a limited number of times, and then gives it
    up."""
    while True:
        try:
            return _handle(event, call, trace)
        except RouteChanged as error:
            forget()
            if time.monotonic() + LOOK_AGAIN_S > until:
                raise
            log.info("waiting for the route: %s", error)
            time.sleep(LOOK_AGAIN_S)


def _handle(event: Mapping[str, Any], call: LambdaContext, trace: Trace) -> dict[str, int]:
    """Handle the batch; returns the numbers of records and of ended items."""
    ready = opened()
    relay, unfinished = ready.part(_stream_relay), ready.part(_unfinished)
    tables = {ready.store.names.rows(route): route for route in ready.ctx.plans}
    records = from_event(event, tables)
    if records:
        # All of one table.
        trace.annotate(route=records[0].route)
    reserve = min(RESERVE_MS, call.get_remaining_time_in_millis() // 2)
    ended = relay.handle(records, ready.ctx.clock.now())
    unfinished += ended
    try:
        finish(ready.store, unfinished, ready.ctx.clock.now())
        unfinished.clear()
    except LedgerError as error:
        # The batch is counted: it must not come again for this. The next call continues; if there
        # is none here, the repair scan does.
        log.warning("ended rows cannot be finished now: %s", error)
    deliver(ready, call, max(reserve, call.get_remaining_time_in_millis() - DELIVERY_MS))
    with suppress(LedgerError):
        ready.beat(
            call, {"stream": "", **{relay.name: relay.stands_still for relay in ready.event_relays}}
        )
    return {"records": len(records), "ended": len(ended)}


def _unfinished(ready: Opened) -> list[Row]:
    """Ended rows that are not finished yet, because AWS had a problem."""
    return []


def _stream_relay(ready: Opened) -> StreamRelay:
    return StreamRelay(ready.store, ready.ctx.plans, ready.ctx.chance.jitter)
