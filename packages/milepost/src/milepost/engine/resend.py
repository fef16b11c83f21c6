"""Resender: find items whose due time has passed, and do what needs no worker. Several may run at
once."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.admission.controls import is_held
from milepost.core.change import Change
from milepost.core.due import look
from milepost.core.errors import LedgerDamaged, LedgerError
from milepost.core.item import Item
from milepost.core.routes.plan import Plan
from milepost.core.status import LIVE, Reason, Status
from milepost.engine.acts.controls import end_pauses
from milepost.engine.apply import count_refused, follow_up
from milepost.engine.context import Context
from milepost.engine.failed_tries import warn_of_failed_try
from milepost.engine.old_documents import remove_old_acts
from milepost.engine.progress import ProgressNoter
from milepost.engine.routes.backfill import step
from milepost.engine.routes.versions import standing_by
from milepost.ports.documents import BACK_FILL, HOLD
from milepost.ports.items import Query, Refused
from milepost.ports.service import Service

PAGE = 500
PAGES = 20
EVERY = 5.0
ACTS_MS = 3_600_000
"""How often old acts are looked for; for the first time so long after the start."""

log = logging.getLogger(__name__)


class ResendSummary(Struct):
    """Counts of one run."""

    resent: int = 0
    offered: int = 0
    """Messages to our own workers, on ledgers with queues."""
    lost: int = 0
    overdue: int = 0
    no_answer: int = 0
    confirmed: int = 0
    decided: int = 0
    """Outcomes that an outdated process left undecided."""
    back_filled: int = 0
    """Finished items that a paced back-fill sent to an added stage."""
    looked: int = 0
    more: bool = False
    """The run reached its limit; the next one continues from there."""

    def __str__(self) -> str:
        counts = ", ".join(
            f"{getattr(self, name):,} {name.replace('_', ' ')}"
            for name in _COUNTS
            if getattr(self, name)
        )
        return f"{counts or 'nothing to do'} ({self.looked:,} checked{', more remain' if self.more else ''})"


_COUNTS = (
    "resent",
    "offered",
    "lost",
    "overdue",
    "no_answer",
    "confirmed",
    "decided",
    "back_filled",
)


class Resender(Service):
    """Service that offers stages again, records losses, reports overdue items, counts missing
    answers, applies kept confirmations, continues back-fills, and removes old acts. It also notes
    the progress of the stages, for forecasts.

    Where the row is the queue, due items at handler stages are left to the workers, so that a
    backlog is never scanned. On ledgers with queues a due item has lost its message, or never had
    one; the ledger itself finds queued items whose message is missing.
    """

    name = "resender"

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._places: dict[tuple[str, int], Any] = {}
        self._progress = ProgressNoter(ctx)
        self._acts_at = ctx.clock.now() + ACTS_MS

    def turn(self) -> float:
        summary = self.run_once()
        wrote = any(getattr(summary, name) for name in _COUNTS)
        return 0.0 if summary.more and wrote else EVERY

    def run_once(self, pages: int = PAGES) -> ResendSummary:
        """Check all items whose due time has passed, at most so many pages per search; none while
        the time is not known."""
        summary = ResendSummary()
        self.stands_still = self._ctx.check_clock().stops_work
        if self.stands_still:
            return summary
        end_pauses(self._ctx)
        paused = set(self._ctx.ledger.read(HOLD))
        for plan in self._ctx.plans.values():
            for number, query in enumerate(
                _searches(plan, self._ctx.clock.now(), self._ctx.ledger.work_queues)
            ):
                for items in self._pages((plan.name, number), query, pages, summary):
                    self._look_at(items, plan, paused, summary)
            self._offer_lost(plan, paused, pages, summary)
        for route, begun in self._ctx.ledger.read(BACK_FILL).items():
            try:
                portion = step(self._ctx, route, begun)
            except LedgerDamaged as error:
                log.error("the back-fill of %s waits: %s", route, error)
                continue
            summary.back_filled += portion.sent
            summary.more |= portion.more
        self._progress.note()
        self._remove_old_acts()
        self.stands_still = standing_by(self._ctx)
        return summary

    def _remove_old_acts(self) -> None:
        """Once an hour; all acts are read for it."""
        now = self._ctx.clock.now()
        if now >= self._acts_at and not remove_old_acts(self._ctx):
            self._acts_at = now + ACTS_MS

    def _offer_lost(self, plan: Plan, paused: set[str], pages: int, summary: ResendSummary) -> None:
        """Offer items again whose message is lost; items whose message is in the queue are left
        alone."""
        for _ in range(pages):
            items = self._ctx.ledger.lost_messages(plan, self._ctx.clock.now(), PAGE)
            if not items:
                return
            self._look_at(items, plan, paused, summary)
        summary.more = True

    def _pages(
        self, search: tuple[str, int], query: Query, pages: int, summary: ResendSummary
    ) -> Iterator[Sequence[Item]]:
        """Pages of a search up to a limit. The next run continues behind it, so that items that
        cannot be moved do not hide others."""
        for _ in range(pages):
            page = self._ctx.ledger.find(
                replace(query, after=self._places.pop(search, None), limit=PAGE)
            )
            for refused in page.refused:
                # Nothing can be decided for an unreadable row; quarantine it, so that it is not
                # found again in every run.
                log.error(
                    "%s/%s is due and is quarantined: %s", query.route, refused.key, refused.reason
                )
                self._ctx.ledger.quarantine.put(
                    [(query.route, refused.key)], refused.reason, self._ctx.clock.now()
                )
            yield page.items
            if page.next is None:
                return
            self._places[search] = page.next
        summary.more = True

    def _look_at(
        self, items: Sequence[Item], plan: Plan, paused: set[str], summary: ResendSummary
    ) -> None:
        ctx, now = self._ctx, self._ctx.clock.now()
        summary.looked += len(items)
        changes = []
        due_before = now - ctx.ledger.timing.resend_delay_ms
        for item in self._with_content(items):
            if item.row.status is not Status.QUEUED and (item.row.due_at or 0) > due_before:
                continue  # its message may still be in flight
            change = look(item, plan, now, ctx.chance.jitter(), None)
            # A paused item is not offered again, and a missing answer is not counted.
            if change is not None and not (
                _kind(change) in ("resent", "offered", "no_answer")
                and is_held(paused, item.route, item.stage, item.lane)
            ):
                changes.append(change)
        if not changes:
            return
        written = self._write(changes, plan, now)
        resent = [(change.before.stage, _kind(change)) for change in written]
        for _, kind in resent:
            setattr(summary, kind, getattr(summary, kind) + 1)
        for change in written:
            if change.after.total_attempts > change.before.total_attempts:
                warn_of_failed_try(change.after, change.before.stage)
        ctx.observer.resent(plan.name, resent)
        follow_up(ctx, [change.after for change in written])

    def _write(self, changes: Sequence[Change], plan: Plan, now: int) -> list[Change]:
        """Write the changes; returns those that were written. After a conflict another process has
        handled the item. If the batch fails, each change is written on its own, so that one whose
        content cannot be read does not block the others."""
        try:
            conflicts = self._ctx.ledger.apply(changes, now, {plan.name: plan.version})
        except LedgerError:
            raise
        except Exception as error:
            if len(changes) > 1:
                log.warning(
                    "%s: %d due items cannot be written at once; each is written alone",
                    plan.name,
                    len(changes),
                    exc_info=True,
                )
                return [
                    written for change in changes for written in self._write([change], plan, now)
                ]
            log.error(
                "%s/%s is due and cannot be written: %s: %s",
                plan.name,
                changes[0].before.key,
                type(error).__name__,
                error,
            )
            return []
        for change, answer in zip(changes, conflicts, strict=True):
            if (
                isinstance(answer, Refused)
                and change.before.stage in plan.by_name
                and not change.before.terminal
            ):
                count_refused(self._ctx, change.before, answer)
        return [
            change for change, conflict in zip(changes, conflicts, strict=True) if conflict is None
        ]

    def _with_content(self, items: Sequence[Item]) -> list[Item]:
        """Load the content of the few items whose outcome is known and waits to be applied."""
        ready = {
            item.key
            for item in items
            if item.row.undecided is not None or item.stage in item.row.kept
        }
        if not ready:
            return list(items)
        full = self._ctx.ledger.get([(item.route, item.key) for item in items if item.key in ready])
        return [item for item in items if item.key not in ready] + [
            item for item in full if isinstance(item, Item)
        ]


def _searches(plan: Plan, now: int, called: bool) -> list[Query]:
    """Queries for items whose due time has passed. Rows at handler stages that wait for a worker
    are left out; `called`: workers are called by messages."""
    due = Query(route=plan.name, due_before=now)
    if called:
        return [replace(due, statuses=LIVE, in_queue=False)]
    external = frozenset(stage.name for stage in plan.stages if stage.external)
    ours = frozenset(stage.name for stage in plan.stages if not stage.external)
    searches = [
        replace(due, statuses=frozenset({Status.PROCESSING})),
        Query(route=plan.name, statuses=LIVE - {Status.PROCESSING}, overdue_before=now),
    ]
    if external:
        searches.append(replace(due, statuses=LIVE - {Status.PROCESSING}, stages=external))
    if ours:
        searches.append(
            replace(due, statuses=frozenset({Status.WAITING}), stages=ours, handed_over=True)
        )
    return searches


def _kind(change: Change) -> str:
    """The summary field under which a change counts."""
    before, line = change.before, change.line
    if before.undecided is not None:
        return "decided"
    if line is not None and line.reason in _KINDS:
        return _KINDS[line.reason]
    if before.stage in before.kept:
        return "confirmed"
    if line is None or line.reason is Reason.OFFERED:
        return "offered"
    return "lost" if before.status is Status.PROCESSING else "no_answer"


_KINDS = {
    Reason.RESENT: "resent",
    Reason.LOST: "lost",
    Reason.OVERDUE: "overdue",
    Reason.CONFIRMED: "confirmed",
}
