"""Controls: pause, resume and limit routes, stages and lanes, and close breakers; each act is
recorded.

The resender ends timed pauses, and the pace at which the backlog of a pause is drained: so an ended
pause is removed, recorded as an act and shown nowhere within one of its turns (five seconds).
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.admission.breakers import BreakerRecord
from milepost.core.admission.controls import NO_LIMIT, Controls, Hold, Limit, scope
from milepost.core.errors import UsageError
from milepost.core.routes.mistakes import check_count
from milepost.core.status import Status
from milepost.core.values.durations import Moment, iso, moment_ms, rate_per_second
from milepost.engine.act_log import record, signed
from milepost.engine.context import Context
from milepost.engine.views.lanes import WaitingCount, in_route, pause_view
from milepost.ports.documents import BREAKER, HOLD, LIMIT, read_each_versioned, update
from milepost.ports.items import Query

DRAIN_AHEAD_MS = 1_000
"""A drain that an operator starts also covers the items that the operator then sends there, such as
by a bulk act."""


DAMAGED_HOLD = Hold(0, "unknown", "the record of this pause is damaged")
"""In place of a pause that cannot be read: it is in force, and an operator can end it."""
DAMAGED_BREAKER = BreakerRecord(opened_at=0)


class Paused(Struct, frozen=True):
    """A pause in force, for people and programs."""

    scope: str
    paused: bool
    at: str | None
    by: str
    reason: str
    until: str | None = None
    drain: str | float | None = None
    waiting: int | None = None
    """How many items wait there, as the call that pauses counts them. None: they were not counted;
    a ledger on AWS has no index for it."""
    near: list[str] = []
    """If none waits in the lane: lanes with similar names."""


class Resumed(Struct, frozen=True):
    """`resumed` is false if there was no such pause; `still_paused` are the other pauses in the
    route."""

    scope: str
    resumed: bool
    still_paused: list[str]


class Limited(Struct, frozen=True):
    """A limit in force, for people and programs."""

    scope: str
    rate: str | float | None
    concurrency: int | None
    at: str | None = None
    by: str = ""
    reason: str = ""


def paused_view(name: str, hold: Hold, waiting: WaitingCount | None = None) -> Paused:
    paused = Paused(name, True, iso(hold.at), hold.by, hold.reason, iso(hold.until), hold.drain)
    return paused if waiting is None else replace(paused, waiting=waiting.n, near=waiting.near)


def resumed_view(ctx: Context, name: str, resumed: bool) -> Resumed:
    return Resumed(
        name, resumed, [other for other, _ in in_route(ctx, name.partition("/")[0], HOLD, Hold)]
    )


def limited_view(name: str, limit: Limit | None) -> Limited:
    if limit is None:
        return Limited(name, None, None)
    return Limited(name, limit.rate, limit.concurrency, iso(limit.at), limit.by, limit.reason)


def pause(
    ctx: Context,
    route: str,
    stage: str | None = None,
    lane: str | None = None,
    *,
    by: str,
    reason: str,
    until: Moment | None = None,
    drain: str | float | None = None,
    own: bool = False,
    endless_stays: bool = False,
) -> Hold:
    """Pause a route, a stage or a lane: no item there is claimed or sent again, and no attempt is
    counted. The pause ends when an operator resumes, or by itself at `until`; workers then take the
    waiting items at the rate `drain`. An existing pause stays, unless `until` or `drain` is given,
    or it would end by itself: then this one replaces it, with its `drain` if none is given. `own`:
    a program pauses by itself, and another operator's pause stays in any case. `endless_stays`: a
    pause without an end stays in any case. Returns the pause that is in force."""
    name = _checked_scope(ctx, route, stage, lane, by, reason, drain)
    now = ctx.clock.now()
    ends_at = None if until is None else moment_ms(until, now, "until")
    if ends_at is not None and ends_at <= now:
        raise UsageError(
            f"until is {iso(ends_at)}, which is past; give a later time, or a span from now such as '2h'"
        )
    endless = until is None and drain is None

    def paused(present: Hold | None) -> Hold:
        hold = Hold(now, by, reason, ends_at, drain)
        if present is None:
            return hold
        if own and present.by != by:
            return present
        if present.until is None and (endless or endless_stays):
            return present
        if drain is None:
            # An operator who resumes it expects the pace that was set.
            return replace(hold, drain=present.drain)
        return hold

    pausing = update(ctx.ledger, HOLD, name, Hold, paused, damaged=DAMAGED_HOLD)
    hold = pausing.after
    if pausing.written:
        about = {"scope": name, "until": iso(ends_at), "drain": hold.drain}
        record(ctx, "pause", route, by, reason, about, by_program=own)
    return hold


def resume(
    ctx: Context,
    route: str,
    stage: str | None = None,
    lane: str | None = None,
    *,
    by: str,
    reason: str,
    drain: str | float | None = None,
    own: bool = False,
) -> bool:
    """End exactly this pause; False if there is none. `drain`: the rate for the items that have
    waited, if not the one that the pause has. `own`: a program resumes by itself; another
    operator's pause stays, and no application is called before it."""
    name = _checked_scope(ctx, route, stage, lane, by, reason, drain)

    def resumed(hold: Hold | None) -> Hold | None:
        if hold is None or (own and hold.by != by):
            return hold
        if not own:
            for call in ctx.before_resume:
                call(pause_view(name, hold), by)
        pace = drain if drain is not None else hold.drain
        if pace is not None:
            # Before the pause ends: a worker that claims right after it must find the pace.
            begin_drain(ctx, name, pace, by=by, reason=f"backlog of a pause: {reason}")
        return None

    if not update(ctx.ledger, HOLD, name, Hold, resumed, damaged=DAMAGED_HOLD).written:
        return False
    about = {"scope": name, "drain": drain}
    record(ctx, "resume", route, by, reason, about, by_program=own)
    return True


