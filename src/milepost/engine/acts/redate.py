"""Redate: date the rows of a route that are dated in the future as of now, as one act with a name and a reason."""

from __future__ import annotations

from functools import partial

from milepost.core.change import Change
from milepost.core.clocks import FOLLOWED_MS
from milepost.core.future import redate
from milepost.core.item import Item
from milepost.core.values.refusal import Refusal
from milepost.engine.act_log import ActReport, enter, finish, signed
from milepost.engine.apply import apply_all, unreadable
from milepost.engine.context import Context
from milepost.engine.ledger_pages import query_pages
from milepost.ports.items import Query

VERB = "redate"


def redate_rows(ctx: Context, route: str, *, by: str, reason: str, dry_run: bool = False) -> ActReport:
    """Each item gets a line with the times that it had. A date for which an item was submitted stays."""
    ctx.plan(route)
    ctx.check_clock()
    if dry_run:
        report = ActReport("", VERB, route, True)
        _redate_all(ctx, report, {})
        return report
    signed(by, reason)
    act = enter(ctx, VERB, route, by, reason, {})
    report = ActReport(act.id, VERB, route)
    _redate_all(ctx, report, {"by": by, "why": reason, "act": act.id})
    finish(ctx, act, report.done)
    return report


def _redate_all(ctx: Context, report: ActReport, author: dict[str, str]) -> None:
    """Redate page by page. A redated row is not dated in the future any more, so no page has it again."""
    query = Query(route=report.route, dated_from=ctx.clock.now() + FOLLOWED_MS + 1, exact=True)
    decide = partial(_decide, ctx, author)
    for page in query_pages(ctx.ledger, query):
        report.matched += len(page.items) + len(page.refused)
        for refused in page.refused:
            report.refuse(refused.key, unreadable(refused))
        answers = [decide(item) for item in page.items] if report.dry_run else apply_all(ctx, [(item, decide) for item in page.items])
        for item, answer in zip(page.items, answers, strict=True):
            if isinstance(answer, Refusal):
                report.refuse(item.key, answer)
            else:
                report.done += 1


def _decide(ctx: Context, author: dict[str, str], item: Item) -> Change | Refusal:
    return redate(item.row, ctx.clock.now(), **author)
