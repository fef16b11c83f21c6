"""Life cycle of claimed items: asked for, in hand, then settled or given back; the same for every kind of worker.

A process (`worker`) and a Lambda function (`lambdas.worker_call`) run the items in their handler pools (`slots`); a remote worker runs
them elsewhere and reports (`remote`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from milepost.core.admission.controls import NO_LIMIT, Limit, scope
from milepost.core.due import Lease
from milepost.core.item import Item
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Stage
from milepost.engine.context import Context
from milepost.engine.work.settle import give_back
from milepost.ports.documents import LIMIT, read_as
from milepost.ports.items import ClaimRequest, Refused

log = logging.getLogger(__name__)

HeldRef = tuple[str, str | None]
"""Key and lease: an item that was lost here and claimed again is two calls, each with its own end."""


def held_ref(item: Item) -> HeldRef:
    return item.row.key, item.row.lease


def limits_in_force(ctx: Context) -> dict[str, Limit]:
    """The limits that operators have set, by scope."""
    return {name: read_as(Limit, document.value) for name, document in ctx.ledger.read(LIMIT).items()}


class HeldItems:
    """The items of one stage that one worker holds."""

    def __init__(self, plan: Plan, stage: Stage) -> None:
        self.plan = plan
        self.stage = stage
        self.width = stage.concurrency
        """Calls that may run at the same time."""
        self.in_hand: dict[HeldRef, Item] = {}
        self.lanes: dict[str, int] = {}
        """Held items by lane, where the stage has lanes."""
        self.spent: dict[str, int] = {}
        """Calls by lane that the last claim did not count."""

    def set_width(self, limits: Mapping[str, Limit]) -> bool:
        """Apply the stage's limit, an operator's or that of the route file; returns whether it has changed."""
        was = self.width
        self.width = limits.get(scope(self.plan.name, self.stage.name), NO_LIMIT).concurrency or self.stage.concurrency
        return self.width != was

    def ask(self, lease: Lease, want: int, *, fragile: bool = False) -> ClaimRequest:
        spent, self.spent = self.spent, {}
        return ClaimRequest(self.plan, self.stage.name, want, lease, self.stage.batch, self._busy_lanes(), spent, fragile)

    def _busy_lanes(self) -> dict[str, int]:
        return dict(self.lanes)

    def take(self, ctx: Context, items: Sequence[Item], lost: int = 0, refused: Sequence[Refused] = ()) -> None:
        """Take in hand the items of a claim, which has also found `lost` leases and rows that the storage refused."""
        for row in refused:
            log.error("%s/%s cannot be worked on at %r: %s", self.plan.name, row.key, self.stage.name, row.reason)
        if items or lost:
            ctx.observer.claimed(self.plan.name, self.stage.name, len(items), lost)
        self.hold(items)

    def hold(self, items: Sequence[Item]) -> None:
        self.in_hand.update((held_ref(item), item) for item in items)
        if self.stage.lane is not None:
            for item in items:
                self.lanes[item.lane] = self.lanes.get(item.lane, 0) + 1

    def release(self, items: Sequence[Item]) -> None:
        """They are settled, given back or lost: this worker holds them no more."""
        for item in items:
            if self.in_hand.pop(held_ref(item), None) is not None and self.stage.lane is not None:
                self.lanes[item.lane] -= 1

    def give_back(self, ctx: Context, items: Sequence[Item], why: str, *, unknown: bool = False) -> int:
        """Give items back unfinished, without counting an attempt; returns how many were still held. `unknown`: a call may have done the
        work."""
        if not items:
            return 0
        try:
            return give_back(ctx, items, why, unknown=unknown)
        finally:
            # No call for them will end here. If the ledger was not reached, they come back when their leases run out.
            self.release(items)
