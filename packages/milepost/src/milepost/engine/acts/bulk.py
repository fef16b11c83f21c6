"""Operator acts on items, one or many: retry, skip, confirm, cancel, resend, rerun, replace and
reschedule; and notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct, to_builtins
from msgspec.structs import replace

from milepost.core import confirmations, operators
from milepost.core.change import Change
from milepost.core.errors import MalformedInput, UsageError
from milepost.core.item import Content, Item, Row
from milepost.core.outcome import (
    Done,
    Outcome,
    check_outcome,
    outcome_from_builtins,
    outcome_to_builtins,
)
from milepost.core.routes.plan import Plan
from milepost.core.status import LIVE, Reason, Status
from milepost.core.values.difference import difference
from milepost.core.values.durations import Moment, iso, moment_ms
from milepost.core.values.json import canonical_json, check_json, storable_text
from milepost.core.values.redaction import redacted, restored
from milepost.core.values.refusal import Refusal, RefusalKind, impossible
from milepost.engine.act_log import (
    ActReport,
    Selection,
    add_progress,
    begin,
    check_same,
    finish_with,
    first_answer,
    has_line,
    record_single,
    recorded,
    select,
    selection_of,
    signed,
)
from milepost.engine.acts.redate import VERB as REDATE
from milepost.engine.acts.redate import redate_rows
from milepost.engine.apply import Decision, apply_all, unreadable
from milepost.engine.context import Context
from milepost.engine.evidence import can_restore, restore_rows
from milepost.engine.failed_tries import warn_of_failed_try
from milepost.engine.intake import content_digest
from milepost.engine.known_keys import known_key, known_keys
from milepost.engine.left_items import STARTED_AGAIN, way_back
from milepost.engine.routes.backfill import begin_rerun
from milepost.ports.documents import ACT, Act, read_versioned
from milepost.ports.items import Query, Refused

Progress = Callable[[int, int | None], None]
"""Called with the number of items handled and the approximate total, if known."""

COPY_LIMIT = 4_096
"""Old content up to this many bytes of JSON is copied into the history line; larger content goes to
a blob."""
LARGEST_NOTE = 4_096
"""Bytes of a note, its data included: the line is copied to every subscriber and into the
evidence."""
_DEFAULT_STATUSES = {"rerun": frozenset({Status.COMPLETED}), "cancel": LIVE}
"""Statuses that a query of this verb means if it names none."""
_RULES: dict[str, Callable[..., Change | Refusal]] = {
    rule.__name__: rule
    for rule in (
        operators.retry,
        operators.skip,
        operators.cancel,
        operators.resend,
        operators.rerun,
        operators.reschedule,
    )
}
"""The rule of each verb that is decided on the item, its plan and the time alone."""
_ALREADY = Refusal(RefusalKind.DONE_BEFORE, "already handled by this act")
_SINCE = Refusal(RefusalKind.CHANGED_SINCE, "changed since the act began; check it again")


def act(
    ctx: Context,
    verb: str,
    route: str,
    *,
    keys: Sequence[str] | None = None,
    query: Query | None = None,
    asked: Mapping[str, Any] | None = None,
    by: str,
    reason: str,
    dry_run: bool = False,
    act_id: str | None = None,
    stage: str | None = None,
    as_new: bool = False,
    outcome: Outcome | None = None,
    content: Any = UNSET,
    here: bool = False,
    rerun: bool = False,
    not_before: Moment | None = None,
    pace: float | None = None,
    force: bool = False,
    on_progress: Progress | None = None,
) -> ActReport:
    """Do one act to all items with these keys, or to all that match the query; each is done or
    refused on its own.

    A bulk act (a query, or several keys) has an id and a start time: it skips items that change
    after its start, its id is in every history line that it writes, and the same call with that id
    continues it, or, if it has finished, gets the first answer. ActConflict if the id is on record
    with other items or options; a filter is compared as it was `asked`, before it was made a query.
    With `dry_run` nothing is written and no name is needed. `stage`: where retry sends an item back
    to, which stage confirm confirms, or where rerun starts.

    cancel by query leaves failed items alone, unless the query names their status.

    `force`: confirm even if the answer does not cover the stage's whole payload; the history says
    so.

    replace takes the new `content` of one item; with `here` it starts again at its current stage,
    with `rerun` also if it is COMPLETED. reschedule takes `not_before`. A rerun by query may have a
    `pace` (items per second), which the resender carries out.
    """
    plan = _checked_plan(ctx, verb, route, stage, as_new, outcome, force)
    if verb in _DEFAULT_STATUSES and query is not None and query.statuses is None:
        query = replace(query, statuses=_DEFAULT_STATUSES[verb])
    chosen = select(route, None if keys is None else known_keys(ctx, route, keys), query, asked)
    new = _checked_options(plan, verb, chosen, content, here, rerun, not_before, pace)
    if not dry_run:
        signed(by, reason)
    now = ctx.clock.now()
    starts_at = (
        None
        if not_before is None
        else moment_ms(not_before, _begun_at(ctx, act_id, now), "not_before")
    )
    options = {
        "stage": stage,
        "as_new": as_new or None,
        "outcome": None if outcome is None else outcome_to_builtins(outcome),
        "not_before": iso(starts_at),
        "content": None if new is None else new.digest.hex(),
        "here": here or None,
        "rerun": rerun or None,
        "force": force or None,
    }
    about = chosen.to_record() | {
        name: value for name, value in options.items() if value is not None
    }
    expected = chosen.expected(ctx)
    requested = begun = Act(
        act_id or ctx.chance.token(), verb, route, by, reason, now, about, expected=expected, asked=chosen.asked_record(),
        from_seq=None if dry_run else ctx.ledger.last_seq(),
    )  # fmt: skip
    if pace is not None:
        return _at_a_pace(ctx, plan, requested, pace, dry_run)
    bulk = query is not None or len(chosen.keys or ()) > 1 or act_id is not None
    if bulk:
        begun = begin(ctx, requested, dry_run=dry_run)
        if begun.finished_at is not None and not dry_run:
            return first_answer(begun)
        chosen = selection_of(begun, chosen)
        expected = expected if begun is requested else chosen.expected(ctx)
    author: dict[str, Any] = {"by": by, "why": reason, "act": begun.id if bulk else None}
    given: dict[str, Any] = {"stage": stage, "as_new": as_new} if verb in ("retry", "rerun") else {}
    if verb == "reschedule":
        given["not_before"] = starts_at

    def decide(item: Item) -> Change | Refusal | None:
        now = ctx.clock.now()
        if new is not None:
            return replaced(ctx, item, plan, new, here=here, rerun=rerun, dry_run=dry_run, **author)
        if verb != "confirm":
            return _RULES[verb](item, plan, now, **given, **author)
        stage_name, said, jitter = stage or item.stage, outcome or Done(True), ctx.chance.jitter()
        return confirmations.confirm(
            item, stage_name, said, plan, now, jitter, operator=True, force=force, **author
        )

    decision = _once(ctx, begun, chosen.query, decide) if bulk else decide
    report = ActReport(begun.id, verb, route, dry_run)
    for page in chosen.pages(ctx, route):
        if chosen.query is not None:
            page = _without_changed(ctx, begun, page, report)
        if verb == "rerun":
            page = _restore_missing(ctx, plan, page, report)
        if new is not None:
            report.difference = [
                one
                for _, item in page
                if isinstance(item, Item)
                for one in difference(item.input, restored(new.content, item.input))
            ]
        done_before = report.done
        _act_on_page(ctx, page, decision, report)
        if bulk and not dry_run:
            add_progress(
                ctx, begun.id, done=report.done - done_before, refused=report.refused_count
            )
        if on_progress is not None:
            on_progress(report.matched, expected)
    if dry_run:
        return report
    if bulk:
        return finish_with(ctx, begun.id, report)
    record_single(ctx, begun, report, (chosen.keys or ("",))[0])
    return report


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
    chosen = selection_of(begun, select(route, (), None))
    outcome = begun.filter.get("outcome")
    return act(
        ctx,
        verb,
        route,
        query=chosen.query,
        asked=begun.asked,
        by=by,
        reason=reason,
        dry_run=dry_run,
        act_id=act_id,
        stage=begun.filter.get("stage"),
        as_new=bool(begun.filter.get("as_new")),
        not_before=begun.filter.get("not_before"),
        outcome=None if outcome is None else outcome_from_builtins(outcome),
        force=bool(begun.filter.get("force")),
        on_progress=on_progress,
    )


def _act_on_page(
    ctx: Context,
    page: Sequence[tuple[str, Item | Refused | None]],
    decision: Decision,
    report: ActReport,
) -> None:
    """Decide and write the items of a page, and add the results to the report."""
    decisions = 0

    def decide_and_count(item: Item) -> Change | Refusal | None:
        nonlocal decisions
        decisions += 1
        return decision(item)

    chosen = [(key, _as_far_as_read(report.verb, item)) for key, item in page]
    readable = [item for _, item in chosen if isinstance(item, Item)]
    answers: Sequence[Row | Refusal | Change | None]
    if report.dry_run:
        answers = [decision(item) for item in readable]
    else:
        answers = apply_all(ctx, [(item, decide_and_count) for item in readable])
        report.retried += decisions - len(readable)
    report.matched += len(page)
    for key, item in chosen:
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


def _without_changed(
    ctx: Context, begun: Act, page: Sequence[tuple[str, Item | Refused | None]], report: ActReport
) -> list[tuple[str, Item | Refused | None]]:
    """The items that have not changed since the act began. The others are counted, except those
    that it has changed itself."""
    unchanged: list[tuple[str, Item | Refused | None]] = []
    for key, item in page:
        if not isinstance(item, Item) or item.row.updated_at <= begun.started_at:
            unchanged.append((key, item))
        elif not has_line(ctx, item.row, begun.id):
            report.leave_out(item.row, ctx.clock.now())
    return unchanged


def _as_far_as_read(verb: str, item: Item | Refused | None) -> Item | Refused | None:
    """An item with damaged content can still be cancelled, because that needs only its row."""
    if isinstance(item, Refused) and item.row is not None and verb == "cancel":
        return Item(item.row, Content())
    return item


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


def _begun_at(ctx: Context, act_id: str | None, now: int) -> int:
    """When the act with this id began: a span in a repeat counts from then. Now, if none is on
    record."""
    begun, _ = (None, 0) if act_id is None else read_versioned(ctx.ledger, ACT, act_id, Act)
    return now if begun is None else begun.started_at


def _checked_plan(
    ctx: Context,
    verb: str,
    route: str,
    stage: str | None,
    as_new: bool,
    outcome: Outcome | None,
    force: bool,
) -> Plan:
    """The route's plan; UsageError if the verb is unknown or does not take one of these options."""
    plan = ctx.plan(route)
    if verb not in operators.VERBS:
        raise UsageError(f"there is no act {verb!r}; acts are {', '.join(operators.VERBS)}")
    if stage is not None and verb not in ("retry", "confirm", "rerun"):
        raise UsageError(f"{verb} takes no stage; only retry, confirm and rerun do")
    if as_new and verb not in ("retry", "rerun"):
        raise UsageError(f"{verb} does not take 'as new'; only retry and rerun do")
    if outcome is not None and verb != "confirm":
        raise UsageError(f"{verb} takes no outcome; only confirm does")
    if force and (verb != "confirm" or not isinstance(outcome or Done(True), Done)):
        raise UsageError("only a confirmation that a stage is done can be forced")
    if (fault := _fault_of(outcome)) is not None:
        raise UsageError(fault)
    if stage is not None:
        ctx.stage(route, stage)
    return plan


