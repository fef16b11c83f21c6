"""Snapshot of a route for a live view: counts, rate, ages, failures by kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from math import ceil
from typing import TypeVar

from msgspec import Struct

from milepost.core.counters import HOUR
from milepost.core.item import Item
from milepost.core.status import FAILED, LIVE, TERMINAL, Status
from milepost.engine.context import Context
from milepost.engine.views.items import route_names, stage_names
from milepost.engine.views.overdue_counts import OverdueCount, overdue_counts
from milepost.ports.documents import HOLD
from milepost.ports.feed import Count, Group
from milepost.ports.items import Query

NEAR = 2 * HOUR
"""Below this age the hourly counters are too coarse, and a few rows are read."""
LOOK = 200

C = TypeVar("C", Count, Group)


class StageView(Struct, frozen=True):
    """One stage: items by status, items past it, and percentiles of the time that unfinished items
    have been there (None: no items, or too expensive to read). `overdue`: items past the stage's
    overdue mark; None: the stage has no mark."""

    name: str
    counts: dict[Status, int]
    past: int
    oldest_ms: int | None = None
    paused: bool = False
    p50_ms: int | None = None
    p95_ms: int | None = None
    overdue: OverdueCount | None = None

    def among(self, *statuses: Status) -> int:
        return sum(self.counts.get(status, 0) for status in statuses)


class Kind(Struct, frozen=True):
    """A kind of failure: items that have it now, and occurrences in total."""

    category: str
    stage: str
    sample: str
    now: int
    total: int


class Snapshot(Struct, frozen=True):
    """One route at one time. `rate`: items that ended per second since the previous snapshot;
    `steps`: history lines per second."""

    route: str
    at: int
    total: int
    done: int
    failed: int
    cancelled: int
    stages: list[StageView]
    kinds: list[Kind]
    seq: int
    rate: float = 0.0
    steps: float = 0.0
    paused: bool = False

    @property
    def ended(self) -> int:
        return self.done + self.failed + self.cancelled

    @property
    def live(self) -> int:
        return self.total - self.ended

    @property
    def overdue(self) -> OverdueCount:
        """Of all stages."""
        marked = [stage.overdue for stage in self.stages if stage.overdue is not None]
        return OverdueCount(sum(one.least for one in marked), sum(one.most for one in marked))

    @property
    def oldest_ms(self) -> int | None:
        ages = [stage.oldest_ms for stage in self.stages if stage.oldest_ms is not None]
        return max(ages, default=None)


def snapshots(
    ctx: Context, before: dict[str, Snapshot] | None = None, route: str | None = None
) -> dict[str, Snapshot]:
    """A snapshot of each route; rates are relative to `before`."""
    now, seq = ctx.clock.now(), ctx.ledger.last_seq()
    holds = set(ctx.ledger.read(HOLD))
    counts: dict[str, list[Count]] = {
        name: [] for name in (route_names(ctx) if route is None else [route])
    }
    counts |= by_route(ctx.ledger.counts(route))
    groups = by_route(ctx.ledger.groups(route))
    return {
        name: _snapshot(
            ctx, name, found, groups.get(name, []), holds, now, seq, (before or {}).get(name)
        )
        for name, found in counts.items()
    }


def by_route(found: Iterable[C]) -> dict[str, list[C]]:
    """Counts or groups of errors, by their routes."""
    grouped: dict[str, list[C]] = {}
    for one in found:
        grouped.setdefault(one.route, []).append(one)
    return grouped


def _snapshot(
    ctx: Context,
    route: str,
    counts: list[Count],
    groups: list[Group],
    holds: set[str],
    now: int,
    seq: int,
    before: Snapshot | None,
) -> Snapshot:
    names = stage_names(ctx, route)
    names += sorted({count.stage for count in counts if count.n > 0 and count.stage not in names})
    by_stage: dict[str, dict[Status, int]] = {name: {} for name in names}
    buckets: dict[str, dict[int, int]] = {}
    for count in counts:
        if count.n <= 0:
            continue
        at = by_stage[count.stage]
        at[count.status] = at.get(count.status, 0) + count.n
        if count.status in LIVE:
            hours = buckets.setdefault(count.stage, {})
            hours[count.hour] = hours.get(count.hour, 0) + count.n
    stages, past = [], 0
    overdue = overdue_counts(ctx, route, counts, now)

    @cache
    def free() -> bool:
        """Whether reading the rows of a stage is free. The answer is the same for all stages, and
        asking may cost a little."""
        return (
            ctx.ledger.cost_of(Query(route=route, stages=frozenset(names), statuses=LIVE)) is None
        )

    for name in reversed(names):
        here = by_stage[name]
        past += here.get(Status.COMPLETED, 0)
        ages = _ages(ctx, route, name, buckets[name], now, free) if name in buckets else []
        p50, p95, oldest = (_percentile(ages, part) for part in (0.5, 0.95, 1.0))
        stages.append(
            StageView(
                name, here, past, oldest, f"{route}/{name}" in holds, p50, p95, overdue.get(name)
            )
        )
        past += sum(n for status, n in here.items() if status is not Status.COMPLETED)
    stages.reverse()
    sums = {status: sum(stage.counts.get(status, 0) for stage in stages) for status in Status}
    ended = sum(sums[status] for status in TERMINAL)
    rate = steps = 0.0
    if before is not None and now > before.at:
        seconds = (now - before.at) / 1000
        rate, steps = (
            max(0.0, (ended - before.ended) / seconds),
            max(0.0, (seq - before.seq) / seconds),
        )
    return Snapshot(
        route,
        now,
        sum(sums.values()),
        sums[Status.COMPLETED],
        sum(sums[status] for status in FAILED),
        sums[Status.CANCELLED],
        stages,
        _kinds(groups),
        seq,
        rate,
        steps,
        route in holds,
    )


def _ages(
    ctx: Context, route: str, stage: str, hours: dict[int, int], now: int, free: Callable[[], bool]
) -> list[tuple[int, int]]:
    """Ages of live items at a stage as (age, count), youngest first. From hourly counters; if all
    are young, from rows, where reading is free."""
    if now - min(hours) * HOUR > NEAR:
        return [
            (max(0, now - (hour + 1) * HOUR), hours[hour]) for hour in sorted(hours, reverse=True)
        ]
    return (
        sorted((max(0, now - item.row.entered_at), 1) for item in _some(ctx, route, stage))
        if free()
        else []
    )


def _some(ctx: Context, route: str, stage: str) -> list[Item]:
    """A few live items of a stage."""
    return ctx.ledger.find(
        Query(route=route, stages=frozenset({stage}), statuses=LIVE, limit=LOOK)
    ).items


def _percentile(ages: list[tuple[int, int]], part: float) -> int | None:
    """The age that this share of items does not exceed."""
    wanted = ceil(part * sum(n for _, n in ages))
    for age, n in ages:
        wanted -= n
        if wanted <= 0:
            return age
    return None


def _kinds(groups: list[Group]) -> list[Kind]:
    """Kinds of failure, most frequent first; groups with different messages stay separate."""
    kinds = [
        Kind(group.category, group.stage, group.sample, group.now, group.total)
        for group in groups
        if group.total > 0
    ]
    return sorted(kinds, key=lambda kind: (-kind.now, -kind.total, kind.category, kind.stage))
