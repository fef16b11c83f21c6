"""Health checks: one list of rules. `doctor`, `/readyz` and the overview are three views of their
findings. They only read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from functools import partial
from heapq import nsmallest
from shlex import quote
from typing import Any
from urllib.parse import quote as url_quote

from milepost.core.admission.controls import is_held, scope
from milepost.core.confirmations import REFUSED, was_refused
from milepost.core.errors import LedgerError, MilepostError
from milepost.core.item import Item
from milepost.core.status import LIVE, Status
from milepost.core.values.durations import short_span
from milepost.engine.alerts.watch import undelivered
from milepost.engine.breakers import breaker_views, open_breakers
from milepost.engine.context import Context
from milepost.engine.events.cursors import lag_of, live_cursors, silent
from milepost.engine.events.follow_ups import PREFIX as FOLLOW_UP
from milepost.engine.events.records import parked_items
from milepost.engine.evidence import scrub
from milepost.engine.heads.route import ROUTE as HEADS
from milepost.engine.health.clock_checks import clocks, future_rows
from milepost.engine.health.document_checks import damaged_documents, tables_format
from milepost.engine.health.findings import (
    BAD,
    DOCTOR,
    NO_ROOM,
    OK,
    OVERVIEW,
    READY,
    WARN,
    Check,
    CheckResult,
    CheckRun,
    Finding,
)
from milepost.engine.left_items import unexplained
from milepost.engine.presence import HEARD_MS, RoleRun, StandingRole, standing_roles
from milepost.engine.retention import Retention
from milepost.engine.routes.backfill import hindrance, left, sent
from milepost.engine.routes.versions import FINISHED, outdated
from milepost.engine.views.items import (
    ALIVE_MS,
    SIGNED,
    chain_broken_at,
    chain_fault,
    counted,
    processes,
    route_names,
)
from milepost.engine.views.lanes import resume_command
from milepost.engine.views.overdue_counts import OverdueCount, probed
from milepost.engine.views.snapshot import Snapshot
from milepost.ports.documents import BACK_FILL, ROUTE, BackFill, Parked, RouteVersion, read_each
from milepost.ports.items import Query

ROLES = ("worker", "resender")
"""Roles that every ledger needs; a relay only where there are subscribers."""
GONE_MS = 10 * 60_000
"""How long a silent process with items in hand is reported; by then their leases have been taken
over."""
UNSURE_MS = 60 * 60_000
"""How long it is not known whether a silent process is dead: its clock may be behind."""
LITTLE_ROOM = 100_000_000
"""Free bytes on the ledger's disk below which there is little room."""
FREE_SPACE = "free some space on the disk of the ledger; work then continues automatically"
CHAINS = 50
NAMED = 3
"""Items that a finding names."""
TO_DO = (Status.PENDING, Status.QUEUED)
LATE_MS = 5 * 60_000
"""Work that has been due for this long without a claim is reported."""
SAMPLE = 1000
WAITING = LIVE - {Status.PROCESSING}
"""Statuses without a worker."""
AWAITED = frozenset({Status.WAITING, Status.QUEUED})
"""Statuses of an external stage that awaits its answer."""


def run_checks(run: CheckRun, view: str) -> list[CheckResult]:
    """The results of all checks that this view shows, those of applications last, in the order of
    the list."""
    return [
        result
        for check in (*CHECKS, *run.ctx.checks)
        if view in check.views
        for result in check.function(run)
    ]


def _result(level: str, about: str, what: str, next: str = "", **shown: str) -> CheckResult:
    return CheckResult(Finding(level, about, what, next), **shown)


_ok, _warn, _bad = (partial(_result, level) for level in (OK, WARN, BAD))


def _calm(about: str, headline: str) -> CheckResult:
    """No problem; the "all is well" line of the overview says so."""
    return _ok(about, "", headline=headline)


def _sentence(what: str) -> str:
    return f"{what[0].upper()}{what[1:]}."


def _items_page(route: str, query: str) -> str:
    return f"/items/{url_quote(route, safe='')}?{query}"


