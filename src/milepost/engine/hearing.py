"""Hearing partners: what becomes of their word about one item's stage, and how it is answered."""

from __future__ import annotations

import logging
from typing import Literal

from msgspec import Struct

from milepost.core import outside
from milepost.core.change import Change, Teller, change
from milepost.core.decide import valid_confirmation
from milepost.core.errors import UsageError
from milepost.core.item import Item, Row
from milepost.core.outcome import Done, Outcome, outcome_to_builtins
from milepost.core.plan import Plan
from milepost.core.status import Reason, Status
from milepost.engine.apply import apply_all
from milepost.engine.context import Context
from milepost.ports.ledger import Known

log = logging.getLogger(__name__)

Answer = Literal["applied", "kept", "known", "differs", "nothing", "ended", "unknown", "refused"]
"""`kept`: until the item is ready for it. `known`: the same was said before. `differs`: something else was said before, and this is
noted. `nothing`: what was said does not confirm. `ended`: the item has ended, and this cannot move it. `unknown`: there is no such
item. `refused`: for the reason given."""


class Heard(Struct, frozen=True):
    """What became of it. `why` says why nothing was changed; `row` is the item as it then is, `seal` what is left of it if its row
    has gone."""

    answer: Answer
    why: str = ""
    row: Row | None = None
    seal: Known | None = None


def hear(ctx: Context, route: str, key: str, stage: str, outcome: Outcome, by: str, why: str | None = None) -> Heard:
    """Take a partner's word about one item's stage. Whatever cannot be applied, but concerns an item that there is, is noted."""
    plan = ctx.plan(route)
    if not by.strip():
        raise UsageError("say who confirms: by='…'")
    [item] = ctx.ledger.get([(route, key)])
    if item is None:
        return _gone(ctx, route, key, outcome)
    written: list[Change] = []

    def decision(now_there: Item) -> Change | str:
        written.clear()
        decided = outside.confirm(now_there, stage, outcome, plan, ctx.clock.now(), ctx.chance.jitter(), by=by, why=why)
        if isinstance(decided, Change):
            written.append(decided)
        return decided

    [answer] = apply_all(ctx, [(item, decision)])
    if isinstance(answer, outside.SaidBefore):
        return Heard("known", answer, item.row)
    if isinstance(answer, Row):
        [line] = [decided.line for decided in written]
        reason = None if line is None else line.reason
        if reason is Reason.NOTED:
            return Heard("differs", "something else was said of this stage before; what is said now is noted", answer)
        return Heard("kept" if reason is Reason.KEPT else "applied", "", answer)
    if isinstance(outcome, Done) and not valid_confirmation(outcome.output, plan.by_name.get(stage), item.payload_of(stage)):
        return Heard("nothing", answer, item.row)
    [now_there] = ctx.ledger.get([(route, key)])
    if now_there is not None and _over(now_there, stage, plan, outcome):
        return Heard("ended", answer, _noted(ctx, now_there, stage, outcome, by, why))
    return Heard("refused", answer, None if now_there is None else now_there.row)


def absent(known: Known | None) -> str:
    """Why there is nothing to act on."""
    if known is None:
        return "there is no item with this key"
    return f"it has ended ({known.status}) and its row was pruned; only its seal is left"


def _gone(ctx: Context, route: str, key: str, outcome: Outcome) -> Heard:
    """Only its seal is left, if that: the item was through all stages, or it can be moved no more."""
    [known] = ctx.ledger.peek(route, [key])
    if known is None:
        return Heard("unknown", absent(known))
    if known.status is Status.COMPLETED and isinstance(outcome, Done):
        return Heard("known", absent(known), seal=known)
    log.warning("%s/%s has ended (%s) and its row has gone; an outcome came for it all the same", route, key, known.status)
    return Heard("ended", absent(known), seal=known)


def _over(item: Item, stage: str, plan: Plan, outcome: Outcome) -> bool:
    return item.row.terminal and item.stage == stage and stage in plan.by_name and not isinstance(outcome, Done)


def _noted(ctx: Context, item: Item, stage: str, outcome: Outcome, by: str, why: str | None) -> Row:
    """The item has ended: what is said of it is noted, once, and people who read the log are told."""
    note = {"for": stage, "too late": outcome_to_builtins(outcome)}

    def decision(now_there: Item) -> Change | str:
        last = ctx.ledger.history(item.route, item.key)[-1:]
        if any(written.line.note == note for written in last):
            return "it is noted already"
        return change(now_there.row, Reason.NOTED, ctx.clock.now(), now_there.row.status, {}, Teller(by, None, why), note=note)

    log.warning("%s/%s has ended (%s); an outcome came for stage %r all the same", item.route, item.key, item.row.status, stage)
    [answer] = apply_all(ctx, [(item, decision)])
    return answer if isinstance(answer, Row) else item.row
