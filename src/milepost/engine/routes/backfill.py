"""Back-fill: send finished items to a stage that was added later, at once or at a pace. A paced rerun works the same way.

A paced back-fill is a document of the route. The resender works on it in small portions; resenders may die or run concurrently, and each
item is still sent once, because only items that finished before the stage was added qualify.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from milepost.core.change import Change
from milepost.core.errors import LedgerError, LedgerReadOnly, UsageError
from milepost.core.item import Item, Row
from milepost.core.operators import back_fill as send_on
from milepost.core.operators import rerun as run_again
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost.core.values.refusal import Refusal, RefusalKind
from milepost.engine.act_log import Selection, enter, finish, record, recorded, signed
from milepost.engine.apply import OUTDATED, Decision, apply_all
from milepost.engine.context import Context
from milepost.engine.evidence.restore import bring_back, can_bring_back
from milepost.engine.routes.backfill_progress import finished_items, hindrance, left, sent, to_be_sent
from milepost.engine.views.items import SIGNED
from milepost.ports.documents import BACK_FILL, ROUTE, BackFill, Document, RouteVersion, read_as
from milepost.ports.items import Query
from milepost.ports.ledger import Ledger

PORTION = 500
SAVED_MS = 65_000
"""Unused pace accumulates for this long, because some resenders run once a minute. More is lost, so that a back-fill that rested for
hours does not catch up at once."""
HOLD_MS = 120_000
"""A resender that has not finished its portion after this time counts as dead."""
WALK = 20
"""Pages without a finished item that one step skips."""

log = logging.getLogger(__name__)


# The rule for one item ------------------------------------------------------------------------------------------------
def finished_before(route: str, since: int) -> Query:
    """Query for items that had finished when the stage was added."""
    return Query(route=route, statuses=frozenset({Status.COMPLETED}), entered_before=since + 1)


def sender_on(ctx: Context, plan: Plan, to: str, since: int, author: dict[str, str]) -> Decision:
    """Decision that sends an item which had finished by then, and none twice."""

    def decision(item: Item) -> Change | Refusal:
        row = item.row
        if row.status is Status.COMPLETED and row.entered_at > since:
            return SENT_ON
        # Finished in the millisecond of the change: the history tells whether it has been at the added stage.
        if row.entered_at == since and any(written.line.stage == to for written in ctx.ledger.history(item.route, item.key)):
            return BEEN_THERE
        return send_on(item, plan, to, ctx.clock.now(), **author)

    return decision


BEEN_THERE = Refusal(RefusalKind.UNCHANGED, "it has already completed that stage")
SENT_ON = Refusal(RefusalKind.DONE_BEFORE, "it was already sent, and has completed")


def runner_again(ctx: Context, plan: Plan, taken: BackFill, author: dict[str, str]) -> Decision:
    """Decision that reruns an item which had finished when the rerun began, and none twice."""

    def decision(item: Item) -> Change | Refusal:
        row = item.row
        if row.updated_at >= taken.since and any(written.line.act == taken.act for written in ctx.ledger.history(row.route, row.key)):
            return SENT_ON
        if row.status is Status.COMPLETED and row.entered_at > taken.since:
            return BEEN_THERE
        return run_again(item, plan, ctx.clock.now(), stage=taken.stage, as_new=taken.as_new, **author)

    return decision


# Begin, change, stop --------------------------------------------------------------------------------------------------
def begin(ctx: Context, plan: Plan, stage: str, pace: float, since: int, *, by: str, reason: str) -> BackFill:
    """Record a paced back-fill, which the resender carries out. A repeated call for the same version changes nothing."""
    name = f"{plan.name}-v{plan.version}-back-fill"
    while True:
        held = ctx.ledger.read_one(BACK_FILL, plan.name)
        before = None if held is None else read_as(BackFill, held.value)
        if before is not None and before.act == name:
            return before
        act = enter(ctx, "back-fill", plan.name, by, reason, {"stage": stage, "pace": pace}, name)
        now = ctx.clock.now()
        # The first item may be sent at once.
        begun = BackFill(stage, since, pace, act.id, by, reason, now, to_be_sent(ctx.ledger, plan.name), now - ceil(1000 / pace))
        if ctx.ledger.write(BACK_FILL, plan.name, begun, expect=0 if held is None else held.version):
            if before is not None and before.finished_at is None:
                finish(ctx, recorded(ctx, before.act), before.done)  # it was stopped, and this one replaces it
            return begun


def begin_rerun(ctx: Context, plan: Plan, query: Query, stage: str | None, as_new: bool, pace: float, *, by: str, reason: str) -> BackFill:
    """Record a paced rerun, which the resender carries out."""
    signed(by, reason)
    chosen = Selection(query=query)
    about = {**chosen.to_record(), "stage": stage, "as_new": as_new or None, "pace": pace}
    while True:
        refuse_second(ctx.ledger, plan.name)
        held = ctx.ledger.read(BACK_FILL).get(plan.name)
        act = enter(ctx, "rerun", plan.name, by, reason, {name: value for name, value in about.items() if value is not None})
        now = ctx.clock.now()
        total = chosen.expected(ctx) or finished_items(ctx.ledger, plan.name)
        # The first item may be sent at once.
        spent_to = now - ceil(1000 / pace)
        begun = BackFill(stage or plan.first.name, now, pace, act.id, by, reason, now, total, spent_to, rerun=about["query"], as_new=as_new)
        if ctx.ledger.write(BACK_FILL, plan.name, begun, expect=0 if held is None else held.version):
            return begun
        finish(ctx, act, 0)  # another one was begun concurrently


def refuse_second(ledger: Ledger, route: str) -> None:
    """Raise if the route has an unfinished back-fill; only one may run at a time."""
    held = ledger.read_one(BACK_FILL, route)
    there = None if held is None else read_as(BackFill, held.value)
    if there is not None and there.under_way:
        raise UsageError(
            f"finished items of route {route!r} are being {sent(there)} {there.stage!r}, {left(there):,} left: wait for its"
            f" end, or stop it: milepost routes back-fill {route} --stop {SIGNED}"
        )


def change_pace(ctx: Context, route: str, pace: float, *, by: str, reason: str) -> BackFill:
    """Change the pace; a stopped back-fill continues."""

    def changed(there: BackFill) -> BackFill:
        now = ctx.clock.now()
        return replace(
            there, pace=pace, spent_to=max(there.spent_to, now - ceil(1000 / pace)), stopped_at=None, stopped_by="", stopped_why=""
        )

    return _act(ctx, route, changed, "pace", by, reason, {"pace": pace})


def stop(ctx: Context, route: str, *, by: str, reason: str) -> BackFill:
    """Send no more items until a pace is set again; items already sent continue."""

    def stopped(there: BackFill) -> BackFill:
        if there.stopped_at is not None:
            return there
        return replace(there, stopped_at=ctx.clock.now(), stopped_by=by, stopped_why=reason)

    return _act(ctx, route, stopped, "stop", by, reason, {})


def _act(
    ctx: Context, route: str, change: Callable[[BackFill], BackFill], what: str, by: str, reason: str, about: dict[str, Any]
) -> BackFill:
    signed(by, reason)
    while True:
        held = ctx.ledger.read_one(BACK_FILL, route)
        there = None if held is None else read_as(BackFill, held.value)
        if held is None or there is None or there.finished_at is not None:
            raise UsageError(f"route {route!r} has no unfinished back-fill; see 'milepost routes'")
        changed = change(there)
        if changed == there:
            return there
        if ctx.ledger.write(BACK_FILL, route, changed, expect=held.version):
            record(ctx, "back-fill", route, by, reason, {"what": what, "stage": there.stage, **about}, done=0)
            return changed


def rename(ledger: Ledger, route: str, old: str, new: str) -> None:
    """Follow the rename of a stage."""
    while (held := ledger.read_one(BACK_FILL, route)) is not None:
        there = read_as(BackFill, held.value)
        if there.stage != old or ledger.write(BACK_FILL, route, replace(there, stage=new), expect=held.version):
            return


# Carry it out ---------------------------------------------------------------------------------------------------------
class BackfillStep(Struct, frozen=True):
    """Result of one step. `more`: the pace allows another now."""

    sent: int = 0
    more: bool = False


def free(there: BackFill, now: int) -> int:
    """Number of items that the pace allows now."""
    return int(min(now - there.spent_to, _saved(there)) * there.pace / 1000)


def _saved(there: BackFill) -> int:
    """Time for which unused pace accumulates: at least long enough for one item."""
    return max(SAVED_MS, ceil(1000 / there.pace))


def can_go_on(ctx: Context, route: str, there: BackFill) -> bool:
    """Is it unfinished and unobstructed? A process with another version of the route stands by."""
    if not there.under_way or route not in ctx.plans or hindrance(ctx, route, there) is not None:
        return False
    return read_as(RouteVersion, ctx.ledger.read(ROUTE)[route].value).version == ctx.plan(route).version


def waiting(ctx: Context) -> bool:
    """Can a resender of this process continue a back-fill?"""
    return any(can_go_on(ctx, route, read_as(BackFill, held.value)) for route, held in ctx.ledger.read(BACK_FILL).items())


def step(ctx: Context, route: str, held: Document) -> BackfillStep:
    """Send one portion, if the pace allows."""
    there, now = read_as(BackFill, held.value), ctx.clock.now()
    if not can_go_on(ctx, route, there) or there.held_until > now:
        return BackfillStep()
    room = min(PORTION, free(there, now))
    if not room:
        return BackfillStep()
    try:
        taken = _take(ctx, route, there, room, now)
        if not ctx.ledger.write(BACK_FILL, route, taken, expect=held.version):
            return BackfillStep()  # another resender has it
        return _send_on(ctx, ctx.plan(route), taken)
    except LedgerReadOnly as refused:
        # Restoring rows needs more than a resender's usual permissions: a process that has them continues the back-fill.
        log.error("this process cannot continue the back-fill of %s: %s", route, refused)
        return BackfillStep()


def _send_on(ctx: Context, plan: Plan, taken: BackFill) -> BackfillStep:
    author = {"by": taken.by, "why": taken.reason, "act": taken.act}
    rule = runner_again(ctx, plan, taken, author) if taken.rerun is not None else sender_on(ctx, plan, taken.stage, taken.since, author)
    answers = _send(ctx, _items(ctx, plan, taken), rule)
    if OUTDATED in answers:
        return BackfillStep()  # a process with the current route takes over the portion
    # An item that is already in progress was sent by the previous holder of this portion.
    before = sum(isinstance(answer, Refusal) and answer.kind not in _LEFT_ALONE for answer in answers)
    sent = sum(isinstance(answer, Row) for answer in answers)
    return BackfillStep(sent, _lay_down(ctx, plan.name, taken, sent + before))


_LEFT_ALONE = frozenset({RefusalKind.UNCHANGED, RefusalKind.GONE, RefusalKind.UNREADABLE, RefusalKind.UNSTORABLE})
"""Refusals of items that this back-fill has not sent on, in this run or an earlier one."""


def _items(ctx: Context, plan: Plan, taken: BackFill) -> list[Item]:
    """The items of a portion; removed rows are restored if possible."""
    found = ctx.ledger.get([(plan.name, key) for key in taken.in_hand])
    gone = [key for key, item in zip(taken.in_hand, found, strict=True) if item is None] if taken.seals else []
    for key, why in bring_back(ctx, plan, gone, taken.since).items():
        log.warning("%s/%s cannot be sent: %s", plan.name, key, why)
    found += ctx.ledger.get([(plan.name, key) for key in gone])
    return [item for item in found if isinstance(item, Item)]


def _send(ctx: Context, items: Sequence[Item], decision: Decision) -> list[Row | Refusal]:
    """Send the items; returns the result of each. An item whose content cannot be read does not block the others."""
    try:
        return apply_all(ctx, [(item, decision) for item in items])
    except LedgerError:
        raise
    except Exception as error:
        if len(items) > 1:
            return [answer for item in items for answer in _send(ctx, [item], decision)]
        log.error("%s/%s cannot be sent: %s: %s", items[0].route, items[0].key, type(error).__name__, error)
        return [SPOILT]


SPOILT = Refusal(RefusalKind.UNREADABLE, "it cannot be sent; see the log")


def _take(ctx: Context, route: str, there: BackFill, room: int, now: int) -> BackFill:
    """Take over an abandoned portion, or take the next one."""
    here = there.ledger == ctx.ledger.url
    until = now + HOLD_MS
    if there.in_hand and here:
        return replace(there, held_until=until)
    start, in_seals = (there.after, there.seals) if here else (None, False)
    at, keys = start, list[str]()
    for _ in range(WALK):
        keys, at = _sealed(ctx, route, there.since, at, room) if in_seals else _rows(ctx, _wanted(route, there), at, room)
        if keys or at is None:
            break
    spent_to = max(there.spent_to, now - _saved(there)) + ceil(len(keys) / there.pace * 1000)
    return replace(there, in_hand=keys, seals=in_seals, after=start, then=at, ledger=ctx.ledger.url, held_until=until, spent_to=spent_to)


def _wanted(route: str, there: BackFill) -> Query:
    """Query for the finished items to send."""
    if there.rerun is None:
        return finished_before(route, there.since)
    query = msgspec.convert(there.rerun, Query)
    return replace(query, entered_before=min(there.since + 1, query.entered_before or there.since + 1))


def _rows(ctx: Context, query: Query, after: Any, limit: int) -> tuple[list[str], Any]:
    page = ctx.ledger.find(replace(query, after=after, limit=limit))
    return [item.key for item in page.items], page.next


def _sealed(ctx: Context, route: str, since: int, after: Any, limit: int) -> tuple[list[str], Any]:
    seals, following = ctx.ledger.sealed(route, after, limit)
    return [known.key for known in seals if known.status is Status.COMPLETED and (known.ended_at or 0) <= since], following


def _lay_down(ctx: Context, route: str, taken: BackFill, sent: int) -> bool:
    """Finish the portion; returns whether the pace allows another. (It may have been stopped, or its pace changed, in between.)"""
    while (held := ctx.ledger.read_one(BACK_FILL, route)) is not None:
        there, now = read_as(BackFill, held.value), ctx.clock.now()
        if (there.act, there.in_hand, there.held_until) != (taken.act, taken.in_hand, taken.held_until):
            return False  # another process took the portion over
        rows_done = taken.then is None and not taken.seals
        last = taken.then is None and not (rows_done and taken.rerun is None and can_bring_back(ctx.ledger))
        done, passed = there.done + sent, there.passed + len(taken.in_hand) - sent
        down = replace(there, done=done, passed=passed, after=taken.then, in_hand=[], then=None, held_until=0)
        if rows_done:
            down = replace(down, seals=True)
        if last:
            down = replace(down, finished_at=now)
        if ctx.ledger.write(BACK_FILL, route, down, expect=held.version):
            if last:
                finish(ctx, recorded(ctx, down.act), down.done)
            return down.under_way and free(down, now) > 0
    return False