def _ledger(run: CheckRun) -> Iterator[CheckResult]:
    """Problems that the ledger reports: a damaged file, little space on its disk, entries in
    quarantine."""
    if run.facts.get("sound") is False:
        yield _bad(
            "ledger",
            "the ledger's file fails its integrity check",
            "stop all processes and restore a backup",
        )
    if unwritable := run.facts.get("unwritable"):
        yield _bad(
            "ledger",
            f"{unwritable}: nothing can be recorded",
            "run Milepost as its owner, or give this user the right to write",
        )
    if run.facts.get("readable_by_all"):
        path = run.facts["path"]
        what = f"every user of this machine may read the ledger {path} (mode {run.facts['mode']}), with all inputs and results"
        yield _warn(
            "ledger",
            what,
            f"chmod o= {path}*; chmod -R o= {path}-blobs; or keep it in a folder that others cannot enter",
        )
    yield from _room(run.facts.get("free_bytes"))
    if entries := run.facts.get("set_aside"):
        yield _warn(
            "ledger",
            f"rows, messages or records in quarantine, not worked on: {entries:,}",
            "milepost quarantine list",
        )
    for problem in run.facts.get("problems", ()):
        yield _warn("ledger", problem)


def _room(free: int | None) -> Iterator[CheckResult]:
    """Whether the ledger's disk has space. None: unknown, or irrelevant."""
    if free is None or free >= LITTLE_ROOM:
        return
    if free < NO_ROOM:
        what = "the disk is full: nothing can be recorded, and workers wait"
        yield _bad("disk", what, FREE_SPACE)
    else:
        what = f"only {free / 1_000_000:,.0f} MB are free on the disk of the ledger"
        yield _warn("disk", what, "free some space, or prune: milepost prune --help")


def _routes(run: CheckRun) -> Iterator[CheckResult]:
    """Whether each route file agrees with the version in the ledger."""
    for name, version in sorted(read_each(run.ctx.ledger, ROUTE, RouteVersion).items()):
        stages = " → ".join(pair[0] for pair in version.shape)
        plan = run.ctx.plans.get(name)
        if version.moves:
            what = f"{name}: items are still at {', '.join(version.moves).replace(FINISHED, 'the end')}"
            yield _bad("route", what, f"milepost routes apply {name} {SIGNED}")
        elif plan is not None and plan.digest != version.digest:
            yield _bad(
                "route",
                f"{name}: the route file differs from version {version.version} in the ledger",
                "milepost routes",
            )
        else:
            yield _ok("route", f"{name}, version {version.version}: {stages}")


def _versions(run: CheckRun) -> Iterator[CheckResult]:
    """Whether this process has the route versions that are in force."""
    old = outdated(run.ctx)
    if old:
        why = f"{len(old)} of {len(run.ctx.plans)} are of another version than the ledger's; restart this process"
        yield _bad(
            "route",
            f"this process has another version of {', '.join(old)}",
            "restart it",
            part="routes",
            unready=why,
        )


def _back_fills(run: CheckRun) -> Iterator[CheckResult]:
    """Unfinished back-fills: completed items that are being sent to an added stage, or that wait
    because something hinders it."""
    for route, back_fill in sorted(read_each(run.ctx.ledger, BACK_FILL, BackFill).items()):
        if back_fill.finished_at is not None:
            continue
        what = f"{counted(left(back_fill), 'completed item')} of {route} still to be {sent(back_fill)} {back_fill.stage}"
        waits = hindrance(run.ctx, route, back_fill)
        if back_fill.stopped_at is not None:
            go_on = f"milepost routes back-fill {route} --pace RATE {SIGNED}"
            yield _warn(
                "back-fill",
                f"{what}; stopped by {back_fill.stopped_by}: {back_fill.stopped_why}",
                go_on,
            )
        elif waits is not None:
            yield _warn(
                "back-fill",
                f"{what}; it waits: {waits}",
                f"milepost routes back-fill {route} --stop {SIGNED}",
            )
        elif run.now - back_fill.spent_to > LATE_MS + 1000 / back_fill.pace:
            yield _warn(
                "back-fill",
                f"{what}; no process has continued it since {run.watch.when(back_fill.spent_to)}",
                "milepost up",
            )
        else:
            yield _ok("back-fill", what)


