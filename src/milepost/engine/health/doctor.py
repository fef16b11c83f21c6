"""`milepost doctor`: is everything well, and if not, what is wrong and what to do about it. It only reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from shlex import quote
from typing import Any

from msgspec import Struct

from milepost.core.errors import LedgerError
from milepost.core.item import Item
from milepost.core.status import FAILED, Status
from milepost.core.values.durations import iso
from milepost.engine.context import Context
from milepost.engine.events.cursors import silent
from milepost.engine.health.overdue import LATE_MS, SAMPLE, late_at, worked_stages
from milepost.engine.health.refused_answers import external_stages, refused_at
from milepost.engine.presence import HEARD_MS, last_runs
from milepost.engine.routes.backfill_progress import hindrance, left, sent
from milepost.engine.routes.versions import FINISHED
from milepost.engine.views.items import (
    ALIVE_MS,
    SIGNED,
    chain_broken_at,
    chain_fault,
    clock_time,
    counted,
    live_processes,
    processes,
    route_names,
)
from milepost.engine.views.timestamps import Watch
from milepost.ports.documents import BACK_FILL, CURSOR, HOLD, PARKED, ROUTE, BackFill, Cursor, Hold, Parked, RouteVersion, read_as
from milepost.ports.ledger import Query

OK, WARN, BAD = "ok", "warn", "bad"
ROLES = ("worker", "resender")
"""Roles that every ledger needs; a relay only where there are subscribers."""
GONE_MS = 10 * 60_000
"""For so long a silent process is asked after that had items in hand; by then their leases have been taken over."""
LITTLE_ROOM, NO_ROOM = 100_000_000, 1_048_576
"""Free bytes on the ledger's disk below which there is little room, or none."""
CHAINS = 50


class Finding(Struct, frozen=True):
    """One thing that was looked at. `level` is ok, warn or bad; `next` says what to do about it."""

    level: str
    about: str
    what: str
    next: str = ""


class DoctorReport(Struct, frozen=True):
    """What the doctor found: the ledger's facts, and findings from the best to the worst of each kind."""

    at: int
    facts: dict[str, Any]
    findings: list[Finding]

    @property
    def level(self) -> str:
        """The worst of all findings."""
        levels = {finding.level for finding in self.findings}
        return BAD if BAD in levels else WARN if WARN in levels else OK


class Health(Struct, frozen=True):
    """Is everything well: `level` is the worst of all findings. `ledger`: facts about it."""

    at: str | None
    level: str
    ledger: dict[str, Any]
    findings: list[Finding]


def health_view(report: DoctorReport) -> Health:
    """What the doctor found, for programs."""
    return Health(iso(report.at), report.level, report.facts, report.findings)


def doctor(ctx: Context, told: Callable[[int, int], str] = clock_time) -> DoctorReport:
    """Look at everything once; each look costs little, however many items there are. `told` says how moments are told in the findings."""
    watch = Watch(ctx.clock.now(), told)
    facts = {**ctx.ledger.describe(), "lacks": sorted(ctx.ledger.missing_capabilities)}
    findings: list[Finding] = []
    if facts.get("sound") is False:
        findings.append(
            Finding(BAD, "ledger", "the ledger's file does not pass its own check", "stop all processes and go back to a backup")
        )
    findings += _room(facts.get("free_bytes"))
    findings += [Finding(WARN, "ledger", problem, _cure(problem)) for problem in facts.get("problems", ())]
    for look in (
        _routes,
        _back_fills,
        _processes,
        _roles,
        _holds,
        _gone_stages,
        _leases,
        _late,
        _lost_calls,
        _refused_answers,
        _failed,
        _subscribers,
        _parked,
        _chains,
    ):
        findings.extend(look(ctx, watch))
    return DoctorReport(watch.now, facts, findings)


