"""Retention: prune rows that ended long ago, and history lines that are no longer needed. Seals stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from msgspec import Struct, field

from milepost.core.errors import UsageError
from milepost.core.status import TERMINAL, Status
from milepost.core.values.durations import short_span
from milepost.engine.act_log import enter, finish, signed
from milepost.engine.context import Context
from milepost.engine.events.cursors import delivered
from milepost.engine.evidence.records import keeper
from milepost.engine.heads.daily import summed_up_to
from milepost.engine.heads.route import ROUTE as HEADS
from milepost.engine.views.items import counted, each
from milepost.ports.items import Query
from milepost.ports.retention import DeliveredLines

BATCH = 1000
SAFE = frozenset({Status.COMPLETED})
"""Default statuses to prune: failed and cancelled items still need an operator."""


class PruneReport(Struct):
    """Result of a prune: `items` rows removed, `forgotten` seals past the route's `remember`. With `dry_run`: the expected result."""

    items: int = 0
    forgotten: int = 0
    dry_run: bool = False
    kept_back: int = 0
    """History lines of all routes that a subscriber has not received yet; they stay until it has."""
    stay_ms: int = 0
    """Additional time that rows stay on this ledger after their end."""
    unsummed: int = 0
    """Lines that all subscribers have received but no daily head covers yet; they stay until one does."""
    statuses: dict[str, int] = field(default_factory=dict)
    """Removed rows by status."""
    others: dict[str, int] = field(default_factory=dict)
    """With `dry_run`: rows that are as old and stay, because their status is not selected."""
    parked: int = 0
    """Items of the route with events that a subscriber refuses; their lines stay."""

    def __str__(self) -> str:
        waits = ""
        if self.kept_back:
            last = "the last line" if self.kept_back == 1 else f"the last {self.kept_back:,} lines"
            waits += f"; {last} of all routes stay{'s' if self.kept_back == 1 else ''} until every subscriber has received {'it' if self.kept_back == 1 else 'them'}"
        if self.parked:
            waits += f"; the lines of {counted(self.parked, 'parked item')} stay until they are delivered (see 'milepost subscribers')"
        if self.unsummed:
            waits += f"; {counted(self.unsummed, 'line')} stay{'s' if self.unsummed == 1 else ''} until a daily head covers {'it' if self.unsummed == 1 else 'them'}"
        if self.stay_ms:
            waits += f"; rows stay {short_span(self.stay_ms)} longer than requested"
        by_status = f" ({_by_status(self.statuses)})" if self.statuses else ""
        if self.dry_run:
            staying = f"; {_by_status(self.others)} would stay: name a status with --status to prune such rows" if self.others else ""
            return f"{counted(self.items, 'row')} would be removed{by_status}{staying}{waits}"
        return f"{counted(self.items, 'row')} removed{by_status}, {counted(self.forgotten, 'seal')} forgotten{waits}"


def _by_status(statuses: dict[str, int]) -> str:
    return ", ".join(f"{n:,} {status}" for status, n in sorted(statuses.items()))


def prune(
    ctx: Context,
    route: str,
    older_than_ms: int,
    *,
    by: str,
    reason: str,
    statuses: frozenset[Status] | None = None,
    dry_run: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> PruneReport:
    """Remove the route's rows that ended longer ago than this, with one of these statuses (default COMPLETED). Runs in batches, so that no
    process waits long for the ledger. The act is recorded with name and reason; a dry run needs neither."""
    plan, now, ledger = ctx.plan(route), ctx.clock.now(), ctx.ledger
    if route == HEADS:
        raise UsageError("the daily heads cannot be pruned: evidence depends on them")
    chosen = SAFE if statuses is None else statuses
    if not chosen <= TERMINAL:
        raise UsageError(f"{', '.join(sorted(chosen - TERMINAL))}: only ended items can be pruned: {', '.join(sorted(TERMINAL))} or failed")
    covered, newest, summed = delivered(ctx), ledger.last_seq(), summed_up_to(ctx)
    ended_before = now - older_than_ms
    report = PruneReport(dry_run=dry_run, kept_back=newest - covered.up_to, stay_ms=ledger.timing.stay_ms)
    report.parked = sum(parked == route for parked, _ in covered.parked)
    if summed is not None and summed < covered.up_to:
        # A line that is removed before a head covers it could never be proved.
        report.unsummed = covered.up_to - summed
        covered = DeliveredLines(summed, covered.parked)
    if dry_run:
        _preview(ctx, route, chosen, ended_before - ledger.timing.stay_ms, report)
        return report
    signed(by, reason)
    act = enter(ctx, "prune", route, by, reason, {"older_than": f"{older_than_ms}ms", "statuses": sorted(chosen)})
    remember = plan.route.remember_ms
    forget_before = None if remember is None else now - remember
    keep = keeper(ctx.blobs) if plan.route.evidence else None
    left: Counter[str] = Counter()
    while True:
        pruned = ledger.prune(route, chosen, ended_before, forget_before, covered, BATCH, keep)
        left.update({status.value: n for status, n in pruned.statuses.items()})
        report.items += pruned.items
        report.forgotten += pruned.forgotten
        if on_progress is not None:
            on_progress(report.items)
        if not pruned.more:
            report.statuses = dict(left)
            finish(ctx, act, report.items)
            return report


def _preview(ctx: Context, route: str, chosen: frozenset[Status], ended_before: int, report: PruneReport) -> None:
    """Count old rows by status. Reads each row, because counters may lag and have hourly resolution."""
    old = each(ctx, Query(route=route, statuses=TERMINAL, entered_before=ended_before, exact=True))
    found = Counter(item.row.status for item in old)
    report.statuses = {status.value: n for status, n in found.items() if status in chosen}
    report.others = {status.value: n for status, n in found.items() if status not in chosen}
    report.items = sum(report.statuses.values())
