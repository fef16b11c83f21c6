"""Write decisions to the ledger: decide again after a conflicting write, and apply kept
confirmations afterwards."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from milepost.core.change import Change
from milepost.core.decide import decide
from milepost.core.failures import unstorable
from milepost.core.item import Item, Row
from milepost.core.outcome import Done
from milepost.core.status import Status
from milepost.core.values.refusal import Refusal, RefusalKind
from milepost.engine.context import Context
from milepost.ports.items import Conflict, Refused

Decision = Callable[[Item], Change | Refusal | None]
"""Decide on an item as it is now: a change, a refusal, or None if nothing is to be written."""

TRIES = 5
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
    answers: list[Row | Refusal] = [CHANGES_TOO_OFTEN] * len(work)
    todo = {place: item for place, (item, _) in enumerate(work)}
    for _ in range(TRIES):
        changes: dict[int, Change] = {}
        for place, item in todo.items():
            change = work[place][1](item)
            if isinstance(change, Change):
                changes[place] = change
            else:
                answers[place] = item.row if change is None else change
        versions = {
            route: ctx.plan(route).version
            for route in {change.before.route for change in changes.values()}
        }
        conflicts = (
            ctx.ledger.apply(list(changes.values()), ctx.clock.now(), versions) if changes else []
        )
        lost: dict[int, Row] = {}
        for (place, change), conflict in zip(changes.items(), conflicts, strict=True):
            if conflict is None:
                answers[place] = change.after
            elif isinstance(conflict, Refused):
                answers[place] = Refusal(
                    RefusalKind.UNSTORABLE, f"it cannot be stored: {conflict.reason}"
                )
            elif conflict.outdated:
                answers[place] = OUTDATED
            elif conflict.current is None:
                answers[place] = GONE
            else:
                lost[place] = conflict.current
        if not lost:
            break
        todo = {}
        current = ctx.ledger.get([(row.route, row.key) for row in lost.values()])
        for place, item_now in zip(lost, current, strict=True):
            if item_now is None:
                answers[place] = GONE
            elif isinstance(item_now, Refused):
                answers[place] = unreadable(item_now)
            else:
                todo[place] = item_now
    followed = follow_up(ctx, [answer for answer in answers if isinstance(answer, Row)])
    if not followed:
        return answers
    return [
        followed.get((answer.route, answer.key), answer) if isinstance(answer, Row) else answer
        for answer in answers
    ]


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
