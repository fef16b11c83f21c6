"""One item's story in plain sentences: where it is, why it waits, what happened, what happens next, what people can do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from shlex import quote

from msgspec import Struct
from msgspec.structs import replace

from milepost.core import operators
from milepost.core.admission.breakers import BreakerState
from milepost.core.admission.controls import Hold, scope
from milepost.core.change import Change
from milepost.core.confirmations import was_refused
from milepost.core.history import Line
from milepost.core.item import Content, Item, Row
from milepost.core.routes.route import Stage
from milepost.core.status import FAILED, STATUS_MEANING, Status
from milepost.core.values.durations import moment_ms, short_span
from milepost.engine.breakers import BreakerView, breaker_of
from milepost.engine.context import Context
from milepost.engine.views.items import SIGNED, chain_broken_at, chain_fault, clock_time, live_processes, stage_names, unreadable
from milepost.engine.views.sentences import sentence
from milepost.engine.views.timestamps import Watch
from milepost.ports.documents import HOLD, read_as
from milepost.ports.ledger import HistoryEntry, KnownKey, Refused


class StoryLine(Struct, frozen=True):
    """One thing that happened, and when. `short` leaves out what is shown in another way where the `line` itself is at hand."""

    at: int
    text: str
    short: str
    line: Line


class Story(Struct, frozen=True):
    """Sentences, in the order in which they are read."""

    route: str
    key: str
    where: str
    why: list[str] = []
    next: list[str] = []
    happened: list[StoryLine] = []
    can: list[str] = []
    """Commands that make sense now."""
    warnings: list[str] = []


def story(ctx: Context, route: str, key: str, told: Callable[[int, int], str] = clock_time) -> Story | None:
    """The story of one item, or of the seal that is left of it; None if the key was never seen. `told`: how a moment is written."""
    watch = Watch(ctx.clock.now(), told)
    [item] = ctx.ledger.get([(route, key)])
    if item is None:
        [known] = ctx.ledger.peek(route, [key])
        return None if known is None else _sealed(route, known, watch)
    lines = ctx.ledger.history(route, key)
    warnings, damaged = list[str](), isinstance(item, Refused)
    if isinstance(item, Refused):
        warnings.append(f"its row cannot be read: {item.reason}")
        if item.row is None:
            return _unreadable(route, key, lines, watch, warnings)
        item = Item(item.row, Content())
    broken = chain_broken_at(ctx, item, lines)
    if broken is not None:
        warnings.append(f"its history is not as it was written: {chain_fault(broken, lines)}")
    stages = stage_names(ctx, route)
    happened = [_told(written.line, ctx, item) for written in lines]
    why, following = _waiting(ctx, item, stages, watch)
    can = _can(item.row, ctx, stages)
    if damaged:
        # Nothing is decided on a row that cannot be read; only cancelling needs no more than where it is.
        following = ["Nothing by itself. Put it right, or restore it from a backup; 'milepost quarantine list' shows what is set aside."]
        can = [command for command in can if command.startswith("milepost cancel ")]
    return Story(route, key, _where(item.row, stages, watch), why, following, happened, can, warnings)


def _where(row: Row, stages: list[str], watch: Watch) -> str:
    since = watch.when(row.entered_at)
    if row.status is Status.COMPLETED:
        took = short_span(row.updated_at - row.created_at)
        return f"It is through: COMPLETED {since}, {took} after it was accepted."
    place = f"'{row.stage}'"
    if row.stage in stages:
        place += f" (stage {stages.index(row.stage) + 1} of {len(stages)})"
    if row.later_than(watch.now):
        return f"It is to start at {place} {since}. It was accepted {watch.when(row.created_at)}."
    if row.terminal:
        return f"It ended at {place}: {row.status}, {STATUS_MEANING[row.status]}; {since}."
    return f"It is at {place}: {row.status}, {STATUS_MEANING[row.status]}. It came here {since}."


def _waiting(ctx: Context, item: Item, stages: list[str], watch: Watch) -> tuple[list[str], list[str]]:
    """Why it waits, and what happens next."""
    row = item.row
    if row.terminal:
        return _ended(row, _can(row, ctx, stages))
    if stages and row.stage not in stages:
        apply = f"milepost routes apply {row.route} --map {row.stage}=STAGE {SIGNED}"
        return [f"The route has no stage '{row.stage}' any more."], [f"Nothing, until it is moved: {apply}"]
    plan = ctx.plans.get(row.route)
    stage = None if plan is None else plan.by_name.get(row.stage)
    why, following = _by_status(row, stage, watch)
    if stage is not None and stage.overdue_ms is not None and row.entered_at + stage.overdue_ms <= watch.now:
        # By the stage's own mark: the row forgets its moment once people have been told.
        expected = row.entered_at + stage.overdue_ms
        why.insert(0, f"It is late: it was expected by {watch.at(expected)}, {short_span(watch.now - expected)} ago.")
    lost = row.status is Status.PROCESSING and row.holder in ctx.ledger.dead_workers()
    if lost:
        why.append("That worker has died.")
        following = ["It is taken back at once by whoever is at work on this machine; the try does not count."]
    holds = _holds(ctx, row, watch)
    why += holds
    breaker = breaker_of(ctx, row)
    if holds and row.status is not Status.PROCESSING:
        following = ["Nothing, until it is resumed; being paused uses no attempts."]
    elif breaker is not None and row.status is not Status.PROCESSING:
        why.append(f"{breaker.told[0].upper()}{breaker.told[1:]}.")
        following = [_let_through(breaker, row, watch)]
    if row.losses:
        times = "A worker was" if row.losses == 1 else f"{row.losses} workers were"
        why.append(f"{times} lost while holding it; that is not counted as an attempt.")
    if row.unknown:
        why.append("What the last try achieved is not known" + _verify(stage))
    why += _kept(row)
    if row.overdue_at is not None and row.overdue_at > watch.now:
        following.append(f"If it is still at '{row.stage}' {watch.when(row.overdue_at)}, people are told that it is late.")
    if not holds and breaker is None and (lost or _wants_worker(row, stage, watch.now)):
        following += _missing_worker(ctx, row.route)
    return why, following


def _let_through(breaker: BreakerView, row: Row, watch: Watch) -> str:
    """When an item of a lane with an open breaker is worked on; it waits without using attempts."""
    if breaker.state == BreakerState.OPEN and breaker.retry_at is not None:
        at = watch.when(max(moment_ms(breaker.retry_at, watch.now, "retry_at"), row.look_at or 0))
        return f"It waits, and uses no attempts. The breaker lets the first item through again {at}."
    probes = "an item was let through" if breaker.probes else "the next item that is due is let through"
    return f"It waits, and uses no attempts: {probes} to find out whether the stage works again."


def _verify(stage: Stage | None) -> str:
    if stage is not None and stage.remote:
        return "; the next worker is told so."
    if stage is not None and stage.verify is None:
        return "; the stage has no 'verify', so the work may be done twice."
    return "; 'verify' is asked before the next try."


def _kept(row: Row) -> list[str]:
    return [f"An answer for '{name}' has come already and is kept until it gets there." for name in row.kept if name != row.stage]


_DECIDED = {
    "retry": "start it again (retry)",
    "confirm": "say that the stage is done after all (confirm)",
    "skip": "move it past the stage (skip)",
    "replace": "give it other content (replace)",
}


def _ended(row: Row, can: list[str]) -> tuple[list[str], list[str]]:
    why = [] if row.error is None else [f"The last error was {row.error.category}: {row.error.message}"]
    if row.status in FAILED:
        choices = [_DECIDED[verb] for verb in (command.split()[1] for command in can) if verb in _DECIDED]
        return why + _kept(row), [f"Nothing by itself; a person decides: {', '.join([*choices, 'or leave it as it is'])}."]
    return why, ["Nothing: it has ended. It stays known, so that it is not done a second time."]


def _by_status(row: Row, stage: Stage | None, watch: Watch) -> tuple[list[str], list[str]]:
    now, look = watch.now, watch.now if row.look_at is None else row.look_at
    due = watch.when(look) if look > now else "as soon as a worker is free"
    allowed = "" if stage is None else f" of {stage.retry_of(row.lane).attempts}"
    if row.status is Status.PROCESSING:
        held = "" if row.claimed_at is None else f" since {watch.at(row.claimed_at)} ({short_span(now - row.claimed_at)})"
        why = [f"Worker {row.holder} holds it{held}; this is try {row.attempts + 1}{allowed}."]
        if look <= now:
            return why, [f"Its lease ran out {watch.when(look)}: the next claim takes it over."]
        return why, [f"Its outcome is written when the worker is done. Should the worker die, the lease ends {watch.when(look)}."]
    if row.status is Status.RETRY_SCHEDULED:
        error = "" if row.error is None else f": {row.error.category}: {row.error.message}"
        return [f"Try {row.attempts}{allowed} failed{error}"], [f"It is tried again {due}: try {row.attempts + 1}{allowed}."]
    if row.status is Status.WAITING and row.handed_over:
        return [f"The work was handed over and the partner's answer is awaited{_note(row)}."], [
            f"If no answer comes by then, it counts as a failed try: {watch.when(look)}."
        ]
    if was_refused(row) and stage is not None and stage.external:
        asked = "its stage is offered again" if row.status is Status.WAITING else "if nobody confirms it, it is offered again"
        return [f"It was answered in a way that does not confirm it: {row.note}."], [f"{asked[0].upper()}{asked[1:]} {watch.when(look)}."]
    if row.status is Status.WAITING:
        looks = "once" if row.looks == 1 else f"{row.looks} times"
        return [f"It was looked at {looks} and was not there yet{_note(row)}. That is normal and never counted."], [
            f"The next look is {due}."
        ]
    if row.later_than(now):
        return ["It was set for a later time."], [f"It starts {watch.when(look)}, not before."]
    if stage is not None and stage.external:
        return [f"It was offered to whoever does this stage; their confirmation is awaited{_note(row)}."], [
            f"If nobody confirms it, it is offered again {watch.when(look)}."
        ]
    waits = "It waits for a worker (remote)." if stage is not None and stage.remote else "It waits for a worker."
    if row.status in (Status.PENDING, Status.QUEUED) and look > now:
        # Where workers are called by messages, an item's time is when it would be called again.
        return [waits], [f"A worker is called to it. Should its message be lost, it is called again {watch.when(look)} or soon after."]
    return [waits], [f"It is worked on {due}."]


def _note(row: Row) -> str:
    return f" ({row.note})" if row.note else ""


def _holds(ctx: Context, row: Row, watch: Watch) -> list[str]:
    documents = ctx.ledger.read(HOLD)
    sentences = []
    for name in (scope(row.route), scope(row.route, row.stage), scope(row.route, row.stage, row.lane)):
        if name in documents:
            hold = read_as(Hold, documents[name].value)
            sentences.append(f"{name} is paused by {hold.by} since {watch.at(hold.at)}: {hold.reason}")
    return sentences


def _wants_worker(row: Row, stage: Stage | None, now: int) -> bool:
    return not row.handed_over and (stage is None or stage.ours) and row.look_at is not None and row.look_at <= now


def _missing_worker(ctx: Context, route: str) -> list[str]:
    """Why no worker takes it up: none runs, or those that run have an older version of the route and stand by."""
    workers = [process for process in live_processes(ctx) if "worker" in process.roles]
    if not workers:
        return ["No worker is running now; start one with 'milepost work' or 'milepost up'."]
    standing_by = [process.holder for process in workers if route in process.outdated]
    if len(standing_by) < len(workers):
        return []
    verb = "stands by: it has" if len(standing_by) == 1 else "stand by: they have"
    return [f"{', '.join(standing_by)} {verb} an older version of the route; restart with the present route file."]


def _told(line: Line, ctx: Context, item: Item) -> StoryLine:
    text = sentence(line, ctx, item)
    if unreadable(line) or (line.act is None and (line.note is None or isinstance(line.note, str))):
        return StoryLine(line.at, text, text, line)
    told = isinstance(line.note, dict) and ("because" in line.note or "forced" in line.note)
    bare = replace(line, act=None, note=line.note if told or isinstance(line.note, str) else None)
    return StoryLine(line.at, text, sentence(bare, ctx, item), line)


def _can(row: Row, ctx: Context, stages: list[str]) -> list[str]:
    """The commands that would be accepted now."""
    subject = f"{row.route} {quote(row.key)}"
    if row.status is Status.COMPLETED:
        return [f"milepost rerun {subject} {SIGNED}"]
    if stages and row.stage not in stages:
        return []
    plan = ctx.plans.get(row.route)
    stage = None if plan is None else plan.by_name.get(row.stage)
    verbs: list[str] = []
    if row.later_than(ctx.clock.now()):
        verbs = [f"milepost reschedule {subject} --at TIME {SIGNED}", f"milepost cancel {subject} {SIGNED}"]
        return [*verbs, f"milepost replace {subject} --item JSON {SIGNED}"]
    if row.status not in (Status.PROCESSING, Status.PENDING, Status.QUEUED):
        verbs.append(f"milepost retry {subject} {SIGNED}")
    if stage is not None and stage.external and not row.terminal:
        verbs = []
    if plan is not None and isinstance(operators.resend(Item(row, Content()), plan, ctx.clock.now(), by=""), Change):
        verbs.append(f"milepost resend {subject} {SIGNED}")
    if row.handed_over or (stage is not None and stage.external):
        verbs.append(f"milepost confirm {subject} --stage {row.stage} {SIGNED}")
    if plan is None or plan.route.skips:
        verbs.append(f"milepost skip {subject} {SIGNED}")
    if not row.terminal:
        verbs.append(f"milepost cancel {subject} {SIGNED}")
    return [*verbs, f"milepost replace {subject} --item JSON {SIGNED}"]


def _sealed(route: str, known: KnownKey, watch: Watch) -> Story:
    ended = "" if known.ended_at is None else f" {watch.when(known.ended_at)}"
    where = f"It ended {known.status}{ended}. Its row has been pruned; this is what its seal remembers."
    happens = ["If this key is submitted again it is known, and is not done a second time."]
    return Story(route, known.key, where, [f"The digest of its first input is {known.input_digest.hex()[:16]}…"], happens)


def _unreadable(route: str, key: str, lines: Sequence[HistoryEntry], watch: Watch, warnings: list[str]) -> Story:
    """Its row tells nothing: the last line says where it was."""
    last = lines[-1].line if lines else None
    where = "Nothing is known of where it is."
    if last is not None:
        where = f"By its last line it is at '{last.after_stage}': {last.status}, since {watch.when(last.at)}."
    return Story(route, key, where, next=["Nothing, until its row is put right or restored from a backup."], warnings=warnings)
