"""What the overview shows, as plain values: made from what the ledger counts, so that it costs the same with a million items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup
from msgspec import Struct

from milepost.core.consequences import HOUR
from milepost.core.durations import iso, short_span
from milepost.core.plan import Plan
from milepost.core.status import FAILED, LIVE, Status
from milepost.engine.context import Context
from milepost.engine.observe import own_route
from milepost.engine.snapshot import Snapshot, StageView
from milepost.http.dashboard.charts import Bar, bars, stack
from milepost.http.dashboard.pace import HOURS, MINUTE, MINUTES, Ended, Forecast, Sample, Samples, by_hour, by_minute, forecast, pace
from milepost.ports.documents import HOLD, Hold, read_as, scope
from milepost.ports.ledger import Count, Group, Query

CAUSES = 8
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


class Pause(Struct, frozen=True):
    """A pause in force: of a route, a stage or a lane."""

    by: str
    reason: str
    since: str | None
    lane: str = ""


class Step(Struct, frozen=True):
    """A stage in the funnel. `overdue` says how many are, "1,204+ overdue" where there may be more; empty: none."""

    name: str
    parts: list[Part]
    here: int
    past: int
    bar: Markup
    ages: list[tuple[str, str]]
    overdue: str
    paused: Pause | None
    lanes: list[Pause]
    external: bool


class Chart(Struct, frozen=True):
    """A picture, and the same as a table: a moment, through, failed."""

    picture: Markup
    rows: list[tuple[str | None, int, int]]
    since: str | None = None
    """When somebody began to watch, if that was later than the chart begins."""


class RouteView(Struct, frozen=True):
    """A route. `known`: its stages are at hand here, so that its items can be looked at and acted on."""

    name: str
    known: bool
    marked: bool
    """Some stage has an overdue mark."""
    seen: Snapshot
    steps: list[Step]
    causes: list[dict[str, Any]]
    hours: Chart
    minutes: Chart
    forecast: Forecast
    paused: Pause | None


def worth_seeing(ctx: Context, seen: Snapshot) -> bool:
    """A route that nobody hands anything over to is Milepost's own, and has nothing to say while it is well."""
    return not own_route(ctx, seen.route) or bool(seen.failed or seen.live)


def home(ctx: Context, found: Iterable[Snapshot], samples: Samples) -> list[RouteView]:
    """These routes as funnels; Milepost's own come last."""
    counts: dict[str, list[Count]] = {}
    for count in ctx.ledger.counts():
        counts.setdefault(count.route, []).append(count)
    groups: dict[str, list[Group]] = {}
    for group in ctx.ledger.groups():
        groups.setdefault(group.route, []).append(group)
    holds = {name: read_as(Hold, document.value) for name, document in ctx.ledger.read(HOLD).items()}
    routes = sorted(found, key=lambda seen: own_route(ctx, seen.route))
    return [_route(ctx, seen, counts.get(seen.route, []), groups.get(seen.route, []), holds, samples) for seen in routes]


def _route(ctx: Context, seen: Snapshot, counts: list[Count], groups: list[Group], holds: dict[str, Hold], samples: Samples) -> RouteView:
    now, plan = seen.at, ctx.plans.get(seen.route)
    hours = by_hour(counts, now)
    watched = samples.seen(seen.route, Sample(now, seen.done, seen.failed))
    steps = [_step(stage, seen, plan, holds) for stage in seen.stages]
    paused = _pause(holds.get(seen.route))
    stuck = [(step.name, step.here) for step in steps if step.paused] if paused is None else [("this route", seen.live)]
    return RouteView(
        seen.route,
        plan is not None,
        any(stage.overdue is not None for stage in seen.stages),
        seen,
        steps,
        _causes(ctx, seen.route, groups),
        _hours(hours, now),
        _minutes(by_minute(watched, now), watched[0].at, now),
        forecast(seen.live, pace(hours, watched, now), stuck, now),
        paused,
    )


def _pause(hold: Hold | None, lane: str = "") -> Pause | None:
    return None if hold is None else Pause(hold.by, hold.reason, iso(hold.at), lane)


