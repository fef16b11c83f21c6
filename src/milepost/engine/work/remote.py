"""Remote workers: they claim items of a remote stage, extend leases and settle outcomes, fenced like our own workers.

This process remembers their items for the limits and for claim data beside the lease. The row stays authoritative: a lease from
another process is looked up there.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from hmac import compare_digest

from msgspec import Struct

from milepost.core.admission.controls import Limit, scope
from milepost.core.due import FRAGILE, Lease
from milepost.core.errors import RouteChanged
from milepost.core.item import Item, digest_of
from milepost.core.outcome import Outcome, outcome_to_builtins
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Stage
from milepost.engine.apply import OUTDATED
from milepost.engine.context import Context
from milepost.engine.work.settle import give_back, recorded, settle
from milepost.ports.documents import LIMIT, read_as
from milepost.ports.items import ClaimRequest, ClaimResult
from milepost.ports.runner import JobResult

CONTROLS_MS = 1_000
LATE_MS = 600_000
"""How long an expired lease is remembered, so that a late outcome is noted."""
REPEATS = 10_000
"""Settled outcomes that are remembered, so that a worker that lost the answer can ask again."""

Ref = tuple[str, str, str]
"""(route, key, lease)"""


class Wish(Struct, frozen=True):
    """A claim request of a worker; `holder` is its name."""

    plan: Plan
    stage: Stage
    holder: str
    want: int
    lease_ms: int


class Given(Struct, frozen=True):
    """Claimed items, the end of their leases, and when to ask again (None: only after a change)."""

    items: list[Item]
    until: int = 0
    next_at: int | None = None
    empty_handed: bool = False
    """The worker held no items: if it was given none, no other worker would have been given more."""


class ShownLease(Struct, frozen=True):
    """A lease as its worker presents it: the token is secret and valid for this key only."""

    key: str
    lease: str


class HeldItem(Struct):
    """One item that a worker holds."""

    item: Item
    until: int


class RemoteSettlement(Struct, frozen=True):
    """Digest of the outcome that was reported under a lease, and whether it was written."""

    said: bytes
    written: bool


class Remote:
    """Gives out items of remote stages and takes their outcomes. Thread-safe."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._lock = threading.Lock()
        self._hands: dict[str, dict[Ref, HeldItem]] = {}
        """By worker."""
        self._holders: dict[Ref, str] = {}
        self._settled: OrderedDict[Ref, RemoteSettlement] = OrderedDict()
        self._fragile: set[tuple[str, str]] = set()
        """Stages with waiting items that two workers were lost with."""
        self._limits: dict[str, int] = {}
        self._controls_at = 0

    def claim(self, wish: Wish) -> Given:
        """Claim items for a worker, within pauses, rates, lanes and its limit. An item that two workers were lost with is given only to a worker
        that holds nothing else, and alone."""
        now, stage, place = self._ctx.clock.now(), wish.stage, (wish.plan.name, wish.stage.name)
        in_hand = self._in_hand(wish.holder, now)
        here = [item for item in in_hand if (item.route, item.stage) == place]
        want = min(wish.want, self._width(place, stage, now) * stage.batch - len(here))
        if want <= 0 or any(item.row.losses >= FRAGILE for item in in_hand):
            return Given([])
        lanes: dict[str, int] = {}
        for item in here if stage.lane is not None else ():
            lanes[item.lane] = lanes.get(item.lane, 0) + 1
        answer = ClaimResult([])
        if not in_hand and place in self._fragile:
            answer = self._ask(wish, want, lanes, now, fragile=True)
        if not answer.items:
            answer = self._ask(wish, want, lanes, now)
            if not answer.items and answer.fragile and not in_hand:
                answer = self._ask(wish, want, lanes, now, fragile=True)
        return Given(answer.items, now + wish.lease_ms, answer.next_at, empty_handed=not in_hand)

    def extend(self, plan: Plan, stage: Stage, shown: Sequence[ShownLease], lease_ms: int) -> list[int | None]:
        """New end of each lease; None if it is no longer valid."""
        now = self._ctx.clock.now()
        found = self._find(plan, stage, shown, now)
        until, held = now + lease_ms, list(found.values())
        rows, tickets = [one.item.row for one in held], [one.item.ticket for one in held]
        answers = self._ctx.ledger.extend(rows, until, now, tickets) if held else []
        for one, holds in zip(held, answers, strict=True):
            one.until = until if holds else min(one.until, now)
        kept = {ref for ref, holds in zip(found, answers, strict=True) if holds}
        return [until if _ref(plan, one) in kept else None for one in shown]

    def settle(self, plan: Plan, stage: Stage, outcomes: Sequence[tuple[ShownLease, Outcome]]) -> list[bool]:
        """Write reported outcomes. True: written; False: the lease is no longer valid. A repeated report gets the same answer from any process;
        a different outcome under a settled lease is refused."""
        now = self._ctx.clock.now()
        found = self._find(plan, stage, [shown for shown, _ in outcomes], now)
        reports = [(_ref(plan, shown), digest_of(outcome_to_builtins(outcome))) for shown, outcome in outcomes]
        rans: dict[Ref, tuple[JobResult, bytes]] = {}
        for (ref, said), (_, outcome) in zip(reports, outcomes, strict=True):
            if ref in found and ref not in rans:
                row = found[ref].item.row
                rans[ref] = JobResult(found[ref].item, outcome, max(0, now - (row.claimed_at or now))), said
        refused = settle(self._ctx, [ran for ran, _ in rans.values()]).refused
        written = {ref: not refused or self._written(ran) for ref, (ran, _) in rans.items()}
        with self._lock:
            for ref, (_, said) in rans.items():
                self._end(ref, RemoteSettlement(said, written[ref]))
            answers = [self._settled[ref] == RemoteSettlement(said, True) if ref in self._settled else None for ref, said in reports]
        # Another process may have settled it, or this one before a restart: the ledger knows.
        return [
            self._recorded(ref, outcome) if answer is None else answer
            for answer, (ref, _), (_, outcome) in zip(answers, reports, outcomes, strict=True)
        ]

    def give_back(self, plan: Plan, stage: Stage, shown: Sequence[ShownLease], why: str, *, unknown: bool = False) -> int:
        """Give items back unfinished, without counting an attempt; returns how many were still held under these leases."""
        found = self._find(plan, stage, shown, self._ctx.clock.now())
        given = give_back(self._ctx, [held.item for held in found.values()], why, unknown=unknown)
        with self._lock:
            for ref in found:
                self._end(ref, RemoteSettlement(b"", False))
        return given

    def _written(self, ran: JobResult) -> bool:
        """Was this outcome written, if some of a batch were refused?"""
        row = ran.item.row
        return row.lease is not None and self._recorded((row.route, row.key, row.lease))

    def _recorded(self, ref: Ref, outcome: Outcome | None = None) -> bool:
        """Has the ledger recorded an outcome of this lease (this very one, if given)?"""
        [there] = self._ctx.ledger.get([ref[:2]])
        return isinstance(there, Item) and recorded(self._ctx, there.row, ref[2], outcome)

    def _ask(self, wish: Wish, want: int, lanes: dict[str, int], now: int, *, fragile: bool = False) -> ClaimResult:
        plan, stage, ctx = wish.plan, wish.stage, self._ctx
        lease = Lease(ctx.chance.token(), wish.holder, now + wish.lease_ms)
        ask = ClaimRequest(plan, stage.name, want, lease, stage.batch, lanes, {}, fragile)
        [answer] = ctx.ledger.claim([ask], now, ctx.chance.jitter())
        if answer.outdated:
            raise RouteChanged(f"route {plan.name!r}: {OUTDATED}; restart the server with the current route")
        if answer.items or answer.lost:
            ctx.observer.claimed(plan.name, stage.name, len(answer.items), answer.lost)
        with self._lock:
            if answer.fragile:
                self._fragile.add((plan.name, stage.name))
            elif fragile:
                self._fragile.discard((plan.name, stage.name))
            for item in answer.items:
                self._hold((item.route, item.key, lease.token), HeldItem(item, lease.until))
        return answer

    def _hold(self, ref: Ref, held: HeldItem) -> None:
        holder = held.item.row.holder or ""
        self._holders[ref] = holder
        self._hands.setdefault(holder, {})[ref] = held

    def _let_go(self, ref: Ref) -> None:
        holder = self._holders.pop(ref)
        hand = self._hands[holder]
        del hand[ref]
        if not hand:
            del self._hands[holder]

    def _end(self, ref: Ref, settled: RemoteSettlement) -> None:
        if ref in self._holders:
            self._let_go(ref)
            self._settled[ref] = settled
        if len(self._settled) > REPEATS:
            self._settled.popitem(last=False)

    def _in_hand(self, holder: str, now: int) -> list[Item]:
        with self._lock:
            return [held.item for held in self._hands.get(holder, {}).values() if held.until > now]

    def _width(self, place: tuple[str, str], stage: Stage, now: int) -> int:
        """Concurrent calls allowed for a worker: from an operator's limit, else from the route file."""
        if not self._controls_at <= now < self._controls_at + CONTROLS_MS:
            self._controls_at = now
            limits = {name: read_as(Limit, document.value) for name, document in self._ctx.ledger.read(LIMIT).items()}
            self._limits = {name: limit.concurrency for name, limit in limits.items() if limit.concurrency is not None}
            with self._lock:
                for ref in [ref for hand in self._hands.values() for ref, held in hand.items() if held.until < now - LATE_MS]:
                    self._let_go(ref)
        return self._limits.get(scope(*place), stage.concurrency)

    def _find(self, plan: Plan, stage: Stage, shown: Sequence[ShownLease], now: int) -> dict[Ref, HeldItem]:
        """Items held under these leases at the stage. A lease that is unknown here may be on the row."""
        refs = dict.fromkeys(_ref(plan, one) for one in shown)
        with self._lock:
            missing = [ref for ref in refs if ref not in self._holders and ref not in self._settled]
        items = self._ctx.ledger.get([ref[:2] for ref in missing]) if missing else []
        with self._lock:
            for ref, item in zip(missing, items, strict=True):
                if isinstance(item, Item) and item.row.lease is not None and compare_digest(item.row.lease.encode(), ref[2].encode()):
                    self._hold(ref, HeldItem(item, item.row.look_at or now))
            held = {ref: self._hands[self._holders[ref]][ref] for ref in refs if ref in self._holders}
        return {ref: one for ref, one in held.items() if one.item.stage == stage.name}


def _ref(plan: Plan, shown: ShownLease) -> Ref:
    return plan.name, shown.key, shown.lease
