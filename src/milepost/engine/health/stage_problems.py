"""Late work and refused answers of a stage: the queries behind two health checks. They only read."""

from __future__ import annotations

from collections.abc import Container, Iterator

from msgspec import Struct

from milepost.core.admission.controls import scope
from milepost.core.confirmations import REFUSED, was_refused
from milepost.core.status import LIVE, Status
from milepost.core.values.durations import short_span
from milepost.engine.context import Context
from milepost.engine.views.items import counted
from milepost.ports.documents import ROUTE, RouteVersion, read_all
from milepost.ports.items import Query

LATE_MS = 5 * 60_000
"""Work that has been due for this long without a claim is reported."""
SAMPLE = 1000
WAITING = LIVE - {Status.PROCESSING}
"""Statuses without a worker."""
AWAITED = frozenset({Status.WAITING, Status.QUEUED})
"""Statuses of an external stage that awaits its answer."""


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


def worked_stages(ctx: Context, paused: Container[str]) -> Iterator[tuple[str, str]]:
    """(route, stage) of all stages that have workers, ours or remote ones, and that are not paused. `paused`: the scopes with a pause or an open breaker."""
    for route, version in read_all(ctx.ledger, ROUTE, RouteVersion).items():
        if route in paused:
            continue
        for stage, kind in version.shape:
            if kind != "external" and scope(route, stage) not in paused:
                yield route, stage


def late_at(ctx: Context, route: str, stage: str, paused: Container[str], now: int) -> LateWork | None:
    """The work at one of these stages that has been due longest, if that is too long, without items in paused lanes.
    One query of the index of due items; while nothing is late, it finds nothing."""
    before = now - LATE_MS - 1
    found = ctx.ledger.find(Query(route=route, statuses=WAITING, stages=frozenset({stage}), due_before=before, limit=SAMPLE)).items
    rows = [item.row for item in found if scope(route, stage, item.row.lane) not in paused]
    since = min((row.look_at for row in rows if row.look_at is not None and row.look_at <= before), default=None)
    if since is None:
        return None
    plan = ctx.plans.get(route)
    return LateWork(route, stage, since, plan is not None and stage in plan.by_name and plan.by_name[stage].remote)


class RefusedAnswers(Struct, frozen=True):
    """Number of items of a stage with a refused answer, and one of them with the reason. `more`: only the first items were read."""

    route: str
    stage: str
    n: int
    more: bool
    key: str
    why: str

    def text(self) -> str:
        at_least = "at least " if self.more else ""
        return f"the answers for {at_least}{counted(self.n, 'item')} at {self.route}/{self.stage} confirm nothing, such as {self.key}: {self.why}"


def external_stages(ctx: Context) -> Iterator[tuple[str, str]]:
    """(route, stage) of all external stages."""
    for route, version in sorted(read_all(ctx.ledger, ROUTE, RouteVersion).items()):
        for stage, kind in version.shape:
            if kind == "external":
                yield route, stage


def refused_at(ctx: Context, route: str, stage: str) -> RefusedAnswers | None:
    """The refused answers of one external stage, among the first items that await an answer; None if there are none."""
    page = ctx.ledger.find(Query(route=route, statuses=AWAITED, stages=frozenset({stage}), limit=SAMPLE))
    found = [item.row for item in page.items if was_refused(item.row)]
    if not found:
        return None
    return RefusedAnswers(route, stage, len(found), page.next is not None, found[0].key, (found[0].note or "").removeprefix(REFUSED))