def drain(
    ctx: Context,
    route: str,
    stage: str,
    lane: str | None,
    rate: str | float,
    *,
    by: str,
    reason: str,
) -> None:
    """Limit a stage or lane to this rate until the items that wait there now, or enter within a
    second, have been claimed."""
    name = _checked_scope(ctx, route, stage, lane, by, reason, rate)
    begin_drain(ctx, name, rate, by=by, reason=reason, ahead_ms=DRAIN_AHEAD_MS)
    record(ctx, "limit", route, by, reason, {"scope": name, "rate": rate, "drain": True})


def limit(
    ctx: Context,
    route: str,
    stage: str,
    lane: str | None = None,
    *,
    rate: str | float | None = None,
    concurrency: int | None = None,
    clear: bool = False,
    by: str,
    reason: str,
) -> Limit | None:
    """Set limits of a stage or lane; they override the route file's. Values not given stay; `clear`
    removes all. A rate that is given also ends the draining of a backlog there."""
    name = _checked_scope(ctx, route, stage, lane, by, reason)
    if ctx.stage(route, stage).external:
        raise UsageError(
            f"stage {stage!r} of route {route!r} is external: it has no handler to limit"
        )
    if clear == (rate is not None or concurrency is not None):
        raise UsageError("give a rate, a concurrency or both, or clear")
    if rate is not None:
        rate_per_second(rate, "rate")
    check_count(concurrency, "concurrency")

    def limited(present: Limit | None) -> Limit | None:
        if clear:
            return None
        old = present or NO_LIMIT
        at_most = concurrency or old.concurrency
        new = replace(old, concurrency=at_most, by=by, reason=reason, at=ctx.clock.now())
        if rate is None:
            return new
        return replace(new, rate=rate, drains=None, normal_rate=None)

    limiting = update(ctx.ledger, LIMIT, name, Limit, limited, damaged=NO_LIMIT)
    about = {"scope": name, "rate": rate, "concurrency": concurrency, "clear": clear}
    record(ctx, "limit", route, by, reason, about)
    return limiting.after


def close_breakers(
    ctx: Context, route: str, stage: str, lane: str | None = None, *, by: str, reason: str
) -> list[str]:
    """Close the open breaker of a lane, or those of all lanes of a stage: their items are claimed
    again at once. Returns the scopes that were closed."""
    ctx.stage(route, stage)
    signed(by, reason)
    closed: list[str] = []
    for name in sorted(ctx.ledger.read(BREAKER)):
        if lane is None:
            concerned = name.startswith(scope(route, stage, ""))
        else:
            concerned = name == scope(route, stage, lane)
        if concerned and _close_breaker(ctx, name):
            record(ctx, "close-breaker", route, by, reason, {"scope": name})
            closed.append(name)
    return closed


def _close_breaker(ctx: Context, name: str) -> bool:
    """Close one breaker; False: it is not open."""

    def closed(breaker: BreakerRecord | None) -> BreakerRecord | None:
        return breaker if breaker is not None and breaker.closed else None

    return update(ctx.ledger, BREAKER, name, BreakerRecord, closed, damaged=DAMAGED_BREAKER).written