def _fault_of(outcome: Outcome | None) -> str | None:
    """Why the outcome cannot be stored as it is; None if it can."""
    try:
        if outcome is not None:
            check_outcome(outcome)
    except Exception as error:
        return f"the outcome cannot be stored as JSON: {storable_text(str(error))}"
    return None


def _checked_options(
    plan: Plan,
    verb: str,
    chosen: Selection,
    content: Any,
    here: bool,
    rerun: bool,
    not_before: Moment | None,
    pace: float | None,
) -> NewContent | None:
    """The new content, for a replacement; UsageError if options and verb do not fit."""
    for name, given, of in (
        ("content", content is not UNSET, "replace"),
        ("here", here, "replace"),
        ("rerun", rerun, "replace"),
        ("not_before", not_before is not None, "reschedule"),
        ("pace", pace is not None, "rerun"),
    ):
        if given and verb != of:
            raise UsageError(f"{name} needs {of}, not {verb}")
    if verb == "reschedule" and not_before is None:
        raise UsageError("give the time: not_before (--at)")
    if pace is not None and chosen.query is None:
        raise UsageError("a pace needs a filter, not keys")
    if verb != "replace":
        return None
    if content is UNSET or len(chosen.keys or ()) != 1:
        raise UsageError(
            "replace needs one key and the new content; for many items submit a list with replace-changed"
        )
    return read_content(plan, content)


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


