"""Worker function: called by one stage's queue with messages; claims, runs and settles their items.

It returns the messages that must be delivered again; the queue deletes the others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from milepost.core.errors import ConfigMistake, LedgerError, RouteChanged
from milepost.lambdas.start import LambdaContext, forget, hide, log, logged, opened
from milepost.lambdas.traces import Trace, traced
from milepost.lambdas.worker_call import OUTDATED_S, TROUBLE_S, StageContainer, WorkerCall
from milepost.ledgers.aws.claim.claim import from_event


def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Handle an SQS event of the queue of MILEPOST_STAGE; the batch item failures are the messages to be delivered again. Only a wrong
    setting is raised: after any other error the messages come again soon, not after the queue's visibility timeout."""
    with logged(context), traced(context) as trace:
        try:
            return _handle(event, context, trace)
        except ConfigMistake:
            raise
        except RouteChanged as error:
            log.warning("the route is out of date here: %s", error)
            return _all_again(event, OUTDATED_S)
        except Exception as error:
            log.exception("cannot handle any message of the batch: %s", error)
            return _all_again(event, TROUBLE_S)


def _handle(event: Mapping[str, Any], context: LambdaContext, trace: Trace) -> dict[str, Any]:
    station = _stage_container()
    trace.annotate(route=station.slots.plan.name, stage=station.slots.stage.name)
    store = station.opened.store
    messages = from_event(event, store, station.url)
    call = WorkerCall(station, context)
    again = call.run(messages)
    # Without this they would be hidden for the queue's visibility timeout, as after a lost worker.
    for delay_s, wanted in again.items():
        with suppress(LedgerError):
            store.queues.extend(wanted, delay_s)
    if call.outdated:
        forget()
    else:
        with suppress(LedgerError):
            station.opened.beat(context, "worker")
    failed = [message.id for wanted in again.values() for message in wanted]
    done = {"messages": len(messages), "again": len(failed), **call.counts}
    log.info("called", extra={"stage": station.name, **done})
    trace.note(done=done)
    trace.items(call.correlation_ids)
    return {"batchItemFailures": [{"itemIdentifier": id} for id in failed]}


def _all_again(event: Mapping[str, Any], hidden_s: int) -> dict[str, Any]:
    """Report every message as failed, to be delivered again after so many seconds. The container opens the ledger again, because the
    items it had claimed when it failed are not known."""
    with suppress(Exception):
        hide(event, hidden_s)
    # After that: handler calls that do not end may take the rest of the function's time.
    forget()
    return {"batchItemFailures": [{"itemIdentifier": record["messageId"]} for record in event["Records"]]}


def _stage_container() -> StageContainer:
    """The stage's handler pool, which lives as long as the container, like the ledger."""
    place = os.environ.get("MILEPOST_STAGE", "")
    route, slash, stage = place.partition("/")
    if not (route and slash and stage):
        raise ConfigMistake(f"MILEPOST_STAGE is {place!r}; use the form ROUTE/STAGE")
    return opened(route).part(StageContainer, route, stage)