def _processes(run: CheckRun) -> Iterator[CheckResult]:
    """The running processes, and those that ended with items in hand; of all others only the last,
    if none is running."""
    known, dead = processes(run.ctx), set(run.ctx.ledger.dead_workers())
    for process in known:
        heard, in_hand = run.watch.when(process.seen_at), counted(process.in_hand, "item")
        if process.holder in dead:
            cure = "the next worker on this machine takes it back at once: milepost work"
            had = f"; it held {in_hand}" if process.in_hand else ""
            yield _warn("process", f"{process.holder} has died, last heartbeat {heard}{had}", cure)
        elif process.in_hand and ALIVE_MS < run.now - process.seen_at < GONE_MS:
            cure = "if it is dead, its items come back when their leases expire, or when the next worker on that machine starts"
            yield _warn(
                "process",
                f"{process.holder} has been silent, last heartbeat {heard}; it held {in_hand}",
                cure,
            )
    if run.no_heartbeats is not None:
        what = f"it is not known which processes run: heartbeats cannot be written, because {run.no_heartbeats}"
        last = (
            f"; the last one was of {known[0].holder}, {run.watch.when(known[0].seen_at)}"
            if known
            else ""
        )
        yield _warn("process", f"{what}{last}", FREE_SPACE)
    elif known and not run.alive:
        silent = _silent(run)
        last = f"the last to stop was {known[0].holder}, {run.watch.when(known[0].seen_at)}"
        yield (
            _ok("process", f"no process is running; {last}")
            if silent is None
            else _warn("process", *silent)
        )
    for process in run.alive:
        roles = ", ".join(sorted(process.roles)) or "no role yet"
        in_hand = counted(process.in_hand, "item")
        yield _ok(
            "process",
            f"{process.holder} ({roles}) is running, last heartbeat {run.watch.when(process.seen_at)}; {in_hand} leased",
        )
        for slow in process.overrunning:
            what = f"{process.holder}: a handler has exceeded its timeout: {_slow(slow)}"
            yield _warn(
                "handler",
                what,
                "it keeps its slot and lease until it returns; restart that process if it hangs",
            )


def _silent(run: CheckRun) -> tuple[str, str] | None:
    """What is known of a process that was heard lately and has not said that it stopped, and what
    to do; None: there is none."""
    gone = set(run.ctx.ledger.dead_workers())
    for process in processes(run.ctx):
        if (
            not process.stopped
            and process.holder not in gone
            and run.now - process.seen_at < UNSURE_MS
        ):
            heard = run.watch.when(process.seen_at)
            what = f"it is not known whether {process.holder} is running: last heartbeat {heard}, and it has not said that it stopped"
            return (
                what,
                "it has died, hangs or is suspended, or its machine's clock is behind: look there, and start 'milepost up' if it is gone",
            )
    return None


def _slow(slow: dict[str, Any]) -> str:
    place = "/".join(str(slow[name]) for name in ("route", "stage", "key") if name in slow)
    return f"{place}, {slow['seconds']:,} s so far" if "seconds" in slow else place


def _at_work(run: CheckRun) -> Iterator[CheckResult]:
    """Whether a process is running. Operators need to know while items wait, `/readyz` always."""
    waiting = sum(_waiting(run, route) for route in run.seen) if not _worker_heard(run) else 0
    if run.no_heartbeats is not None:
        # `doctor` says it with the processes.
        headline = f"It is not known which processes run, because {run.no_heartbeats}."
        yield _result(WARN, "process", "", FREE_SPACE, headline=headline)
    elif waiting:
        silent = None if run.alive else _silent(run)
        state = "no process is running" if silent is None else silent[0]
        what = f"{state}, and {counted(waiting, 'item')} {'waits' if waiting == 1 else 'wait'} for a worker"
        yield _warn(
            "process",
            what,
            _start(run, "worker") if silent is None else silent[1],
            headline=_sentence(what),
        )
    else:
        alive = len(run.alive)
        running = f"{alive:,} {'process' if alive == 1 else 'processes'} running"
        yield _calm("process", running if alive else "no item waits for a worker")


def _start(run: CheckRun, role: str) -> str:
    """The command that runs this role. Beside 'milepost up --no-work' only a worker is missing."""
    beside = any("resender" in process.roles for process in run.alive)
    return "milepost work" if role == "worker" and beside else "milepost up"


def _worker_heard(run: CheckRun) -> bool:
    """Whether a worker is running, or ran a short time ago. (A function on AWS runs only while it
    is called.)"""
    if any("worker" in process.roles for process in run.alive):
        return True
    gone = set(run.ctx.ledger.dead_workers())
    others = (
        process
        for process in processes(run.ctx)
        if not process.stopped and process.holder not in gone
    )
    return any(run.now - process.roles.get("worker", 0) <= HEARD_MS for process in others)


def _waiting(run: CheckRun, route: str) -> int:
    """Number of items of a route that wait for Milepost's own workers."""
    plan = run.ctx.plans.get(route)
    if plan is None or route in run.holds:
        return 0
    stages = run.seen[route].stages
    ours = [
        stage
        for stage in stages
        if stage.name in plan.by_name and plan.by_name[stage.name].ours and not stage.paused
    ]
    return sum(stage.among(*TO_DO) for stage in ours)


def _station(run: CheckRun) -> Iterator[CheckResult]:
    """Whether a process is running. Functions on AWS have longer heartbeat intervals than a
    process."""
    last = run.last_runs.get("worker", RoleRun())
    if not run.alive and not (run.ctx.ledger.work_queues and run.now - last.at <= HEARD_MS):
        yield _ok(
            "process", "", part="station", unready="no process is running; start 'milepost up'"
        )


