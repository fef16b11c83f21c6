"""Is all well? One calm line if it is; else what is not, each with the page where something can be done about it."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from functools import partial
from urllib.parse import quote

from msgspec import Struct

from milepost.core.errors import MilepostError
from milepost.core.status import Status
from milepost.core.values.durations import short_span
from milepost.engine.context import Context
from milepost.engine.events.cursors import live_cursors
from milepost.engine.health.overdue import WAITING, late_at, worked_stages
from milepost.engine.health.refused_answers import AWAITED, external_stages, refused_at
from milepost.engine.presence import HEARD_MS, last_runs
from milepost.engine.views.items import counted, live_processes, processes
from milepost.engine.views.snapshot import Snapshot
from milepost.http.state.ttl_cache import TtlCache
from milepost.ports.documents import HOLD, PARKED, Parked, Process, read_as
from milepost.ports.foreign_rows import QuarantineStore

WORK = (Status.PENDING, Status.QUEUED)


class Notice(Struct, frozen=True):
    """Something that is not well. `level` is bad or warn; `where` is a page of ours."""

    level: str
    told: str
    where: str


class HealthPanel(Struct, frozen=True):
    """What is not well, the worst first; and the calm line, for when there is nothing."""

    notices: list[Notice]
    calm: str


def _any_aside(ctx: Context, ttl_cache: TtlCache) -> bool | None:
    """Is anything set aside? To look may be to ask a queue. None: it cannot be told now."""
    return ttl_cache.once(("set aside",), lambda: _any_in(ctx.ledger.quarantine))


def _any_in(quarantine: QuarantineStore) -> bool | None:
    try:
        some, more = quarantine.set_aside(1)
    except MilepostError:
        return None
    return bool(some) or more


def health(ctx: Context, routes: Iterable[Snapshot], *, all_seen: bool, ttl_cache: TtlCache) -> HealthPanel:
    """How these routes stand, and what they need. What belongs to no route is for those alone who see all of them."""
    now, seen = ctx.clock.now(), list(routes)
    filled = _any_aside(ctx, ttl_cache) if all_seen else None
    alive, held = live_processes(ctx), ctx.ledger.read(HOLD)
    resending, calm_resender = _resender(ctx, seen, now)
    told, calm_told = _told(ctx, {one.route for one in seen})
    waiting = sum(_waiting(ctx, one, held) for one in seen)
    notices = [
        *_nobody(ctx, alive, waiting, now),
        *_standing_by(alive, {one.route for one in seen}),
        *resending,
        *told,
        *_late(ctx, seen, held, ttl_cache, now),
        *_paused(held, seen),
    ]
    notices += _refused_answers(ctx, seen, ttl_cache)
    if filled:
        notices.append(Notice("warn", "Something was set aside because it cannot be used.", "/system"))
    for one in seen:
        notices += _failed(one) + _overdue(one)
    calm = [f"{len(alive):,} {'process' if len(alive) == 1 else 'processes'} at work" if alive else "nothing waits for a worker"]
    calm += [*calm_resender, "nothing is paused", *([] if filled is None else ["nothing is set aside"]), *calm_told]
    return HealthPanel(sorted(notices, key=lambda notice: notice.level), f"All is well: {', '.join(calm)}.")


def _waiting(ctx: Context, seen: Snapshot, held: Container[str]) -> int:
    """How many items of a route wait for workers of our own."""
    plan = ctx.plans.get(seen.route)
    if plan is None or seen.route in held:
        return 0
    ours = [stage for stage in seen.stages if stage.name in plan.by_name and plan.by_name[stage.name].ours and not stage.paused]
    return sum(stage.among(*WORK) for stage in ours)


def _nobody(ctx: Context, alive: list[Process], waiting: int, now: int) -> list[Notice]:
    """Work waits, and nobody lives who would do it, nor was called to it a little while ago."""
    if not waiting or any("worker" in process.roles for process in alive):
        return []
    gone = set(ctx.ledger.dead_workers())
    others = (process for process in processes(ctx) if not process.stopped and process.holder not in gone)
    if any(now - process.roles.get("worker", 0) <= HEARD_MS for process in others):
        return []
    waits = "waits" if waiting == 1 else "wait"
    return [Notice("bad", f"Nobody is at work, and {counted(waiting, 'item')} {waits} for a worker.", "/system")]


def _standing_by(alive: list[Process], routes: Collection[str]) -> list[Notice]:
    """Processes that a change of a route has overtaken: they claim nothing of it until they are restarted."""
    return [
        Notice("warn", f"{process.holder} stands by: it has an older version of route {route}. Restart it.", "/system")
        for process in alive
        for route in process.outdated
        if route in routes
    ]


def _late(ctx: Context, seen: list[Snapshot], held: Container[str], ttl_cache: TtlCache, now: int) -> list[Notice]:
    """What the doctor says of work that nobody takes up. Only where something waits, as the counters say, is it looked for."""
    waits = {(one.route, stage.name) for one in seen for stage in one.stages if stage.among(*WAITING)}
    notices = []
    for route, stage in worked_stages(ctx, held):
        if (route, stage) not in waits:
            continue
        late = ttl_cache.once(("late", route, stage), partial(late_at, ctx, route, stage, held, now))
        if late is not None:
            told = late.told(now)
            where = f"/items/{quote(route, safe='')}?stage={quote(stage, safe='')}&nearest=true"
            notices.append(Notice("warn", f"{told[0].upper()}{told[1:]}.", where))
    return notices


def _refused_answers(ctx: Context, seen: list[Snapshot], ttl_cache: TtlCache) -> list[Notice]:
    """Answers that confirm nothing, at external stages where items wait, as the counters say."""
    waits = {(one.route, stage.name) for one in seen for stage in one.stages if stage.among(*AWAITED)}
    notices = []
    for route, stage in external_stages(ctx):
        found = None if (route, stage) not in waits else ttl_cache.once(("refused", route, stage), partial(refused_at, ctx, route, stage))
        if found is not None:
            told = found.told()
            where = f"/items/{quote(route, safe='')}?stage={quote(stage, safe='')}&nearest=true"
            notices.append(Notice("warn", f"{told[0].upper()}{told[1:]}.", where))
    return notices


def _resender(ctx: Context, seen: list[Snapshot], now: int) -> tuple[list[Notice], list[str]]:
    """What has gone quiet is sent again only while there is a resender."""
    last, _ = last_runs(ctx).get("resender", (0, ""))
    if now - last <= HEARD_MS:
        return [], [f"the resender last ran {short_span(now - last)} ago"]
    if not any(one.live for one in seen):
        return [], []
    ago = f"The resender last ran {short_span(now - last)} ago" if last else "No resender has run yet"
    return [Notice("bad", f"{ago}: what has gone quiet is not sent again.", "/system")], []


def _paused(held: Iterable[str], seen: list[Snapshot]) -> list[Notice]:
    names = sorted(name for name in held if name.partition("/")[0] in {one.route for one in seen})
    if not names:
        return []
    return [Notice("warn", f"{names[0]} is paused." if len(names) == 1 else f"{len(names)} pauses are in force.", "/system")]


def _told(ctx: Context, routes: Collection[str]) -> tuple[list[Notice], list[str]]:
    """Subscribers that fail, and events that one of them refuses."""
    cursors = live_cursors(ctx)
    notices = [
        Notice("bad", f"{name} is not told: it failed {counted(cursor.failures, 'time')}.", "/events")
        for name, cursor in sorted(cursors.items())
        if cursor.failures
    ]
    parked = [read_as(Parked, document.value) for document in ctx.ledger.read(PARKED).values()]
    here = sum(one.route in routes for one in parked)
    if here:
        notices.append(Notice("warn", f"Events of {counted(here, 'item')} wait: a subscriber refuses them.", "/events"))
    return notices, ["everyone is told"] if cursors else []


def _failed(one: Snapshot) -> list[Notice]:
    where = f"/items/{quote(one.route, safe='')}?status=failed"
    return [Notice("warn", f"{counted(one.failed, 'item')} of {one.route} failed.", where)] if one.failed else []


def _overdue(one: Snapshot) -> list[Notice]:
    late, more = sum(stage.overdue or 0 for stage in one.stages), any(stage.overdue_more for stage in one.stages)
    if not late:
        return []
    told = f"{late:,}{'+' if more else ''} {'item' if late == 1 and not more else 'items'} of {one.route}"
    verb = "is" if late == 1 and not more else "are"
    return [Notice("warn", f"{told} {verb} overdue.", f"/items/{quote(one.route, safe='')}?overdue=true")]
