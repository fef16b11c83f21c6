"""Writing what was decided: a lost race is decided again on the row as it is now, and kept confirmations follow at once."""

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
from milepost.ports.ledger import Conflict, Refused

Decision = Callable[[Item], Change | Refusal | None]
"""What to write for an item as it is now, or why nothing is; None: there is nothing to write."""

TRIES = 5
log = logging.getLogger(__name__)
GONE = Refusal(RefusalKind.GONE, "it is gone: its row was pruned meanwhile")
OUTDATED = Refusal(RefusalKind.OUTDATED, "the ledger holds a newer version of this route; this process stands by")
RESTLESS = Refusal(RefusalKind.CHANGED_SINCE, f"others changed it {TRIES} times meanwhile; try again")


def unreadable(refused: Refused) -> Refusal:
    """Why nothing can be done to an item whose row cannot be read."""
    text = f"its row cannot be read: {refused.reason}; put it right, or restore it from a backup"
    return Refusal(RefusalKind.UNREADABLE, text)


def apply_all(ctx: Context, work: Sequence[tuple[Item, Decision]]) -> list[Row | Refusal]:
    """Decide and write each; the answer, in the order given, is the row as it then is, or why nothing was written.

    A change that lost its race is decided again on the current row, up to five times. A change that leaves an item at a
    stage whose confirmation has been kept is followed by that confirmation, and the answer is the row after both.
    """
    answers: list[Row | Refusal] = [RESTLESS] * len(work)
    todo = [(place, item, decision) for place, (item, decision) in enumerate(work)]
    for _ in range(TRIES):
        decided: list[tuple[int, Decision, Change]] = []
        for place, item, decision in todo:
            change = decision(item)
            if isinstance(change, Change):
                decided.append((place, decision, change))
            else:
                answers[place] = item.row if change is None else change
        lost: list[tuple[int, Decision, Row]] = []
        conflicts = ctx.ledger.apply([change for _, _, change in decided], ctx.clock.now(), _versions(ctx, decided)) if decided else []
        for (place, decision, change), conflict in zip(decided, conflicts, strict=True):
            if conflict is None:
                answers[place] = change.after
            elif isinstance(conflict, Refused):
                answers[place] = Refusal(RefusalKind.UNSTORABLE, f"it cannot be stored: {conflict.reason}")
            elif conflict.outdated:
                answers[place] = OUTDATED
            elif conflict.current is None:
                answers[place] = GONE
            else:
                lost.append((place, decision, conflict.current))
        if not lost:
            break
        todo = []
        current = ctx.ledger.get([(row.route, row.key) for _, _, row in lost])
        for (place, decision, _), now_there in zip(lost, current, strict=True):
            if now_there is None:
                answers[place] = GONE
            elif isinstance(now_there, Refused):
                answers[place] = unreadable(now_there)
            else:
                todo.append((place, now_there, decision))
    followed = follow_up(ctx, [answer for answer in answers if isinstance(answer, Row)])
    if not followed:
        return answers
    return [followed.get((answer.route, answer.key), answer) if isinstance(answer, Row) else answer for answer in answers]


def count_refused(ctx: Context, row: Row, refused: Refused, response_ms: int | None = None) -> Conflict | Row | None:
    """The storage cannot take what was to be written for this item: that is a counted try instead, and the row after it is the answer.
    None: not even that can be stored, and the item is set aside; Conflict: the row has changed since."""
    plan = ctx.plan(row.route)
    now = ctx.clock.now()
    change = unstorable(row, plan.by_name[row.stage], refused.reason, now, ctx.chance.jitter(), response_ms)
    answer = ctx.ledger.apply([change], now, {plan.name: plan.version})[0]
    if answer is None:
        return change.after
    if isinstance(answer, Conflict):
        return answer
    # It is set aside, or it would be worked on again and again.
    reason = f"neither what was to be written nor its failure can be stored: {answer.reason}"
    ctx.ledger.quarantine.put([(row.route, row.key)], reason, now)
    log.error("%s/%s is set aside: %s", row.route, row.key, reason)
    return None


def follow_up(ctx: Context, rows: Iterable[Row]) -> dict[tuple[str, str], Row]:
    """Apply the confirmations that were kept for the stages these rows are at; the rows that came of it, by (route, key).

    A race lost here is left alone: whoever made the other change follows it up.
    """
    followed: dict[tuple[str, str], Row] = {}
    refs = [(row.route, row.key) for row in rows if _confirmed(ctx, row)]
    while refs:
        now = ctx.clock.now()
        items = [item for item in ctx.ledger.get(refs) if isinstance(item, Item) and _confirmed(ctx, item.row)]
        changes = [decide(item, Done(), ctx.plan(item.route), now, ctx.chance.jitter()) for item in items]
        versions = {item.route: ctx.plan(item.route).version for item in items}
        conflicts = ctx.ledger.apply(changes, now, versions) if changes else []
        written = [change.after for change, conflict in zip(changes, conflicts, strict=True) if conflict is None]
        followed |= {(row.route, row.key): row for row in written}
        refs = [(row.route, row.key) for row in written if _confirmed(ctx, row)]
    return followed


def _confirmed(ctx: Context, row: Row) -> bool:
    """Has the item come to a stage whose confirmation was given before? (A worker that holds it finds it at settle.)"""
    if row.stage not in row.kept or row.terminal or row.status is Status.PROCESSING:
        return False
    return row.stage in ctx.plan(row.route).by_name


def _versions(ctx: Context, decided: Sequence[tuple[int, Decision, Change]]) -> dict[str, int]:
    routes = {change.before.route for _, _, change in decided}
    return {route: ctx.plan(route).version for route in routes}