class NewContent(Struct, frozen=True):
    """New content of an item, parsed by its route."""

    key: str
    content: Any
    digest: bytes


def read_content(plan: Plan, given: Any) -> NewContent:
    """Parse and check new content; UsageError if it could not be submitted."""
    try:
        parsed = plan.route.read(given)
        return NewContent(parsed.key, parsed.content, content_digest(parsed.content))
    except MalformedInput as error:
        raise UsageError(f"invalid new content: {error}") from None


def replaced(
    ctx: Context,
    item: Item,
    plan: Plan,
    new: NewContent,
    *,
    here: bool,
    rerun: bool,
    dry_run: bool = False,
    **author: Any,
) -> Change | Refusal:
    """The change that replaces the content, or why it is refused. The old content is stored before
    the change is written."""
    if item.key not in (new.key, plan.route.formed(new.key)):
        return impossible(
            f"the new content has the key {plan.route.formed(new.key)!r}; submit it as a new item"
        )
    # What was hidden from a person who has edited the old content stays as it is.
    content = restored(new.content, item.input)
    digest = new.digest if content == new.content else content_digest(content)
    old = {} if digest == item.row.current_digest else _old_content(ctx, item, plan, dry_run)
    return operators.replace(
        item,
        plan,
        ctx.clock.now(),
        content=content,
        digest=digest,
        old=old,
        here=here,
        rerun=rerun,
        **author,
    )


