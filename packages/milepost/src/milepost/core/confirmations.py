"""Confirmations: outcomes from a partner, a result message or an operator. They count like outcomes
of our own workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from milepost.core.change import Author, Change, change
from milepost.core.decide import decide, refusal, too_large
from milepost.core.history import Line
from milepost.core.item import Item, Row
from milepost.core.outcome import Done, Outcome, outcome_from_builtins, outcome_to_builtins
from milepost.core.routes.plan import Plan
from milepost.core.status import Reason, Status
from milepost.core.values.json import canonical_json
from milepost.core.values.refusal import Refusal, RefusalKind, impossible

REFUSED = "its answer was refused: "
"""Beginning of the row's note after an answer that does not confirm its stage."""
LARGEST_ANSWER = 2_000
"""A refused answer of more bytes is cut in the history."""
MOST_REFUSALS = 50
"""Maximum lines for refused answers at one stage."""


def confirm(
    item: Item,
    stage_name: str,
    outcome: Outcome,
    plan: Plan,
    now: int,
    jitter: float,
    *,
    by: str,
    why: str | None = None,
    act: str | None = None,
    operator: bool = False,
    force: bool = False,
    awaited: bool = False,
) -> Change | Refusal:
    """The change for an outcome from outside, or why there is none. `operator`: an operator gave it
    and is responsible for it. `force`: an operator confirms the item's stage although the answer
    would be refused; the line then has the reason of that refusal. `awaited`: a failure counts only
    while the stage awaits its answer; otherwise it is noted.

    At the item's stage it is applied, unless a worker has claimed the item: then it is kept and
    takes precedence over the worker's outcome. For a later stage it is kept until the item gets
    there. The first valid one wins; a different later one is noted. A confirmation of the stage at
    which an item failed still moves it. It does not move a cancelled item: only an operator does.
    """
    row = item.row
    stage = plan.by_name.get(stage_name)
    if stage is None:
        return impossible(plan.unknown_stage(stage_name))
    forced = (
        refusal(outcome.output, stage, item.payload_of(stage_name))
        if isinstance(outcome, Done)
        else None
    )
    if forced is not None and not (force and operator):
        return Refusal(
            RefusalKind.CONFIRMS_NOTHING,
            f"{forced}; an operator can confirm it with force" if operator else forced,
        )
    if forced is not None and (stage_name != row.stage or row.status is Status.PROCESSING):
        where = (
            "a worker has claimed it"
            if stage_name == row.stage
            else f"the item is at {row.stage!r}"
        )
        return impossible(
            f"{where}: force confirms only the item's present stage, and only while no worker has claimed it ({forced})"
        )
    large = too_large(outcome)
    if large is not None:
        return impossible(f"this outcome is too large: {large}")
    author = Author(by, why=why, act=act)
    here = plan.position.get(row.stage)
    if here is None:
        return impossible(
            f"the item is at {row.stage!r}, which is no longer a stage of this route; run 'milepost routes apply'"
        )
    if row.status is Status.COMPLETED or plan.position[stage_name] < here:
        return _for_left_stage(item, stage_name, outcome, now, author)
    if row.status is Status.CANCELLED and not operator:
        return Refusal(
            RefusalKind.ENDED,
            f"the item has ended ({row.status}): an operator cancelled it, and only an operator can start it again",
        )
    if plan.position[stage_name] > here or row.status is Status.PROCESSING:
        return _kept(row, stage_name, outcome, now, author)
    if row.terminal and not isinstance(outcome, Done):
        return Refusal(
            RefusalKind.ENDED,
            f"the item has ended ({row.status}); only a confirmation can still move it",
        )
    if awaited and not row.handed_over and not isinstance(outcome, Done):
        note = {"for": stage_name, "not awaited": outcome_to_builtins(outcome)}
        return change(row, Reason.NOTED, now, row.status, {}, author, note=note)
    return decide(
        item, outcome, plan, now, jitter, by=by, why=why, act=act, outside=True, forced=forced
    )


