"""Redate over HTTP: date items that are dated in the future as of now."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from milepost.engine.act_log import ActReport
from milepost.engine.acts.redate import redate_rows, rows_of_future
from milepost.engine.health.clock_checks import future_rows_key
from milepost.http.api.find import afford
from milepost.http.api.operators.acts import PROBLEMS, ActId, check_free
from milepost.http.auth.author import check_reason, named
from milepost.http.protocol.endpoint import Call, endpoint
from milepost.http.state.state import ServerState


class RedateRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason. `for`: the person for whom the caller acts. `id`: a name for the act; the same
    call with this id continues an act that was cut off, or, if it has finished, gets the first
    answer again. `scan`: allow a scan if no index finds items by date and the table is large."""

    reason: Annotated[str, Meta(max_length=1000)] = ""
    for_: str | None = field(default=None, name="for")
    dry_run: bool = False
    id: ActId | None = None
    scan: bool = False


@endpoint(
    "POST",
    "/api/v1/routes/{route}/redate",
    scope="operate",
    body=RedateRequest,
    problems=PROBLEMS,
    summary="Date items that are dated in the future as of now",
    long=True,
)
def redate_items(state: ServerState, call: Call) -> ActReport:
    """As `milepost redate`. A clock was ahead when they were written; bulk acts leave them out.
    Their history keeps the times that they had, and an item that was submitted for a later date
    keeps that date. With `dry_run` nothing is written and no reason is needed. A call with the `id`
    of another act is refused with 409, `conflict`."""
    plan, asked = state.plan(call), call.body
    check_reason(asked.reason, asked.dry_run)
    by = named(call, asked.for_)
    if asked.id is not None:
        check_free(state, call, asked.id)
    afford(
        state.ctx, rows_of_future(plan.name, state.ctx.clock.now()), asked.scan, way="scan: true"
    )
    report = redate_rows(
        state.ctx, plan.name, by=by, reason=asked.reason, dry_run=asked.dry_run, act_id=asked.id
    )
    if not asked.dry_run:
        state.ttl_cache.drop(future_rows_key(plan.name))
    return report
