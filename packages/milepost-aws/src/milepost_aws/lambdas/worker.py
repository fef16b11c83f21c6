"""Worker function: called by one stage's queue with messages; claims, runs and settles their items
before the function's time limit.

It returns the messages that must be delivered again; the queue deletes the others. Leases last as
long as the function may run. Items that cannot be started in time are given back; items still
running at the end are given back with their result unknown, for the next worker to verify.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from milepost.core.admission.controls import scope
from milepost.core.due import Lease
from milepost.core.errors import ConfigMistake, LedgerError, RouteChanged
from milepost.core.item import Item
from milepost.engine.work.execute import ready, run_async, run_plain
from milepost.engine.work.slots import StageSlots, settle_finished
from milepost.runners.threads import ThreadRunner
from milepost_aws.lambdas.start import (
    LambdaContext,
    Opened,
    Trace,
    called,
    forget,
    hide,
    log,
    opened,
)
from milepost_aws.ledger.claim.claim import FunctionMessages, MessageResults, from_event
from milepost_aws.ledger.requests.client import CALL
from milepost_aws.ledger.requests.queues import SqsMessage

RESERVE_MS = 15_000
"""Time reserved for settling and giving back; in a short run, a quarter."""
WAIT_MS = 1_000
"""Longest wait of a function for a rate token; beyond that a delayed copy of the message is
sent."""
SOON_S, TROUBLE_S, OUTDATED_S = 0, 30, 60
"""How long redelivered messages are hidden: never claimed; problem with AWS; route out of date
here."""

Again = dict[int, list[SqsMessage]]
"""Messages to be delivered again, by the seconds for which they are hidden."""


def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Handle an SQS event of the queue of MILEPOST_STAGE; the batch item failures are the messages
    to be delivered again. Only a wrong setting is raised: after any other error the messages come
    again soon, not after the queue's visibility timeout."""
    with called(context) as trace:
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
            station.opened.beat(context, {"worker": call.stands_still})
    failed = [message.id for wanted in again.values() for message in wanted]
    done = {"messages": len(messages), "again": len(failed), **call.counts}
    log.info("called", extra={"stage": station.name, **done})
    trace.note(done=done)
    trace.items(call.correlation_ids)
    return {"batchItemFailures": [{"itemIdentifier": id} for id in failed]}


def _all_again(event: Mapping[str, Any], hidden_s: int) -> dict[str, Any]:
    """Report every message as failed, to be delivered again after so many seconds. The container
    opens the ledger again, because the items it had claimed when it failed are not known."""
    with suppress(Exception):
        hide(event, hidden_s)
    # After that: handler calls that do not end may take the rest of the function's time.
    forget()
    return {
        "batchItemFailures": [
            {"itemIdentifier": record["messageId"]} for record in event["Records"]
        ]
    }


def _stage_container() -> StageContainer:
    """The stage's handler pool, which lives as long as the container, like the ledger."""
    place = os.environ.get("MILEPOST_STAGE", "")
    route, slash, stage = place.partition("/")
    if not (route and slash and stage):
        raise ConfigMistake(f"MILEPOST_STAGE is {place!r}; use the form ROUTE/STAGE")
    return opened(route).part(StageContainer, route, stage)


class StageContainer:
    """One stage in one container. Its threads, or its event loop, live as long as the container."""

    def __init__(self, opened: Opened, route: str, stage: str) -> None:
        plan = opened.ctx.plan(route)
        found = plan.by_name.get(stage)
        if found is None or not found.ours:
            raise ConfigMistake(
                f"MILEPOST_STAGE is {route}/{stage}; route {route!r} has no handler stage of that name"
            )
        ready(found)
        self.opened = opened
        self.name = scope(route, stage)
        self.url = opened.store.queues.url(route, stage, found.queue)
        self.calls = FunctionMessages(opened.store)
        self.woken = threading.Event()
        self._runner = ThreadRunner()
        self.slots = StageSlots(
            plan,
            found,
            self._runner.pool(found, found.concurrency, run_plain, run_async, self.woken.set),
        )

    def renew(self) -> None:
        """Replace the threads or tasks of calls that do not end."""
        slots = self.slots
        self.slots = StageSlots(
            slots.plan,
            slots.stage,
            self._runner.pool(slots.stage, slots.width, run_plain, run_async, self.woken.set),
        )

    def close(self) -> None:
        """End the threads or the event loop; handler calls that still run on it are cancelled."""
        self._runner.close()


