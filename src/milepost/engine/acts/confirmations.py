"""Hearing partners: what became of their word about one item's stage, told so that each case can be answered in its own way."""

from __future__ import annotations

import logging
from typing import Literal

from msgspec import Struct

from milepost.core.item import Item, Row
from milepost.core.outcome import Done, Outcome
from milepost.core.status import Reason, Status
from milepost.core.values.refusal import RefusalKind
from milepost.engine.acts.bulk import take_word
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
    kind: RefusalKind | None = None
    """Of `why`, where it was refused."""


def hear(ctx: Context, route: str, key: str, stage: str, outcome: Outcome, by: str, why: str | None = None) -> ConfirmationResult:
    """Take a partner's word about one item's stage, as `confirm_outside` does. People who read the log are told of what comes for an
    item that has ended."""
    [item] = ctx.ledger.get([(route, key)])
    answer, reason = take_word(ctx, route, key, stage, outcome, by, why)
    if isinstance(answer, Row):
        if reason is Reason.NOTED:
            return ConfirmationResult("differs", DIFFERS, answer)
        return ConfirmationResult("kept" if reason is Reason.KEPT else "applied", "", answer)
    if item is None:
        return _gone(ctx, route, key, outcome, answer.text)
    if isinstance(item, Refused):
        return ConfirmationResult("refused", answer.text, kind=answer.kind)
    if answer.kind is RefusalKind.NOTED_BEFORE:
        return ConfirmationResult("differs", DIFFERS, item.row)
    if answer.kind is RefusalKind.KNOWN:
        return ConfirmationResult("known", answer.text, item.row)
    [now_there] = ctx.ledger.get([(route, key)])
    row = now_there.row if isinstance(now_there, Item) else None
    if answer.kind is RefusalKind.CONFIRMS_NOTHING:
        return ConfirmationResult("nothing", answer.text, row or item.row)
    if answer.kind is RefusalKind.ENDED:
        log.warning("%s/%s: an outcome came for stage %r all the same: %s", route, key, stage, answer)
        return ConfirmationResult("ended", answer.text, row or item.row)
    return ConfirmationResult("refused", answer.text, row, kind=answer.kind)


def _gone(ctx: Context, route: str, key: str, outcome: Outcome, why: str) -> ConfirmationResult:
    """Only its seal is left, if that: the item was through all stages, or it can be moved no more."""
    [known] = ctx.ledger.peek(route, [key])
    if known is None:
        return ConfirmationResult("unknown", why)
    if known.status is Status.COMPLETED and isinstance(outcome, Done):
        return ConfirmationResult("known", why, seal=known)
    log.warning("%s/%s has ended (%s) and its row has gone; an outcome came for it all the same", route, key, known.status)
    return ConfirmationResult("ended", why, seal=known)
