"""Prune over HTTP: preview and remove rows of items that ended long ago."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from milepost.core.status import TERMINAL
from milepost.core.values.durations import span_ms
from milepost.engine.retention import PruneReport, prune
from milepost.engine.views.queries import statuses_of
from milepost.http.api.find import afford
from milepost.http.auth.author import check_reason, named
from milepost.http.protocol.endpoint import Call, endpoint
from milepost.http.state.state import ServerState
from milepost.ports.items import Query


class PruneRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rows to remove: items that ended longer ago than `older_than` (`90d`), with one of these
    `statuses` (`failed` stands for both failed ones); COMPLETED alone if none is given. `for`: the
    person for whom the caller acts. `scan`: allow reading a large table."""

    older_than: str = "30d"
    statuses: Annotated[list[str], Meta(max_length=10)] = []
    reason: Annotated[str, Meta(max_length=1000)] = ""
    for_: str | None = field(default=None, name="for")
    dry_run: bool = False
    scan: bool = False


@endpoint(
    "POST",
    "/api/v1/routes/{route}/prune",
    scope="operate",
    body=PruneRequest,
    problems=("route-changed", "costly", "busy"),
    summary="Remove rows of items that ended long ago",
    long=True,
)
def prune_items(state: ServerState, call: Call) -> PruneReport:
    """As `milepost prune`. A seal remains of each row, so that its key is still known. With
    `dry_run` nothing is written and no reason is needed: the answer counts the rows that would be
    removed (`statuses`) and those that would stay because their status was not given (`others`).
    The call answers when everything is done; if it is cut off, a part is pruned, and the same call
    continues with the rest."""
    plan, asked = state.plan(call), call.body
    span = span_ms(asked.older_than, "older_than")
    check_reason(asked.reason, asked.dry_run)
    by = named(call, asked.for_)
    afford(state.ctx, Query(route=plan.name, statuses=TERMINAL), asked.scan, way="scan: true")
    statuses = statuses_of(asked.statuses)
    return prune(
        state.ctx,
        plan.name,
        span,
        by=by,
        reason=asked.reason,
        statuses=statuses,
        dry_run=asked.dry_run,
    )
