"""What the pages show, as plain values: made from what the ledger counts, so that it costs the same with a million items."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup
from msgspec import Struct

from milepost.core.consequences import HOUR
from milepost.core.durations import short_span
from milepost.core.status import FAILED, LIVE, Status
from milepost.engine.context import Context
from milepost.engine.observe import live_processes, processes
from milepost.engine.snapshot import Snapshot, StageView, snapshots
from milepost.http.dashboard.charts import Bar, bars, stack
from milepost.ports.documents import CURSOR, HOLD, PARKED, Cursor, Hold, read_as
from milepost.ports.ledger import Count

HOURS = 48
RECENT = 6
"""From how many hours the forecast takes its pace."""
PARTS = (
    ("to do", "todo", (Status.PENDING, Status.QUEUED)),
    ("in work", "work", (Status.PROCESSING,)),
    ("waiting", "wait", (Status.WAITING,)),
    ("retrying", "retry", (Status.RETRY_SCHEDULED,)),
    ("failed", "fail", tuple(FAILED)),
)


class Part(Struct, frozen=True):
    """Some of a stage's items: how many, and where they are found."""

    label: str
    kind: str
    n: int
    statuses: list[str]


class Step(Struct, frozen=True):
    """A stage in the funnel."""

    name: str
    parts: list[Part]
    here: int
    past: int
    bar: Markup
    ages: list[tuple[str, str]]
    paused: str | None
    external: bool


class RouteView(Struct, frozen=True):
    name: str
    total: int
    done: int
    failed: int
    live: int
    cancelled: int
    share: float
    steps: list[Step]
    causes: list[dict[str, Any]]
    chart: Markup
    per_hour: float
    forecast: str
    paused: str | None


def home(ctx: Context, routes: Iterable[str]) -> list[RouteView]:
    """Every route that is to be seen, as a funnel."""
    wanted = list(routes)
    seen = snapshots(ctx)
    counts: dict[str, list[Count]] = {}
    for count in ctx.ledger.counts():
        counts.setdefault(count.route, []).append(count)
    holds = {name: read_as(Hold, document.value) for name, document in ctx.ledger.read(HOLD).items()}
    now = ctx.clock.now()
    return [_route(ctx, seen[name], counts.get(name, []), holds, now) for name in wanted if name in seen]


def _route(ctx: Context, seen: Snapshot, counts: list[Count], holds: dict[str, Hold], now: int) -> RouteView:
    ended = _ended_by_hour(counts, now)
    per_hour = pace(ended, now)
    plan = ctx.plans.get(seen.route)
    steps = []
    for stage in seen.stages:
        known = None if plan is None else plan.by_name.get(stage.name)
        hold = holds.get(f"{seen.route}/{stage.name}")
        steps.append(_step(stage, seen.total, bool(known is not None and known.external), _held(hold)))
    groups = [group for group in ctx.ledger.groups(seen.route) if group.now > 0]
    causes = [
        {
            "group": group.group,
            "stage": group.stage,
            "category": group.category,
            "sample": group.sample,
            "now": group.now,
            "total": group.total,
        }
        for group in sorted(groups, key=lambda group: -group.now)[:8]
    ]
    return RouteView(
        seen.route,
        seen.total,
        seen.done,
        seen.failed,
        seen.live,
        seen.cancelled,
        seen.ended / seen.total if seen.total else 0.0,
        steps,
        causes,
        _chart(seen.route, ended, now),
        per_hour,
        forecast(seen.live, per_hour),
        _held(holds.get(seen.route)),
    )


def _held(hold: Hold | None) -> str | None:
    return None if hold is None else f"paused by {hold.by}: {hold.reason}"


def _step(stage: StageView, total: int, external: bool, paused: str | None) -> Step:
    parts = []
    for label, kind, statuses in PARTS:
        n = stage.among(*statuses)
        if n:
            parts.append(Part(label, kind, n, [status.value for status in statuses]))
    ages = []
    for label, name in (("half within", "p50_ms"), ("95% within", "p95_ms"), ("oldest", "oldest_ms")):
        ms = getattr(stage, name, None)
        if ms is not None:
            ages.append((label, short_span(ms)))
    whole = max(1, total)
    told = ", ".join([*(f"{part.n:,} {part.label}" for part in parts), f"{stage.past:,} through"])
    bar = stack([*((part.kind, part.n / whole) for part in parts), ("done", stage.past / whole)], told)
    return Step(stage.name, parts, stage.among(*LIVE), stage.past, bar, ages, paused, external)


def _ended_by_hour(counts: list[Count], now: int) -> list[tuple[int, int]]:
    """How many were completed, and failed, in each of the last hours, the oldest first."""
    first = now // HOUR - HOURS + 1
    found = [[0, 0] for _ in range(HOURS)]
    for count in counts:
        place = count.hour - first
        if 0 <= place < HOURS and count.n > 0:
            if count.status is Status.COMPLETED:
                found[place][0] += count.n
            elif count.status in FAILED:
                found[place][1] += count.n
    return [(done, failed) for done, failed in found]


def pace(ended: list[tuple[int, int]], now: int) -> float:
    """Items that ended an hour: over the last hours, but from the first of them in which anything ended."""
    recent = [done + failed for done, failed in ended[-RECENT:]]
    busy = next((place for place, n in enumerate(recent) if n), None)
    if busy is None:
        return 0.0
    since = (now // HOUR - (len(recent) - 1 - busy)) * HOUR
    return sum(recent) * HOUR / max(60_000, now - since)


def _chart(route: str, ended: list[tuple[int, int]], now: int) -> Markup:
    data = []
    for place, (done, failed) in enumerate(ended):
        hour = datetime.fromtimestamp((now // HOUR - HOURS + 1 + place) * HOUR / 1000, UTC)
        told = f"{hour:%Y-%m-%d %H}:00 UTC: {done:,} through" + (f", {failed:,} failed" if failed else "")
        data.append(Bar(f"{hour:%H}h", told, (("done", done), ("fail", failed))))
    return bars(data, f"{route}: items that ended, by hour (UTC)", "items an hour")


def forecast(live: int, per_hour: float) -> str:
    """When the present ones will be through, if it goes on as in the last hours."""
    if not live:
        return "Nothing is on the way."
    if per_hour <= 0:
        return "Nothing has ended in the last hours, so nobody can say when these will be through."
    return f"At the pace of the last hours ({per_hour:,.0f} an hour) these are through in about {short_span(live / per_hour * HOUR)}."


def health(ctx: Context) -> dict[str, Any]:
    """Who is at work, and who is told."""
    now, live = ctx.clock.now(), {process.holder for process in live_processes(ctx)}
    newest = ctx.ledger.last_seq()
    cursors = {name: read_as(Cursor, document.value) for name, document in ctx.ledger.read(CURSOR).items()}
    parked = [document.value["subscriber"] for document in ctx.ledger.read(PARKED).values()]
    return {
        "processes": [
            {
                "name": process.holder,
                "alive": process.holder in live,
                "roles": sorted(process.roles),
                "seen": short_span(now - process.seen_at),
            }
            for process in processes(ctx)[:8]
        ],
        "subscribers": [
            {"name": name, "behind": newest - cursor.seq, "parked": parked.count(name), "error": cursor.error}
            for name, cursor in sorted(cursors.items())
            if not cursor.removed
        ],
    }