def _standing_by(run: CheckRun) -> Iterator[CheckResult]:
    """Processes with an outdated route version: they claim none of its items until they are
    restarted."""
    for process in run.alive:
        for route in process.outdated:
            if run.sees(route):
                what = f"{process.holder} stands by: it has an older version of route {route!r}"
                yield _warn(
                    "process",
                    what,
                    "restart it with the present route file",
                    headline=f"{what}. Restart it.",
                )


def _roles(run: CheckRun) -> Iterator[CheckResult]:
    """When each role last ran successfully, in any process."""
    needed = {*ROLES, Retention.name} if Retention.needed(run.ctx) else {*ROLES}
    blocked = run.no_heartbeats is not None
    standing = standing_roles(run.ctx, run.last_runs)
    for role in sorted({*needed, *run.last_runs, *standing}):
        last = run.last_runs.get(role, RoleRun())
        at, holder = last.at, last.holder
        shown = _resender(run, at, standing.get(role)) if role == "resender" and not blocked else {}
        if role in standing:
            yield _warn(
                "role",
                _stands_still(run, role, standing[role], at),
                "it continues by itself when that is over",
                **shown,
            )
        elif not at:
            yield _warn(
                "role",
                f"{role}: no successful run yet",
                FREE_SPACE if blocked else _start(run, role),
                **shown,
            )
        elif last.late(run.now):
            what = f"{role}: last successful run {'on record ' if blocked else ''}{run.watch.when(at)}, by {holder}"
            yield _warn("role", what, FREE_SPACE if blocked else _start(run, role), **shown)
        else:
            yield _ok(
                "role", f"{role}: last successful run {run.watch.when(at)}, by {holder}", **shown
            )


def _stands_still(run: CheckRun, role: str, standing: StandingRole, at: int) -> str:
    last = f"last successful run {run.watch.when(at)}" if at else "no successful run yet"
    return f"{role}: stands still in {standing.holder} since {run.watch.when(standing.since)}: {standing.why} ({last})"


def _resender(run: CheckRun, at: int, standing: StandingRole | None) -> dict[str, str]:
    """How the overview and `/readyz` show the resender: without one, silent items are not sent
    again."""
    silent_ms = run.now - at
    if standing is not None:
        still = f"has stood still for {short_span(run.now - standing.since)}: {standing.why}"
        headline = f"The resender {still}. Items whose due time has passed are not sent again."
        return {"part": "resender", "unready": f"it {still}", "headline": headline}
    if at and silent_ms <= HEARD_MS:
        return {"headline": f"the resender last ran {short_span(silent_ms)} ago"}
    since = (
        f"has had no successful run for {short_span(silent_ms)}"
        if at
        else "has had no successful run yet"
    )
    shown = {"part": "resender", "unready": f"it {since}; start 'milepost up'"}
    if any(one.live for one in run.seen.values()):
        ago = (
            f"The resender last ran {short_span(silent_ms)} ago"
            if at
            else "No resender has run yet"
        )
        shown["headline"] = f"{ago}: items whose due time has passed are not sent again."
    return shown


def _holds(run: CheckRun) -> Iterator[CheckResult]:
    """The pauses in force."""
    names = sorted(name for name in run.holds if run.sees(name.partition("/")[0]))
    for name in names:
        hold = run.holds[name]
        until = "" if hold.until is None else f", and the pause ends {run.watch.when(hold.until)}"
        what = f"{name} was paused by {hold.by} {run.watch.when(hold.at)}{until}: {hold.reason}"
        headline = (
            ""
            if name != names[0]
            else f"{name} is paused."
            if len(names) == 1
            else f"{len(names)} pauses are in force."
        )
        yield _warn("pause", what, resume_command(name), headline=headline)
    if not names:
        yield _calm("pause", "nothing is paused")


def _breakers(run: CheckRun) -> Iterator[CheckResult]:
    """Lanes whose circuit breaker is open."""
    found = [one for one in breaker_views(run.ctx) if run.sees(one.route)]
    for one in found:
        lane = f" --lane {quote(one.lane)}" if one.lane else ""
        headline = (
            ""
            if one is not found[0]
            else _sentence(one.text)
            if len(found) == 1
            else f"{len(found)} breakers are open."
        )
        yield _warn(
            "breaker",
            one.text,
            f"milepost breakers close {one.route} {one.stage}{lane} {SIGNED}",
            headline=headline,
        )