def _step(stage: StageView, seen: Snapshot, plan: Plan | None, holds: dict[str, Hold]) -> Step:
    parts = []
    for label, kind, statuses in PARTS:
        n = stage.among(*statuses)
        if n:
            parts.append(Part(label, kind, n, [status.value for status in statuses]))
    ages = []
    for label, ms in (("half within", stage.p50_ms), ("95% within", stage.p95_ms), ("oldest", stage.oldest_ms)):
        if ms is not None:
            ages.append((label, short_span(ms)))
    whole = max(1, seen.total)
    told = ", ".join([*(f"{part.n:,} {part.label}" for part in parts), f"{stage.past:,} through"])
    bar = stack([*((part.kind, part.n / whole) for part in parts), ("done", stage.past / whole)], told)
    above = scope(seen.route, stage.name)
    lanes = [pause for name in sorted(holds) if (lane := _lane(name, above)) and (pause := _pause(holds[name], lane)) is not None]
    return Step(
        stage.name,
        parts,
        stage.among(*LIVE),
        stage.past,
        bar,
        ages,
        _overdue(stage),
        _pause(holds.get(above)),
        lanes,
        plan is not None and stage.name in plan.by_name and plan.by_name[stage.name].external,
    )


def _overdue(stage: StageView) -> str:
    if stage.overdue:
        return f"{stage.overdue:,}{'+' if stage.overdue_more else ''} overdue"
    return "some may be overdue" if stage.overdue_more else ""


def _lane(name: str, above: str) -> str:
    return name.removeprefix(f"{above}/") if name.startswith(f"{above}/") else ""


def _causes(ctx: Context, route: str, groups: list[Group]) -> list[dict[str, Any]]:
    """The most frequent now first, each with the filter that finds all of it; where finding costs, those that have ended."""
    present = sorted((group for group in groups if group.now > 0), key=lambda group: (-group.now, group.group))[:CAUSES]
    found = []
    # Whether an index serves that is the same for every group.
    free = bool(present) and ctx.ledger.cost_of(Query(route=route, group=present[0].group)) is None
    for group in present:
        chosen: dict[str, Any] = {"group": group.group, "stage": [group.stage]}
        found.append({"of": group, "filter": chosen if free else {**chosen, "status": ["failed"]}})
    return found


def _hours(ended: Sequence[tuple[int, int]], now: int) -> Chart:
    data, rows = [], []
    today = datetime.fromtimestamp(now / 1000, UTC).date()
    for place, (done, failed) in enumerate(ended):
        ms = (now // HOUR - HOURS + 1 + place) * HOUR
        hour = datetime.fromtimestamp(ms / 1000, UTC)
        label = f"{hour:%H}" if hour.hour % 6 == 0 else ""
        if hour.hour == 0:
            label = "today" if hour.date() == today else "yesterday"
        told = f"{hour:%a %d %b, %H}:00 to {(hour.hour + 1) % 24:02}:00: {_said(done, failed)}"
        data.append(Bar(told, _parts(done, failed), label, mark=hour.hour == 0, minor=hour.hour % 12 != 0))
        if done or failed:
            rows.append((iso(ms), done, failed))
    return Chart(bars(data, _summed("Ended in the last two days, by hour", ended)), rows[::-1])


def _minutes(ended: Sequence[Ended | None], since: int, now: int) -> Chart:
    data, rows = [], []
    for place, seen in enumerate(ended):
        ms = (now // MINUTE - MINUTES + 1 + place) * MINUTE
        minute = datetime.fromtimestamp(ms / 1000, UTC)
        done, failed = (0.0, 0.0) if seen is None else seen
        said = "nobody watched" if seen is None else _said(round(done), round(failed))
        label = f"{minute:%H:%M}" if minute.minute % 15 == 0 else ""
        data.append(Bar(f"{minute:%H:%M}: {said}", _parts(done, failed), label))
        if round(done) or round(failed):
            rows.append((iso(ms), round(done), round(failed)))
    begin = (now // MINUTE - MINUTES + 1) * MINUTE
    picture = bars(data, _summed("Ended in the last hour, by minute", [one for one in ended if one is not None]))
    return Chart(picture, rows[::-1], iso(since) if since > begin else None)


def _parts(done: float, failed: float) -> tuple[tuple[str, float], ...]:
    return (("done", done), ("fail", failed))


def _said(done: int, failed: int) -> str:
    return f"{done:,} through" + (f", {failed:,} failed" if failed else "")


def _summed(what: str, ended: Sequence[tuple[float, float]]) -> str:
    return f"{what}: {_said(round(sum(done for done, _ in ended)), round(sum(failed for _, failed in ended)))} in all"
