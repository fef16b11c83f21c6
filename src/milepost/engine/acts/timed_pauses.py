"""Pauses that end by themselves, and the pace at which the backlog of a pause is drained.

The resender ends them, so an ended pause is removed, recorded as an act and shown nowhere within one of its turns (five seconds).
"""

from __future__ import annotations

from msgspec.structs import replace

from milepost.core.admission.controls import NO_LIMIT, Controls, Hold, Limit
from milepost.core.errors import UsageError
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost.core.values.durations import iso, rate_per_second
from milepost.engine.act_log import record
from milepost.engine.context import Context
from milepost.ports.documents import HOLD, LIMIT, read_all_versioned, read_versioned
from milepost.ports.items import Query

DRAIN_AHEAD_MS = 1_000
"""A drain that an operator starts also covers the items that the operator then sends there, such as by a bulk act."""


def check_drain(plan: Plan, stage: str | None, drain: str | float | None) -> None:
    """Raise a UsageError if a backlog here cannot be drained at this pace."""
    if drain is None:
        return
    rate_per_second(drain, "drain")
    if stage is None:
        raise UsageError(f"a pace of draining is for a stage or a lane; name a stage of route {plan.name!r}")
    if plan.by_name[stage].external:
        raise UsageError(f"stage {stage!r} of route {plan.name!r} is external: it has no handler to slow down")


def begin_drain(ctx: Context, name: str, drain: str | float, *, by: str, reason: str, ahead_ms: int = 0) -> None:
    """Limit a stage or lane, named by its scope, to this pace until the items that wait there now, or enter it within `ahead_ms`, have been
    claimed. A lower limit that it has already stays."""
    route, stage, lane = _parts(name)
    now = ctx.clock.now()
    if not ahead_ms and not _backlog(ctx, name, now):
        return
    while True:
        limit, version = read_versioned(ctx.ledger, LIMIT, name, Limit)
        old = limit or NO_LIMIT
        normal = replace(old, rate=old.normal_rate) if old.drains is not None else old
        present = Controls((), {name: normal}, {}).rate(route, ctx.plan(route).by_name[stage], lane)
        if present is not None and present.per_second <= rate_per_second(drain, "drain"):
            return
        slowed = replace(normal, rate=drain, drains=now + ahead_ms, normal_rate=normal.rate, by=by, reason=reason, at=now)
        if ctx.ledger.write(LIMIT, name, slowed, expect=version):
            return


def end_pauses(ctx: Context) -> int:
    """End the pauses whose time has come, and the limits of backlogs that are drained; returns how many of both."""
    now, ended = ctx.clock.now(), 0
    for name, (hold, version) in read_all_versioned(ctx.ledger, HOLD, Hold).items():
        if hold.until is None or now < hold.until:
            continue
        if hold.drain is not None and _known(ctx, name):
            # Before the pause ends: a worker that claims right after it must find the pace.
            begin_drain(ctx, name, hold.drain, by=hold.by, reason=f"backlog of a pause: {hold.reason}")
        if not ctx.ledger.write(HOLD, name, None, expect=version):
            continue
        ended += 1
        route, why = name.partition("/")[0], f"the pause has ended by itself, as set: {hold.reason}"
        record(ctx, "resume", route, hold.by, why, {"scope": name, "until": iso(hold.until)})
    return ended + _end_drains(ctx)


def _end_drains(ctx: Context) -> int:
    ended = 0
    for name, (limit, version) in read_all_versioned(ctx.ledger, LIMIT, Limit).items():
        if limit.drains is None or (_known(ctx, name) and _backlog(ctx, name, limit.drains)):
            continue
        normal = replace(limit, rate=limit.normal_rate, drains=None, normal_rate=None)
        value = None if normal.rate is None and normal.concurrency is None else normal
        ended += ctx.ledger.write(LIMIT, name, value, expect=version)
    return ended


def _backlog(ctx: Context, name: str, since: int) -> bool:
    """Whether an item that waited there at the time `since` still waits, or that time is yet to come."""
    if ctx.clock.now() < since:
        return True
    route, stage, lane = _parts(name)
    waiting = Query(route=route, stages=frozenset({stage}), lane=lane, limit=1)
    fresh = replace(waiting, statuses=frozenset({Status.PENDING, Status.QUEUED}), entered_before=since + 1)
    again = replace(waiting, statuses=frozenset({Status.RETRY_SCHEDULED, Status.WAITING}), due_before=since)
    return any(ctx.ledger.find(query).items for query in (fresh, again))


def _known(ctx: Context, name: str) -> bool:
    """Whether this process has the stage of a scope."""
    route, stage, _ = _parts(name)
    return route in ctx.plans and stage in ctx.plans[route].by_name


def _parts(name: str) -> tuple[str, str, str | None]:
    route, stage, *lane = name.split("/", 2)
    return route, stage, lane[0] if lane else None
