"""Claim on arrival: items are claimed at a stage in the same write that brings them there."""

from __future__ import annotations

from msgspec.structs import replace

from milepost.core.change import Change
from milepost.core.due import claimed_on_arrival
from milepost.core.failures import unreadable
from milepost.core.item import Item, Row
from milepost.ledgers.sqlite.admission import Admission
from milepost.ledgers.sqlite.claim import Served, claim_one
from milepost.ledgers.sqlite.rows.changes import CounterDeltas, write_changes
from milepost.ledgers.sqlite.rows.codec import items_of
from milepost.ledgers.sqlite.rows.due_rows import live_rows
from milepost.ledgers.sqlite.rows.names import Transaction
from milepost.ports.items import ClaimRequest, ClaimResult, Refused

DUE_BEFORE = f"SELECT count(*) FROM ({live_rows('1', 'due_at <= :now')} LIMIT :limit)"


class Arrivals:
    """One stage's claim request, answered in the transaction that brings items to the stage. Items
    already due there come first; the remaining room is for arriving items, each of which is then
    written only once."""

    def __init__(self, tx: Transaction, admission: Admission, ask: ClaimRequest, now: int) -> None:
        self._tx, self._admission, self._ask, self._now = tx, admission, ask, now
        self._stage = ask.plan.by_name[ask.stage]
        self.route, self.stage = ask.plan.name, ask.stage
        self._taken: list[Row] = []
        self.room = 0
        """How many more arriving items can be claimed."""

    def make_room(self) -> None:
        """Compute the room, before items arrive and after the breakers know the changes. It stays 0
        if the request needs a check that only the ordinary claim makes: then that claim runs
        alone."""
        ask, admission, route, stage = self._ask, self._admission, self._ask.plan.name, self._stage
        lanes = self._tx.names.lanes.get((route, stage.name), [])
        if (
            ask.fragile
            or stage.lane is not None
            or len(lanes) > 1
            or admission.outdated(route, ask.plan.version)
        ):
            return
        if not admission.controls.unlimited(route, stage):
            return
        due_before = 0
        for place, _ in lanes:
            bound = {"place": place, "now": self._now, "limit": ask.want}
            due_before = self._tx.execute(DUE_BEFORE, bound).fetchone()[0]
        self.room = max(0, ask.want - due_before)

    def take(self, change: Change) -> Change:
        """The change, with its item claimed at the stage if there is room and the item is ready."""
        claimed = claimed_on_arrival(change, self._now, self._ask.lease) if self.room else None
        if claimed is None:
            return change
        self.room -= 1
        self._taken.append(claimed.after)
        return claimed

    def claim(self, tally: CounterDeltas, served: Served, jitter: float) -> ClaimResult:
        """The result: items claimed on arrival, and other due items."""
        left = self._ask.want - len(self._taken)
        rest = ClaimResult([])
        if left:
            ask = replace(self._ask, want=left)
            rest = claim_one(self._tx, self._admission, tally, served, ask, self._now, jitter)
        if not self._taken:
            return rest
        items: list[Item] = []
        refused: list[Refused] = []
        for row, item in zip(self._taken, items_of(self._tx, self._taken), strict=True):
            if isinstance(item, Refused):
                refused.append(item)
                write_changes(
                    self._tx, [unreadable(row, self._stage, item.reason, self._now)], tally
                )
            else:
                items.append(item)
        return replace(
            rest,
            items=rest.items + items,
            moved=rest.moved + len(refused),
            refused=rest.refused + refused,
        )
