"""Retention: remove rows that ended long ago, by an operator's prune or by the route's `keep`, and
lines no longer needed. Seals stay."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct, field

from milepost.core.counters import HOUR
from milepost.core.errors import LedgerError, LedgerUnavailable, UsageError
from milepost.core.routes.plan import Plan
from milepost.core.status import TERMINAL, Status
from milepost.core.values.durations import short_span
from milepost.engine.act_log import enter, finish, signed
from milepost.engine.context import Context
from milepost.engine.events.cursors import delivered
from milepost.engine.evidence import keeper
from milepost.engine.heads.daily import summed_up_to
from milepost.engine.heads.route import ROUTE as HEADS
from milepost.engine.views.items import counted, each
from milepost.ports.items import Query
from milepost.ports.retention import DeliveredLines, PruneCriteria, Pruned
from milepost.ports.service import Service

BATCH = 1000
EVERY = 60.0
log = logging.getLogger(__name__)
SAFE = frozenset({Status.COMPLETED})
"""Default statuses to prune: failed and cancelled items still need an operator."""


class PruneReport(Struct):
    """Result of a prune: `items` rows removed, `forgotten` seals past the route's `remember`. With
    `dry_run`: the expected result."""

    items: int = 0
    forgotten: int = 0
    dry_run: bool = False
    kept_back: int = 0
    """History lines of all routes that a subscriber has not received yet; they stay until it
    has."""
    stay_ms: int = 0
    """Additional time that rows stay on this ledger after their end."""
    unsummed: int = 0
    """Lines that all subscribers have received but no daily head covers yet; they stay until one
    does."""
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
            stays, them = ("stays", "it") if self.kept_back == 1 else ("stay", "them")
            waits += f"; {last} of all routes {stays}, with the content that belongs to {them}, until every subscriber has received {them}"
        if self.parked:
            waits += f"; lines and content of {counted(self.parked, 'parked item')} stay until the lines are delivered (see 'milepost subscribers')"
        if self.unsummed:
            waits += f"; {counted(self.unsummed, 'line')} stay{'s' if self.unsummed == 1 else ''} until a daily head covers {'it' if self.unsummed == 1 else 'them'}"
        if self.stay_ms:
            waits += f"; rows stay {short_span(self.stay_ms)} longer than requested"
        by_status = f" ({_by_status(self.statuses)})" if self.statuses else ""
        if self.dry_run:
            staying = (
                f"; {_by_status(self.others)} would stay: name a status with --status to prune such rows"
                if self.others
                else ""
            )
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
    """Remove the route's rows that ended longer ago than this, with one of these statuses (default
    COMPLETED). Runs in batches, so that no process waits long for the ledger. The act is recorded
    with name and reason; a dry run needs neither."""
    plan, now, ledger = ctx.plan(route), ctx.clock.now(), ctx.ledger
    if route == HEADS:
        raise UsageError("the daily heads cannot be pruned: evidence depends on them")
    chosen = SAFE if statuses is None else statuses
    if not chosen <= TERMINAL:
        raise UsageError(
            f"{', '.join(sorted(chosen - TERMINAL))}: only ended items can be pruned: {', '.join(sorted(TERMINAL))} or failed"
        )
    received, newest, covered = delivered(ctx), ledger.last_seq(), _covered(ctx)
    ended_before = now - older_than_ms
    report = PruneReport(
        dry_run=dry_run, kept_back=newest - received.up_to, stay_ms=ledger.timing.stay_ms
    )
    report.parked = sum(parked == route for parked, _ in covered.parked)
    report.unsummed = max(0, received.up_to - covered.up_to)
    if dry_run:
        _preview(ctx, route, chosen, ended_before - ledger.timing.stay_ms, report)
        return report
    signed(by, reason)
    act = enter(
        ctx,
        "prune",
        route,
        by,
        reason,
        {"older_than": f"{older_than_ms}ms", "statuses": sorted(chosen)},
    )
    left: Counter[str] = Counter()
    more = True
    while more:
        pruned = _prune_some(ctx, plan, chosen, ended_before, covered, BATCH)
        more = pruned.more
        left.update({status.value: n for status, n in pruned.statuses.items()})
        report.items += pruned.items
        report.forgotten += pruned.forgotten
        if on_progress is not None:
            on_progress(report.items)
    report.statuses = dict(left)
    finish(ctx, act, report.items)
    return report


def _prune_some(
    ctx: Context,
    plan: Plan,
    statuses: frozenset[Status],
    ended_before: int,
    covered: DeliveredLines,
    limit: int,
) -> Pruned:
    """Remove one batch of the route's rows, delivered lines and old seals. Evidence of a row is
    kept before it leaves."""
    route = plan.route
    forget_before = None if route.remember_ms is None else ctx.clock.now() - route.remember_ms
    keep = keeper(ctx.blobs) if route.evidence else None
    return ctx.ledger.prune(
        PruneCriteria(route.name, statuses, ended_before, forget_before, covered, limit, keep)
    )


def _preview(
    ctx: Context, route: str, chosen: frozenset[Status], ended_before: int, report: PruneReport
) -> None:
    """Count old rows by status. Reads each row, because counters may lag and have hourly
    resolution."""
    old = each(ctx, Query(route=route, statuses=TERMINAL, entered_before=ended_before, exact=True))
    found = Counter(item.row.status for item in old)
    report.statuses = {status.value: n for status, n in found.items() if status in chosen}
    report.others = {status.value: n for status, n in found.items() if status not in chosen}
    report.items = sum(report.statuses.values())


def _covered(ctx: Context) -> DeliveredLines:
    """Lines that may leave: every subscriber has received them, and a daily head, if there are any,
    covers them. A line that is removed before a head covers it could never be proved."""
    received, summed = delivered(ctx), summed_up_to(ctx)
    return (
        received if summed is None else DeliveredLines(min(summed, received.up_to), received.parked)
    )


class Retention(Service):
    """Removes ended rows once their route's `keep` is over, and forgets seals by its `remember`, on
    ledgers whose rows do not leave by themselves. Several may run at once.

    Rows leave by whole hours, in which the counters know how many there are: so a turn without old
    rows reads no row at all.
    """

    name = "retention"

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._hour = -1
        """The hour for which nothing is left to do."""

    @staticmethod
    def needed(ctx: Context) -> bool:
        """Whether a route of this process lets rows leave that the ledger itself does not
        remove."""
        return not ctx.ledger.row_expiry and any(_leaves(plan) for plan in ctx.plans.values())

    def turn(self) -> float:
        hour = self._ctx.clock.now() // HOUR
        if hour == self._hour:
            return EVERY
        if self.run_once():
            return 0.0
        if not self.failed:
            self._hour = hour
        return EVERY

    def run_once(self) -> bool:
        """Remove one batch of each route; returns whether there may be more. A route whose evidence
        cannot be kept now does not stop the others."""
        covered, more = _covered(self._ctx), False
        self.failed = False
        for plan in self._ctx.plans.values():
            if not _leaves(plan):
                continue
            try:
                removed = list(self._remove_some(plan, covered))
            except LedgerUnavailable:
                raise
            except LedgerError as error:
                log.error("rows of %s cannot leave now: %s", plan.name, error)
                self.failed = True
                continue
            more |= any(pruned.more for pruned in removed)
            items, forgotten = (
                sum(pruned.items for pruned in removed),
                sum(pruned.forgotten for pruned in removed),
            )
            if items or forgotten:
                log.info("%s: %d rows removed, %d seals forgotten", plan.name, items, forgotten)
        return more

    def _remove_some(self, plan: Plan, covered: DeliveredLines) -> Iterator[Pruned]:
        """Remove one batch of the rows that may leave, for each time that the route keeps some of
        them."""
        for keep_ms, statuses in _statuses_by_keep(plan.route.keep).items():
            ended_before = (self._ctx.clock.now() - keep_ms) // HOUR * HOUR
            old = _old(self._ctx, plan.name, statuses, ended_before)
            yield _prune_some(
                self._ctx,
                plan,
                frozenset(old),
                ended_before,
                covered,
                min(BATCH, old.total()) or BATCH,
            )
        if not plan.route.keep:
            yield _prune_some(self._ctx, plan, frozenset(), 0, covered, BATCH)


def _leaves(plan: Plan) -> bool:
    return bool(plan.route.keep) or plan.route.remember_ms is not None


def _statuses_by_keep(keep: Mapping[Status, int]) -> dict[int, frozenset[Status]]:
    """The statuses whose rows are kept for the same time, by that time."""
    return {
        keep_ms: frozenset(status for status, ms in keep.items() if ms == keep_ms)
        for keep_ms in keep.values()
    }


def _old(
    ctx: Context, route: str, statuses: frozenset[Status], ended_before: int
) -> Counter[Status]:
    """How many rows with these statuses ended before this full hour, by status; where counters lag,
    any number of them."""
    if "exact counts" in ctx.ledger.missing_capabilities:
        return Counter(dict.fromkeys(statuses, BATCH))
    rows: Counter[Status] = Counter()
    for count in ctx.ledger.counts(route):
        if count.status in statuses and count.hour * HOUR < ended_before and count.n:
            rows[count.status] += count.n
    return rows
