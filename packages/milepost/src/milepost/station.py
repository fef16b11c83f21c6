"""Station: one process with worker, resender, relays and heartbeat, run as services."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from milepost.composition import who
from milepost.core.errors import is_shortage
from milepost.engine.clock_watch import ClockWatch
from milepost.engine.context import Context
from milepost.engine.events.cursors import all_delivered
from milepost.engine.events.deliver import EventRelay
from milepost.engine.events.follow_ups import follow_ups
from milepost.engine.heads.daily import HeadKeeper
from milepost.engine.heads.route import ROUTE as HEADS
from milepost.engine.presence import Heartbeat, standing_still
from milepost.engine.resend import Resender
from milepost.engine.retention import Retention
from milepost.engine.routes.backfill import back_fill_waits
from milepost.engine.time_share import SharedTurns
from milepost.engine.work.worker import GRACE_MS, Worker
from milepost.evidence.signing import Signer
from milepost.ports.documents import StandingStill
from milepost.ports.runner import Clock, Runner
from milepost.ports.service import Service
from milepost.ports.subscriber import Subscriber
from milepost.runners.threads import ThreadRunner

ROLES = frozenset({"worker", "resender", "relay"})
BUSY_S = 1.0

log = logging.getLogger(__name__)


class Station:
    """One process that works on a ledger with worker, resender, relays and heartbeat, until stopped
    or idle."""

    def __init__(
        self,
        ctx: Context,
        *,
        subscribers: Sequence[Subscriber] = (),
        services: Sequence[Service] = (),
        roles: Iterable[str] = ROLES,
        runner: Runner | None = None,
        holder: str | None = None,
        signer: Signer | None = None,
        grace_ms: int | None = None,
    ) -> None:
        self.ctx = ctx
        self.grace_ms = GRACE_MS if grace_ms is None else grace_ms
        self.runner = runner or ThreadRunner()
        self.holder = holder or who()
        self.stopping = threading.Event()
        wanted = set(roles)
        self.worker = Worker(ctx, self.runner, self.holder) if "worker" in wanted else None
        receivers: list[Subscriber] = (
            [*subscribers, *follow_ups(ctx, ctx.plans)] if "relay" in wanted else []
        )
        relays = [EventRelay(ctx, subscriber, self.holder) for subscriber in receivers]
        self._receivers = [subscriber.name for subscriber in receivers]
        run: list[Service] = [*relays, *services]
        if self.worker is not None:
            # It pauses during submit calls; not on AWS, because a turn there mostly waits for the
            # network.
            shared = SharedTurns(self.worker, ctx.accepts, ctx.clock, self.stopping.is_set)
            run.append(self.worker if ctx.ledger.work_queues else shared)
        self._resends = "resender" in wanted
        if self._resends:
            run.append(Resender(ctx))
            if Retention.needed(ctx):
                run.append(Retention(ctx))
            if HEADS in ctx.plans:
                run.append(HeadKeeper(ctx, signer))
        beside = ctx.ledger.services(ctx.plans, ctx.clock, ctx.chance, self.holder)
        run += [service for role, service in beside if role in wanted]
        self.roles = [Role(service, ctx.clock, self.stopping.is_set) for service in run]
        self.heartbeat = Heartbeat(ctx, self.holder, self._facts)
        self.clock_watch = ClockWatch(ctx)
        self._settled = 0
        # The idle check reads one row here, and many partitions on AWS. (Not a multiple of the
        # worker's interval, or the check would always coincide with its work.)
        self._idle_every = 0.53 if ctx.ledger.work_queues else 0.05

    def run(
        self,
        *,
        until_idle_s: float | None = None,
        on_tick: Callable[[], None] | None = None,
        tick_s: float = 0.2,
    ) -> None:
        """Work until `stop()`, or, with `until_idle_s`, until no item is held, no event waits, and
        nothing becomes due within that time."""
        try:
            self.clock_watch.turn()
            self.heartbeat.start()
        except Exception as trouble:
            # If this cannot be written now, the first turns write it.
            if not is_shortage(trouble):
                raise
        watching: list[Service] = [self.clock_watch, self.heartbeat]
        if until_idle_s is not None:
            watching.append(
                Every(
                    "idle-watch",
                    self._idle_every,
                    lambda: self._stop_if_idle(round(until_idle_s * 1000)),
                )
            )
        services: list[Service] = [
            *self.roles,
            *(Role(service, self.ctx.clock, self.stopping.is_set) for service in watching),
        ]
        if on_tick is not None:
            services.append(Every("tick", tick_s, on_tick))
        try:
            self.runner.run(services, self._stopped)
        except BaseException as error:
            # Raise the original error: if the ledger itself is unavailable, these writes fail too.
            with suppress(Exception):
                if self.worker is not None and isinstance(error, Exception):
                    self.worker.abandon()
                self.heartbeat.stop()
            raise
        for role in self.roles:
            role.stop()
        self.heartbeat.stop()

    def stop(self, grace_ms: int | None = None) -> None:
        """Start to drain, and return at once: no item is claimed any more, items not started are
        given back, running handlers have the grace to finish; then the rest is given back and the
        station ends. A later call may shorten the grace."""
        if self.worker is not None:
            self.worker.drain(self.grace_ms if grace_ms is None else grace_ms)
        self.stopping.set()

    def _stopped(self) -> bool:
        return self.stopping.is_set() and (self.worker is None or self.worker.drained)

    def _stop_if_idle(self, within_ms: int) -> None:
        if self.idle(within_ms):
            self.stop()

    def idle(self, within_ms: int) -> bool:
        """Whether no item is held, no event waits, no back-fill is active, and nothing is due soon.
        Paused and external items do not count."""
        if not all(role.quiet for role in self.roles) or (
            self._resends and back_fill_waits(self.ctx)
        ):
            return False
        horizon = self.ctx.clock.now() + within_ms
        worker = self.worker
        if worker is not None:
            claimed = worker.claimed
            if self._waits_for_followers(worker):
                return False
            if worker.in_hand or self._anything_due(worker, horizon):
                return False
            if not worker.is_idle_since(claimed):
                # An item that was due a moment ago may just have been claimed.
                return False
        return all_delivered(self.ctx, self._receivers, horizon)

    def _waits_for_followers(self, worker: Worker) -> bool:
        """Whether services may not have read yet what follows from the last outcomes."""
        finished_before = self._settled
        self._settled = worker.finished
        return worker.finished != finished_before and any(
            role.follows_others for role in self.roles
        )

    def _anything_due(self, worker: Worker, horizon: int) -> bool:
        """Whether an item that the worker could claim is due by then."""
        due = self.ctx.ledger.next_due(
            [plan for plan in self.ctx.plans.values() if plan.name not in worker.outdated]
        )
        return due is not None and due <= horizon

    def _facts(self) -> dict[str, Any]:
        ran = [role for role in self.roles if role.last_good_run]
        facts: dict[str, Any] = {"roles": {role.name: role.last_good_run for role in ran}}
        facts["next_runs"] = {role.name: role.next_run for role in ran}
        facts["standing_still"] = {
            role.name: role.standing_still for role in self.roles if role.standing_still is not None
        }
        if self.worker is not None:
            facts["in_hand"] = self.worker.in_hand
            facts["overrunning"] = self.worker.overrunning()
            facts["outdated"] = sorted(self.worker.outdated)
        return facts


class Role(Service):
    """A service that records its last successful run, for `milepost doctor`. While the ledger is
    unavailable or full, or too many files are open, it waits and retries until the station is
    stopped."""

    def __init__(self, service: Service, clock: Clock, stopping: Callable[[], bool]) -> None:
        self.name = service.name
        self.follows_others = service.follows_others
        self.last_good_run = self.next_run = 0
        self.standing_still: StandingStill | None = None
        self._service = service
        self._clock = clock
        self._stopping = stopping
        self._trouble = ""
        """The ledger's error, while it waits for the end of that."""

    def turn(self) -> float:
        try:
            delay = self._service.turn()
        except Exception as trouble:
            if self._stopping() or not is_shortage(trouble):
                raise
            if self._trouble != str(trouble):
                # Log it once, not every second.
                self._trouble = str(trouble)
                log.warning("%s is waiting for the ledger: %s", self.name, trouble)
            return BUSY_S
        if self._trouble:
            self._trouble = ""
            log.warning("%s continues: the ledger is available again", self.name)
        why = self._service.stands_still
        self.standing_still = standing_still(self.standing_still, why, self._clock.now())
        if not why and not self._service.failed:
            self.last_good_run = self._clock.now()
            self.next_run = self.last_good_run + round(delay * 1000)
        return delay

    @property
    def quiet(self) -> bool:
        return not self._trouble and self._service.quiet

    def stop(self) -> None:
        self._service.stop()


class Every(Service):
    """A service that calls a function at fixed intervals."""

    def __init__(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        self.name = name
        self._seconds = seconds
        self._call = call

    def turn(self) -> float:
        self._call()
        return self._seconds
