"""Write decisions to the ledger: decide again after a conflicting write, and apply kept
confirmations afterwards."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from milepost.core.change import Change
from milepost.core.decide import decide
from milepost.core.failures import unstorable
from milepost.core.item import Item, Row
from milepost.core.outcome import Done
from milepost.core.status import Status
from milepost.core.values.refusal import Refusal, RefusalKind
from milepost.engine.conflicts import TRIES, ItemWrite, retry_on_conflict
from milepost.engine.context import Context
from milepost.ports.items import Conflict, Refused

Decision = Callable[[Item], Change | Refusal | None]
"""Decide on an item as it is now: a change, a refusal, or None if nothing is to be written."""

log = logging.getLogger(__name__)
GONE = Refusal(RefusalKind.GONE, "the row was pruned in the meantime")
OUTDATED = Refusal(
    RefusalKind.OUTDATED, "the ledger holds a newer version of this route; this process stands by"
)
CHANGES_TOO_OFTEN = Refusal(
    RefusalKind.CHANGED_SINCE, f"changed {TRIES} times by other processes; try again"
)


def unreadable(refused: Refused) -> Refusal:
    """Why an item with an unreadable row is refused."""
    text = f"the row cannot be read: {refused.reason}; correct it, or restore it from a backup"
    return Refusal(RefusalKind.UNREADABLE, text)


def apply_all(ctx: Context, work: Sequence[tuple[Item, Decision]]) -> list[Row | Refusal]:
    """Decide and write each item; returns, in order, the row as it then is, or why nothing was
    written.

    After a conflict the item is decided again on the current row, up to five times. If a change
    brings an item to a stage with a kept confirmation, that is applied too, and the row after both
    is returned.
    """
    writes = [DecidedItem(item, decision) for item, decision in work]
    retry_on_conflict(ctx, writes, partial(_read_again, ctx))
    results = [write.result for write in writes]
    followed = follow_up(ctx, [result for result in results if isinstance(result, Row)])
    if not followed:
        return results
    return [
        followed.get((result.route, result.key), result) if isinstance(result, Row) else result
        for result in results
    ]


class DecidedItem(ItemWrite):
    """The write of what a function decides on an item. `result`: the row as it then is, or why
    nothing was written."""

    def __init__(self, item: Item, decision: Decision) -> None:
        self.item = item
        self.result: Row | Refusal = CHANGES_TOO_OFTEN
        self._decision = decision

    def decide(self) -> Change | None:
        decided = self._decision(self.item)
        if isinstance(decided, Change):
            return decided
        self.result = self.item.row if decided is None else decided
        return None

    def written(self, change: Change) -> None:
        self.result = change.after

    def refused(self, refused: Refused) -> None:
        self.result = Refusal(RefusalKind.UNSTORABLE, f"it cannot be stored: {refused.reason}")

    def lost(self, conflict: Conflict) -> bool:
        if conflict.outdated:
            self.result = OUTDATED
        elif conflict.current is None:
            self.result = GONE
        return not conflict.outdated and conflict.current is not None


def _read_again(ctx: Context, writes: list[DecidedItem]) -> list[DecidedItem]:
    """Read the items with their content; returns the writes whose item can be decided again."""
    items = ctx.ledger.get([(write.item.route, write.item.key) for write in writes])
    readable: list[DecidedItem] = []
    for write, item in zip(writes, items, strict=True):
        if item is None:
            write.result = GONE
        elif isinstance(item, Refused):
            write.result = unreadable(item)
        else:
            write.item = item
            readable.append(write)
    return readable


def count_refused(
    ctx: Context, row: Row, refused: Refused, response_ms: int | None = None
) -> Conflict | Row | None:
    """The storage refused a write: count it as a failed attempt instead, and return the row. None:
    that cannot be stored either, so the item is quarantined. Conflict: the row has changed."""
    plan = ctx.plan(row.route)
    now = ctx.clock.now()
    change = unstorable(
        row, plan.by_name[row.stage], refused.reason, now, ctx.chance.jitter(), response_ms
    )
    answer = ctx.ledger.apply([change], now, {plan.name: plan.version})[0]
    if answer is None:
        return change.after
    if isinstance(answer, Conflict):
        return answer
    # Quarantine it, or workers would claim it for ever.
    reason = f"neither the change nor its failure can be stored: {answer.reason}"
    ctx.ledger.quarantine.put([(row.route, row.key)], reason, now)
    log.error("%s/%s is quarantined: %s", row.route, row.key, reason)
    return None


def follow_up(ctx: Context, rows: Iterable[Row]) -> dict[tuple[str, str], Row]:
    """Apply confirmations that were kept for the stages of these rows; returns the changed rows by
    (route, key).

    A conflict is ignored: the process that made the other change applies them.
    """
    followed: dict[tuple[str, str], Row] = {}
    refs = [(row.route, row.key) for row in rows if _confirmed(ctx, row)]
    while refs:
        now = ctx.clock.now()
        items = [
            item
            for item in ctx.ledger.get(refs)
            if isinstance(item, Item) and _confirmed(ctx, item.row)
        ]
        changes = [
            decide(item, Done(), ctx.plan(item.route), now, ctx.chance.jitter()) for item in items
        ]
        versions = {item.route: ctx.plan(item.route).version for item in items}
        conflicts = ctx.ledger.apply(changes, now, versions) if changes else []
        written = [
            change.after
            for change, conflict in zip(changes, conflicts, strict=True)
            if conflict is None
        ]
        followed |= {(row.route, row.key): row for row in written}
        refs = [(row.route, row.key) for row in written if _confirmed(ctx, row)]
    return followed


def _confirmed(ctx: Context, row: Row) -> bool:
    """Whether a confirmation was kept for the item's stage. (A worker that holds the item applies
    it at settle.)"""
    if row.stage not in row.kept or row.terminal or row.status is Status.PROCESSING:
        return False
    return row.stage in ctx.plan(row.route).by_name
