"""Numbers of overdue items by stage: exact where the ledger can count them in an index, else bounds
from its hourly counters."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from milepost.core.counters import HOUR
from milepost.core.status import LIVE
from milepost.engine.context import Context
from milepost.ports.feed import Count
from milepost.ports.items import Query

PROBED = 200
"""Rows that a probe reads at most."""
NEVER = 2**53


class OverdueCount(Struct, frozen=True):
    """Live items past the overdue mark of their stage: at least `least`, at most `most`. On a
    ledger that counts them exactly both are the same."""

    least: int
    most: int

    @property
    def exact(self) -> bool:
        return self.least == self.most

    @property
    def words(self) -> str:
        """'1,250', 'up to 1,250', or 'at least 12'."""
        if self.exact:
            return f"{self.most:,}"
        return f"at least {self.least:,}" if self.least else f"up to {self.most:,}"


def overdue_counts(
    ctx: Context, route: str, counts: Iterable[Count], now: int
) -> dict[str, OverdueCount]:
    """The overdue items of each stage that has a mark. Only the route file knows the marks: without
    it there are none."""
    plan = ctx.plans.get(route)
    marked = (
        []
        if plan is None
        else [
            (stage.name, stage.overdue_ms) for stage in plan.stages if stage.overdue_ms is not None
        ]
    )
    hours: dict[str, dict[int, int]] = {}
    for count in counts if marked else ():
        if count.route == route and count.status in LIVE and count.n > 0:
            of = hours.setdefault(count.stage, {})
            of[count.hour] = of.get(count.hour, 0) + count.n
    return {
        stage: _stage_count(ctx, route, stage, hours.get(stage, {}), now - mark)
        for stage, mark in marked
    }


def _stage_count(
    ctx: Context, route: str, stage: str, hours: dict[int, int], latest: int
) -> OverdueCount:
    """`latest`: those that entered the stage by then are overdue."""
    if not hours:
        return OverdueCount(0, 0)
    counted = ctx.ledger.entered_by(route, stage, latest)
    return by_hours(hours, latest) if counted is None else OverdueCount(counted, counted)


def by_hours(hours: dict[int, int], latest: int) -> OverdueCount:
    """The bounds, from the numbers of items by the hour in which they entered the stage: some of
    the hour of the mark are overdue."""
    whole = sum(n for hour, n in hours.items() if (hour + 1) * HOUR - 1 <= latest)
    return OverdueCount(
        whole,
        whole
        + sum(n for hour, n in hours.items() if hour * HOUR <= latest < (hour + 1) * HOUR - 1),
    )


def probed(ctx: Context, route: str, stage: str, count: OverdueCount, now: int) -> OverdueCount:
    """The bounds after reading a few rows of the stage, those that are due first."""
    mark = ctx.plan(route).by_name[stage].overdue_ms
    if count.exact or mark is None:
        return count
    page = ctx.ledger.find(
        Query(route=route, stages=frozenset({stage}), statuses=LIVE, due_before=NEVER, limit=PROBED)
    )
    late = sum(item.row.entered_at <= now - mark for item in page.items)
    if page.next is None:
        return OverdueCount(late, late)
    least = max(count.least, late)
    return OverdueCount(least, max(least, count.most))