def refused(
    item: Item, value: Any, plan: Plan, now: int, jitter: float, *, by: str, why: str | None = None
) -> Change | None:
    """The change for an answer that does not confirm the item's stage. None: there is nothing new
    to write.

    An external stage that awaits its answer pauses for a short, growing time (its `checks`) and is
    then offered again, because the partner believes that the work is done. One line is written per
    reason, at most fifty at a stage. At other stages the answer is only noted.
    """
    row, stage = item.row, plan.by_name[item.stage]
    reason = refusal(value, stage, item.payload)
    note = {"for": row.stage, "confirms nothing": _bounded(value), "because": reason}
    author = Author(by, why=why)
    if not stage.external or row.handed_over or row.status not in (Status.QUEUED, Status.WAITING):
        return change(row, Reason.NOTED, now, row.status, {}, author, note=note)
    text = f"{REFUSED}{reason}"
    if row.status is Status.WAITING and row.note == text:
        return None
    look_at = row.not_earlier(now + stage.checks.after_ms(row.looks, jitter))
    fields = {
        "look_at": look_at if row.look_at is None else min(look_at, row.look_at),
        "looks": row.looks + 1,
        "note": text,
    }
    if row.note == text or row.looks >= MOST_REFUSALS:
        # A repeat: the row changes, the history does not grow.
        return Change(row, replace(row, updated_at=now, status=Status.WAITING, **fields))
    return change(row, Reason.NOT_YET, now, Status.WAITING, fields, author, note=note)


def was_refused(row: Row) -> bool:
    """Whether the last answer for the row's stage did not confirm it."""
    return row.note is not None and row.note.startswith(REFUSED)


def _bounded(value: Any) -> Any:
    """The value; if it is large, its beginning, size and digest."""
    text = canonical_json(value)
    if len(text) <= LARGEST_ANSWER:
        return value
    return {
        "cut": text[:LARGEST_ANSWER].decode(errors="ignore"),
        "bytes": len(text),
        "sha256": sha256(text).hexdigest(),
    }


def too_late(
    item: Item, stage_name: str, outcome: Outcome, now: int, *, by: str, why: str | None = None
) -> Change:
    """A note of a confirmation that came after the item had ended."""
    note = {"for": stage_name, "too late": outcome_to_builtins(outcome)}
    return change(item.row, Reason.NOTED, now, item.row.status, {}, Author(by, why=why), note=note)


def noted_once(decided: Change | Refusal, lines: Callable[[], Iterable[Line]]) -> Change | Refusal:
    """The same decision, unless it is a note that the history already has: then a refusal. `lines`
    is called only for a note."""
    line = decided.line if isinstance(decided, Change) else None
    if line is None or line.reason is not Reason.NOTED:
        return decided
    note = canonical_json(line.note)
    noted = [old for old in lines() if old.reason is Reason.NOTED]
    refusals = sum(isinstance(old.note, dict) and "confirms nothing" in old.note for old in noted)
    full = (
        isinstance(line.note, dict)
        and "confirms nothing" in line.note
        and refusals >= MOST_REFUSALS
    )
    if full or any(old.by == line.by and canonical_json(old.note) == note for old in noted):
        return Refusal(
            RefusalKind.NOTED_BEFORE,
            "this stage has another confirmation; this one is already noted",
        )
    return decided


def _kept(
    row: Row, stage_name: str, outcome: Outcome, now: int, author: Author
) -> Change | Refusal:
    """Keep a confirmation until the item is ready for it; a second one of the stage is known, or
    noted."""
    given = {**outcome_to_builtins(outcome), "by": author.by}
    if stage_name not in row.kept:
        note = None if stage_name == row.stage else {"for": stage_name}
        return change(
            row,
            Reason.KEPT,
            now,
            row.status,
            {"kept": {**row.kept, stage_name: given}},
            author,
            note=note,
        )
    if outcome_from_builtins(row.kept[stage_name]) == outcome:
        return Refusal(RefusalKind.KNOWN, "known: the same confirmation was given before")
    return change(
        row,
        Reason.NOTED,
        now,
        row.status,
        {},
        author,
        note={"differs": outcome_to_builtins(outcome)},
    )


def _for_left_stage(
    item: Item, stage_name: str, outcome: Outcome, now: int, author: Author
) -> Change | Refusal:
    """The answer to a confirmation of a stage that the item has already left."""
    given = item.results.get(stage_name)
    if isinstance(outcome, Done) and (
        outcome.output is True or canonical_json(given) == canonical_json(outcome.output)
    ):
        return Refusal(RefusalKind.KNOWN, "known: the item has completed this stage")
    note = {"for": stage_name, "differs": outcome_to_builtins(outcome)}
    return change(item.row, Reason.NOTED, now, item.row.status, {}, author, note=note)
