"""Verbs of operators: each knows its options, checks them, and decides one item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import UNSET, Struct
from msgspec.structs import replace

from milepost.core import confirmations, operators
from milepost.core.change import Change
from milepost.core.errors import UsageError
from milepost.core.item import Content, Item
from milepost.core.outcome import (
    Done,
    Outcome,
    outcome_from_builtins,
    outcome_to_builtins,
    storage_fault,
)
from milepost.core.routes.plan import Plan
from milepost.core.status import LIVE, Status
from milepost.core.values.difference import difference
from milepost.core.values.durations import Moment, iso, moment_ms
from milepost.core.values.redaction import restored
from milepost.core.values.refusal import Refusal, RefusalKind
from milepost.engine.act_log import ActReport, Page, Selection
from milepost.engine.acts.replacement import NewContent, read_content, replaced
from milepost.engine.context import Context
from milepost.engine.evidence import can_restore, restore_rows
from milepost.engine.left_items import absent
from milepost.ports.documents import ACT, Act, read_versioned
from milepost.ports.items import Refused


class ActRun(Struct, frozen=True):
    """One run of an act: what its verb needs besides the item."""

    ctx: Context
    plan: Plan
    author: dict[str, Any]
    """`by`, `why` and `act` of the history lines."""
    report: ActReport


class Verb(Struct, frozen=True):
    """One kind of act on items, with its options as the operator gave them."""

    name: ClassVar[str]
    options: ClassVar[tuple[str, ...]] = ()
    """The options that it takes, in `verb_of`."""
    default_statuses: ClassVar[frozenset[Status] | None] = None
    """The statuses that a filter of this verb means if it names none."""

    @classmethod
    def of(cls, options: dict[str, Any]) -> Verb:
        """The verb with these options; UsageError if one is missing."""
        return cls(**options)

    def check(self, plan: Plan, selection: Selection) -> None:
        """Raise UsageError if the verb cannot be used on this route or selection."""

    def started(self, ctx: Context, plan: Plan, act_id: str | None, now: int) -> Verb:
        """The verb as the act begins: with content read by its route, and spans counted. UsageError
        if that cannot be done."""
        return self

    def to_record(self) -> dict[str, Any]:
        """The options that are set, as stored with the act."""
        return {}

    def prepare(self, page: Page, run: ActRun) -> Page:
        """The page as this verb decides it."""
        return page

    def decide(self, item: Item, run: ActRun) -> Change | Refusal:
        """The change that the act makes of one item, or why it makes none."""
        raise NotImplementedError


class RetryVerb(Verb, frozen=True):
    """Start items again at their stage, or send them back to an earlier one."""

    name = "retry"
    options = ("stage", "as_new")

    stage: str | None = None
    as_new: bool = False

    def check(self, plan: Plan, selection: Selection) -> None:
        _check_stage(plan, self.stage)

    def to_record(self) -> dict[str, Any]:
        return _set_options(stage=self.stage, as_new=self.as_new)

    def decide(self, item: Item, run: ActRun) -> Change | Refusal:
        return operators.retry(
            item, run.plan, run.ctx.clock.now(), stage=self.stage, as_new=self.as_new, **run.author
        )


class SkipVerb(Verb, frozen=True):
    """Skip the items' current stage without running it."""

    name = "skip"

    def decide(self, item: Item, run: ActRun) -> Change | Refusal:
        return operators.skip(item, run.plan, run.ctx.clock.now(), **run.author)


class ConfirmVerb(Verb, frozen=True):
    """Confirm a stage by hand, as its partner would; without a `stage` the one where the item is.
    `force`: even if the answer does not cover the stage's whole payload; the history says so."""

    name = "confirm"
    options = ("stage", "outcome", "force")

    stage: str | None = None
    outcome: Outcome | None = None
    """`Done(True)` if it is not given."""
    force: bool = False

    def check(self, plan: Plan, selection: Selection) -> None:
        if self.outcome is not None:
            if self.force and not isinstance(self.outcome, Done):
                raise UsageError(_ONLY_DONE_IS_FORCED)
            fault = storage_fault(self.outcome)
            if fault is not None:
                raise UsageError(fault)
        _check_stage(plan, self.stage)

    def to_record(self) -> dict[str, Any]:
        outcome = None if self.outcome is None else outcome_to_builtins(self.outcome)
        return _set_options(stage=self.stage, outcome=outcome, force=self.force)

    def decide(self, item: Item, run: ActRun) -> Change | Refusal:
        return confirmations.confirm(
            item,
            self.stage or item.stage,
            self.outcome or Done(True),
            run.plan,
            run.ctx.clock.now(),
            run.ctx.chance.jitter(),
            operator=True,
            force=self.force,
            **run.author,
        )


