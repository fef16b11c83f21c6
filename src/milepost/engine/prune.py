"""Letting go of rows that have ended. Their seals stay, and nothing goes that somebody still has to be told."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from milepost.core.durations import short_span
from milepost.core.errors import UsageError
from milepost.core.status import TERMINAL
from milepost.engine.acts import enter, finish, signed
from milepost.engine.context import Context
from milepost.engine.cursors import floor
from milepost.engine.evidence import keeper
from milepost.engine.heads import ROUTE as HEADS
from milepost.engine.heads import summed_up_to
from milepost.engine.observe import counted, each
from milepost.ports.ledger import Query

BATCH = 1000


class PruneReport(Struct):
    """`items` rows let go, `forgotten` seals older than the route remembers. With `dry_run`: what would go."""

    items: int = 0
    forgotten: int = 0
    dry_run: bool = False
    kept_back: int = 0
    """Lines that some subscriber has not been told yet: the rows they belong to stay."""
    stay_ms: int = 0
    """How long rows stay on this ledger after they have ended, beyond what was asked for."""
    unsummed: int = 0
    """Lines that everybody has been told, and that no daily head covers yet: the rows they belong to stay."""

    def __str__(self) -> str:
        last = "the last line" if self.kept_back == 1 else f"any of the last {self.kept_back:,} lines"
        waits = f"; rows with {last} wait until every subscriber is told" if self.kept_back else ""
        if self.unsummed:
            waits += f"; rows with any of {counted(self.unsummed, 'line')} that no daily head covers yet wait for it"
        if self.stay_ms:
            waits += f"; rows stay until they have been sealed for {short_span(self.stay_ms)} more than was asked for"
        if self.dry_run:
            return f"{counted(self.items, 'row')} would go{waits}"
        return f"{counted(self.items, 'row')} let go, {counted(self.forgotten, 'seal')} forgotten{waits}"


def prune(
    ctx: Context,
    route: str,
    older_than_ms: int,
    *,
    by: str,
    reason: str,
    dry_run: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> PruneReport:
    """Let go of the route's rows that ended longer ago than this, in batches, so that nobody waits long for the ledger.
    It is on record who did that and why; a preview need not be signed."""
    plan, now, ledger = ctx.plan(route), ctx.clock.now(), ctx.ledger
    if route == HEADS:
        raise UsageError("the daily heads stay: without them nothing could be proved to have been there")
    newest, told_up_to, summed = ledger.last_seq(), floor(ctx), summed_up_to(ctx)
    ended_before = now - older_than_ms
    report = PruneReport(dry_run=dry_run, kept_back=newest - told_up_to, stay_ms=ledger.timing.stay_ms)
    if summed is not None and summed < told_up_to:
        # A line that goes before a head has summed it up could never be proved to have been there.
        told_up_to, report.unsummed = summed, told_up_to - summed
    # The item of the newest line stays in any case: places in the feed are never given out again.
    told_up_to = min(told_up_to, newest - 1)
    if dry_run:
        report.items = _would_go(ctx, route, ended_before - ledger.timing.stay_ms, told_up_to)
        return report
    signed(by, reason)
    act = enter(ctx, "prune", route, by, reason, {"older_than": f"{older_than_ms}ms"})
    remember = plan.route.remember_ms
    keep = keeper(ctx.blobs) if plan.route.evidence else None
    while True:
        pruned = ledger.prune(route, ended_before, None if remember is None else now - remember, told_up_to, BATCH, keep)
        report.items += pruned.items
        report.forgotten += pruned.forgotten
        if on_progress is not None:
            on_progress(report.items)
        if not pruned.more:
            finish(ctx, act, report.items)
            return report


def _would_go(ctx: Context, route: str, ended_before: int, told_up_to: int) -> int:
    """How many are old enough, without those that a later line holds back."""
    held: set[str] = set()
    at = told_up_to
    while lines := ctx.ledger.feed(at, BATCH):
        held |= {line.key for line in lines if line.route == route}
        at = lines[-1].seq
    old = each(ctx, Query(route=route, statuses=TERMINAL, entered_before=ended_before))
    return sum(1 for item in old if item.key not in held)
