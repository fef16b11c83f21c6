"""Letting go of rows that have ended. Their seals stay, and nothing goes that somebody still has to be told."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from milepost.core.status import TERMINAL
from milepost.engine.context import Context
from milepost.engine.relay import floor
from milepost.ports.ledger import Query

BATCH = 1000


class PruneReport(Struct):
    """`items` rows let go, `forgotten` seals older than the route remembers. With `dry_run`: the rows that are old enough."""

    items: int = 0
    forgotten: int = 0
    dry_run: bool = False
    kept_back: int = 0
    """Lines that some subscriber has not been told yet: the rows they belong to stay."""

    def __str__(self) -> str:
        waits = f"; rows with any of the last {self.kept_back:,} lines wait until every subscriber is told" if self.kept_back else ""
        if self.dry_run:
            return f"{self.items:,} rows would go{waits}"
        return f"{self.items:,} rows let go, {self.forgotten:,} seals forgotten{waits}"


def prune(
    ctx: Context, route: str, older_than_ms: int, *, dry_run: bool = False, on_progress: Callable[[int], None] | None = None
) -> PruneReport:
    """Let go of the route's rows that ended longer ago than this, in batches, so that nobody waits long for the ledger."""
    plan, now, ledger = ctx.plan(route), ctx.clock.now(), ctx.ledger
    told_up_to = floor(ctx)
    ended_before = now - older_than_ms
    report = PruneReport(dry_run=dry_run, kept_back=ledger.last_seq() - told_up_to)
    if dry_run:
        report.items = _old_enough(ctx, route, ended_before)
        return report
    remember = plan.route.remember_ms
    while True:
        pruned = ledger.prune(route, ended_before, None if remember is None else now - remember, told_up_to, BATCH)
        report.items += pruned.items
        report.forgotten += pruned.forgotten
        if on_progress is not None:
            on_progress(report.items)
        if not pruned.more:
            return report


def _old_enough(ctx: Context, route: str, ended_before: int) -> int:
    n, after = 0, None
    while True:
        page = ctx.ledger.find(Query(route=route, statuses=TERMINAL, entered_before=ended_before, after=after))
        n += len(page.items)
        if page.next is None:
            return n
        after = page.next