def _quarantine(run: CheckRun) -> Iterator[CheckResult]:
    """Whether the quarantine has entries. The query may read a queue, and concerns no single route.
    (`doctor` shows the ledger's count.)"""
    some = run.once(("set aside",), lambda: _any_aside(run.ctx)) if run.everything else None
    if some:
        headline = "The quarantine has entries."
        yield _warn(
            "ledger", "the quarantine has entries", "milepost quarantine list", headline=headline
        )
    elif some is not None:
        yield _calm("ledger", "the quarantine is empty")


def _any_aside(ctx: Context) -> bool | None:
    """Whether the quarantine has entries; None: it cannot be read now."""
    try:
        some, more = ctx.ledger.quarantine.entries(1)
    except MilepostError:
        return None
    return bool(some) or more


def _gone_stages(run: CheckRun) -> Iterator[CheckResult]:
    """Items at stages that neither the route file nor the ledger's version of the route has."""
    ctx = run.ctx
    shapes = {
        name: {pair[0] for pair in version.shape}
        for name, version in read_each(ctx.ledger, ROUTE, RouteVersion).items()
    }
    sums: Counter[tuple[str, str]] = Counter()
    for count in ctx.ledger.counts():
        plan = ctx.plans.get(count.route)
        stages = shapes.get(count.route) or (set(plan.by_name) if plan else None)
        if (
            stages is not None
            and count.stage not in stages
            and count.status is not Status.COMPLETED
        ):
            sums[count.route, count.stage] += count.n
    for (route, stage), n in sorted(sums.items()):
        if n > 0:
            what = f"{counted(n, 'item')} of {route} stranded at {stage!r}, which is not a stage of it any more"
            yield _bad("stage", what, f"milepost routes apply {route} --map {stage}=STAGE {SIGNED}")


def _leases(run: CheckRun) -> Iterator[CheckResult]:
    """Items whose leases have expired."""
    for route in route_names(run.ctx):
        page = run.ctx.ledger.find(
            Query(
                route=route,
                statuses=frozenset({Status.PROCESSING}),
                due_before=run.now,
                limit=SAMPLE,
            )
        )
        expired = sum(
            1 for item in page.items if item.row.look_at is not None and item.row.look_at <= run.now
        )
        if expired:
            more = "at least " if page.next is not None else ""
            what = f"the leases of {more}{counted(expired, 'item')} of {route} have expired"
            takes_over = "the next claim takes them over: milepost work"
            yield _warn("lease", what, takes_over if run.no_heartbeats is None else FREE_SPACE)


def _late(run: CheckRun) -> Iterator[CheckResult]:
    """Items that workers, ours or remote ones, should have claimed long ago, by stage; without
    those that are paused."""
    broken = open_breakers(run.ctx)
    for route, stage, kind in _stages(run.ctx):
        if (
            kind == "external"
            or route in run.holds
            or scope(route, stage) in run.holds
            or not run.worth_asking(route, stage, WAITING)
        ):
            continue
        since = run.once(
            ("late", route, stage),
            partial(late_since, run.ctx, route, stage, run.holds, broken, run.now),
        )
        if since is not None:
            what = f"work at {route}/{stage} has been due for {short_span(run.now - since)} and no worker has claimed it"
            more = "start more workers (milepost work), or raise the stage's concurrency or rate"
            cure = more if run.no_heartbeats is None else FREE_SPACE
            plan = run.ctx.plans.get(route)
            if plan is not None and stage in plan.by_name and plan.by_name[stage].remote:
                what, cure = (
                    f"{what}; it waits for a worker (remote)",
                    "start more of the stage's remote workers, which claim over HTTP",
                )
            yield _warn(
                "late", what, cure, headline=_sentence(what), page=_stage_page(route, stage)
            )


def late_since(
    ctx: Context, route: str, stage: str, holds: Container[str], broken: Container[str], now: int
) -> int | None:
    """Since when the work at a stage has been due, if that is too long, without items in paused
    lanes and in those with an open breaker. One query of the index of due items; while nothing is
    late, it finds nothing."""
    before = now - LATE_MS - 1
    found = ctx.ledger.find(
        Query(
            route=route,
            statuses=WAITING,
            stages=frozenset({stage}),
            due_before=before,
            limit=SAMPLE,
        )
    ).items
    lanes = {item.row.lane for item in found}
    waits = {
        lane
        for lane in lanes
        if is_held(holds, route, stage, lane) or scope(route, stage, lane) in broken
    }
    rows = [item.row for item in found if item.row.lane not in waits]
    return min(
        (row.look_at for row in rows if row.look_at is not None and row.look_at <= before),
        default=None,
    )


