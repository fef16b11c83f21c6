"""Worker of a process: each turn settles finished calls, extends leases, claims items and starts
their handlers. It never blocks."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from msgspec.structs import replace

from milepost.core.admission.breakers import BreakerRecord
from milepost.core.admission.controls import Limit, is_held, scope
from milepost.core.clocks import still_ahead
from milepost.core.due import Lease
from milepost.core.item import Item
from milepost.core.outcome import Retry
from milepost.engine.breakers import open_breakers
from milepost.engine.context import Context
from milepost.engine.work.execute import ready, run_async, run_plain
from milepost.engine.work.slots import StageSlots, rooms_after_a_settle, settle_finished
from milepost.ports.documents import HOLD, LIMIT, read_each
from milepost.ports.items import ClaimRequest, ClaimResult
from milepost.ports.runner import Runner
from milepost.ports.service import Service

log = logging.getLogger(__name__)

LEASE_MS = 30_000
POLL_S = 0.05
CONTROLS_MS = 1_000
GRACE_MS = 30_000
"""Default time that running handlers have after a stop."""
FRAGILE_PAUSE_MS = 250
LONGEST_FRAGILE_PAUSE_MS = 60_000
FRAGILE_WAIT_MS = 1_000
LONGEST_WAIT_MS = 2_000


class Worker(Service):
    """Works on all handler stages of the given routes, in one process. A slow stage does not delay
    others: each has its own pool."""

    name = "worker"

    def __init__(self, ctx: Context, runner: Runner, holder: str) -> None:
        self.ctx = ctx
        self.holder = holder
        self.lease_ms = LEASE_MS
        self.finished = 0
        self.claimed = 0
        """How many items it has claimed and recorded as in hand so far."""
        self._in_turn = False
        """Whether a turn is running: between a claim in the ledger and its record here, the claimed
        items are neither due nor in hand."""
        self.outdated: set[str] = set()

        def wake() -> None:
            runner.wake(self.name)

        self.all_slots = [
            StageSlots(
                plan, stage, runner.pool(stage, stage.concurrency, run_plain, run_async, wake)
            )
            for plan in ctx.plans.values()
            for stage in plan.stages
            if stage.ours
        ]
        for slots in self.all_slots:
            ready(slots.stage)
        self._fragile: list[StageSlots] = []
        self._fragile_at = 0
        self._fragile_pause = FRAGILE_PAUSE_MS
        self._waiting_since: int | None = None
        self._alone = False
        """A fragile item is running: nothing else is claimed beside it."""
        self._change_counter = -1
        self._extend_at = 0
        self._controls_at = 0
        self._draining_until: int | None = None
        self._grace_ms = GRACE_MS

    @property
    def in_hand(self) -> int:
        return sum(len(slots.in_hand) for slots in self.all_slots)

    @property
    def drained(self) -> bool:
        # In this order: a turn that began before the drain may still record claimed items; a turn
        # that begins after it claims nothing.
        return self._draining_until is not None and not self._in_turn and self.in_hand == 0

    def is_idle_since(self, claimed: int) -> bool:
        """Whether it has nothing in hand, and has had nothing since it had `claimed` so many items.

        For a caller that reads that number, then sees in the ledger that no item is due, then asks
        this. An item that was claimed just before the ledger was read was not due there any more,
        and its turn may not have recorded it yet: so no turn may be running now, and none may have
        recorded a claim meanwhile.
        """
        # In this order: a turn records its claim before it ends, so one that is not seen to run has
        # been counted.
        return not self._in_turn and self.claimed == claimed and self.in_hand == 0

    def drain(self, grace_ms: int) -> None:
        """Stop claiming and give back the items that have not been started; running handlers have
        `grace_ms` to finish. A second call may shorten the grace, never lengthen it."""
        until = self.ctx.clock.now() + grace_ms
        if self._draining_until is None or until < self._draining_until:
            self._grace_ms = grace_ms
            self._draining_until = until

    def abandon(self) -> None:
        """The station has failed and this worker gets no more turns: give back all claimed
        items."""
        self._give_back_unstarted()
        self._cut_off()

    def turn(self) -> float:
        self._in_turn = True
        try:
            return self._turn()
        finally:
            self._in_turn = False

    def _turn(self) -> float:
        self.stands_still = self.ctx.check_clock().stops_work
        claimed = self._settle()
        clock = self.ctx.clock
        # Each step may take long, so each asks for the time: a new lease must not begin when the
        # turn began.
        self._keep_leases(clock.now())
        if self._draining_until is not None:
            self._give_up(clock.now())
            return 0.02
        self._read_controls(clock.now())
        if not self.stands_still and not claimed:
            self._claim(clock.now())
        return self._rest(clock.now())

    def _settle(self) -> bool:
        """Settle finished calls, and claim in the same write where the ledger can. Returns whether
        it has claimed."""
        finished = {slots: rans for slots in self.all_slots if (rans := slots.collect())}
        if not finished:
            return False
        if any(
            slots.stage.has_breaker and any(type(ran.outcome) is Retry for ran in rans)
            for slots, rans in finished.items()
        ):
            self._controls_at = (
                0  # a breaker may have opened: then items that have not started are given back
            )
        now, done = self.ctx.clock.now(), sum(map(len, finished.values()))
        asking = self._asking_with_a_settle()
        claims = settle_finished(
            self.ctx,
            self.all_slots,
            self._asks(asking, now),
            stopping=self._draining_until is not None,
        ).claims
        self.finished += done
        if claims:
            self._take([slots for slots, _ in asking], claims, now)
        return bool(claims)

    def _asking_with_a_settle(self) -> list[tuple[StageSlots, int]]:
        """The stages that claim in the write that settles, and how many items each may claim. While
        there are fragile items, the worker is draining or not sure of the time, nothing is claimed
        with a settle."""
        if (
            self.stands_still
            or self._draining_until is not None
            or self._alone
            or self._fragile
            or "one step" in self.ctx.ledger.missing_capabilities
        ):
            return []
        return rooms_after_a_settle(self.all_slots)

    def _asks(
        self, asking: list[tuple[StageSlots, int]], now: int, *, fragile: bool = False
    ) -> list[ClaimRequest]:
        """Claim requests under a fresh lease token: with an old one, a repeated settle could end
        the work of the next stage."""
        lease = Lease(self.ctx.chance.token(), self.holder, now + self.lease_ms)
        return [
            slots.ask(lease, room, fragile=fragile, ahead=not fragile) for slots, room in asking
        ]

    def _keep_leases(self, now: int) -> None:
        """Extend all leases together, long before they expire. All have the same length."""
        if still_ahead(self._extend_at, now, self.lease_ms):
            return
        self._extend_at = now + self.lease_ms // 3
        old = [
            item
            for slots in self.all_slots
            for item in slots.in_hand.values()
            if (item.row.claimed_at or 0) < now - self.lease_ms // 4
        ]
        if old:
            self.ctx.ledger.extend(
                [item.row for item in old], now + self.lease_ms, now, [item.ticket for item in old]
            )

    def _read_controls(self, now: int) -> None:
        """Read limits, pauses and breakers, and give back items that cannot start soon: because of
        them, or because the calls have become slow."""
        if still_ahead(self._controls_at, now, CONTROLS_MS):
            return
        self._controls_at = now + CONTROLS_MS
        limits, holds = read_each(self.ctx.ledger, LIMIT, Limit), set(self.ctx.ledger.read(HOLD))
        breakers = (
            open_breakers(self.ctx)
            if any(slots.stage.has_breaker for slots in self.all_slots)
            else {}
        )
        for slots in self.all_slots:
            if slots.set_width(limits):
                slots.next_at = now
            if holds:
                slots.recall(
                    self.ctx,
                    "it is paused",
                    lambda item: is_held(holds, item.route, item.stage, item.lane),
                )
            if breakers:
                slots.recall(
                    self.ctx,
                    "the breaker of its lane has opened",
                    lambda item: _shut_out(breakers, item),
                )
            slots.recall_late(self.ctx, now - LONGEST_WAIT_MS)

    def _claim(self, now: int) -> None:
        if self._alone:
            if self.in_hand:
                return
            # The fragile item has ended: other items are claimed for a while.
            self._alone = False
            self._fragile_at = now + FRAGILE_PAUSE_MS
            self._change_counter = -1
        if (
            self._fragile
            and not still_ahead(self._fragile_at, now, LONGEST_FRAGILE_PAUSE_MS)
            and self._waits_for_fragile(now)
        ):
            return
        change_counter = self.ctx.ledger.change_counter()
        changed = change_counter != self._change_counter
        self._change_counter = change_counter
        ready = [
            slots
            for slots in self.all_slots
            if changed or (slots.next_at is not None and slots.next_at <= now)
        ]
        asking = [(slots, room) for slots in ready if (room := slots.room()) > 0]
        if asking:
            self._claim_for(asking, now, fragile=False)
        if self._fragile and self.in_hand == 0:
            self._fragile_at = now

    def _waits_for_fragile(self, now: int) -> bool:
        """Run fragile items, one at a time, while nothing else runs in this process. To make room,
        nothing new is claimed for a moment. If the running calls do not end in that time, normal
        work continues, and this is tried again later, less and less often. Returns whether nothing
        else may be claimed now."""
        if self.in_hand == 0:
            slots = self._fragile.pop(0)
            self._claim_for([(slots, slots.room())], now, fragile=True)
            self._alone = True
            self._waiting_since = None
            self._fragile_pause = FRAGILE_PAUSE_MS
        elif self._waiting_since is None:
            self._waiting_since = now
        elif not 0 <= now - self._waiting_since < FRAGILE_WAIT_MS:
            self._waiting_since = None
            self._fragile_pause = min(LONGEST_FRAGILE_PAUSE_MS, self._fragile_pause * 2)
            self._fragile_at = now + self._fragile_pause
            return False
        return True

    def _claim_for(self, asking: list[tuple[StageSlots, int]], now: int, *, fragile: bool) -> None:
        answers = self.ctx.ledger.claim(
            self._asks(asking, now, fragile=fragile), now, self.ctx.chance.jitter()
        )
        self._take([slots for slots, _ in asking], answers, now)

    def _take(self, asked: list[StageSlots], answers: list[ClaimResult], now: int) -> None:
        """Record the claimed items, and give them to the handler pools. `now`: the time from which
        their leases count."""
        for slots, answer in zip(asked, self._renewed(answers, now), strict=True):
            if answer.outdated:
                self._stand_by(slots.plan.name)
                slots.next_at = None
                continue
            slots.next_at = now if answer.items and answer.next_at is None else answer.next_at
            if answer.fragile and slots not in self._fragile:
                self._fragile.append(slots)
            self.claimed += len(answer.items)
            slots.start(self.ctx, answer.items, answer.lost, answer.refused)

    def _renewed(self, answers: list[ClaimResult], claimed_at: int) -> list[ClaimResult]:
        """The claims with leases that last. A claim may have waited for the ledger for most of its
        lease: then the leases are extended before any handler starts, and an item that another
        worker has taken meanwhile is not started."""
        now = self.ctx.clock.now()
        if now - claimed_at < self.lease_ms // 2 or not any(answer.items for answer in answers):
            return answers
        renewed = []
        for answer in answers:
            rows, tickets = (
                [item.row for item in answer.items],
                [item.ticket for item in answer.items],
            )
            holds = self.ctx.ledger.extend(rows, now + self.lease_ms, now, tickets) if rows else []
            renewed.append(
                replace(
                    answer,
                    items=[item for item, ours in zip(answer.items, holds, strict=True) if ours],
                )
            )
        return renewed

    def _stand_by(self, route: str) -> None:
        """The ledger has a newer version of the route: none of its items is claimed here any more.
        Logged once."""
        if route not in self.outdated:
            log.warning(
                "%s stands by for route %r: 'routes apply' has changed it in the ledger, and this process has the version before;"
                " restart it with the present route file",
                self.holder,
                route,
                extra={"route": route},
            )
            self.outdated.add(route)

    def _give_up(self, now: int) -> None:
        self._give_back_unstarted()
        if self._draining_until is not None and not still_ahead(
            self._draining_until, now, self._grace_ms
        ):
            self._cut_off()

    def _give_back_unstarted(self) -> None:
        for slots in self.all_slots:
            slots.recall(self.ctx, "the worker is stopping")

    def _cut_off(self) -> None:
        for slots in self.all_slots:
            slots.cut_off(self.ctx, "the worker stopped before the handler had answered")

    def _rest(self, now: int) -> float:
        """Time until the next scheduled step; a finished job or a change in the ledger wakes the
        worker sooner."""
        times = [
            slots.next_at
            for slots in self.all_slots
            if slots.next_at is not None and slots.room() > 0
        ]
        soonest = min(times, default=now + 1000)
        return min(POLL_S, max(0.001, (soonest - now) / 1000))

    def overrunning(self) -> list[dict[str, object]]:
        """Calls of plain functions that exceed their stage's timeout; they keep slot and lease
        until they return."""
        return [
            {
                "route": slots.plan.name,
                "stage": slots.stage.name,
                "key": item.key,
                "seconds": round(took / 1000, 1),
            }
            for slots in self.all_slots
            if slots.stage.timeout_ms is not None
            for item, took in slots.pool.running()
            if took > slots.stage.timeout_ms
        ]


def _shut_out(breakers: Mapping[str, BreakerRecord], item: Item) -> bool:
    """Whether the breaker of its lane has opened since the item was claimed. A probe still runs."""
    record = breakers.get(scope(item.route, item.stage, item.lane))
    return record is not None and record.probe_of(item.key) is None
