"""Prune over HTTP: a preview, and letting rows go that ended long ago."""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Meta, Struct, field

from milepost.core.status import TERMINAL
from milepost.core.values.durations import span_ms
from milepost.engine.retention import PruneReport, prune
from milepost.engine.views.queries import statuses_of
from milepost.http.api.find import afford
from milepost.http.auth.author import check_reason, named
from milepost.http.protocol.endpoint import Answer, Call, Endpoints
from milepost.http.state.state import ServerState
from milepost.ports.items import Query

ENDPOINTS = Endpoints()


class PruneRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which rows go: those that ended longer ago than `older_than` (`90d`), with one of these `statuses` (`failed` is both failed ones);
    COMPLETED alone if none is named. `for`: the person who wants it. `scan`: go through the rows though there are many."""

    older_than: str = "30d"
    statuses: Annotated[list[str], Meta(max_length=10)] = []
    reason: Annotated[str, Meta(max_length=1000)] = ""
    for_: str | None = field(default=None, name="for")
    dry_run: bool = False
    scan: bool = False


@ENDPOINTS.add(
    "POST",
    "/api/v1/routes/{route}/prune",
    scope="operate",
    body=PruneRequest,
    answers={200: PruneReport},
    problems=("unknown-route", "route-changed", "costly", "busy"),
    summary="Let go of rows that ended long ago",
)
async def let_go(state: ServerState, call: Call) -> Answer:
    """As `milepost prune`. A seal stays of each row, so that its key is still known. With `dry_run` nothing is written and no reason is
    needed: the answer counts what would go (`statuses`) and what would stay because its status was not named (`others`). The answer comes
    when all of it is done; a call that is cut off has pruned a part, and the same call goes on with the rest."""
    plan, asked = state.plan(call), call.body
    span = span_ms(asked.older_than, "older_than")
    check_reason(asked.reason, asked.dry_run)
    by = named(call, asked.for_)

    def work() -> PruneReport:
        afford(state.ctx, Query(route=plan.name, statuses=TERMINAL), asked.scan, way="scan: true")
        statuses = statuses_of(asked.statuses)
        return prune(state.ctx, plan.name, span, by=by, reason=asked.reason, statuses=statuses, dry_run=asked.dry_run)

    return Answer(await asyncio.get_running_loop().run_in_executor(state.act_pool, work))
