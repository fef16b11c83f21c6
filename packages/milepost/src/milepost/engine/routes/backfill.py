"""Back-fill: send finished items to a stage that was added later, at once or at a pace. A paced
rerun works the same way.

A paced back-fill is a document of the route. The resender works on it in small portions; resenders
may die or run concurrently, and each item is still sent once, because only items that finished
before the stage was added qualify.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from milepost.core.admission.controls import scope
from milepost.core.change import Change
from milepost.core.clocks import still_ahead
from milepost.core.errors import LedgerError, LedgerReadOnly, UsageError
from milepost.core.item import Item, Row
from milepost.core.operators import back_fill as send_on
from milepost.core.operators import rerun as run_again
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost.core.values.durations import iso
from milepost.core.values.refusal import Refusal, RefusalKind
from milepost.engine.act_log import begin as begin_act
from milepost.engine.act_log import check_repeat, enter, finish, has_line, record, recorded, signed
from milepost.engine.apply import OUTDATED, Decision, apply_all
from milepost.engine.context import Context
from milepost.engine.evidence import can_restore, restore_rows
from milepost.engine.views.items import SIGNED
from milepost.ports.documents import (
    ACT,
    BACK_FILL,
    HOLD,
    ROUTE,
    Act,
    BackFill,
    Document,
    RouteVersion,
    read_as,
    read_each,
    read_versioned,
    update,
)
from milepost.ports.items import Query
from milepost.ports.ledger import Ledger

PORTION = 500
SAVED_MS = 65_000
"""Unused pace accumulates for this long, because some resenders run once a minute. More is lost, so
that a back-fill that rested for hours does not catch up at once."""
HOLD_MS = 120_000
"""A resender that has not finished its portion after this time counts as dead."""
WALK = 20
"""Pages without a finished item that one step skips."""
SEALS = 500
COUNTED = 100_000
"""Most keys of removed rows that are counted; the view says if there are more."""

log = logging.getLogger(__name__)


# The rule for one item ----------------------------------------------------------------------------
def finished_before(route: str, since: int) -> Query:
    """Query for items that had finished when the stage was added."""
    return Query(route=route, statuses=frozenset({Status.COMPLETED}), entered_before=since + 1)


def back_fill_decision(
    ctx: Context, plan: Plan, to: str, since: int, author: dict[str, str]
) -> Decision:
    """Decision that sends an item which had finished by then, and none twice."""

    def decision(item: Item) -> Change | Refusal:
        row = item.row
        if row.status is Status.COMPLETED and row.entered_at > since:
            return SENT_ON
        # Finished in the millisecond of the change: the history tells whether it has been at the
        # added stage.
        if row.entered_at == since and any(
            written.line.stage == to for written in ctx.ledger.history(item.route, item.key)
        ):
            return BEEN_THERE
        return send_on(item, plan, to, ctx.clock.now(), **author)

    return decision


BEEN_THERE = Refusal(RefusalKind.UNCHANGED, "it has already completed that stage")
SENT_ON = Refusal(RefusalKind.DONE_BEFORE, "it was already sent, and has completed")


def rerun_decision(ctx: Context, plan: Plan, portion: BackFill, author: dict[str, str]) -> Decision:
    """Decision that reruns an item which had finished when the rerun began, and none twice."""

    def decision(item: Item) -> Change | Refusal:
        row = item.row
        if row.updated_at >= portion.since and has_line(ctx, row, portion.act):
            return SENT_ON
        if row.status is Status.COMPLETED and row.entered_at > portion.since:
            return BEEN_THERE
        return run_again(
            item, plan, ctx.clock.now(), stage=portion.stage, as_new=portion.as_new, **author
        )

    return decision


# Begin, change, stop ------------------------------------------------------------------------------
def begin(
    ctx: Context, plan: Plan, stage: str, pace: float, since: int, *, by: str, reason: str
) -> BackFill:
    """Record a paced back-fill, which the resender carries out. A repeated call for the same
    version changes nothing."""
    name = f"{plan.name}-v{plan.version}-back-fill"

    def begun(before: BackFill | None) -> BackFill:
        if before is not None and before.act == name:
            return before
        act = enter(ctx, "back-fill", plan.name, by, reason, {"stage": stage, "pace": pace}, name)
        now = ctx.clock.now()
        total = finished_items(ctx.ledger, plan.name)
        if can_restore(ctx.ledger):
            total += _count_sealed(ctx.ledger, plan.name)[0]
        # The first item may be sent at once.
        spent_to = now - ceil(1000 / pace)
        return BackFill(stage, since, pace, act.id, by, reason, now, total, spent_to)

    beginning = update(ctx.ledger, BACK_FILL, plan.name, BackFill, begun)
    if beginning.written:
        _finish_replaced(ctx, beginning.before)
    return beginning.after


def begin_rerun(ctx: Context, plan: Plan, act: Act, pace: float) -> Act:
    """Record a paced rerun, which the resender carries out; returns the recorded act. A repeat with
    the same id changes nothing."""
    signed(act.by, act.reason)
    answer = act

    def begun(before: BackFill | None) -> BackFill | None:
        nonlocal answer
        known, act_version = read_versioned(ctx.ledger, ACT, act.id, Act)
        if known is not None:
            check_repeat(known, act)
            answer = known
            if known.finished_at is not None or (before is not None and before.act == act.id):
                return before
        if before is not None and before.under_way:
            if known is not None:
                # It was never begun.
                ctx.ledger.write(ACT, act.id, None, expect=act_version)
            raise _second(plan.name, before)
        answer = begin_act(ctx, act)
        return _rerun_of(ctx, plan, answer, pace)

    beginning = update(ctx.ledger, BACK_FILL, plan.name, BackFill, begun)
    if beginning.written:
        _finish_replaced(ctx, beginning.before)
    return answer


def _finish_replaced(ctx: Context, before: BackFill | None) -> None:
    """Finish the act of a back-fill that was stopped, and that another one replaces now."""
    if before is not None and before.finished_at is None:
        finish(ctx, recorded(ctx, before.act), before.done)


def _rerun_of(ctx: Context, plan: Plan, act: Act, pace: float) -> BackFill:
    """The back-fill that carries out an act of rerun."""
    now = ctx.clock.now()
    # The first item may be sent at once.
    spent_to = now - ceil(1000 / pace)
    return BackFill(
        act.filter.get("stage") or plan.first.name,
        now,
        pace,
        act.id,
        act.by,
        act.reason,
        now,
        act.expected or finished_items(ctx.ledger, plan.name),
        spent_to,
        rerun=act.filter["query"],
        as_new=bool(act.filter.get("as_new")),
    )


def refuse_second(ledger: Ledger, route: str) -> None:
    """Raise if the route has an unfinished back-fill; only one may run at a time."""
    back_fill, _ = read_versioned(ledger, BACK_FILL, route, BackFill)
    if back_fill is not None and back_fill.under_way:
        raise _second(route, back_fill)


def _second(route: str, back_fill: BackFill) -> UsageError:
    return UsageError(
        f"finished items of route {route!r} are being {sent(back_fill)} {back_fill.stage!r}, {left(back_fill):,} left: wait for its"
        f" end, or stop it: milepost routes back-fill {route} --stop {SIGNED}"
    )


def change_pace(ctx: Context, route: str, pace: float, *, by: str, reason: str) -> BackFill:
    """Change the pace; a stopped back-fill continues."""

    def changed(back_fill: BackFill) -> BackFill:
        now = ctx.clock.now()
        return replace(
            back_fill,
            pace=pace,
            spent_to=max(back_fill.spent_to, now - ceil(1000 / pace)),
            stopped_at=None,
            stopped_by="",
            stopped_why="",
        )

    return _change(ctx, route, changed, "pace", by, reason, {"pace": pace})


def stop(ctx: Context, route: str, *, by: str, reason: str) -> BackFill:
    """Send no more items until a pace is set again; items already sent continue."""

    def stopped(back_fill: BackFill) -> BackFill:
        if back_fill.stopped_at is not None:
            return back_fill
        return replace(back_fill, stopped_at=ctx.clock.now(), stopped_by=by, stopped_why=reason)

    return _change(ctx, route, stopped, "stop", by, reason, {})


def _change(
    ctx: Context,
    route: str,
    change: Callable[[BackFill], BackFill],
    what: str,
    by: str,
    reason: str,
    about: dict[str, Any],
) -> BackFill:
    signed(by, reason)

    def changed(back_fill: BackFill | None) -> BackFill:
        if back_fill is None or back_fill.finished_at is not None:
            raise UsageError(f"route {route!r} has no unfinished back-fill; see 'milepost routes'")
        return change(back_fill)

    changing = update(ctx.ledger, BACK_FILL, route, BackFill, changed)
    if changing.written:
        about = {"what": what, "stage": changing.after.stage, **about}
        record(ctx, "back-fill", route, by, reason, about, done=0)
    return changing.after


def rename(ledger: Ledger, route: str, old: str, new: str) -> None:
    """Follow the rename of a stage."""

    def renamed(back_fill: BackFill | None) -> BackFill | None:
        if back_fill is None or back_fill.stage != old:
            return back_fill
        return replace(back_fill, stage=new)

    update(ledger, BACK_FILL, route, BackFill, renamed)


# Carry it out -------------------------------------------------------------------------------------
class BackfillStep(Struct, frozen=True):
    """Result of one step. `more`: the pace allows another now."""

    sent: int = 0
    more: bool = False


def items_allowed(back_fill: BackFill, now: int) -> int:
    """Number of items that the pace allows now."""
    return max(
        0, int(min(now - _spent_to(back_fill, now), _saved(back_fill)) * back_fill.pace / 1000)
    )


def _spent_to(back_fill: BackFill, now: int) -> int:
    """The time up to which the pace has been used. One further ahead than a portion lasts was set
    by a clock that was ahead: the next item may be sent at once."""
    portion_ms, item_ms = ceil(PORTION / back_fill.pace * 1000), ceil(1000 / back_fill.pace)
    return back_fill.spent_to if back_fill.spent_to <= now + portion_ms else now - item_ms


def _saved(back_fill: BackFill) -> int:
    """Time for which unused pace accumulates: at least long enough for one item."""
    return max(SAVED_MS, ceil(1000 / back_fill.pace))


def can_continue(ctx: Context, route: str, back_fill: BackFill) -> bool:
    """Whether this process may continue the back-fill. One with another version of the route stands
    by."""
    if (
        not back_fill.under_way
        or route not in ctx.plans
        or hindrance(ctx, route, back_fill) is not None
    ):
        return False
    return (
        read_as(RouteVersion, ctx.ledger.read(ROUTE)[route].value).version
        == ctx.plan(route).version
    )


def back_fill_waits(ctx: Context) -> bool:
    """Whether a resender of this process can continue a back-fill."""
    return any(
        can_continue(ctx, route, back_fill)
        for route, back_fill in read_each(ctx.ledger, BACK_FILL, BackFill).items()
    )


def step(ctx: Context, route: str, document: Document) -> BackfillStep:
    """Send one portion, if the pace allows."""
    back_fill, now = read_as(BackFill, document.value), ctx.clock.now()
    if not can_continue(ctx, route, back_fill) or still_ahead(back_fill.held_until, now, HOLD_MS):
        return BackfillStep()
    room = min(PORTION, items_allowed(back_fill, now))
    if not room:
        return BackfillStep()
    try:
        portion = _take(ctx, route, back_fill, room, now)
        if not ctx.ledger.write(BACK_FILL, route, portion, expect=document.version):
            return BackfillStep()  # another resender has it
        return _send_on(ctx, ctx.plan(route), portion)
    except LedgerReadOnly as refused:
        # Restoring rows needs more than a resender's usual permissions: a process that has them
        # continues the back-fill.
        log.error("this process cannot continue the back-fill of %s: %s", route, refused)
        return BackfillStep()


def _send_on(ctx: Context, plan: Plan, portion: BackFill) -> BackfillStep:
    author = {"by": portion.by, "why": portion.reason, "act": portion.act}
    rule = (
        rerun_decision(ctx, plan, portion, author)
        if portion.rerun is not None
        else back_fill_decision(ctx, plan, portion.stage, portion.since, author)
    )
    answers = _send(ctx, _items(ctx, plan, portion), rule)
    if OUTDATED in answers:
        return BackfillStep()  # a process with the current route takes over the portion
    # An item that is already in progress was sent by the previous holder of this portion.
    before = sum(
        isinstance(answer, Refusal) and answer.kind not in _LEFT_ALONE for answer in answers
    )
    sent = sum(isinstance(answer, Row) for answer in answers)
    return BackfillStep(sent, _finish_portion(ctx, plan.name, portion, sent + before))


_LEFT_ALONE = frozenset(
    {RefusalKind.UNCHANGED, RefusalKind.GONE, RefusalKind.UNREADABLE, RefusalKind.UNSTORABLE}
)
"""Refusals of items that this back-fill has not sent on, in this run or an earlier one."""


def _items(ctx: Context, plan: Plan, portion: BackFill) -> list[Item]:
    """The items of a portion; removed rows are restored if possible."""
    found = ctx.ledger.get([(plan.name, key) for key in portion.in_hand])
    gone = (
        [key for key, item in zip(portion.in_hand, found, strict=True) if item is None]
        if portion.seals
        else []
    )
    for key, why in restore_rows(ctx, plan, gone, portion.since).items():
        log.warning("%s/%s cannot be sent: %s", plan.name, key, why)
    found += ctx.ledger.get([(plan.name, key) for key in gone])
    return [item for item in found if isinstance(item, Item)]


def _send(ctx: Context, items: Sequence[Item], decision: Decision) -> list[Row | Refusal]:
    """Send the items; returns the result of each. An item whose content cannot be read does not
    block the others."""
    try:
        return apply_all(ctx, [(item, decision) for item in items])
    except LedgerError:
        raise
    except Exception as error:
        if len(items) > 1:
            log.warning(
                "%s: %d items cannot be sent at once; each is sent alone",
                items[0].route,
                len(items),
                exc_info=True,
            )
            return [answer for item in items for answer in _send(ctx, [item], decision)]
        log.error(
            "%s/%s cannot be sent: %s: %s",
            items[0].route,
            items[0].key,
            type(error).__name__,
            error,
        )
        return [CANNOT_BE_SENT]


CANNOT_BE_SENT = Refusal(RefusalKind.UNREADABLE, "it cannot be sent; see the log")


def _take(ctx: Context, route: str, back_fill: BackFill, room: int, now: int) -> BackFill:
    """Take over an abandoned portion, or take the next one."""
    here = back_fill.ledger == ctx.ledger.url
    if back_fill.in_hand and here:
        return replace(back_fill, held_until=now + HOLD_MS)
    start, in_seals = (back_fill.after, back_fill.seals) if here else (None, False)
    at, keys = start, list[str]()
    for _ in range(WALK):
        if in_seals:
            seals, at = ctx.ledger.sealed(route, at, room)
            finished = [
                known
                for known in seals
                if known.status is Status.COMPLETED and (known.ended_at or 0) <= back_fill.since
            ]
            keys = [known.key for known in finished if not known.forgotten]
        else:
            page = ctx.ledger.find(replace(_wanted(route, back_fill), after=at, limit=room))
            keys, at = [item.key for item in page.items], page.next
        if keys or at is None:
            break
    spent_to = max(_spent_to(back_fill, now), now - _saved(back_fill)) + ceil(
        len(keys) / back_fill.pace * 1000
    )
    until = ctx.clock.now() + HOLD_MS  # the search for the items may have taken long
    return replace(
        back_fill,
        in_hand=keys,
        seals=in_seals,
        after=start,
        then=at,
        ledger=ctx.ledger.url,
        held_until=until,
        spent_to=spent_to,
    )


def _wanted(route: str, back_fill: BackFill) -> Query:
    """Query for the finished items to send."""
    if back_fill.rerun is None:
        return finished_before(route, back_fill.since)
    query = msgspec.convert(back_fill.rerun, Query)
    return replace(
        query, entered_before=min(back_fill.since + 1, query.entered_before or back_fill.since + 1)
    )


def _finish_portion(ctx: Context, route: str, portion: BackFill, sent: int) -> bool:
    """Finish the portion; returns whether the pace allows another. (It may have been stopped, or
    its pace changed, in between.)"""
    now = ctx.clock.now()
    rows_done = portion.then is None and not portion.seals
    seals_next = rows_done and portion.rerun is None and can_restore(ctx.ledger)
    last = portion.then is None and not seals_next

    def saved(back_fill: BackFill | None) -> BackFill | None:
        if back_fill is None or _claim(back_fill) != _claim(portion):
            return back_fill  # another process took the portion over
        return replace(
            back_fill,
            done=back_fill.done + sent,
            passed=back_fill.passed + len(portion.in_hand) - sent,
            after=portion.then,
            in_hand=[],
            then=None,
            held_until=0,
            seals=back_fill.seals or rows_done,
            finished_at=now if last else back_fill.finished_at,
        )

    saving = update(ctx.ledger, BACK_FILL, route, BackFill, saved)
    back_fill = saving.after
    if back_fill is None or not saving.written:
        return False
    if last:
        finish(ctx, recorded(ctx, back_fill.act), back_fill.done)
    return back_fill.under_way and items_allowed(back_fill, now) > 0


def _claim(back_fill: BackFill) -> tuple[str, list[str], int]:
    """What tells one claim of a portion from another."""
    return back_fill.act, back_fill.in_hand, back_fill.held_until


# Preview and progress -----------------------------------------------------------------------------
class Preview(Struct, frozen=True):
    """Expected effect of sending finished items to a stage."""

    stage: str
    items: int
    """Finished items according to the counters."""
    pace: float | None
    """Items per second; None: all at once."""
    takes_ms: int | None
    again: tuple[str, ...] = ()
    """Later stages, which the items pass again."""
    sealed: int = 0
    """Finished keys whose rows were removed."""
    sealed_more: bool = False
    """There are more of these than were counted."""
    brings_back: bool = False
    """The ledger can restore rows: at a pace, removed rows are restored first if their input and
    results are still recorded. Otherwise they cannot be sent, because evidence does not contain the
    input."""


def preview(
    ledger: Ledger, plan: Plan, stage: str, pace: float | None, *, with_seals: bool
) -> Preview:
    """Preview of a back-fill; counting removed rows reads the seals."""
    items = finished_items(ledger, plan.name)
    sealed, more = _count_sealed(ledger, plan.name) if with_seals else (0, False)
    again = tuple(one.name for one in plan.stages[plan.position[stage] + 1 :])
    back = can_restore(ledger)
    return Preview(
        stage,
        items,
        pace,
        None if pace is None else _takes(items + sealed * back, pace),
        again,
        sealed,
        more,
        back,
    )


def finished_items(ledger: Ledger, route: str) -> int:
    return max(
        0, sum(count.n for count in ledger.counts(route) if count.status is Status.COMPLETED)
    )


def _takes(items: int, pace: float) -> int:
    return ceil(items / pace * 1000)


def _count_sealed(ledger: Ledger, route: str) -> tuple[int, bool]:
    """Number of completed keys whose rows have left, and whether there are more than were
    counted."""
    found, after = 0, None
    while True:
        seals, after = ledger.sealed(route, after, SEALS)
        found += sum(known.status is Status.COMPLETED and not known.forgotten for known in seals)
        if after is None or found >= COUNTED:
            return found, after is not None


def sent(back_fill: BackFill) -> str:
    """Verb in front of the stage's name."""
    return "sent to" if back_fill.rerun is None else "run again from"