def _old_content(ctx: Context, item: Item, plan: Plan, dry_run: bool) -> dict[str, Any]:
    """The part of the history line about the old content: a copy, or the name of its blob. Lines go
    to subscribers and into evidence, and are never changed: content with an apparent secret is
    always kept apart."""
    text = canonical_json(item.input)
    if (
        len(text) <= COPY_LIMIT
        and redacted(item.input) == item.input
        and plan.route.with_forms(item.input) == item.input
    ):
        return {"content": item.input}
    digest = item.row.current_digest.hex()
    name = f"replaced/{digest[:2]}/{digest}"
    if not dry_run:
        try:
            ctx.blobs.write(name, [text])
        except OSError as error:
            raise UsageError(
                f"the old content of {item.route}/{item.key} cannot be stored, so it is not replaced: {error}"
            ) from error
    return {"blob": name, "size": len(text)}


def _restore_missing(
    ctx: Context, plan: Plan, page: Sequence[tuple[str, Item | Refused | None]], report: ActReport
) -> list[tuple[str, Item | Refused | None]]:
    """The page with finished items restored whose rows were removed, if the ledger can. The others
    are refused here."""
    gone = [key for key, item in page if item is None]
    if not gone or not can_restore(ctx.ledger):
        return list(page)
    refused = restore_rows(ctx, plan, gone, ctx.clock.now(), dry_run=report.dry_run)
    for key, why in refused.items():
        report.matched += 1
        report.refuse(key, Refusal(RefusalKind.GONE, f"{absent(ctx, plan.name, key)}; {why}"))
    if report.dry_run:
        known = dict(zip(gone, ctx.ledger.peek(plan.name, gone), strict=True))
        restorable = {
            key
            for key, seal in known.items()
            if key not in refused and seal is not None and seal.status is Status.COMPLETED
        }
        report.matched += len(restorable)
        report.done += len(restorable)
        return [(key, item) for key, item in page if key not in refused.keys() | restorable]
    back = dict(zip(gone, ctx.ledger.get([(plan.name, key) for key in gone]), strict=True))
    return [
        (key, back.get(key) if item is None else item) for key, item in page if key not in refused
    ]


def absent(ctx: Context, route: str, key: str) -> Refusal:
    """Why there is no row with this key: it was pruned, or there never was one."""
    known = ctx.ledger.peek(route, [key])[0]
    if known is None:
        return Refusal(RefusalKind.GONE, "there is no item with this key")
    when = "" if known.ended_at is None else f" on {iso(known.ended_at)}"
    ended = f"it has ended ({known.status}{when}) and its row was pruned; only its seal is left"
    plan = ctx.plans.get(route)
    if plan is None or known.status not in STARTED_AGAIN:
        return Refusal(RefusalKind.GONE, ended)
    return Refusal(
        RefusalKind.GONE,
        f"{ended}; to start it again, submit it again: {way_back(ctx, plan, known)}",
    )


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
        elif (fault := _fault_of(outcome)) is not None:
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
