"""Life cycle of claimed items, the same for every kind of worker: requested, in hand, then settled
or given back.

A process (`worker`) and a Lambda function (`lambdas.worker`) run the items in their handler pools
(`slots`); a remote worker runs them elsewhere and reports (`remote`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from milepost.core.admission.controls import NO_LIMIT, Limit, scope
from milepost.core.due import Lease
from milepost.core.item import Item
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Stage
from milepost.engine.context import Context
from milepost.engine.work.settle import give_back
from milepost.ports.items import ClaimRequest, Refused

log = logging.getLogger(__name__)

ClaimRef = tuple[str, str | None]
"""Key and lease, because an item that was lost here and claimed again is two calls, which end
separately."""


def claim_ref(item: Item) -> ClaimRef:
    return item.row.key, item.row.lease


class StageClaims:
    """The items of one stage that one worker has claimed and not settled yet: its items in hand."""

    def __init__(self, plan: Plan, stage: Stage) -> None:
        self.plan = plan
        self.stage = stage
        self.width = stage.concurrency
        """Calls that may run at the same time."""
        self.in_hand: dict[ClaimRef, Item] = {}
        self.lanes: dict[str, int] = {}
        """Items in hand by lane, where the stage has lanes."""
        self.spent: dict[str, int] = {}
        """Calls by lane that the last claim did not count."""

    def set_width(self, limits: Mapping[str, Limit]) -> bool:
        """Apply the stage's limit, an operator's or that of the route file; returns whether it has
        changed."""
        was = self.width
        self.width = (
            limits.get(scope(self.plan.name, self.stage.name), NO_LIMIT).concurrency
            or self.stage.concurrency
        )
        return self.width != was

    def ask(
        self, lease: Lease, want: int, *, fragile: bool = False, ahead: bool = False
    ) -> ClaimRequest:
        """A claim of up to `want` items; `ahead`: also of items that wait here until a call of
        their lane ends."""
        spent, self.spent = self.spent, {}
        waiting = self._ahead() if ahead else {}
        return ClaimRequest(
            self.plan,
            self.stage.name,
            want,
            lease,
            self.stage.batch,
            self._busy_lanes(),
            spent,
            fragile,
            waiting,
        )

    def _busy_lanes(self) -> dict[str, int]:
        return dict(self.lanes)

    def _ahead(self) -> dict[str, int]:
        """Items beyond their lane's concurrency that may wait here."""
        return {}

    def take(
        self, ctx: Context, items: Sequence[Item], lost: int = 0, refused: Sequence[Refused] = ()
    ) -> None:
        """Take in hand the items of a claim, which has also found `lost` leases and rows that the
        storage refused."""
        for row in refused:
            log.error(
                "%s/%s cannot be worked on at %r: %s",
                self.plan.name,
                row.key,
                self.stage.name,
                row.reason,
            )
        if items or lost:
            ctx.observer.claimed(self.plan.name, self.stage.name, len(items), lost)
        self.add(items)

    def add(self, items: Sequence[Item]) -> None:
        self.in_hand.update({claim_ref(item): item for item in items})
        if self.stage.lane is not None:
            for lane, count in Counter([item.row.lane for item in items]).items():
                self.lanes[lane] = self.lanes.get(lane, 0) + count

    def release(self, items: Sequence[Item]) -> None:
        """Forget items that were settled, given back or lost."""
        released = [item for item in items if self.in_hand.pop(claim_ref(item), None) is not None]
        if self.stage.lane is not None:
            for lane, count in Counter([item.row.lane for item in released]).items():
                self.lanes[lane] -= count
                if not self.lanes[lane]:
                    del self.lanes[lane]  # there may be as many lanes as targets

    def give_back(
        self, ctx: Context, items: Sequence[Item], why: str, *, unknown: bool = False
    ) -> int:
        """Give items back unfinished, without counting an attempt; returns how many were still
        claimed. `unknown`: a call may have done the work."""
        if not items:
            return 0
        try:
            return give_back(ctx, items, why, unknown=unknown)
        finally:
            # No call for them will end here. If the ledger was not reached, they come back when
            # their leases run out.
            self.release(items)