def _room(free: int | None) -> list[Finding]:
    """Is there room where the ledger lives? None: that is not known, or no matter."""
    if free is None or free >= LITTLE_ROOM:
        return []
    if free < NO_ROOM:
        what = "the disk is full: nothing new can be recorded, and workers wait"
        return [Finding(BAD, "disk", what, "free some space on the disk of the ledger; all goes on by itself then")]
    what = f"only {free / 1_000_000:,.0f} MB are free on the disk of the ledger"
    return [Finding(WARN, "disk", what, "free some space, or prune: milepost prune --help")]


def _cure(problem: str) -> str:
    return "milepost quarantine list" if "set aside" in problem else ""


def _routes(ctx: Context, watch: Watch) -> Iterator[Finding]:
    for name, document in sorted(ctx.ledger.read(ROUTE).items()):
        version = read_as(RouteVersion, document.value)
        stages = " → ".join(pair[0] for pair in version.shape)
        plan = ctx.plans.get(name)
        if version.moves:
            what = f"{name}: items are still at {', '.join(version.moves).replace(FINISHED, 'the end')}"
            yield Finding(BAD, "route", what, f"milepost routes apply {name} {SIGNED}")
        elif plan is not None and plan.digest != version.digest:
            yield Finding(BAD, "route", f"{name}: the route file differs from version {version.version} in the ledger", "milepost routes")
        else:
            yield Finding(OK, "route", f"{name}, version {version.version}: {stages}")


def _back_fills(ctx: Context, watch: Watch) -> Iterator[Finding]:
    """Finished items that are being sent on to an added stage, or would be if nothing were in the way."""
    for route, document in sorted(ctx.ledger.read(BACK_FILL).items()):
        there = read_as(BackFill, document.value)
        if there.finished_at is not None:
            continue
        what = f"{counted(left(there), 'finished item')} of {route} still to be {sent(there)} {there.stage}"
        waits = hindrance(ctx, route, there)
        if there.stopped_at is not None:
            go_on = f"milepost routes back-fill {route} --pace RATE {SIGNED}"
            yield Finding(WARN, "back-fill", f"{what}; stopped by {there.stopped_by}: {there.stopped_why}", go_on)
        elif waits is not None:
            yield Finding(WARN, "back-fill", f"{what}; it waits: {waits}", f"milepost routes back-fill {route} --stop {SIGNED}")
        elif watch.now - there.spent_to > LATE_MS + 1000 / there.pace:
            yield Finding(WARN, "back-fill", f"{what}; nobody has gone on with that since {watch.when(there.spent_to)}", "milepost up")
        else:
            yield Finding(OK, "back-fill", what)


def _processes(ctx: Context, watch: Watch) -> Iterator[Finding]:
    """Those at work, and those that went with something in hand; of all others only the last, if nobody is at work."""
    known, live, dead = processes(ctx), live_processes(ctx), set(ctx.ledger.dead_workers())
    for process in known:
        heard, held = watch.when(process.seen_at), counted(process.in_hand, "item")
        if process.holder in dead:
            cure = "the next worker on this machine takes it back at once: milepost work"
            had = f"; it held {held}" if process.in_hand else ""
            yield Finding(WARN, "process", f"{process.holder} has died, last heard of {heard}{had}", cure)
        elif process.in_hand and ALIVE_MS < watch.now - process.seen_at < GONE_MS:
            cure = "if it is dead, its work comes back when its leases run out, or when the next worker on that machine starts"
            yield Finding(WARN, "process", f"{process.holder} was last heard of {heard}; it held {held}", cure)
    if known and not live:
        what = f"nobody is at work now; the last to stop was {known[0].holder}, {watch.when(known[0].seen_at)}"
        yield Finding(OK, "process", what)
    for process in live:
        roles = ", ".join(sorted(process.roles)) or "no role yet"
        held = counted(process.in_hand, "item")
        yield Finding(OK, "process", f"{process.holder} ({roles}) was heard of {watch.when(process.seen_at)}; {held} in hand")
        for slow in process.overrunning:
            what = f"{process.holder}: a handler overruns its time: {_slow(slow)}"
            yield Finding(WARN, "handler", what, "it keeps its slot and lease until it returns; restart that process if it hangs")
        for route in process.outdated:
            what = f"{process.holder} stands by: it has an older version of route {route!r}"
            yield Finding(WARN, "process", what, "restart it with the present route file")