def left(back_fill: BackFill) -> int:
    """Number of items still to be checked."""
    return (
        0
        if back_fill.finished_at is not None
        else max(0, back_fill.total - back_fill.done - back_fill.passed)
    )


def hindrance(ctx: Context, route: str, back_fill: BackFill) -> str | None:
    """Why no process can continue it, or None. A pause of the route or stage also stops it."""
    version, _ = read_versioned(ctx.ledger, ROUTE, route, RouteVersion)
    if version is None or all(name != back_fill.stage for name, _ in version.shape):
        return f"the route no longer has the stage {back_fill.stage!r}"
    holds = ctx.ledger.read(HOLD)
    return next(
        (
            f"{name} is paused"
            for name in (scope(route), scope(route, back_fill.stage))
            if name in holds
        ),
        None,
    )


def view(ctx: Context, route: str) -> dict[str, Any] | None:
    """The route's last paced back-fill as JSON, or None."""
    back_fill, _ = read_versioned(ctx.ledger, BACK_FILL, route, BackFill)
    if back_fill is None:
        return None
    now = ctx.clock.now()
    state = (
        "finished"
        if back_fill.finished_at is not None
        else "stopped"
        if back_fill.stopped_at is not None
        else "under way"
    )
    return {
        "route": route,
        "verb": "back-fill" if back_fill.rerun is None else "rerun",
        "stage": back_fill.stage,
        "state": state,
        "done": back_fill.done,
        "left": left(back_fill),
        "passed_over": back_fill.passed,
        "waits": hindrance(ctx, route, back_fill) if back_fill.under_way else None,
        "pace_per_s": back_fill.pace,
        "eta": iso(now + _takes(left(back_fill), back_fill.pace)) if back_fill.under_way else None,
        "since": iso(back_fill.at),
        "by": back_fill.by,
        "reason": back_fill.reason,
        "act": back_fill.act,
        "stopped_at": iso(back_fill.stopped_at),
        "stopped_by": back_fill.stopped_by or None,
        "stopped_why": back_fill.stopped_why or None,
        "finished_at": iso(back_fill.finished_at),
    }