class WorkerCall:
    """One call of the function, until its messages are settled or its time is over."""

    def __init__(self, station: StageContainer, call: LambdaContext) -> None:
        self._station, self._call = station, call
        self._ctx = station.opened.ctx
        self.stands_still = self._ctx.check_clock().stops_work
        """Why it claims nothing."""
        left = call.get_remaining_time_in_millis()
        self._until = self._ctx.clock.now() + left
        self._reserve = min(RESERVE_MS, left // 4)
        # A handler with a timeout is started only while all of it is left; but the whole time of a
        # call is always enough to start one.
        self._needed = min(self._reserve + (station.slots.stage.timeout_ms or 0), left * 3 // 4)
        self._again: Again = {}
        self.counts: Counter[str] = Counter()
        self.correlation_ids: list[str] = []
        """Correlation ids of the claimed items."""
        self.outdated = False

    def run(self, messages: Sequence[SqsMessage]) -> Again:
        with suppress(LedgerError), CALL.within(self._left() / 1000):
            self._station.slots.set_width(self._station.opened.store.limits(self._ctx.clock.now()))
        fragile: list[SqsMessage] = []
        todo = list(messages)
        while todo:
            answered = self._claim(todo)
            fragile += answered.fragile
            todo = answered.waiting
            if todo and not self._wait_for(answered):
                self._delay(todo, answered)
                break
        self._work()
        for message in fragile:
            # Alone: if this item kills the container, the others are already settled.
            answered = self._claim([message], fragile=True)
            if answered.waiting:
                self._delay(answered.waiting, answered)
            self._work()
        return self._again

    def _claim(self, messages: Sequence[SqsMessage], *, fragile: bool = False) -> MessageResults:
        slots, ctx = self._station.slots, self._ctx
        if not self._may_start():
            self._come_again(messages, SOON_S)
            return MessageResults()
        if self.stands_still:
            self._come_again(messages, TROUBLE_S)
            return MessageResults()
        lease = Lease(ctx.chance.token(), self._station.opened.holder, self._until)
        ask = slots.ask(lease, len(messages), fragile=fragile)
        try:
            with CALL.within(self._left() / 1000):
                answered = self._station.calls.answer(
                    ask, messages, ctx.clock.now(), ctx.chance.jitter()
                )
        except LedgerError as error:
            log.error("cannot claim items now: %s", error)
            answered = MessageResults(failed=list(messages))
        self.outdated = self.outdated or answered.outdated
        self._come_again(answered.failed, OUTDATED_S if answered.outdated else TROUBLE_S)
        self.counts["claimed"] += len(answered.items)
        self.counts["moved"] += answered.moved
        self.correlation_ids += [item.correlation_id for item in answered.items]
        slots.start(ctx, answered.items)
        return answered

    def _wait_for(self, answered: MessageResults) -> bool:
        """Work until waiting messages may be claimed again; False: that is too late."""
        if not self._may_start():
            return False
        if answered.next_at is None:
            # Their lanes have no room until a running item ends.
            self._work(first=True)
            return bool(self._station.slots.in_hand or self._may_start())
        wait_ms = answered.next_at - self._ctx.clock.now()
        if wait_ms > WAIT_MS:
            return False
        self._work(max(1, wait_ms))
        return True

    def _delay(self, messages: Sequence[SqsMessage], answered: MessageResults) -> None:
        """Delay messages that wait for rate tokens, spread over the time at which tokens come;
        repeatedly delayed ones come less often."""
        wait_ms = max(WAIT_MS, (answered.next_at or 0) - self._ctx.clock.now())
        later = []
        for place, message in enumerate(messages, 1):
            turns = 1 if answered.announced else place * (1 + int(message.body.get("copies", 0)))
            later.append((message, wait_ms * turns))
        self.counts["put_off"] += len(later)
        self._come_again(self._station.calls.delay(later), TROUBLE_S)

    # Claimed items --------------------------------------------------------------------------------
    def _work(self, wait_ms: int | None = None, *, first: bool = False) -> None:
        """Settle finished items until none is left, for so long, or until the first is settled. At
        the time limit all are given back."""
        slots = self._station.slots
        until = None if wait_ms is None else self._ctx.clock.now() + wait_ms
        while slots.in_hand or until is not None:
            self._station.woken.wait(self._pause_s(until))
            self._station.woken.clear()
            settled = self._settle()
            if not self._may_start():
                self._give_back(
                    slots.pool.recall(), "the function's time would not have been enough for it"
                )
            if self._left() <= 0:
                self._cut_off()
                return
            if (first and settled) or (until is not None and self._ctx.clock.now() >= until):
                return

    def _settle(self) -> int:
        """Write the outcomes of finished items; returns how many."""
        slots = self._station.slots
        finished = len(slots.collect())
        if not finished:
            return 0
        try:
            with CALL.within(max(self._left(), self._reserve // 3) / 1000):
                result = settle_finished(self._ctx, [slots])
        except LedgerError as error:
            log.error("cannot write outcomes now: %s", error)
            return 0
        self.outdated = self.outdated or bool(result.undecided)
        for kind in ("written", "refused", "undecided"):
            self.counts[kind] += getattr(result, kind)
        return finished

    def _cut_off(self) -> None:
        """Give back items that still run or could not be written: whether their partner has done
        the work is not known."""
        slots = self._station.slots
        left = list(slots.in_hand.values())
        if left:
            log.warning(
                "not settled in the function's time",
                extra={"keys": [item.key for item in left][:20]},
            )
            slots.pool.cancel()
            self._give_back(
                left, "the function's time was over before its outcome was written", unknown=True
            )
            self._station.renew()

    def _give_back(self, items: list[Item], why: str, *, unknown: bool = False) -> None:
        """Give items back: the relay sends new messages for them at once."""
        try:
            # The remaining time after that is for the messages.
            with CALL.within(
                (self._call.get_remaining_time_in_millis() - self._reserve // 3) / 1000
            ):
                self.counts["given_back"] += self._station.slots.give_back(
                    self._ctx, items, why, unknown=unknown
                )
        except LedgerError as error:
            log.error("cannot give items back: %s", error)
            self._items_again(items)
        self._items_again([item for item in items if item.row.lease is None])

    # Redelivery -----------------------------------------------------------------------------------
    def _items_again(self, items: Sequence[Item]) -> None:
        self._come_again(
            [item.ticket for item in items if isinstance(item.ticket, SqsMessage)], TROUBLE_S
        )

    def _come_again(self, messages: Sequence[SqsMessage], hidden_s: int) -> None:
        if messages:
            self._again.setdefault(hidden_s, []).extend(messages)

    # Time -----------------------------------------------------------------------------------------
    def _left(self) -> int:
        """Milliseconds until all items must be given back."""
        return self._call.get_remaining_time_in_millis() - self._reserve

    def _may_start(self) -> bool:
        return self._call.get_remaining_time_in_millis() >= self._needed

    def _pause_s(self, until: int | None) -> float:
        """Seconds until the next scheduled event; a finished item ends the pause earlier."""
        times = [self._left()]
        if self._may_start():
            times.append(self._call.get_remaining_time_in_millis() - self._needed + 1)
        if until is not None:
            times.append(until - self._ctx.clock.now())
        if self._station.slots.finished:
            times.append(WAIT_MS)
        return max(0.001, min(times) / 1000)