def _slow(slow: dict[str, Any]) -> str:
    place = "/".join(str(slow[name]) for name in ("route", "stage", "key") if name in slow)
    return f"{place}, {slow['seconds']:,} s so far" if "seconds" in slow else place


def _roles(ctx: Context, watch: Watch) -> Iterator[Finding]:
    last = last_runs(ctx)
    for role in sorted({*ROLES, *last}):
        at, holder = last.get(role, (0, ""))
        if not at:
            yield Finding(WARN, "role", f"no {role} has had a good run here yet", "milepost up")
        elif watch.now - at > HEARD_MS:
            yield Finding(WARN, "role", f"the last good run of a {role} was {watch.when(at)}, by {holder}", "milepost up")
        else:
            yield Finding(OK, "role", f"the last good run of a {role} was {watch.when(at)}, by {holder}")


def _holds(ctx: Context, watch: Watch) -> Iterator[Finding]:
    for name, document in sorted(ctx.ledger.read(HOLD).items()):
        hold = read_as(Hold, document.value)
        route, *rest = name.split("/", 2)
        where = " ".join([route, *(f"--{option} {quote(value)}" for option, value in zip(("stage", "lane"), rest, strict=False))])
        what = f"{name} has been paused by {hold.by} since {watch.when(hold.at)}: {hold.reason}"
        yield Finding(WARN, "pause", what, f"milepost resume {where} {SIGNED}")


def _gone_stages(ctx: Context, watch: Watch) -> Iterator[Finding]:
    """Items at stages that neither the route file nor the ledger's version of the route has."""
    shapes = {name: {pair[0] for pair in read_as(RouteVersion, doc.value).shape} for name, doc in ctx.ledger.read(ROUTE).items()}
    sums: dict[tuple[str, str], int] = {}
    for count in ctx.ledger.counts():
        plan = ctx.plans.get(count.route)
        stages = shapes.get(count.route) or (set(plan.by_name) if plan else None)
        if stages is not None and count.stage not in stages and count.status is not Status.COMPLETED:
            place = (count.route, count.stage)
            sums[place] = sums.get(place, 0) + count.n
    for (route, stage), n in sorted(sums.items()):
        if n > 0:
            what = f"{counted(n, 'item')} of {route} stranded at {stage!r}, which is not a stage of it any more"
            yield Finding(BAD, "stage", what, f"milepost routes apply {route} --map {stage}=STAGE {SIGNED}")


def _leases(ctx: Context, watch: Watch) -> Iterator[Finding]:
    for route in route_names(ctx):
        page = ctx.ledger.find(Query(route=route, statuses=frozenset({Status.PROCESSING}), due_before=watch.now, limit=SAMPLE))
        expired = sum(1 for item in page.items if item.row.look_at is not None and item.row.look_at <= watch.now)
        if expired:
            more = "at least " if page.next is not None else ""
            what = f"the leases of {more}{counted(expired, 'item')} of {route} have run out"
            yield Finding(WARN, "lease", what, "the next claim takes them over: milepost work")


def _late(ctx: Context, watch: Watch) -> Iterator[Finding]:
    """Work that workers should have taken up long ago, stage by stage."""
    held = set(ctx.ledger.read(HOLD))
    for route, stage in worked_stages(ctx, held):
        late = late_at(ctx, route, stage, held, watch.now)
        if late is not None:
            yield Finding(WARN, "late", late.told(watch.now), late.cure)


