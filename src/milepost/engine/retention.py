"""Pruning: rows that ended long ago leave, and lines that nothing waits for. Seals stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from msgspec import Struct, field

from milepost.core.errors import UsageError
from milepost.core.status import TERMINAL, Status
from milepost.core.values.durations import short_span
from milepost.engine.act_log import enter, finish, signed
from milepost.engine.context import Context
from milepost.engine.events.cursors import told
from milepost.engine.evidence.records import keeper
from milepost.engine.heads.daily import summed_up_to
from milepost.engine.heads.route import ROUTE as HEADS
from milepost.engine.views.items import counted, each
from milepost.ports.ledger import DeliveredLines, Query

BATCH = 1000
SAFE = frozenset({Status.COMPLETED})
"""What is pruned unless other statuses are named: failed and cancelled items are still somebody's work."""


class PruneReport(Struct):
    """`items` rows left, `forgotten` seals older than the route remembers. With `dry_run`: what would leave."""

    items: int = 0
    forgotten: int = 0
    dry_run: bool = False
    kept_back: int = 0
    """The newest lines of all routes that some subscriber has not been told yet: rows leave, and such lines stay until it has been."""
    stay_ms: int = 0
    """How long rows stay on this ledger after they have ended, beyond what was asked for."""
    unsummed: int = 0
    """Lines that all subscribers have been told, and that no daily head covers yet: they stay until one does."""
    statuses: dict[str, int] = field(default_factory=dict)
    """The rows, by status."""
    others: dict[str, int] = field(default_factory=dict)
    """With `dry_run`: rows that are as old and stay, because their status was not named."""
    parked: int = 0
    """Items of the route whose events a subscriber does not take: their lines stay."""

    def __str__(self) -> str:
        waits = ""
        if self.kept_back:
            last = "the last line" if self.kept_back == 1 else f"the last {self.kept_back:,} lines"
            waits += f"; {last} of all routes stay{'s' if self.kept_back == 1 else ''} until every subscriber is told"
        if self.parked:
            waits += f"; the lines of {counted(self.parked, 'parked item')} stay until they are told (see 'milepost subscribers')"
        if self.unsummed:
            waits += f"; {counted(self.unsummed, 'line')} that no daily head covers yet stay{'s' if self.unsummed == 1 else ''} for it"
        if self.stay_ms:
            waits += f"; rows stay until they have been sealed for {short_span(self.stay_ms)} more than was asked for"
        by_status = f" ({_told(self.statuses)})" if self.statuses else ""
        if self.dry_run:
            staying = f"; {_told(self.others)} would stay: name a status with --status to prune such rows" if self.others else ""
            return f"{counted(self.items, 'row')} would go{by_status}{staying}{waits}"
        return f"{counted(self.items, 'row')} let go{by_status}, {counted(self.forgotten, 'seal')} forgotten{waits}"


def _told(statuses: dict[str, int]) -> str:
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
    """Let the route's rows go that ended longer ago than this, with one of these statuses: COMPLETED if none is named. It goes in
    batches, so that no process waits long for the ledger, and is on record with name and reason; a preview need not be signed."""
    plan, now, ledger = ctx.plan(route), ctx.clock.now(), ctx.ledger
    if route == HEADS:
        raise UsageError("the daily heads stay: without them nothing could be proved to have been there")
    chosen = SAFE if statuses is None else statuses
    if not chosen <= TERMINAL:
        raise UsageError(f"{', '.join(sorted(chosen - TERMINAL))}: only ended items are pruned: {', '.join(sorted(TERMINAL))} or failed")
    covered, newest, summed = told(ctx), ledger.last_seq(), summed_up_to(ctx)
    ended_before = now - older_than_ms
    report = PruneReport(dry_run=dry_run, kept_back=newest - covered.up_to, stay_ms=ledger.timing.stay_ms)
    report.parked = sum(parked == route for parked, _ in covered.parked)
    if summed is not None and summed < covered.up_to:
        # A line that goes before a head has summed it up could never be proved to have been there.
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
    """Count what is old enough, by status. Each row is looked at: counters may be late, and know hours only."""
    old = each(ctx, Query(route=route, statuses=TERMINAL, entered_before=ended_before, exact=True))
    found = Counter(item.row.status for item in old)
    report.statuses = {status.value: n for status, n in found.items() if status in chosen}
    report.others = {status.value: n for status, n in found.items() if status not in chosen}
    report.items = sum(report.statuses.values())