def _lost_messages(run: CheckRun) -> Iterator[CheckResult]:
    """Items that wait for a worker, but have no message in the stage's queue any more."""
    for route, plan in sorted(run.ctx.plans.items()):
        try:
            missing = run.ctx.ledger.missing_messages(plan, run.now)
        except LedgerError as error:
            yield _warn(
                "message", f"the queues of {route} could not be compared with its items: {error}"
            )
            continue
        for stage, n in sorted(missing.items()):
            what = f"{counted(n, 'item')} queued at {route}/{stage} without a message in its queue: messages were lost, purged or moved"
            cure = f"the resender sends new messages within minutes; at once: milepost resend {route} --stage {stage} --status QUEUED {SIGNED}"
            yield _warn("message", what, cure)


def _refused_answers(run: CheckRun) -> Iterator[CheckResult]:
    """Answers for external stages that do not confirm what the stages were given to do."""
    for route, stage, kind in _stages(run.ctx):
        if kind == "external" and run.worth_asking(route, stage, AWAITED):
            found = run.once(("refused", route, stage), partial(_refused_at, run.ctx, route, stage))
            if found is not None:
                what, key = found
                cure = (
                    f"milepost show {route} {quote(key)}; the stage is offered again automatically"
                )
                yield _warn(
                    "answer", what, cure, headline=_sentence(what), page=_stage_page(route, stage)
                )


def _refused_at(ctx: Context, route: str, stage: str) -> tuple[str, str] | None:
    """The refused answers of one external stage, among the first items that await an answer, as a
    text and the key of one item; None if there are none."""
    page = ctx.ledger.find(
        Query(route=route, statuses=AWAITED, stages=frozenset({stage}), limit=SAMPLE)
    )
    found = [item.row for item in page.items if was_refused(item.row)]
    if not found:
        return None
    n, key, why = (
        counted(len(found), "item"),
        found[0].key,
        (found[0].note or "").removeprefix(REFUSED),
    )
    at_least = "at least " if page.next is not None else ""
    return (
        f"the answers for {at_least}{n} at {route}/{stage} confirm nothing, such as {key}: {why}",
        key,
    )


def _stages(ctx: Context) -> list[tuple[str, str, str]]:
    """Route, name and kind of all stages that the ledger has."""
    return [
        (route, stage, kind)
        for route, version in sorted(read_each(ctx.ledger, ROUTE, RouteVersion).items())
        for stage, kind in version.shape
    ]


def _stage_page(route: str, stage: str) -> str:
    return _items_page(route, f"stage={url_quote(stage, safe='')}&nearest=true")


def _failed_and_overdue(run: CheckRun) -> Iterator[CheckResult]:
    """Failed items, and items that have passed their stage's overdue mark."""
    for route, seen in sorted(run.seen.items()):
        if seen.failed > 0:
            what, page = (
                f"{counted(seen.failed, 'item')} of {route} failed",
                _items_page(route, "status=failed"),
            )
            yield _warn(
                "failed", what, f"milepost groups {route}", headline=_sentence(what), page=page
            )
        late = _overdue(run, seen)
        if late.most:
            one = late == OverdueCount(1, 1)
            what = f"{late.words} {'item' if one else 'items'} of {route} {'is' if one else 'are'} overdue"
            if not late.exact:
                what += f", by the counters as of {run.watch.at(seen.at)}"
            page = _items_page(route, "overdue=true")
            yield _warn(
                "overdue",
                what,
                f"milepost list {route} --overdue",
                headline=_sentence(what),
                page=page,
            )


def _failed_and_left(run: CheckRun) -> Iterator[CheckResult]:
    """Failed items whose rows have left although neither the route nor an operator said so, as an
    earlier version let them."""
    for route, plan in sorted(run.ctx.plans.items()):
        left, complete = run.once(("failed and left", route), partial(unexplained, run.ctx, plan))
        if not complete:
            yield _warn(
                "failed",
                f"how many failed items of {route} have left the ledger is not known yet: its old seals are being read",
            )
        if left:
            what = f"{counted(left, 'failed item')} of {route} left the ledger before anybody dealt with {'it' if left == 1 else 'them'}; only the seals are left"
            yield _warn("failed", what, f"milepost list {route} --status failed")


def _overdue(run: CheckRun, seen: Snapshot) -> OverdueCount:
    """The overdue items of a route. Where the counters give bounds only, a few rows are read."""
    found = []
    for stage in seen.stages:
        if stage.overdue is not None and not stage.overdue.exact:
            probe = partial(probed, run.ctx, seen.route, stage.name, stage.overdue, run.now)
            found.append(run.once(("overdue", seen.route, stage.name), probe))
        elif stage.overdue is not None:
            found.append(stage.overdue)
    return OverdueCount(sum(one.least for one in found), sum(one.most for one in found))