class CancelVerb(Verb, frozen=True):
    """Cancel items: no further stage runs. By filter it leaves failed items alone, unless the
    filter names their status."""

    name = "cancel"
    default_statuses = LIVE

    def prepare(self, page: Page, run: ActRun) -> Page:
        """Items with damaged content can still be cancelled, because that needs only their rows."""
        return [(key, _as_far_as_read(item)) for key, item in page]

    def decide(self, item: Item, run: ActRun) -> Change | Refusal:
        return operators.cancel(item, run.plan, run.ctx.clock.now(), **run.author)


class ResendVerb(Verb, frozen=True):
    """Offer items to their stage again."""

    name = "resend"

    def decide(self, item: Item, run: ActRun) -> Change | Refusal:
        return operators.resend(item, run.plan, run.ctx.clock.now(), **run.author)


class RerunVerb(Verb, frozen=True):
    """Run completed items again from a stage, the first if none is given. `pace`: items a second,
    by filter alone; the resender carries that out."""

    name = "rerun"
    options = ("stage", "as_new", "pace")
    default_statuses = frozenset({Status.COMPLETED})

    stage: str | None = None
    as_new: bool = False
    pace: float | None = None

    def check(self, plan: Plan, selection: Selection) -> None:
        _check_stage(plan, self.stage)
        if self.pace is not None and selection.query is None:
            raise UsageError("a pace needs a filter, not keys")

    def to_record(self) -> dict[str, Any]:
        return _set_options(stage=self.stage, as_new=self.as_new)

    def prepare(self, page: Page, run: ActRun) -> Page:
        """With finished items restored whose rows were removed, if the ledger can."""
        return _restore_missing(page, run)

    def decide(self, item: Item, run: ActRun) -> Change | Refusal:
        return operators.rerun(
            item, run.plan, run.ctx.clock.now(), stage=self.stage, as_new=self.as_new, **run.author
        )


class ReplaceVerb(Verb, frozen=True):
    """Give one item new content. It starts again at the first stage, or, with `here`, at its
    current one; with `rerun` also if it is COMPLETED."""

    name = "replace"
    options = ("content", "here", "rerun")

    content: Any
    here: bool = False
    rerun: bool = False
    new: NewContent | None = None
    """The content as its route reads it, from the act's start on."""

    @classmethod
    def of(cls, options: dict[str, Any]) -> Verb:
        if "content" not in options:
            raise UsageError(_ONE_KEY_AND_CONTENT)
        return cls(**options)

    def check(self, plan: Plan, selection: Selection) -> None:
        if len(selection.keys or ()) != 1:
            raise UsageError(_ONE_KEY_AND_CONTENT)

    def started(self, ctx: Context, plan: Plan, act_id: str | None, now: int) -> Verb:
        return replace(self, new=read_content(plan, self.content))

    def to_record(self) -> dict[str, Any]:
        assert self.new is not None
        return _set_options(content=self.new.digest.hex(), here=self.here, rerun=self.rerun)

    def prepare(self, page: Page, run: ActRun) -> Page:
        """Notes in the report how old and new content differ."""
        assert self.new is not None
        for _, item in page:
            if isinstance(item, Item):
                content = restored(self.new.content, item.input)
                run.report.difference = difference(item.input, content)
        return page

    def decide(self, item: Item, run: ActRun) -> Change | Refusal:
        assert self.new is not None
        return replaced(
            run.ctx,
            item,
            run.plan,
            self.new,
            here=self.here,
            rerun=self.rerun,
            dry_run=run.report.dry_run,
            **run.author,
        )


class RescheduleVerb(Verb, frozen=True):
    """Give items that have not started yet another start time."""

    name = "reschedule"
    options = ("not_before",)

    not_before: Moment
    starts_at: int | None = None
    """The same in milliseconds, from the act's start on."""

    @classmethod
    def of(cls, options: dict[str, Any]) -> Verb:
        if "not_before" not in options:
            raise UsageError("give the time: not_before (--at)")
        return cls(**options)

    def started(self, ctx: Context, plan: Plan, act_id: str | None, now: int) -> Verb:
        started_at = _started_at(ctx, act_id, now)
        return replace(self, starts_at=moment_ms(self.not_before, started_at, "not_before"))

    def to_record(self) -> dict[str, Any]:
        return _set_options(not_before=iso(self.starts_at))

    def decide(self, item: Item, run: ActRun) -> Change | Refusal:
        assert self.starts_at is not None
        return operators.reschedule(
            item, run.plan, run.ctx.clock.now(), not_before=self.starts_at, **run.author
        )