def _checked_scope(
    ctx: Context,
    route: str,
    stage: str | None,
    lane: str | None,
    by: str,
    reason: str,
    drain: str | float | None = None,
) -> str:
    """The scope of an act; UsageError if it does not exist, the act is not signed, or a backlog
    there cannot be drained at this pace."""
    if stage is not None:
        ctx.stage(route, stage)
    elif lane is not None:
        raise UsageError(f"lane {lane!r} needs a stage: name the stage too")
    plan = ctx.plan(route)
    signed(by, reason)
    if drain is not None:
        rate_per_second(drain, "drain")
        if stage is None:
            raise UsageError(
                f"a pace of draining is for a stage or a lane; name a stage of route {plan.name!r}"
            )
        if plan.by_name[stage].external:
            raise UsageError(
                f"stage {stage!r} of route {plan.name!r} is external: it has no handler to slow down"
            )
    return scope(route, stage, lane)


def begin_drain(
    ctx: Context, name: str, drain: str | float, *, by: str, reason: str, ahead_ms: int = 0
) -> None:
    """Limit a stage or lane, named by its scope, to this pace until the items that wait there now,
    or enter it within `ahead_ms`, have been claimed. A lower limit that it has already stays."""
    route, stage, lane = _parts(name)
    now = ctx.clock.now()
    if not ahead_ms and not _backlog(ctx, name, now):
        return
    plan_stage = ctx.plan(route).by_name[stage]

    def slowed(limit: Limit | None) -> Limit | None:
        old = limit or NO_LIMIT
        normal = replace(old, rate=old.normal_rate) if old.drains is not None else old
        controls = Controls((), {name: normal}, {})
        if lane is None:
            rate = controls.rate(route, plan_stage, None)
        else:
            rate = controls.joint_rate(route, plan_stage, lane)
        if rate is not None and rate.per_second <= rate_per_second(drain, "drain"):
            return limit
        return replace(
            normal,
            rate=drain,
            drains=now + ahead_ms,
            normal_rate=normal.rate,
            by=by,
            reason=reason,
            at=now,
        )

    update(ctx.ledger, LIMIT, name, Limit, slowed, damaged=NO_LIMIT)


def end_pauses(ctx: Context) -> int:
    """End the pauses whose time has come, and the limits of backlogs that are drained; returns how
    many of both."""
    now, ended = ctx.clock.now(), 0
    for name, (hold, version) in read_each_versioned(ctx.ledger, HOLD, Hold).items():
        if hold.until is None or now < hold.until:
            continue
        if hold.drain is not None and _known(ctx, name):
            # Before the pause ends: a worker that claims right after it must find the pace.
            begin_drain(
                ctx, name, hold.drain, by=hold.by, reason=f"backlog of a pause: {hold.reason}"
            )
        if not ctx.ledger.write(HOLD, name, None, expect=version):
            continue
        ended += 1
        route, why = name.partition("/")[0], f"the pause has ended by itself, as set: {hold.reason}"
        record(
            ctx,
            "resume",
            route,
            f"resender for {hold.by}",
            why,
            {"scope": name, "ended_at": iso(hold.until)},
        )
    return ended + _end_drains(ctx)


def _end_drains(ctx: Context) -> int:
    ended = 0
    for name, (limit, version) in read_each_versioned(ctx.ledger, LIMIT, Limit).items():
        if limit.drains is None or (_known(ctx, name) and _backlog(ctx, name, limit.drains)):
            continue
        normal = replace(limit, rate=limit.normal_rate, drains=None, normal_rate=None)
        value = None if normal.rate is None and normal.concurrency is None else normal
        ended += ctx.ledger.write(LIMIT, name, value, expect=version)
    return ended


def _backlog(ctx: Context, name: str, since: int) -> bool:
    """Whether an item that waited there, or in a lane within it, at the time `since` still waits,
    or that time is yet to come."""
    if ctx.clock.now() < since:
        return True
    route, stage, lane = _parts(name)
    waiting = Query(route=route, stages=frozenset({stage}), within=lane, limit=1)
    fresh = replace(
        waiting, statuses=frozenset({Status.PENDING, Status.QUEUED}), entered_before=since + 1
    )
    again = replace(
        waiting, statuses=frozenset({Status.RETRY_SCHEDULED, Status.WAITING}), due_before=since
    )
    return any(ctx.ledger.find(query).items for query in (fresh, again))


def _known(ctx: Context, name: str) -> bool:
    """Whether this process has the stage of a scope."""
    route, stage, _ = _parts(name)
    return route in ctx.plans and stage in ctx.plans[route].by_name


def _parts(name: str) -> tuple[str, str, str | None]:
    route, stage, *lane = name.split("/", 2)
    return route, stage, lane[0] if lane else None
