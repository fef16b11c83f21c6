"""Story of one item in plain sentences: state, reason, history, next step, and possible
commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from shlex import quote

from msgspec import Struct
from msgspec.structs import replace

from milepost.core import operators
from milepost.core.admission.breakers import BreakerState
from milepost.core.admission.controls import Hold
from milepost.core.change import Change
from milepost.core.confirmations import was_refused
from milepost.core.future import from_future
from milepost.core.history import Line, line_sentence
from milepost.core.item import Content, Item, Row
from milepost.core.routes.route import Stage
from milepost.core.status import FAILED, Reason, Status
from milepost.core.values.durations import UNSCHEDULED, moment_ms, retry_time, short_span
from milepost.engine.breakers import BreakerView
from milepost.engine.context import Context
from milepost.engine.known_keys import known_key
from milepost.engine.views.blocks import read_blocks
from milepost.engine.views.items import (
    SIGNED,
    chain_broken_at,
    chain_fault,
    clock_time,
    list_name,
    live_processes,
    stage_names,
    unreadable,
)
from milepost.engine.views.lanes import resume_command
from milepost.engine.views.timestamps import Watch
from milepost.ports.feed import HistoryEntry
from milepost.ports.items import KnownKey, Refused

WAITS = "Waiting for a worker."
WAITS_REMOTE = "Waiting for a remote worker."


class StoryLine(Struct, frozen=True):
    """One history line as a sentence. `short` leaves out what a page shows from the `line`
    itself."""

    at: int
    text: str
    short: str
    line: Line


class Story(Struct, frozen=True):
    """Sentences in reading order."""

    route: str
    key: str
    where: str
    why: list[str] = []
    next: list[str] = []
    happened: list[StoryLine] = []
    can: list[str] = []
    """Commands that are possible now."""
    warnings: list[str] = []


def story(
    ctx: Context, route: str, key: str, form: Callable[[int, int], str] = clock_time
) -> Story | None:
    """The story of one item, or of its seal; None if the key was never seen. `form` formats a
    time."""
    watch, key = Watch(ctx.clock.now(), form), known_key(ctx, route, key)
    [item] = ctx.ledger.get([(route, key)])
    if item is None:
        [known] = ctx.ledger.peek(route, [key])
        return None if known is None else _sealed(route, known, watch)
    lines = ctx.ledger.history(route, key)
    warnings, damaged = list[str](), isinstance(item, Refused)
    if isinstance(item, Refused):
        warnings.append(f"the row cannot be read: {item.reason}")
        if item.row is None:
            return _unreadable(route, key, lines, watch, warnings)
        item = Item(item.row, Content())
    broken = chain_broken_at(ctx, item, lines)
    if broken is not None:
        warnings.append(f"the history has been changed: {chain_fault(broken, lines)}")
    stages = stage_names(ctx, route)
    happened = [_story_line(written.line, ctx, item) for written in lines]
    why, following = _waiting(ctx, item, stages, watch)
    can = _possible_commands(item.row, ctx, stages)
    if damaged:
        # Nothing is decided on an unreadable row; only cancelling needs no more than its position.
        following = [
            "Nothing automatically. Correct the row, or restore it from a backup; see also 'milepost quarantine list'."
        ]
        can = [command for command in can if command.startswith("milepost cancel ")]
    return Story(
        route, key, _where(item.row, stages, watch), why, following, happened, can, warnings
    )


def _where(row: Row, stages: list[str], watch: Watch) -> str:
    since = watch.when(row.entered_at)
    if row.status is Status.COMPLETED:
        took = short_span(row.updated_at - row.created_at)
        return f"COMPLETED {since}, {took} after it was accepted."
    place = f"'{row.stage}'"
    if row.stage in stages:
        place += f" (stage {stages.index(row.stage) + 1} of {len(stages)})"
    if row.terminal:
        return f"Ended at {place}: {row.status}, {row.status.meaning}; {since}."
    if row.later_than(watch.now):
        return f"Scheduled to start at {place} {since}. Accepted {watch.when(row.created_at)}."
    if row.checked:
        return f"At {place}: {row.status} for its next check. The last fixity check was successful, {since}."
    return f"At {place}: {row.status}, {row.status.meaning}. It arrived here {since}."


def _waiting(
    ctx: Context, item: Item, stages: list[str], watch: Watch
) -> tuple[list[str], list[str]]:
    """Why the item waits, and what happens next."""
    row = item.row
    if row.terminal:
        return _when_ended(row, _possible_commands(row, ctx, stages))
    if stages and row.stage not in stages:
        apply = f"milepost routes apply {row.route} --map {row.stage}=STAGE {SIGNED}"
        return [f"The route no longer has the stage '{row.stage}'."], [
            f"Nothing, until it is moved: {apply}"
        ]
    plan = ctx.plans.get(row.route)
    stage = None if plan is None else plan.by_name.get(row.stage)
    why, following = _by_status(row, stage, watch)
    if (
        stage is not None
        and stage.overdue_ms is not None
        and row.entered_at + stage.overdue_ms <= watch.now
    ):
        # By the stage's own mark: the row loses its overdue time once the event has been sent.
        expected = row.entered_at + stage.overdue_ms
        why.insert(
            0, f"Overdue: expected by {watch.at(expected)}, {short_span(watch.now - expected)} ago."
        )
    lost = row.status is Status.PROCESSING and row.holder in ctx.ledger.dead_workers()
    if lost:
        why.append("That worker has died.")
        following = [
            "Another process on this machine takes it back at once; no attempt is counted."
        ]
    blocks = read_blocks(ctx, row)
    breaker = blocks.breaker
    why += [_pause_sentence(name, hold, watch) for name, hold in blocks.pauses]
    if blocks.pauses and row.status is not Status.PROCESSING:
        why = [sentence for sentence in why if sentence not in (WAITS, WAITS_REMOTE)]
        following = [_until_resumed(blocks.pauses)]
    elif breaker is not None:
        why.append(f"{breaker.text[0].upper()}{breaker.text[1:]}.")
        following = [_let_through(breaker, row, watch)]
    if row.losses:
        times = "A worker was" if row.losses == 1 else f"{row.losses} workers were"
        why.append(f"{times} lost while holding it; no attempt is counted for that.")
    if row.unknown:
        why.append("The result of the last attempt is unknown" + _verify(stage))
    why += _kept(row)
    if row.overdue_at is not None and row.overdue_at > watch.now:
        following.append(
            f"If it is still at '{row.stage}' {watch.when(row.overdue_at)}, it is reported as overdue."
        )
    if not blocks.word and (lost or _wants_worker(row, stage, watch.now)):
        following += _missing_worker(ctx, row.route)
    return why, following


def _let_through(breaker: BreakerView, row: Row, watch: Watch) -> str:
    """When an item of a lane with an open breaker is worked on; it waits without using attempts."""
    if breaker.state == BreakerState.OPEN and breaker.retry_at is not None:
        at = watch.when(max(moment_ms(breaker.retry_at, watch.now, "retry_at"), row.look_at or 0))
        return (
            f"It waits, and uses no attempts. The breaker lets the first item through again {at}."
        )
    probes = (
        "an item was let through" if breaker.probes else "the next item that is due is let through"
    )
    return f"It waits, and uses no attempts: {probes} to find out whether the stage works again."


def _verify(stage: Stage | None) -> str:
    if stage is not None and stage.remote:
        return "; the next worker is informed."
    if stage is not None and stage.verify is None:
        return "; the stage has no 'verify', so the work may be done twice."
    return "; 'verify' runs before the next attempt."


def _kept(row: Row) -> list[str]:
    return [
        f"An answer for '{name}' has already arrived and is kept until the item gets there."
        for name in row.kept
        if name != row.stage
    ]


_DECIDED = {
    "retry": "restart it (retry)",
    "confirm": "confirm the stage (confirm)",
    "skip": "skip the stage (skip)",
    "replace": "replace its content (replace)",
}


def _when_ended(row: Row, can: list[str]) -> tuple[list[str], list[str]]:
    why = [] if row.error is None else [f"Last error: {row.error.category}: {row.error.message}"]
    if row.status in FAILED:
        choices = [
            _DECIDED[verb] for verb in (command.split()[1] for command in can) if verb in _DECIDED
        ]
        return why + _kept(row), [
            f"Nothing automatically; an operator decides: {', '.join([*choices, 'or leave it'])}."
        ]
    return why, ["Nothing: it has ended. Its key stays known, so that it is not processed again."]


def _by_status(row: Row, stage: Stage | None, watch: Watch) -> tuple[list[str], list[str]]:
    now, look = watch.now, watch.now if row.look_at is None else row.look_at
    due = watch.when(look) if look > now else "as soon as a worker is free"
    allowed = "" if stage is None else f" of {stage.retry_of(row.lane).attempts}"
    if row.status is Status.PROCESSING:
        since = (
            ""
            if row.claimed_at is None
            else f" since {watch.at(row.claimed_at)} ({short_span(now - row.claimed_at)})"
        )
        why = [f"Worker {row.holder} holds it{since}; this is attempt {row.attempts + 1}{allowed}."]
        if look <= now:
            return why, [f"Its lease expired {watch.when(look)}: the next claim takes it over."]
        return why, [
            f"The worker writes its outcome when done. If the worker dies, the lease expires {watch.when(look)}."
        ]
    if row.status is Status.RETRY_SCHEDULED:
        error = "" if row.error is None else f": {row.error.category}: {row.error.message}"
        if look - now >= UNSCHEDULED:
            due = retry_time(look - now)
        return [f"Attempt {row.attempts}{allowed} failed{error}"], [
            f"Retried {due}: attempt {row.attempts + 1}{allowed}."
        ]
    if row.status is Status.WAITING and row.handed_over:
        return [f"The work was handed over to the partner; waiting for the answer{_note(row)}."], [
            f"Without an answer it counts as a failed attempt {watch.when(look)}."
        ]
    if was_refused(row) and stage is not None and stage.external:
        asked = (
            "the stage is offered again"
            if row.status is Status.WAITING
            else "if not confirmed, it is offered again"
        )
        return [f"The answer did not confirm it: {row.note}."], [
            f"{asked[0].upper()}{asked[1:]} {watch.when(look)}."
        ]
    if row.checked:
        return [f"The last check found everything well{_note(row)}."], [f"The next check is {due}."]
    if row.status is Status.WAITING:
        looks = "once" if row.looks == 1 else f"{row.looks} times"
        return [f"Checked {looks}, not ready yet{_note(row)}. Waiting counts no attempt."], [
            f"The next check is {due}."
        ]
    if row.later_than(now):
        return ["It is scheduled for later."], [f"It starts {watch.when(look)}, not before."]
    if stage is not None and stage.external:
        return [
            f"It was offered to the partner of this stage; waiting for the confirmation{_note(row)}."
        ], [f"If not confirmed, it is offered again {watch.when(look)}."]
    waits = WAITS_REMOTE if stage is not None and stage.remote else WAITS
    if from_future(row, now) and look > now:
        return [waits], [
            "It was dated in the future by a clock that was ahead; the next process that works on the ledger makes it due now."
        ]
    if row.status in (Status.PENDING, Status.QUEUED) and look > now:
        # On ledgers with queues, the due time of a queued item is when its message is sent again.
        return [waits], [
            f"Its message is in the queue. If the message is lost, it is sent again {watch.when(look)} or soon after."
        ]
    return [waits], [f"It runs {due}."]


def _note(row: Row) -> str:
    return f" ({row.note})" if row.note else ""


def _pause_sentence(name: str, hold: Hold, watch: Watch) -> str:
    until = "" if hold.until is None else f", until {watch.at(hold.until)}"
    return f"{name} is paused by {hold.by} since {watch.at(hold.at)}{until}: {hold.reason}"


def _until_resumed(pauses: Sequence[tuple[str, Hold]]) -> str:
    """What ends these pauses, the widest first."""
    commands = ", ".join(resume_command(name) for name, _ in pauses)
    timed = " or the pause ends" if all(hold.until is not None for _, hold in pauses) else ""
    return f"Nothing until it is resumed{timed}; a pause uses no attempts. To resume: {commands}"


def _wants_worker(row: Row, stage: Stage | None, now: int) -> bool:
    return (
        not row.handed_over
        and (stage is None or stage.ours)
        and row.look_at is not None
        and row.look_at <= now
    )


def _missing_worker(ctx: Context, route: str) -> list[str]:
    """Why no worker claims it: none is running, or all stand by with an older version of the
    route."""
    workers = [process for process in live_processes(ctx) if "worker" in process.roles]
    if not workers:
        return ["No worker is running now; start one with 'milepost work' or 'milepost up'."]
    standing_by = [process.holder for process in workers if route in process.outdated]
    if len(standing_by) < len(workers):
        return []
    verb = "stands by: it has" if len(standing_by) == 1 else "stand by: they have"
    return [
        f"{', '.join(standing_by)} {verb} an older version of the route; restart with the current route file."
    ]


def _story_line(line: Line, ctx: Context, item: Item) -> StoryLine:
    text = sentence(line, ctx, item)
    if unreadable(line) or (line.act is None and (line.note is None or isinstance(line.note, str))):
        return StoryLine(line.at, text, text, line)
    in_sentence = isinstance(line.note, dict) and ("because" in line.note or "forced" in line.note)
    bare = replace(
        line, act=None, note=line.note if in_sentence or isinstance(line.note, str) else None
    )
    return StoryLine(line.at, text, sentence(bare, ctx, item), line)


def _possible_commands(row: Row, ctx: Context, stages: list[str]) -> list[str]:
    """Commands that would be accepted now."""
    subject = f"{row.route} {quote(row.key)}"
    if row.status is Status.COMPLETED:
        return [f"milepost rerun {subject} {SIGNED}"]
    if stages and row.stage not in stages:
        return []
    plan = ctx.plans.get(row.route)
    stage = None if plan is None else plan.by_name.get(row.stage)
    verbs: list[str] = []
    if row.later_than(ctx.clock.now()) and not row.terminal:
        verbs = [
            f"milepost reschedule {subject} --at TIME {SIGNED}",
            f"milepost cancel {subject} {SIGNED}",
        ]
        return [*verbs, f"milepost replace {subject} --item JSON {SIGNED}"]
    if row.status not in (Status.PROCESSING, Status.PENDING, Status.QUEUED):
        verbs.append(f"milepost retry {subject} {SIGNED}")
    if stage is not None and stage.external and not row.terminal:
        verbs = []
    if plan is not None and isinstance(
        operators.resend(Item(row, Content()), plan, ctx.clock.now(), by=""), Change
    ):
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
    if known.forgotten:
        where = f"Ended {known.status}{ended}. Its content was removed by 'milepost forget'; this is from its seal."
        return Story(
            route,
            known.key,
            where,
            next=["If this key is submitted again, it is recognised and not processed again."],
        )
    where = f"Ended {known.status}{ended}. Its row has been pruned; this is from its seal."
    happens = ["If this key is submitted again, it is recognised and not processed again."]
    return Story(
        route,
        known.key,
        where,
        [f"The digest of its first input is {known.input_digest.hex()[:16]}…"],
        happens,
    )


def _unreadable(
    route: str, key: str, lines: Sequence[HistoryEntry], watch: Watch, warnings: list[str]
) -> Story:
    """Story of an unreadable row: the last history line tells where it was."""
    last = lines[-1].line if lines else None
    where = "Its position is unknown."
    if last is not None:
        where = f"According to its last history line it is at '{last.after_stage}': {last.status}, since {watch.when(last.at)}."
    return Story(
        route,
        key,
        where,
        next=["Nothing until its row is corrected or restored from a backup."],
        warnings=warnings,
    )


def sentence(line: Line, ctx: Context, item: Item) -> str:
    """One history line as a sentence."""
    if unreadable(line):
        return f"this line cannot be read: {line.note['unreadable']}"
    from_list = item.row.list_id if line.reason is Reason.ACCEPTED else None
    return line_sentence(line, "" if from_list is None else list_name(ctx, from_list) or from_list)