VERB_CLASSES: dict[str, type[Verb]] = {
    verb.name: verb
    for verb in (
        RetryVerb,
        SkipVerb,
        ConfirmVerb,
        CancelVerb,
        ResendVerb,
        RerunVerb,
        ReplaceVerb,
        RescheduleVerb,
    )
}
_ONLY_DONE_IS_FORCED = "only a confirmation that a stage is done can be forced"
_ONE_KEY_AND_CONTENT = (
    "replace needs one key and the new content; for many items submit a list with replace-changed"
)


class _Option(Struct, frozen=True):
    """An option of some verbs, as a door takes it."""

    name: str
    if_not_given: Any
    refusal: str
    """The error if a verb does not take it."""


_OPTIONS = (
    _Option("stage", None, "{verb} takes no stage; only retry, confirm and rerun do"),
    _Option("as_new", False, "{verb} does not take 'as new'; only retry and rerun do"),
    _Option("outcome", None, "{verb} takes no outcome; only confirm does"),
    _Option("force", False, _ONLY_DONE_IS_FORCED),
    _Option("content", UNSET, "content needs replace, not {verb}"),
    _Option("here", False, "here needs replace, not {verb}"),
    _Option("rerun", False, "rerun needs replace, not {verb}"),
    _Option("not_before", None, "not_before needs reschedule, not {verb}"),
    _Option("pace", None, "pace needs rerun, not {verb}"),
)


def verb_of(name: str, **options: Any) -> Verb:
    """The verb with this name and these options, for doors that take both as data; UsageError if it
    is unknown, does not take one of them, or needs another."""
    verb = VERB_CLASSES.get(name)
    if verb is None:
        raise UsageError(f"there is no act {name!r}; acts are {', '.join(operators.VERBS)}")
    chosen = {}
    for option in _OPTIONS:
        value = options.pop(option.name, option.if_not_given)
        if value is option.if_not_given:
            continue
        if option.name not in verb.options:
            raise UsageError(option.refusal.format(verb=name))
        chosen[option.name] = value
    if options:
        raise TypeError(f"acts have no option {', '.join(options)}")
    return verb.of(chosen)


def recorded_verb(name: str, about: Mapping[str, Any]) -> Verb:
    """The verb of a recorded bulk act, made of what is stored about it."""
    outcome = about.get("outcome")
    return verb_of(
        name,
        stage=about.get("stage"),
        as_new=bool(about.get("as_new")),
        outcome=None if outcome is None else outcome_from_builtins(outcome),
        force=bool(about.get("force")),
        not_before=about.get("not_before"),
    )


def _set_options(**options: Any) -> dict[str, Any]:
    """The options that are set."""
    return {name: value for name, value in options.items() if value not in (None, False)}


def _check_stage(plan: Plan, stage: str | None) -> None:
    if stage is not None and stage not in plan.by_name:
        raise UsageError(plan.unknown_stage(stage))


def _started_at(ctx: Context, act_id: str | None, now: int) -> int:
    """When the act with this id began, from which a span in a repeat counts. Now, if none is on
    record."""
    if act_id is None:
        return now
    begun, _ = read_versioned(ctx.ledger, ACT, act_id, Act)
    return now if begun is None else begun.started_at


def _as_far_as_read(item: Item | Refused | None) -> Item | Refused | None:
    """An item with its row alone, where the content is damaged."""
    if isinstance(item, Refused) and item.row is not None:
        return Item(item.row, Content())
    return item


def _restore_missing(page: Page, run: ActRun) -> Page:
    """The page with finished items restored whose rows were removed, if the ledger can. The others
    are refused here."""
    ctx, plan, report = run.ctx, run.plan, run.report
    missing = [key for key, item in page if item is None]
    if not missing or not can_restore(ctx.ledger):
        return page
    refused = restore_rows(ctx, plan, missing, ctx.clock.now(), dry_run=report.dry_run)
    for key, why in refused.items():
        report.matched += 1
        report.refuse(key, Refusal(RefusalKind.GONE, f"{absent(ctx, plan.name, key)}; {why}"))
    page = [(key, item) for key, item in page if key not in refused]
    if report.dry_run:
        return _without_restorable(page, missing, run)
    rows = dict(zip(missing, ctx.ledger.get([(plan.name, key) for key in missing]), strict=True))
    return [(key, rows.get(key) if item is None else item) for key, item in page]


def _without_restorable(page: Page, missing: Sequence[str], run: ActRun) -> Page:
    """The page without the items that would be restored; they count as done."""
    seals = dict(zip(missing, run.ctx.ledger.peek(run.plan.name, missing), strict=True))
    restorable = {
        key for key, seal in seals.items() if seal is not None and seal.status is Status.COMPLETED
    }
    others = [(key, item) for key, item in page if key not in restorable]
    run.report.matched += len(page) - len(others)
    run.report.done += len(page) - len(others)
    return others