def _subscribers(run: CheckRun) -> Iterator[CheckResult]:
    """Whether each subscriber receives its events."""
    quiet, newest, cursors = set(silent(run.ctx)), run.ctx.ledger.last_seq(), live_cursors(run.ctx)
    late = False
    for name, cursor in sorted(cursors.items()):
        lag = lag_of(run.ctx, cursor, newest)
        behind = f"{counted(lag.lines, 'line')} behind" if lag.lines else "up to date"
        if name in quiet:
            what = f"{name} has been silent since {run.watch.when(cursor.told_at)}, {behind}; pruning waits for it"
            cure = (
                f"start it again, or remove it: milepost subscribers forget {quote(name)} {SIGNED}"
            )
            yield _bad(
                "subscriber",
                what,
                cure,
                headline=f"{name} has been silent for a long time, and pruning waits for it.",
                page="/events",
            )
        elif cursor.failures:
            what = f"{name} has failed {counted(cursor.failures, 'time')}, {behind}: {cursor.error}"
            again = f"next attempt {run.watch.when(cursor.retry_at)}"
            # Its error may name items of a route that the viewer does not see, so not every viewer
            # gets it.
            failed = f"{name} receives no events: it failed {counted(cursor.failures, 'time')}."
            yield _warn("subscriber", what, again, headline=failed, page="/events")
        elif lag.is_long(run.now):
            late = True
            age = short_span(lag.age_ms(run.now))
            what = f"{name} is {behind}, the first of them written {age} ago; its last event went out {run.watch.when(cursor.told_at)}"
            cure = "check that a process or function delivers (milepost up), and how long the subscriber takes to answer: milepost subscribers"
            yield _warn(
                "subscriber",
                what,
                cure,
                headline=f"{name} receives its events late: the next one is {age} old.",
                page="/events",
            )
        else:
            yield _ok(
                "subscriber", f"{name}: last event {run.watch.when(cursor.told_at)}, {behind}"
            )
    if cursors and not late:
        yield _calm("subscriber", "all subscribers are up to date")


def _heads(run: CheckRun) -> Iterator[CheckResult]:
    """Whether daily heads reach anybody: they prove something because others keep them."""
    cursors = {
        name: cursor
        for name, cursor in live_cursors(run.ctx).items()
        if not name.startswith(FOLLOW_UP)
    }
    if HEADS in run.ctx.plans and cursors and all(cursor.formed for cursor in cursors.values()):
        what = f"the daily heads reach nobody: {', '.join(sorted(cursors))} gets only notifications (formed+…)"
        yield _warn(
            "heads",
            what,
            "add a subscriber without formed+, such as a topic of your own, to `subscribers`; it also gets failures and overdue items",
        )


def _parked(run: CheckRun) -> Iterator[CheckResult]:
    """Events that a subscriber refuses: one finding for each subscriber, with examples."""
    by_subscriber: dict[str, list[Parked]] = {}
    for parked in parked_items(run.ctx):
        if run.sees(parked.route):
            by_subscriber.setdefault(parked.subscriber, []).append(parked)
    total = sum(map(len, by_subscriber.values()))
    headline = f"Events of {counted(total, 'item')} wait: a subscriber refuses them."
    for name, refused in sorted(by_subscriber.items()):
        yield _warn("parked", *_parked_at(run, name, refused), headline=headline, page="/events")
        headline = ""


def _parked_at(run: CheckRun, name: str, parked_items: list[Parked]) -> tuple[str, str]:
    """What a subscriber refuses, and what to do."""
    first = nsmallest(
        NAMED, parked_items, key=lambda parked: (parked.since, parked.route, parked.key)
    )
    since = run.watch.when(first[0].since)
    if len(parked_items) == 1:
        [only] = first
        what = f"{name} refuses an event of {only.route}/{only.key} since {since}: {only.error}"
        return (
            what,
            f"milepost subscribers release {quote(name)} {only.route} {quote(only.key)} {SIGNED}",
        )
    examples = "; ".join(f"{parked.route}/{parked.key}: {parked.error}" for parked in first)
    what = f"{name} refuses events of {counted(len(parked_items), 'item')}, the first since {since}, such as {examples}"
    return what, f"correct it, then milepost subscribers release {quote(name)} {SIGNED}"


def _alerts(run: CheckRun) -> Iterator[CheckResult]:
    """Alerts that have not reached their receivers."""
    for alert, notice, delivery in undelivered(run.ctx):
        if run.sees(alert.trouble.route):
            what = f"{delivery.to} has not got the alert {notice.data['title']!r} of {run.watch.when(notice.at)}: {delivery.error}"
            again = f"it is sent again {run.watch.when(delivery.retry_at)}; correct the receiver's address, or the receiver"
            yield _warn(
                "alert",
                what,
                again,
                headline=f"An alert has not reached {delivery.to}.",
                page="/events",
            )