def _lost_calls(ctx: Context, watch: Watch) -> Iterator[Finding]:
    """Items that wait for a worker, and whose message the stage's queue does not hold any more."""
    for route, plan in sorted(ctx.plans.items()):
        try:
            missing = ctx.ledger.missing_calls(plan, watch.now)
        except LedgerError as error:
            yield Finding(WARN, "message", f"the queues of {route} could not be compared with its items: {error}")
            continue
        for stage, n in sorted(missing.items()):
            what = f"{counted(n, 'item')} queued at {route}/{stage} without a message in its queue: messages were lost, purged or moved"
            cure = (
                f"the resender calls them again within minutes; at once: milepost resend {route} --stage {stage} --status QUEUED {SIGNED}"
            )
            yield Finding(WARN, "message", what, cure)


def _refused_answers(ctx: Context, watch: Watch) -> Iterator[Finding]:
    """Answers for external stages that do not confirm what these were given to do."""
    for route, stage in external_stages(ctx):
        found = refused_at(ctx, route, stage)
        if found is not None:
            yield Finding(WARN, "answer", found.told(), f"milepost show {route} {quote(found.key)}; the stage is offered again by itself")


def _failed(ctx: Context, watch: Watch) -> Iterator[Finding]:
    sums: dict[str, int] = {}
    for count in ctx.ledger.counts():
        if count.status in FAILED:
            sums[count.route] = sums.get(count.route, 0) + count.n
    for route, n in sorted(sums.items()):
        if n > 0:
            yield Finding(WARN, "failed", f"{counted(n, 'item')} of {route} failed", f"milepost groups {route}")


def _subscribers(ctx: Context, watch: Watch) -> Iterator[Finding]:
    quiet = set(silent(ctx))
    newest = ctx.ledger.last_seq()
    for name, document in sorted(ctx.ledger.read(CURSOR).items()):
        cursor = read_as(Cursor, document.value)
        if cursor.removed:
            continue
        behind = max(0, newest - cursor.seq)
        lag = f"{counted(behind, 'line')} behind" if behind else "up to date"
        if name in quiet:
            what = f"{name} has been silent since {watch.when(cursor.told_at)}, {lag}; pruning waits for it"
            yield Finding(BAD, "subscriber", what, f"start it again, or let it go: milepost subscribers forget {quote(name)} {SIGNED}")
        elif cursor.failures:
            again = f"it is tried again {watch.when(cursor.retry_at)}"
            yield Finding(WARN, "subscriber", f"{name} has failed {counted(cursor.failures, 'time')}, {lag}: {cursor.error}", again)
        else:
            yield Finding(OK, "subscriber", f"{name} was told {watch.when(cursor.told_at)}, {lag}")


def _parked(ctx: Context, watch: Watch) -> Iterator[Finding]:
    for document in ctx.ledger.read(PARKED).values():
        parked = read_as(Parked, document.value)
        what = f"{parked.subscriber} refuses an event of {parked.route}/{parked.key} since {watch.when(parked.since)}: {parked.error}"
        whose = f"{quote(parked.subscriber)} {parked.route} {quote(parked.key)}"
        yield Finding(WARN, "parked", what, f"milepost subscribers release {whose} {SIGNED}")


def _chains(ctx: Context, watch: Watch) -> Iterator[Finding]:
    """Prove the records of the items written last."""
    newest = ctx.ledger.last_seq()
    refs = list({(line.route, line.key): None for line in ctx.ledger.feed(max(0, newest - CHAINS), CHAINS)})
    checked = 0
    for item in ctx.ledger.get(refs):
        if not isinstance(item, Item):
            continue
        checked += 1
        lines = ctx.ledger.history(item.route, item.key)
        broken = chain_broken_at(ctx, item, lines)
        if broken is not None and _unchanged(ctx, item.route, item.key, item.row.version):
            what = f"the history of {item.route}/{item.key} is not as it was written: {chain_fault(broken, lines)}"
            yield Finding(BAD, "chain", what, "it was changed by other means, or the file is damaged; compare with a backup")
    yield Finding(OK, "chain", f"the histories of the last {counted(checked, 'item')} written were checked")


def _unchanged(ctx: Context, route: str, key: str, version: int) -> bool:
    """Row and history are read one after the other; a write between the two is no damage."""
    [item] = ctx.ledger.get([(route, key)])
    return isinstance(item, Item) and item.row.version == version
