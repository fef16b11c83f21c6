"""Late work: items that should have been claimed long ago, by stage. One rule for all views. It only reads."""

from __future__ import annotations

from collections.abc import Container, Iterator

from msgspec import Struct

from milepost.core.admission.controls import scope
from milepost.core.status import LIVE, Status
from milepost.core.values.durations import short_span
from milepost.engine.context import Context
from milepost.ports.documents import ROUTE, RouteVersion, read_as
from milepost.ports.items import Query

LATE_MS = 5 * 60_000
"""Work that has been due for this long without a claim is reported."""
SAMPLE = 1000
WAITING = LIVE - {Status.PROCESSING}
"""Statuses without a worker."""


class LateWork(Struct, frozen=True):
    """Work at a stage that has been due since a time. `remote`: remote workers claim it over HTTP."""

    route: str
    stage: str
    since: int
    remote: bool

    def text(self, now: int) -> str:
        waits = "; it waits for a worker (remote)" if self.remote else ""
        return f"work at {self.route}/{self.stage} has been due for {short_span(now - self.since)} and no worker has claimed it{waits}"

    @property
    def cure(self) -> str:
        if self.remote:
            return "start more of the stage's remote workers, which claim over HTTP"
        return "start more workers (milepost work), or raise the stage's concurrency or rate"


def worked_stages(ctx: Context, held: Container[str]) -> Iterator[tuple[str, str]]:
    """(route, stage) of all stages that have workers, ours or remote ones, and that are not paused. `held`: the pauses."""
    for route, document in ctx.ledger.read(ROUTE).items():
        if route in held:
            continue
        for stage, kind in read_as(RouteVersion, document.value).shape:
            if kind != "external" and scope(route, stage) not in held:
                yield route, stage


def late_at(ctx: Context, route: str, stage: str, held: Container[str], now: int) -> LateWork | None:
    """The work at one of these stages that has been due longest, if that is too long, without items in paused lanes.
    One query of the index of due items; while nothing is late, it finds nothing."""
    before = now - LATE_MS - 1
    found = ctx.ledger.find(Query(route=route, statuses=WAITING, stages=frozenset({stage}), due_before=before, limit=SAMPLE)).items
    since = min(
        (
            row.look_at
            for row in (item.row for item in found)
            if row.look_at is not None and row.look_at <= before and scope(route, stage, row.lane) not in held
        ),
        default=None,
    )
    if since is None:
        return None
    plan = ctx.plans.get(route)
    return LateWork(route, stage, since, plan is not None and stage in plan.by_name and plan.by_name[stage].remote)
