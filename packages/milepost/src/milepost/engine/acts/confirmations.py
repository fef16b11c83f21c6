"""Confirmations from partners, with a result that tells each case apart."""

from __future__ import annotations

import logging
from typing import Literal

from msgspec import Struct

from milepost.core.item import Row
from milepost.core.outcome import Done, Outcome
from milepost.core.status import Reason, Status
from milepost.core.values.refusal import RefusalKind
from milepost.engine.acts.bulk import take_confirmations
from milepost.engine.context import Context
from milepost.engine.known_keys import known_key
from milepost.ports.items import KnownKey, Refused

log = logging.getLogger(__name__)

Answer = Literal["applied", "kept", "known", "differs", "nothing", "ended", "unknown", "refused"]
"""`kept`: stored until the item is ready for it. `known`: the same confirmation was given before.
`differs`: another one was given before; this one is noted. `nothing`: it does not confirm the
stage; noted. `ended`: the item has ended and does not move. `unknown`: no such item. `refused`: for
the reason given."""
_ANSWERS: dict[RefusalKind, Answer] = {
    RefusalKind.KNOWN: "known",
    RefusalKind.CONFIRMS_NOTHING: "nothing",
    RefusalKind.ENDED: "ended",
}
DIFFERS = "another answer was given for this stage before; this one is noted"


class ConfirmationResult(Struct, frozen=True):
    """Result of a confirmation. `why`: reason if nothing changed; `row`: the item as it then is;
    `seal`: what remains of a pruned item."""

    answer: Answer
    why: str = ""
    row: Row | None = None
    seal: KnownKey | None = None
    kind: RefusalKind | None = None
    """The kind of refusal, if it was refused."""


def hear(
    ctx: Context,
    route: str,
    key: str,
    stage: str,
    outcome: Outcome,
    by: str,
    why: str | None = None,
) -> ConfirmationResult:
    """Apply a partner's confirmation as `confirm_outside` does, and classify the result. Logs a
    warning for an item that has ended."""
    key = known_key(ctx, route, key)
    answer, reason = take_confirmations(ctx, route, stage, {key: outcome}, by, why)[key]
    if isinstance(answer, Row):
        if reason is Reason.NOTED:
            return ConfirmationResult("differs", DIFFERS, answer)
        return ConfirmationResult("kept" if reason is Reason.KEPT else "applied", "", answer)
    [item] = ctx.ledger.get([(route, key)])
    if item is None:
        return _gone(ctx, route, key, outcome, answer.text)
    if isinstance(item, Refused):
        return ConfirmationResult("refused", answer.text, kind=answer.kind)
    if answer.kind is RefusalKind.NOTED_BEFORE:
        return ConfirmationResult("differs", DIFFERS, item.row)
    if answer.kind is RefusalKind.ENDED:
        log.warning(
            "%s/%s: a confirmation for stage %r arrived too late: %s", route, key, stage, answer
        )
    if answer.kind in _ANSWERS:
        return ConfirmationResult(_ANSWERS[answer.kind], answer.text, item.row)
    return ConfirmationResult("refused", answer.text, item.row, kind=answer.kind)


def _gone(ctx: Context, route: str, key: str, outcome: Outcome, why: str) -> ConfirmationResult:
    """The row was removed: classify by the seal."""
    [known] = ctx.ledger.peek(route, [key])
    if known is None:
        return ConfirmationResult("unknown", why)
    if known.status is Status.COMPLETED and isinstance(outcome, Done):
        return ConfirmationResult("known", why, seal=known)
    log.warning(
        "%s/%s has ended (%s) and its row was removed; a confirmation arrived too late",
        route,
        key,
        known.status,
    )
    return ConfirmationResult("ended", why, seal=known)
