"""Hearing partners: what became of their word about one item's stage, told so that each case can be answered in its own way."""

from __future__ import annotations

import logging
from typing import Literal

from msgspec import Struct

from milepost.core.confirmations import AlreadyEnded, ConfirmsNothing, NotedBefore, SaidBefore
from milepost.core.item import Item, Row
from milepost.core.outcome import Done, Outcome
from milepost.core.status import Reason, Status
from milepost.engine.acts.bulk import confirm_outside
from milepost.engine.context import Context
from milepost.ports.ledger import KnownKey, Refused

log = logging.getLogger(__name__)

Answer = Literal["applied", "kept", "known", "differs", "nothing", "ended", "unknown", "refused"]
"""`kept`: until the item is ready for it. `known`: the same was said before. `differs`: something else was said before, and this is
noted. `nothing`: what was said does not confirm, and is noted. `ended`: the item has ended, and this cannot move it. `unknown`: there is no such
item. `refused`: for the reason given."""
DIFFERS = "something else was said of this stage before; what is said now is noted"


class ConfirmationResult(Struct, frozen=True):
    """What became of it. `why` says why nothing was changed; `row` is the item as it then is, `seal` what is left of it if its row
    has gone."""

    answer: Answer
    why: str = ""
    row: Row | None = None
    seal: KnownKey | None = None


def hear(ctx: Context, route: str, key: str, stage: str, outcome: Outcome, by: str, why: str | None = None) -> ConfirmationResult:
    """Take a partner's word about one item's stage, as `confirm_outside` does. People who read the log are told of what comes for an
    item that has ended."""
    [item] = ctx.ledger.get([(route, key)])
    answer = confirm_outside(ctx, route, key, stage, outcome, by, why)
    if item is None:
        return _gone(ctx, route, key, outcome, str(answer))
    if isinstance(item, Refused):
        return ConfirmationResult("refused", str(answer))
    if isinstance(answer, NotedBefore):
        return ConfirmationResult("differs", DIFFERS, item.row)
    if isinstance(answer, SaidBefore):
        return ConfirmationResult("known", str(answer), item.row)
    if isinstance(answer, ConfirmsNothing):
        [noted] = ctx.ledger.get([(route, key)])
        return ConfirmationResult("nothing", str(answer), noted.row if isinstance(noted, Item) else item.row)
    if isinstance(answer, Row):
        reason = _reason(ctx, item.row, by)
        if reason is Reason.NOTED:
            return ConfirmationResult("differs", DIFFERS, answer)
        return ConfirmationResult("kept" if reason is Reason.KEPT else "applied", "", answer)
    [now_there] = ctx.ledger.get([(route, key)])
    if isinstance(answer, AlreadyEnded):
        log.warning("%s/%s: an outcome came for stage %r all the same: %s", route, key, stage, answer)
        return ConfirmationResult("ended", str(answer), now_there.row if isinstance(now_there, Item) else item.row)
    return ConfirmationResult("refused", answer, now_there.row if isinstance(now_there, Item) else None)


def _reason(ctx: Context, before: Row, by: str) -> Reason | None:
    """Of the line that was written for it: the last one of theirs since the item was as it was before."""
    lines = (written.line for written in ctx.ledger.history(before.route, before.key))
    return next((line.reason for line in reversed(list(lines)) if line.version > before.version and line.by == by), None)


def _gone(ctx: Context, route: str, key: str, outcome: Outcome, why: str) -> ConfirmationResult:
    """Only its seal is left, if that: the item was through all stages, or it can be moved no more."""
    [known] = ctx.ledger.peek(route, [key])
    if known is None:
        return ConfirmationResult("unknown", why)
    if known.status is Status.COMPLETED and isinstance(outcome, Done):
        return ConfirmationResult("known", why, seal=known)
    log.warning("%s/%s has ended (%s) and its row has gone; an outcome came for it all the same", route, key, known.status)
    return ConfirmationResult("ended", why, seal=known)
