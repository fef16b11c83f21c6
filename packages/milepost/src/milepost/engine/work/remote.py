"""Remote workers: claim items of a remote stage, extend leases and settle outcomes, fenced like the
workers of this process.

This process remembers their items, to apply limits and to keep claim data that is not in the lease.
The row stays authoritative: a lease that another process gave is looked up there.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from hmac import compare_digest

from msgspec import Struct

from milepost.core.admission.controls import Limit
from milepost.core.due import FRAGILE, Lease
from milepost.core.errors import RouteChanged
from milepost.core.item import Item, digest_of
from milepost.core.outcome import Outcome, outcome_to_builtins
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Stage
from milepost.engine.apply import OUTDATED
from milepost.engine.context import Context
from milepost.engine.work.settle import give_back, recorded, settle
from milepost.engine.work.stage_claims import ClaimRef, StageClaims, claim_ref
from milepost.ports.documents import LIMIT, read_each
from milepost.ports.items import ClaimResult
from milepost.ports.runner import JobResult

CONTROLS_MS = 1_000
LATE_MS = 600_000
"""How long an expired lease is remembered, so that a late outcome is noted."""
REPEATS = 10_000
"""Settled outcomes that are remembered, so that a worker that did not get the answer can report
again."""

Ref = tuple[str, str, str]
"""(route, key, lease)"""


class RemoteClaimRequest(Struct, frozen=True):
    """A claim request of a worker; `holder` is its name."""

    plan: Plan
    stage: Stage
    holder: str
    want: int
    lease_ms: int


class RemoteClaim(Struct, frozen=True):
    """Claimed items, the end of their leases, and when to ask again (None: only after a change)."""

    items: list[Item]
    until: int = 0
    next_at: int | None = None
    empty_handed: bool = False
    """The worker had no items in hand: if it was given none, no other worker would have been given
    more."""


class ShownLease(Struct, frozen=True):
    """A lease as its worker presents it: the token is secret and valid for this key only."""

    key: str
    lease: str


class RemoteStageClaims(StageClaims):
    """The items of one stage that a remote worker has in hand, each until its lease ends. A late
    one is remembered for a while: its lease may be extended if no other worker has taken the item,
    and its outcome is noted."""

    def __init__(self, plan: Plan, stage: Stage) -> None:
        super().__init__(plan, stage)
        self.until: dict[ClaimRef, int] = {}
        self.late: dict[ClaimRef, Item] = {}
        self.asked = 0
        """Items that claims of other calls have asked for and not got yet."""

    def add_until(self, items: Sequence[Item], until: int) -> None:
        """Take items in hand, again if they are late, and set the end of their leases."""
        self.add([item for item in items if claim_ref(item) not in self.in_hand])
        for item in items:
            self.until[claim_ref(item)] = until
            self.late.pop(claim_ref(item), None)

    def expire(self, now: int) -> None:
        """Release the items whose leases have ended; they are late."""
        for ref, item in list(self.in_hand.items()):
            if self.until[ref] <= now:
                self.release([item])
                self.late[ref] = item

    def end(self, ref: ClaimRef) -> None:
        """Forget an item that was settled or given back, or whose lease ended long ago."""
        if ref in self.in_hand:
            self.release([self.in_hand[ref]])
        self.late.pop(ref, None)
        del self.until[ref]

    def item(self, ref: ClaimRef) -> Item:
        return self.in_hand[ref] if ref in self.in_hand else self.late[ref]


class RemoteSettlement(Struct, frozen=True):
    """Digest of the outcome that was reported under a lease, and whether it was written."""

    digest: bytes
    written: bool


class Remote:
    """Gives out items of remote stages and takes their outcomes. Thread-safe."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._lock = threading.Lock()
        self._by_worker: dict[str, dict[tuple[str, str], RemoteStageClaims]] = {}
        """By worker, then by route and stage."""
        self._claims: dict[Ref, RemoteStageClaims] = {}
        self._settled: OrderedDict[Ref, RemoteSettlement] = OrderedDict()
        self._fragile: set[tuple[str, str]] = set()
        """Stages with fragile items (see `core.due.FRAGILE`)."""
        self._limits: dict[str, Limit] = {}
        self._controls_at = 0

    def claim(self, request: RemoteClaimRequest) -> RemoteClaim:
        """Claim items for a worker, within pauses, rates, lanes and its limit. A fragile item is
        given only to a worker with nothing else in hand, and alone. While the time is not known,
        none is given."""
        if self._ctx.check_clock().doubt:
            return RemoteClaim([], next_at=self._ctx.clock.now() + CONTROLS_MS)
        place = (request.plan.name, request.stage.name)
        self._read_controls(self._ctx.clock.now())
        now = self._ctx.clock.now()
        with self._lock:
            claims, by_stage = (
                self._claims_of(request.holder, request.plan, request.stage),
                self._by_worker[request.holder],
            )
            for one in by_stage.values():
                one.expire(now)
            in_hand = [item for one in by_stage.values() for item in one.in_hand.values()]
            free = not in_hand and not any(one.asked for one in by_stage.values())
            claims.set_width(self._limits)
            want = min(
                request.want,
                claims.width * request.stage.batch - len(claims.in_hand) - claims.asked,
            )
            if want <= 0 or any(item.row.losses >= FRAGILE for item in in_hand):
                return RemoteClaim([])
            claims.asked += want
        answer, until = ClaimResult([]), now
        try:
            if free and place in self._fragile:
                answer, until = self._ask(request, claims, want, fragile=True)
            if not answer.items:
                answer, until = self._ask(request, claims, want)
                if not answer.items and answer.fragile and free:
                    answer, until = self._ask(request, claims, want, fragile=True)
        finally:
            with self._lock:
                claims.asked -= want
        return RemoteClaim(answer.items, until, answer.next_at, empty_handed=free)

    def extend(
        self, plan: Plan, stage: Stage, shown: Sequence[ShownLease], lease_ms: int
    ) -> list[int | None]:
        """New end of each lease; None if it is no longer valid."""
        found = self._find(plan, stage, shown, self._ctx.clock.now())
        now = self._ctx.clock.now()
        until, items = now + lease_ms, list(found.values())
        rows, tickets = [item.row for item in items], [item.ticket for item in items]
        answers = self._ctx.ledger.extend(rows, until, now, tickets) if items else []
        kept = {
            ref: item for (ref, item), holds in zip(found.items(), answers, strict=True) if holds
        }
        with self._lock:
            for ref, item in found.items():
                claims = self._claims.get(ref)
                if claims is not None:
                    # If the lease has ended, the item is late from now on.
                    claims.add_until(
                        [item], until if ref in kept else min(claims.until[claim_ref(item)], now)
                    )
        return [until if _ref(plan, one) in kept else None for one in shown]

    def settle(
        self, plan: Plan, stage: Stage, outcomes: Sequence[tuple[ShownLease, Outcome]]
    ) -> list[bool]:
        """Write reported outcomes. True: written; False: the lease is no longer valid. A repeated
        report gets the same answer from any process; a different outcome under a settled lease is
        refused."""
        now = self._ctx.clock.now()
        found = self._find(plan, stage, [shown for shown, _ in outcomes], now)
        reports = [
            (_ref(plan, shown), digest_of(outcome_to_builtins(outcome)))
            for shown, outcome in outcomes
        ]
        results: dict[Ref, tuple[JobResult, bytes]] = {}
        for (ref, digest), (_, outcome) in zip(reports, outcomes, strict=True):
            if ref in found and ref not in results:
                item = found[ref]
                results[ref] = (
                    JobResult(item, outcome, max(0, now - (item.row.claimed_at or now))),
                    digest,
                )
        refused = settle(self._ctx, [result for result, _ in results.values()]).refused
        written = {
            ref: not refused or self._recorded(ref) for ref in results
        }  # some of a batch may be written
        with self._lock:
            for ref, (_, digest) in results.items():
                self._end(ref, RemoteSettlement(digest, written[ref]))
            answers = [
                self._settled[ref] == RemoteSettlement(digest, True)
                if ref in self._settled
                else None
                for ref, digest in reports
            ]
        # Another process may have settled it, or this one before a restart: the ledger knows.
        return [
            self._recorded(ref, outcome) if answer is None else answer
            for answer, (ref, _), (_, outcome) in zip(answers, reports, outcomes, strict=True)
        ]

    def give_back(
        self,
        plan: Plan,
        stage: Stage,
        shown: Sequence[ShownLease],
        why: str,
        *,
        unknown: bool = False,
    ) -> int:
        """Give items back unfinished, without counting an attempt; returns how many were still
        claimed under these leases."""
        found = self._find(plan, stage, shown, self._ctx.clock.now())
        given = give_back(self._ctx, list(found.values()), why, unknown=unknown)
        with self._lock:
            for ref in found:
                self._end(ref, RemoteSettlement(b"", False))
        return given

    def _recorded(self, ref: Ref, outcome: Outcome | None = None) -> bool:
        """Whether the ledger has recorded an outcome of this lease (the given one, if any)."""
        [there] = self._ctx.ledger.get([ref[:2]])
        return isinstance(there, Item) and recorded(self._ctx, there.row, ref[2], outcome)

    def _ask(
        self,
        request: RemoteClaimRequest,
        claims: RemoteStageClaims,
        want: int,
        *,
        fragile: bool = False,
    ) -> tuple[ClaimResult, int]:
        """Claim, under a lease that counts from now; returns also the end of that lease."""
        plan, stage, ctx = request.plan, request.stage, self._ctx
        now = ctx.clock.now()
        lease = Lease(ctx.chance.token(), request.holder, now + request.lease_ms)
        [answer] = ctx.ledger.claim(
            [claims.ask(lease, want, fragile=fragile)], now, ctx.chance.jitter()
        )
        if answer.outdated:
            raise RouteChanged(
                f"route {plan.name!r}: {OUTDATED}; restart the server with the current route"
            )
        with self._lock:
            if answer.fragile:
                self._fragile.add((plan.name, stage.name))
            elif fragile:
                self._fragile.discard((plan.name, stage.name))
            claims.take(ctx, answer.items, answer.lost, answer.refused)
            claims.add_until(answer.items, lease.until)
            self._claims |= {(item.route, item.key, lease.token): claims for item in answer.items}
        return answer, lease.until

    def _claims_of(self, holder: str, plan: Plan, stage: Stage) -> RemoteStageClaims:
        return self._by_worker.setdefault(holder, {}).setdefault(
            (plan.name, stage.name), RemoteStageClaims(plan, stage)
        )

    def _end(self, ref: Ref, settled: RemoteSettlement | None = None) -> None:
        """Forget an item. `settled`: the answer to a repeated report of its outcome, if any."""
        claims = self._claims.pop(ref, None)
        if claims is not None:
            claims.end(ref[1:])
            if settled is not None:
                self._settled[ref] = settled
        if len(self._settled) > REPEATS:
            self._settled.popitem(last=False)

    def _read_controls(self, now: int) -> None:
        """Read the limits, and forget leases that ended long ago and workers that hold nothing."""
        if self._controls_at <= now < self._controls_at + CONTROLS_MS:
            return
        self._controls_at = now
        self._limits = read_each(self._ctx.ledger, LIMIT, Limit)
        with self._lock:
            for ref in [
                ref for ref, claims in self._claims.items() if claims.until[ref[1:]] < now - LATE_MS
            ]:
                self._end(ref)
            self._by_worker = {
                holder: kept
                for holder, by_stage in self._by_worker.items()
                if (
                    kept := {
                        at: claims
                        for at, claims in by_stage.items()
                        if claims.until or claims.asked
                    }
                )
            }

    def _find(
        self, plan: Plan, stage: Stage, shown: Sequence[ShownLease], now: int
    ) -> dict[Ref, Item]:
        """Items claimed under these leases at the stage. A lease that is unknown here may be on the
        row."""
        refs = dict.fromkeys(_ref(plan, one) for one in shown)
        with self._lock:
            missing = [ref for ref in refs if ref not in self._claims and ref not in self._settled]
        items = self._ctx.ledger.get([ref[:2] for ref in missing]) if missing else []
        with self._lock:
            for ref, item in zip(missing, items, strict=True):
                if not isinstance(item, Item) or item.stage != stage.name or item.row.lease is None:
                    continue
                if compare_digest(item.row.lease.encode(), ref[2].encode()):
                    self._claims[ref] = self._claims_of(item.row.holder or "", plan, stage)
                    self._claims[ref].add_until([item], item.row.look_at or now)
            found = {ref: self._claims[ref].item(ref[1:]) for ref in refs if ref in self._claims}
        return {ref: item for ref, item in found.items() if item.stage == stage.name}


def _ref(plan: Plan, shown: ShownLease) -> Ref:
    return plan.name, shown.key, shown.lease
