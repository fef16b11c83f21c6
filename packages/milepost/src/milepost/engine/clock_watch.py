"""Clock watch of a process: notice that its clock was set, keep up with the newest history line,
and find rows that are dated in the future."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from milepost.core.change import Change
from milepost.core.clocks import FOLLOWED_MS
from milepost.core.future import due_at_once
from milepost.core.item import Item
from milepost.core.status import LIVE, Status
from milepost.core.values.durations import short_span
from milepost.engine.context import Context
from milepost.engine.ledger_pages import query_pages
from milepost.engine.views.items import counted
from milepost.ports.clock import CheckedClock
from milepost.ports.documents import PROCESS
from milepost.ports.items import Query
from milepost.ports.service import Service

EVERY_S = 1.0
SEARCH_MS = 600_000
"""Time between two searches for rows from the future, beside those that the newest line gives cause
for."""

log = logging.getLogger(__name__)


class ClockWatch(Service):
    """Service that checks the process's clock every second. Where the row is the queue, a process
    that wrote by a clock that was ahead has left rows that are due too late: they are made due
    now."""

    name = "clock"

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._search_at = 0
        self._suspect = 0
        """The place of the last line from the future that a search followed."""

    def turn(self) -> float:
        self._ctx.check_clock()
        if not self._ctx.ledger.work_queues:
            newest = self._read_newest_line()
            now = self._ctx.clock.now()
            if newest or not self._search_at - SEARCH_MS <= now < self._search_at:
                self._search_at = now + SEARCH_MS
                make_due(self._ctx)
        return EVERY_S

    def _read_newest_line(self) -> bool:
        """Keep up with the newest line; returns whether it is a line from the future that no search
        has followed yet."""
        ledger, clock = self._ctx.ledger, self._ctx.clock
        for written in ledger.feed(ledger.last_seq() - 1, 1):
            if isinstance(clock, CheckedClock):
                clock.follow(written.line.at)
            if written.line.at > clock.now() + FOLLOWED_MS and written.seq != self._suspect:
                self._suspect = written.seq
                return True
        return False


def make_due(ctx: Context) -> int:
    """Make the rows from the future due now, by `core.future.due_at_once`; returns how many."""
    made = 0
    for route, plan in ctx.plans.items():
        now, at_work = ctx.clock.now(), set(ctx.ledger.read(PROCESS))
        for items in future_pages(ctx, route):
            # Whether a process of this ledger is dead is proved, not inferred from a lease.
            changes = [
                due_at_once(item.row, now)
                for item in items
                if item.row.status is not Status.PROCESSING or item.row.holder not in at_work
            ]
            written = [change for change in changes if isinstance(change, Change)]
            answers = ctx.ledger.apply(written, now, {route: plan.version}) if written else []
            made += sum(answer is None for answer in answers)
    if made:
        log.warning(
            "%s dated more than %s in the future, by a clock that was ahead: due now; 'milepost redate' dates them as of now",
            f"{counted(made, 'item')} {'is' if made == 1 else 'are'}",
            short_span(FOLLOWED_MS),
        )
    return made


def future_pages(ctx: Context, route: str) -> Iterator[list[Item]]:
    """The live items of a route that are dated in the future and due later than now, page by
    page."""
    now = ctx.clock.now()
    query = Query(route=route, statuses=LIVE, dated_from=now + FOLLOWED_MS + 1, due_after=now)
    for page in query_pages(ctx.ledger, query):
        yield page.items
