"""Redate: date the rows of a route that are dated in the future as of now, as one act with a name
and a reason."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from milepost.core.change import Change
from milepost.core.clocks import FOLLOWED_MS
from milepost.core.future import redate
from milepost.core.item import Item, Row
from milepost.core.values.refusal import Refusal
from milepost.engine.act_log import (
    ActReport,
    add_progress,
    begin,
    finish_with,
    first_answer,
    signed,
)
from milepost.engine.apply import apply_all, unreadable
from milepost.engine.context import Context
from milepost.engine.ledger_pages import query_pages
from milepost.ports.documents import Act
from milepost.ports.items import Query, QueryPage

VERB = "redate"


def redate_rows(
    ctx: Context,
    route: str,
    *,
    by: str,
    reason: str,
    dry_run: bool = False,
    act_id: str | None = None,
) -> ActReport:
    """Each item gets a line with the times that it had. A date for which an item was submitted
    stays.

    The same call with the same `act_id` continues an act that was cut off, or, if it has finished,
    gets the first answer; ActConflict if that id is on record for another act or another route."""
    ctx.plan(route)
    ctx.check_clock()
    now = ctx.clock.now()
    if dry_run:
        return _preview(ctx, ActReport("", VERB, route, True), now)
    signed(by, reason)
    act = begin(
        ctx,
        Act(
            act_id or ctx.chance.token(),
            VERB,
            route,
            by,
            reason,
            now,
            {},
            from_seq=ctx.ledger.last_seq(),
        ),
    )
    if act.finished_at is not None:
        return first_answer(act)
    report = ActReport(act.id, VERB, route, matched=act.done, skipped=act.done)
    decide = partial(_decide, ctx, {"by": by, "why": reason, "act": act.id})
    for page in query_pages(ctx.ledger, rows_of_future(route, now)):
        # A redated row is not dated in the future any more, so no later page has it again.
        done_before = report.done
        _add(report, page, apply_all(ctx, [(item, decide) for item in page.items]))
        add_progress(ctx, act.id, done=report.done - done_before, refused=report.refused_count)
    return finish_with(ctx, act.id, report)


def rows_of_future(route: str, now: int) -> Query:
    """The rows of a route that are dated further ahead than the clocks of processes may differ."""
    return Query(route=route, dated_from=now + FOLLOWED_MS + 1, exact=True)


def _preview(ctx: Context, report: ActReport, now: int) -> ActReport:
    for page in query_pages(ctx.ledger, rows_of_future(report.route, now)):
        _add(report, page, [_decide(ctx, {}, item) for item in page.items])
    return report


def _add(report: ActReport, page: QueryPage, answers: Sequence[Row | Change | Refusal]) -> None:
    """Add the results of a page to the report."""
    report.matched += len(page.items) + len(page.refused)
    for refused in page.refused:
        report.refuse(refused.key, unreadable(refused))
    for item, answer in zip(page.items, answers, strict=True):
        if isinstance(answer, Refusal):
            report.refuse(item.key, answer)
        else:
            report.done += 1


def _decide(ctx: Context, author: dict[str, str], item: Item) -> Change | Refusal:
    return redate(item.row, ctx.clock.now(), **author)
