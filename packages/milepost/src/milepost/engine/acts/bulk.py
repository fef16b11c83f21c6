"""Operator acts on items, one or many: retry, skip, confirm, cancel, resend, rerun, replace and
reschedule; and notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from milepost.core import confirmations, operators
from milepost.core.change import Change
from milepost.core.errors import UsageError
from milepost.core.item import Item, Row
from milepost.core.outcome import Done, Outcome, storage_fault
from milepost.core.routes.plan import Plan
from milepost.core.status import Reason, Status
from milepost.core.values.json import canonical_json, check_json
from milepost.core.values.refusal import Refusal, RefusalKind
from milepost.engine.act_log import (
    ActReport,
    Page,
    Selection,
    add_progress,
    begin,
    check_same,
    finish_with,
    first_answer,
    has_line,
    record_single,
    recorded,
    selection_of,
    signed,
)
from milepost.engine.acts.redate import VERB as REDATE
from milepost.engine.acts.redate import redate_rows
from milepost.engine.acts.verbs import ActRun, RerunVerb, Verb, recorded_verb
from milepost.engine.apply import Decision, apply_all, unreadable
from milepost.engine.context import Context
from milepost.engine.failed_tries import warn_of_failed_try
from milepost.engine.known_keys import known_key
from milepost.engine.left_items import absent
from milepost.engine.routes.backfill import begin_rerun
from milepost.ports.documents import Act
from milepost.ports.items import Query, Refused

Progress = Callable[[int, int | None], None]
"""Called with the number of items handled and the approximate total, if known."""

LARGEST_NOTE = 4_096
"""Bytes of a note, its data included: the line is copied to every subscriber and into the
evidence."""
_ALREADY = Refusal(RefusalKind.DONE_BEFORE, "already handled by this act")
_SINCE = Refusal(RefusalKind.CHANGED_SINCE, "changed since the act began; check it again")


def act(
    ctx: Context,
    selection: Selection,
    verb: Verb,
    *,
    by: str,
    reason: str,
    dry_run: bool = False,
    act_id: str | None = None,
    on_progress: Progress | None = None,
) -> ActReport:
    """Do one act to all selected items; each is done or refused on its own.

    A bulk act (a query, or several keys) has an id and a start time: it skips items that change
    after its start, its id is in every history line that it writes, and the same call with that id
    continues it, or, if it has finished, gets the first answer. ActConflict if the id is on record
    with other items or options; a filter is compared as it was `asked`, before it was made a query.
    With `dry_run` nothing is written and no name is needed. A rerun at a pace is only begun here:
    the resender carries it out.
    """
    plan = ctx.plan(selection.route)
    selection = _with_default_statuses(selection, verb)
    verb.check(plan, selection)
    now = ctx.clock.now()
    verb = verb.started(ctx, plan, act_id, now)
    if not dry_run:
        signed(by, reason)
    requested = Act(
        act_id or ctx.chance.token(),
        verb.name,
        plan.name,
        by,
        reason,
        now,
        selection.to_record() | verb.to_record(),
        expected=selection.expected(ctx),
        asked=selection.asked_record(),
        from_seq=None if dry_run else ctx.ledger.last_seq(),
    )
    if isinstance(verb, RerunVerb) and verb.pace is not None:
        return _at_a_pace(ctx, plan, requested, verb.pace, dry_run)
    author = {"by": by, "why": reason, "act": None}
    if act_id is None and selection.is_single:
        run = ActRun(ctx, plan, author, ActReport(requested.id, verb.name, plan.name, dry_run))
        return _act_on_one(run, selection, verb, requested, on_progress)
    begun = begin(ctx, requested, dry_run=dry_run)
    if begun.finished_at is not None and not dry_run:
        return first_answer(begun)
    selection = selection_of(begun, selection)
    expected = requested.expected if begun is requested else selection.expected(ctx)
    author["act"] = begun.id
    run = ActRun(ctx, plan, author, ActReport(begun.id, verb.name, plan.name, dry_run))
    return _act_on_many(run, selection, verb, begun, expected, on_progress)


def _with_default_statuses(selection: Selection, verb: Verb) -> Selection:
    """With the statuses that this verb means, if the query names none."""
    query = selection.query
    if verb.default_statuses is None or query is None or query.statuses is not None:
        return selection
    return replace(selection, query=replace(query, statuses=verb.default_statuses))


def _act_on_one(
    run: ActRun, selection: Selection, verb: Verb, act: Act, on_progress: Progress | None
) -> ActReport:
    """Do the act to one item; it is recorded at its end."""
    ctx, report = run.ctx, run.report
    for page in selection.pages(ctx):
        _act_on_page(ctx, verb.prepare(page, run), partial(verb.decide, run=run), report)
        if on_progress is not None:
            on_progress(report.matched, act.expected)
    if not report.dry_run:
        record_single(ctx, act, report, (selection.keys or ("",))[0])
    return report


def _act_on_many(
    run: ActRun,
    selection: Selection,
    verb: Verb,
    begun: Act,
    expected: int | None,
    on_progress: Progress | None,
) -> ActReport:
    """Do the act page by page, with its progress on record."""
    ctx, report = run.ctx, run.report
    decision = _once(ctx, begun, selection.query, partial(verb.decide, run=run))
    for page in selection.pages(ctx):
        if selection.query is not None:
            page = _without_changed(ctx, begun, page, report)
        page = verb.prepare(page, run)
        done_before = report.done
        _act_on_page(ctx, page, decision, report)
        if not report.dry_run:
            done = report.done - done_before
            add_progress(ctx, begun.id, done=done, refused=report.refused_count)
        if on_progress is not None:
            on_progress(report.matched, expected)
    return report if report.dry_run else finish_with(ctx, begun.id, report)


def go_on(
    ctx: Context,
    verb: str,
    route: str,
    act_id: str,
    *,
    by: str,
    reason: str,
    dry_run: bool = False,
    on_progress: Progress | None = None,
) -> ActReport:
    """Continue an interrupted bulk act as it was begun, by its id alone."""
    begun = recorded(ctx, act_id)
    check_same(begun, verb, route)
    if "pace" in begun.filter:
        raise UsageError(
            f"act {act_id!r} is paced: the resender continues it ('milepost up'; see 'milepost routes back-fill {route}')"
        )
    if begun.finished_at is not None:
        return first_answer(begun)
    if begun.verb == REDATE:
        return redate_rows(ctx, route, by=by, reason=reason, dry_run=dry_run, act_id=act_id)
    if "query" not in begun.filter:
        raise UsageError(
            f"act {act_id!r} was begun for {begun.filter.get('keys', 'no')} keys; to continue it give the same keys again"
        )
    return act(
        ctx,
        selection_of(begun, Selection(route, asked=begun.asked)),
        recorded_verb(begun.verb, begun.filter),
        by=by,
        reason=reason,
        dry_run=dry_run,
        act_id=act_id,
        on_progress=on_progress,
    )


def _act_on_page(
    ctx: Context,
    page: Page,
    decision: Decision,
    report: ActReport,
) -> None:
    """Decide and write the items of a page, and add the results to the report."""
    decisions = 0

    def decide_and_count(item: Item) -> Change | Refusal | None:
        nonlocal decisions
        decisions += 1
        return decision(item)

    readable = [item for _, item in page if isinstance(item, Item)]
    answers: Sequence[Row | Refusal | Change | None]
    if report.dry_run:
        answers = [decision(item) for item in readable]
    else:
        answers = apply_all(ctx, [(item, decide_and_count) for item in readable])
        report.retried += decisions - len(readable)
    report.matched += len(page)
    for key, item in page:
        if item is None:
            report.refuse(key, absent(ctx, report.route, key))
        elif isinstance(item, Refused):
            report.refuse(key, unreadable(item))
    for item, answer in zip(readable, answers, strict=True):
        if answer is _ALREADY:
            report.skipped += 1
        elif isinstance(answer, Refusal):
            report.refuse(item.key, answer)
        else:
            report.done += 1


def _without_changed(ctx: Context, begun: Act, page: Page, report: ActReport) -> Page:
    """The items that have not changed since the act began. The others are counted, except those
    that it has changed itself."""
    unchanged: list[tuple[str, Item | Refused | None]] = []
    for key, item in page:
        if not isinstance(item, Item) or item.row.updated_at <= begun.started_at:
            unchanged.append((key, item))
        elif not has_line(ctx, item.row, begun.id):
            report.leave_out(item.row, ctx.clock.now())
    return unchanged


def _once(ctx: Context, begun: Act, query: Query | None, decision: Decision) -> Decision:
    """Skip items that changed after the act began, and those that the act itself has already
    handled. A claim is no change, but an item that a worker has claimed meanwhile may no longer
    have a status of the query."""
    statuses = None if query is None else query.statuses

    def decide_once(item: Item) -> Change | Refusal | None:
        changed = item.row.updated_at
        if changed >= begun.started_at and has_line(ctx, item.row, begun.id):
            return _ALREADY
        other = statuses is not None and item.status not in statuses
        return _SINCE if other or changed > begun.started_at else decision(item)

    return decide_once


def _at_a_pace(ctx: Context, plan: Plan, requested: Act, pace: float, dry_run: bool) -> ActReport:
    """Record a rerun that the resender carries out; with `dry_run` only estimate the number of
    items."""
    if requested.filter["query"].get("statuses") != [Status.COMPLETED]:
        raise UsageError("a paced rerun is for COMPLETED items; leave the status out")
    report = ActReport(
        "" if dry_run else requested.id,
        "rerun",
        plan.name,
        dry_run,
        matched=requested.expected or 0,
        pace_per_s=pace,
    )
    if dry_run:
        return report
    paced = replace(
        requested, filter={**requested.filter, "pace": pace}, report=to_builtins(report)
    )
    return first_answer(begin_rerun(ctx, plan, paced, pace))


def note(
    ctx: Context,
    route: str,
    key: str,
    text: str,
    *,
    by: str,
    data: Any = None,
    reason: str = "",
    version: int | None = None,
) -> Row | Refusal:
    """Add a note to an item's history; the row as it then is, or why nothing was written.
    `version`: only if no other line was added since the item had it."""
    if not by.strip() or not text.strip():
        raise UsageError("a note needs a text and the name of its author")
    content = canonical_json([text, data])
    try:
        check_json([text, data], content)
    except ValueError as error:
        raise UsageError(f"the note cannot be stored as JSON: {error}") from None
    size = len(content)
    if size > LARGEST_NOTE:
        raise UsageError(f"the note has {size:,} bytes; at most {LARGEST_NOTE:,} are kept")
    ctx.plan(route)
    key = known_key(ctx, route, key)
    [item] = ctx.ledger.get([(route, key)])
    if item is None:
        return absent(ctx, route, key)
    if isinstance(item, Refused):
        return unreadable(item)
    given = {"text": text, "data": data, "version": version, "by": by, "why": reason or None}
    [answer] = apply_all(
        ctx, [(item, lambda now_there: operators.note(now_there, ctx.clock.now(), **given))]
    )
    return answer


def confirm_outside(
    ctx: Context,
    route: str,
    key: str,
    stage: str,
    outcome: Outcome,
    by: str,
    why: str | None = None,
) -> Row | Refusal:
    """Apply a partner's confirmation of one item's stage; returns the row as it then is, or why it
    was refused. A confirmation that is invalid, or too late because the item has ended, is noted
    once in the history."""
    return take_confirmations(ctx, route, stage, {key: outcome}, by, why)[key][0]


def take_confirmations(
    ctx: Context,
    route: str,
    stage: str,
    outcomes: Mapping[str, Outcome],
    by: str,
    why: str | None = None,
    awaited: bool = False,
) -> dict[str, tuple[Row | Refusal, Reason | None]]:
    """As `confirm_outside`, for the items with these keys: their rows are read together, and
    written as one batch. With each answer comes the reason of the history line that it decided on,
    if any. `awaited`: a failure that no stage awaits is noted, too."""
    plan = ctx.plan(route)
    if not by.strip():
        raise UsageError("the name of the confirmer is missing: by='…'")
    answers: dict[str, tuple[Row | Refusal, Reason | None]] = {}
    work: list[tuple[Item, _Confirmation]] = []
    for (key, outcome), item in zip(
        outcomes.items(), ctx.ledger.get([(route, key) for key in outcomes]), strict=True
    ):
        if item is None:
            answers[key] = absent(ctx, route, key), None
        elif isinstance(item, Refused):
            answers[key] = unreadable(item), None
        elif (fault := storage_fault(outcome)) is not None:
            answers[key] = Refusal(RefusalKind.UNSTORABLE, fault), None
        else:
            work.append((item, _Confirmation(ctx, plan, stage, outcome, by, why, awaited)))
    for (item, one), answer in zip(work, apply_all(ctx, work) if work else (), strict=True):
        if isinstance(answer, Row) and answer.total_attempts > item.row.total_attempts:
            warn_of_failed_try(answer, stage)
        noted = isinstance(answer, Row) or answer.kind is RefusalKind.NOTED_BEFORE
        answers[item.key] = answer if one.refused is None or not noted else one.refused, one.reason
    return answers


class _Confirmation(Struct):
    """Decision on a partner's confirmation of one item's stage, made anew on each row that a
    conflict shows."""

    ctx: Context
    plan: Plan
    stage: str
    outcome: Outcome
    by: str
    why: str | None
    awaited: bool
    refused: Refusal | None = None
    """Why it is only noted."""
    reason: Reason | None = None
    """The reason of the history line, if there is one."""

    def __call__(self, current: Item) -> Change | Refusal:
        ctx, plan, stage, outcome, by, why = (
            self.ctx,
            self.plan,
            self.stage,
            self.outcome,
            self.by,
            self.why,
        )
        now = ctx.clock.now()
        decided = confirmations.confirm(
            current,
            stage,
            outcome,
            plan,
            now,
            ctx.chance.jitter(),
            by=by,
            why=why,
            awaited=self.awaited,
        )
        self.refused = None
        if isinstance(decided, Refusal) and decided.kind is RefusalKind.ENDED:
            self.refused, decided = (
                decided,
                confirmations.too_late(current, stage, outcome, now, by=by, why=why),
            )
        elif isinstance(decided, Refusal) and decided.kind is RefusalKind.CONFIRMS_NOTHING:
            self.refused, decided = (
                decided,
                _refused(ctx, plan, current, stage, outcome, now, by, why) or decided,
            )
        decided = confirmations.noted_once(
            decided,
            lambda: (written.line for written in ctx.ledger.history(plan.name, current.key)),
        )
        self.reason = (
            decided.line.reason
            if isinstance(decided, Change) and decided.line is not None
            else None
        )
        return decided


def _refused(
    ctx: Context,
    plan: Plan,
    item: Item,
    stage: str,
    outcome: Outcome,
    now: int,
    by: str,
    why: str | None,
) -> Change | None:
    """The history note of an invalid confirmation; only for the item's current stage, while it can
    still be confirmed."""
    gone = stage != item.stage or item.status in (Status.COMPLETED, Status.CANCELLED)
    if gone or not isinstance(outcome, Done) or outcome.output is None:
        return None
    return confirmations.refused(
        item, outcome.output, plan, now, ctx.chance.jitter(), by=by, why=why
    )
