"""Operators' acts on items. Each is a pure rule that returns the change, or a refusal that says why
there is none."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from milepost.core.change import Author, Change, Fields, also, change, end
from milepost.core.decide import arrive, entry_state, pass_on
from milepost.core.due import resent
from milepost.core.item import Content, Item, Put, Row, digest_of, work_id_of
from milepost.core.outcome import Done
from milepost.core.routes.plan import Plan
from milepost.core.status import FAILED, Reason, Status
from milepost.core.values.durations import iso
from milepost.core.values.refusal import Refusal, RefusalKind, impossible

VERBS = ("retry", "skip", "confirm", "cancel", "resend", "rerun", "replace", "reschedule")


def _stage_removed(row: Row) -> Refusal:
    return impossible(
        f"it is at {row.stage!r}, which is no longer a stage of this route; run 'milepost routes apply'"
    )


def retry(
    item: Item,
    plan: Plan,
    now: int,
    *,
    stage: str | None = None,
    as_new: bool = False,
    **author: Any,
) -> Change | Refusal:
    """Start the item's stage again, or send it back to an earlier one. Its counts return to zero,
    and the round rises by one. One that was cancelled before the time at which it may start waits
    for that time.

    Confirmations of repeated work (of the stage, or all if it is sent back) move into the history
    in the same write; an early one for a later stage still waits for the item.
    """
    row = item.row
    if row.status is Status.COMPLETED:
        return impossible("it is COMPLETED; to run it again use rerun")
    if row.later_than(now) and not row.terminal:
        return impossible(
            f"it must not start before {iso(row.not_before)}; to start it now use reschedule"
        )
    if row.status is Status.PROCESSING:
        return impossible("a worker has claimed it; wait for its outcome, or cancel it first")
    target = plan.by_name.get(stage or row.stage)
    if target is None:
        return impossible(plan.unknown_stage(stage or row.stage))
    here = plan.position.get(row.stage, len(plan.stages))
    if plan.position[target.name] > here:
        return impossible(f"it has not reached {target.name!r} yet; use skip to move it forward")
    back = plan.position[target.name] < here
    pass_no = row.pass_no + 1 if back or as_new else row.pass_no
    stale = (
        row.kept
        if back or as_new
        else {name: given for name, given in row.kept.items() if name == target.name}
    )
    kept = (
        {name: given for name, given in row.kept.items() if name not in stale}
        if stale
        else row.kept
    )
    note = {"kept": stale} if stale else None
    arrived = arrive(
        item,
        target,
        now,
        Reason.OPERATOR_RETRY,
        Author(**author),
        pass_no=pass_no,
        kept=kept,
        note=note,
    )
    # The same work again: if its result is unknown, or a partner still has it, `verify` runs first.
    unknown = (row.unknown or row.handed_over) and not back and not as_new
    return also(arrived, round=1 if back else row.round + 1, unknown=unknown)


def rerun(
    item: Item,
    plan: Plan,
    now: int,
    *,
    stage: str | None = None,
    as_new: bool = False,
    **author: Any,
) -> Change | Refusal:
    """Run a finished item again from a stage: the route's first if none is named.

    Work on a stage that the item has left gets a new work_id. At the last stage, where a completed
    item is, it keeps the old one, so that a partner recognises the repeat, unless `as_new`.
    """
    row = item.row
    if row.status is not Status.COMPLETED:
        return impossible(
            f"it is {row.status} at {row.stage!r}; only a COMPLETED item can be run again"
            + (": use retry" if row.terminal else "; wait for its end, or use retry")
        )
    target = plan.first if stage is None else plan.by_name.get(stage)
    if target is None:
        return impossible(plan.unknown_stage(stage))
    back = target.name != row.stage
    pass_no = row.pass_no + 1 if back or as_new else row.pass_no
    note = {"kept": row.kept} if row.kept else None
    arrived = arrive(
        item, target, now, Reason.RERUN, Author(**author), pass_no=pass_no, kept={}, note=note
    )
    return also(arrived, round=1 if back else row.round + 1, again=True)


def replace(
    item: Item,
    plan: Plan,
    now: int,
    *,
    content: Any,
    digest: bytes,
    old: Any,
    here: bool = False,
    rerun: bool = False,
    **author: Any,
) -> Change | Refusal:
    """Give the item other content; it starts again at the route's first stage, or, with `here`, at
    its own.

    Work on the old content is void: a worker's outcome is refused, kept confirmations move into the
    history, and the work has a new work_id. `old` is the old content as kept in the history line
    (see `engine.acts`). A COMPLETED item is replaced only if it is to run again with the new
    content (`rerun`).
    """
    row = item.row
    if digest == row.current_digest:
        return Refusal(RefusalKind.UNCHANGED, "it has this content already; nothing was changed")
    if row.status is Status.COMPLETED and not rerun:
        return impossible("it is COMPLETED; to run it again with other content, add rerun")
    target = plan.by_name.get(row.stage) if here else plan.first
    if target is None:
        return _stage_removed(row)
    # Where the content itself names the time before which the item does not start, the new
    # content's counts.
    start = row.not_before if plan.route.not_before is None else plan.route.start_of(content, now)
    renewed = Item(
        structs.replace(row, not_before=start),
        Content(content, item.content.payloads, item.content.results),
    )
    note: dict[str, Any] = {
        "replaced": {"digest": row.current_digest.hex(), "by_digest": digest.hex(), **old}
    }
    if row.kept:
        note["kept"] = row.kept
    first = plan.position[target.name]
    stale = [name for name in item.content.results if plan.position.get(name, -1) >= first]
    puts = (Put("input", "", content), *(Put("result", name, None) for name in stale))
    if target.name in item.content.payloads and (
        target is plan.first or digest_of(item.payload_of(target.name)) == row.current_digest
    ):
        # The stage's payload was the input: now it is the new one. Payloads made by earlier stages
        # stay.
        puts = (*puts, Put("payload", target.name, content))
    arrived = arrive(
        renewed,
        target,
        now,
        Reason.REPLACED,
        Author(**author),
        pass_no=row.pass_no + 1,
        kept={},
        note=note,
        puts=puts,
    )
    return structs.replace(
        also(arrived, content_digest=None if digest == row.input_digest else digest, again=False),
        before=row,
    )


def reschedule(
    item: Item, plan: Plan, now: int, *, not_before: int, **author: Any
) -> Change | Refusal:
    """Move the time before which an item does not start; a time that is past lets it start at
    once."""
    row = item.row
    stage = plan.by_name.get(row.stage)
    if stage is None:
        return _stage_removed(row)
    if row.status is Status.QUEUED and stage.external:
        return impossible(
            f"it was already offered to {row.stage!r}; cancel it, or wait for the answer"
        )
    if row.status not in (Status.PENDING, Status.QUEUED):
        cancelled = row.terminal and row.status is not Status.COMPLETED and row.later_than(now)
        first = ": use retry first, and it waits for its time again" if cancelled else ""
        return impossible(
            f"it is {row.status} at {row.stage!r}; only an item that has not started can be rescheduled{first}"
        )
    if not_before == row.not_before:
        return Refusal(RefusalKind.UNCHANGED, "it already has this start time; nothing was changed")
    status, look_at, entered_at, later = entry_state(stage, now, not_before)
    fields: Fields = {"look_at": look_at, "entered_at": entered_at, "not_before": later}
    fields["overdue_at"] = None if stage.overdue_ms is None else entered_at + stage.overdue_ms
    offered = work_id_of(row) if stage.external and status is Status.QUEUED else None
    note = {"not_before": iso(not_before) if not_before > now else None}
    return change(
        row, Reason.RESCHEDULED, now, status, fields, Author(**author), offered=offered, note=note
    )


def skip(item: Item, plan: Plan, now: int, **author: Any) -> Change | Refusal:
    """Move the item past its stage without running it."""
    row = item.row
    if row.status is Status.COMPLETED:
        return impossible("it is COMPLETED; there is no stage to skip")
    if row.stage not in plan.by_name:
        return _stage_removed(row)
    if not plan.route.skips:
        return impossible(
            f"route {plan.name!r} does not allow skipping a stage; if its work is done, confirm it: milepost confirm … --stage {row.stage}"
        )
    return pass_on(item, Done(), plan, now, Reason.SKIPPED, Author(**author))


def cancel(item: Item, plan: Plan, now: int, **author: Any) -> Change | Refusal:
    """Take the item off the route. A failed one, too: it then leaves the lists of failures. The
    outcome of a worker that still holds the item will be refused."""
    row = item.row
    if row.terminal and row.status not in FAILED:
        return impossible(f"it has already ended ({row.status})")
    cancelled = end(row, Reason.CANCELLED, now, Status.CANCELLED, Author(**author), row.error)
    return also(
        cancelled, unknown=row.unknown or row.handed_over or row.status is Status.PROCESSING
    )


def resend(item: Item, plan: Plan, now: int, **author: Any) -> Change | Refusal:
    """Offer the item's stage again now: an external one to its partner, one of ours to its workers.
    No try is counted.

    Where work was handed over and its answer is awaited, the handler runs again, after `verify` has
    checked whether that is needed.
    """
    row = item.row
    stage = plan.by_name.get(row.stage)
    if stage is None:
        return _stage_removed(row)
    if row.terminal:
        return impossible(
            f"it has already ended ({row.status})"
            + ("; to run it again use rerun" if row.status is Status.COMPLETED else ": use retry")
        )
    if row.later_than(now):
        return impossible(
            f"it must not start before {iso(row.not_before)}; to start it now use reschedule"
        )
    if row.status is Status.PROCESSING:
        return impossible("a worker has claimed it; wait for its outcome")
    if row.status is Status.PENDING:
        return impossible(f"it has just reached {row.stage!r} and will be offered in a moment")
    if (
        not stage.external
        and row.status is Status.QUEUED
        and (row.look_at or now) <= now
        and not stage.offer_life_ms
    ):
        return impossible("it waits for the next free worker; there is no message to send again")
    return resent(row, stage, now, **author)


def move(item: Item, plan: Plan, to: str | None, now: int, **author: Any) -> Change | Refusal:
    """Move an item from a stage that its route no longer has to the stage `to`; None: cancel it."""
    row = item.row
    if row.status is Status.COMPLETED or (
        row.terminal and row.status not in FAILED | {Status.CANCELLED}
    ):
        return impossible("it has already ended")
    if to is None:
        if row.terminal:
            return impossible("it has already ended")
        return end(row, Reason.CANCELLED, now, Status.CANCELLED, Author(**author), row.error)
    if row.terminal:
        # A failed item stays ended; only its stage changes, so that it can be found and retried.
        place: Fields = {"stage": to, "lane": plan.by_name[to].lane_of(item.input)}
        return change(
            row,
            Reason.NOTED,
            now,
            row.status,
            place,
            Author(**author),
            to=to,
            note={"moved": row.stage},
        )
    return arrive(item, plan.by_name[to], now, Reason.MOVED, Author(**author))


def note(
    item: Item, now: int, *, text: str, data: Any = None, version: int | None = None, **author: Any
) -> Change | Refusal:
    """Add a line that changes nothing but the history, to an item with any status. `data` is kept
    with the text, for programs. `version`: only if the item has had no other line since."""
    row = item.row
    if version is not None and row.version != version:
        return Refusal(
            RefusalKind.CHANGED_SINCE,
            f"it has changed since: its version is {row.version}, not {version}",
        )
    return change(
        row,
        Reason.NOTED,
        now,
        row.status,
        {},
        Author(**author),
        note=text if data is None else {"text": text, "data": data},
    )


def back_fill(item: Item, plan: Plan, to: str, now: int, **author: Any) -> Change | Refusal:
    """Send a completed item to a stage that was added after it had completed."""
    if item.row.status is not Status.COMPLETED:
        return impossible(f"it is {item.row.status}; only completed items can be back-filled")
    return also(arrive(item, plan.by_name[to], now, Reason.BACK_FILL, Author(**author)), again=True)