def _chains(run: CheckRun) -> Iterator[CheckResult]:
    """Verify the hash chains of the items written last."""
    ctx = run.ctx
    newest = ctx.ledger.last_seq()
    refs = list(
        {(line.route, line.key): None for line in ctx.ledger.feed(max(0, newest - CHAINS), CHAINS)}
    )
    checked = 0
    for item in ctx.ledger.get(refs):
        if not isinstance(item, Item):
            continue
        checked += 1
        lines = ctx.ledger.history(item.route, item.key)
        broken = chain_broken_at(ctx, item, lines)
        if broken is not None and _unchanged(ctx, item.route, item.key, item.row.version):
            what = f"the history of {item.route}/{item.key} was changed after it was written: {chain_fault(broken, lines)}"
            yield _bad(
                "chain",
                what,
                "it was changed by other means, or the file is damaged; compare with a backup",
            )
    yield _ok("chain", f"the histories of the last {counted(checked, 'item')} written were checked")


def _kept_evidence(run: CheckRun) -> Iterator[CheckResult]:
    """Compare kept records of evidence with the seals of their items: some by chance, where there
    are many."""
    for plan in run.ctx.plans.values():
        if not plan.route.evidence or not run.sees(plan.name):
            continue
        scrubbed = scrub(run.ctx, plan.name)
        if not scrubbed.seals:
            continue
        seals = f"{'more than ' if scrubbed.more else ''}{scrubbed.seals:,}"
        looked_at = f"{scrubbed.looked_at:,} of the {seals} kept records of {plan.name} were compared with their seals"
        if scrubbed.faults:
            named = "; ".join(f"{key}: {why}" for key, why in list(scrubbed.faults.items())[:NAMED])
            what = f"{looked_at}: {len(scrubbed.faults):,} cannot be used: {named}"
            yield _bad(
                "evidence",
                what,
                f"restore them from a backup; 'milepost export {plan.name} --evidence' compares and names all",
            )
        else:
            yield _ok("evidence", looked_at)


def _unchanged(ctx: Context, route: str, key: str, version: int) -> bool:
    """Whether the row is unchanged. Row and history are read one after the other; a write between
    the two is no damage."""
    [item] = ctx.ledger.get([(route, key)])
    return isinstance(item, Item) and item.row.version == version


CHECKS: tuple[Check, ...] = (
    Check("ledger", _ledger, (DOCTOR,)),
    Check("routes", _routes, (DOCTOR,)),
    Check("tables", tables_format, (DOCTOR,)),
    Check("documents", damaged_documents, (DOCTOR,)),
    Check("versions", _versions, (READY,)),
    Check("back-fills", _back_fills, (DOCTOR,)),
    Check("processes", _processes, (DOCTOR,)),
    Check("clocks", clocks, (DOCTOR,)),
    Check("rows from the future", future_rows, (DOCTOR, OVERVIEW)),
    Check("at work", _at_work, (DOCTOR, OVERVIEW)),
    Check("station", _station, (READY,)),
    Check("standing by", _standing_by, (DOCTOR, OVERVIEW)),
    Check("roles", _roles, (DOCTOR, READY, OVERVIEW)),
    Check("pauses", _holds, (DOCTOR, OVERVIEW)),
    Check("breakers", _breakers, (DOCTOR, OVERVIEW)),
    Check("quarantine", _quarantine, (OVERVIEW,)),
    Check("gone stages", _gone_stages, (DOCTOR,)),
    Check("leases", _leases, (DOCTOR,)),
    Check("late work", _late, (DOCTOR, OVERVIEW)),
    Check("lost messages", _lost_messages, (DOCTOR,)),
    Check("refused answers", _refused_answers, (DOCTOR, OVERVIEW)),
    Check("failed and overdue", _failed_and_overdue, (DOCTOR, OVERVIEW)),
    Check("failed and left", _failed_and_left, (DOCTOR,)),
    Check("subscribers", _subscribers, (DOCTOR, OVERVIEW)),
    Check("heads", _heads, (DOCTOR,)),
    Check("parked events", _parked, (DOCTOR, OVERVIEW)),
    Check("alerts", _alerts, (DOCTOR, OVERVIEW)),
    Check("chains", _chains, (DOCTOR,)),
    Check("evidence", _kept_evidence, (DOCTOR,)),
)
"""All checks, in the order in which `doctor` shows them. Each view runs those that name it."""
