"""Confirmations over HTTP: a partner reports the outcome of a stage."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from milepost.core.item import Row
from milepost.core.outcome import Done, Outcome
from milepost.core.status import FAILED
from milepost.core.values.refusal import RefusalKind
from milepost.engine.acts.confirmations import ConfirmationResult, hear
from milepost.http.auth.author import check_outcome
from milepost.http.protocol.endpoint import Answer, Call, endpoint
from milepost.http.protocol.problems import ProblemError, problem_error
from milepost.http.state.state import ServerState, stage_of


class Confirmation(Struct, frozen=True, forbid_unknown_fields=True):
    """`value` is the output of the stage (`true` if there is none). If the stage is not done, give
    `outcome` instead: an object with `type` `retry`, `reject`, `not-yet` or `handed-over`."""

    key: Annotated[str, Meta(min_length=1)]
    stage: str
    value: Any | UnsetType = UNSET
    outcome: Outcome | UnsetType = UNSET
    reason: str | None = None


class Confirmed(Struct, frozen=True):
    """`answer` is `applied`, `kept` (until the item is ready for it) or `known` (the same
    confirmation was given before). `status` and `stage` say where the item is now; `sealed`: its
    row has left the ledger, and only its seal remains. `note` is present if the item has failed at
    an earlier stage: the kept confirmation is applied only after an operator has retried the
    item."""

    key: str
    answer: str
    status: str
    stage: str
    sealed: bool = False
    note: str | UnsetType = UNSET


@endpoint(
    "POST",
    "/api/v1/routes/{route}/confirmations",
    scope="work",
    body=Confirmation,
    answers={200: Confirmed, 202: Confirmed},
    problems=(
        "unknown-stage",
        "unknown-item",
        "conflict",
        "ended",
        "refused",
        "route-changed",
        "busy",
    ),
    summary="Confirm an item's stage",
)
def confirm(state: ServerState, call: Call) -> Answer:
    """For a stage that a partner carries out, or that was handed over to a partner. 200: the
    confirmation is applied, or the same one was given before (a repeat changes nothing). 202: it is
    kept, because the item has not reached that stage or a worker is processing it now. If the item
    has failed at an earlier stage, `note` says so: the confirmation is kept until an operator
    retries the item. A confirmation of the stage at which the item failed is applied. 409
    `conflict`: a different confirmation was given before; that one stands, and this one is noted.
    400 `wrong-value`: the answer does not confirm what the stage was given to do (for example, one
    of its files is missing); it is noted, and an external stage is offered again after a short
    pause. 409 `ended`: the item was cancelled, or it has failed and the outcome is not a
    confirmation; it cannot be moved, and the outcome is noted if there still is a row. An operator
    can still confirm it (`acts`). A repeat does no harm, so a call without an answer can be made
    again."""
    plan, body = state.plan(call), call.body
    stage_of(plan, body.stage)
    if (body.value is UNSET) == (body.outcome is UNSET):
        raise problem_error(
            "wrong-value",
            "a confirmation has a value or an outcome",
            field="value",
            expected="one of value and outcome",
        )
    outcome = Done(body.value) if body.outcome is UNSET else body.outcome
    check_outcome(outcome, "value" if body.outcome is UNSET else "outcome")
    heard = hear(state.ctx, plan.name, body.key, body.stage, outcome, call.caller.name, body.reason)
    if heard.answer in ("applied", "known", "kept"):
        return Answer(
            _confirmed(body.key, body.stage, heard), 202 if heard.answer == "kept" else 200
        )
    raise _problem(body, heard)


def _note(row: Row, stage: str) -> str | UnsetType:
    if row.status not in FAILED or stage not in row.kept:
        return UNSET
    return f"the item has failed at {row.stage!r}; the confirmation is kept, and applied if an operator retries the item and it reaches {stage!r}"


def _confirmed(key: str, stage: str, heard: ConfirmationResult) -> Confirmed:
    if heard.row is not None:
        return Confirmed(
            key, heard.answer, heard.row.status.value, heard.row.stage, note=_note(heard.row, stage)
        )
    assert heard.seal is not None, "a known key has a row or a seal"
    return Confirmed(key, heard.answer, heard.seal.status.value, heard.seal.stage, sealed=True)


def _problem(body: Confirmation, heard: ConfirmationResult) -> ProblemError:
    there = heard.row or heard.seal
    where = {} if there is None else {"item_status": there.status.value, "stage": there.stage}
    if heard.answer == "unknown" or heard.kind is RefusalKind.GONE:
        return problem_error("unknown-item", heard.why, field="key")
    if heard.answer == "differs":
        return problem_error("conflict", f"{body.key}: {heard.why}", key=body.key, **where)
    if heard.answer == "ended":
        return problem_error("ended", f"{body.key}: {heard.why}", key=body.key, **where)
    if heard.kind is RefusalKind.OUTDATED:
        return problem_error("route-changed", heard.why)
    if heard.kind is RefusalKind.CHANGED_SINCE:
        return problem_error("busy", heard.why)
    if heard.answer == "nothing":
        return problem_error("wrong-value", heard.why, field="value")
    return problem_error("refused", f"{body.key}: {heard.why}", key=body.key, **where)
