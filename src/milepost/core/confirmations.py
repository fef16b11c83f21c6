"""Outcomes from outside: a partner's confirmation, a result message, a person's word. They count like our own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from milepost.core.change import Author, Change, change
from milepost.core.decide import decide, refusal, too_large
from milepost.core.history import Line
from milepost.core.item import Item, Row, canonical_json
from milepost.core.outcome import Done, Outcome, outcome_to_builtins
from milepost.core.routes.plan import Plan
from milepost.core.status import Reason, Status
from milepost.core.values.refusal import Refusal, RefusalKind, impossible

REFUSED = "its answer was refused: "
"""How the note of a row begins whose stage was answered in a way that does not confirm it."""
LARGEST_ANSWER = 2_000
"""Bytes of a refused answer that are kept in the history as they are."""
MOST_REFUSALS = 50
"""After so many refused answers at one stage no more lines are written for them."""


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
) -> Change | Refusal:
    """The write that an outside outcome for a stage leads to, or why there is none. `operator`: a person of ours says so, who answers
    for it. `force`: an operator confirms the item's stage whatever the answer covers; the line then says why it would be refused.

    At the item's stage it is applied, unless a worker holds the item: then it is kept, and beats the worker's outcome.
    For a later stage it is kept until the item gets there. The first valid one wins; a different later one is noted.
    An item that has failed is still moved by a confirmation of its stage: the thing is there after all. One that a person has
    cancelled is moved by no partner, at this stage or later: what a person has decided, only a person changes.
    """
    row = item.row
    stage = plan.by_name.get(stage_name)
    if stage is None:
        return impossible(f"route {plan.name!r} has no stage {stage_name!r}; its stages are {', '.join(plan.by_name)}")
    forced = refusal(outcome.output, stage, item.payload_of(stage_name)) if isinstance(outcome, Done) else None
    if forced is not None and not (force and operator):
        return Refusal(RefusalKind.CONFIRMS_NOTHING, f"{forced}; an operator can confirm it with force" if operator else forced)
    if forced is not None and (stage_name != row.stage or row.status is Status.PROCESSING):
        where = "a worker holds it now" if stage_name == row.stage else f"the item is at {row.stage!r}"
        return impossible(f"{where}: force confirms only the stage that an item is at, while no worker holds it ({forced})")
    large = too_large(outcome)
    if large is not None:
        return impossible(f"this outcome cannot be taken: {large}")
    author: dict[str, Any] = {"by": by, "why": why, "act": act}
    told = outcome_to_builtins(outcome)
    here = plan.position.get(row.stage)
    if here is None:
        return impossible(f"the item is at {row.stage!r}, which is not a stage of this route any more; run 'milepost routes apply'")
    if row.status is Status.COMPLETED or plan.position[stage_name] < here:
        return _second(item, stage_name, outcome, now, author)
    if row.status is Status.CANCELLED and not operator:
        return Refusal(
            RefusalKind.ENDED, f"the item has ended ({row.status}): a person took it off the route, and only a person can bring it back"
        )
    if plan.position[stage_name] > here:
        if stage_name in row.kept:
            return _again(row.kept[stage_name], told, item, now, author)
        return change(
            row, Reason.KEPT, now, row.status, {"kept": {**row.kept, stage_name: told}}, Author(**author), note={"for": stage_name}
        )
    if row.terminal:
        if isinstance(outcome, Done):
            return decide(item, outcome, plan, now, jitter, outside=True, forced=forced, **author)
        return Refusal(RefusalKind.ENDED, f"the item has ended ({row.status}); only a confirmation can still move it")
    if row.status is Status.PROCESSING:
        if row.stage in row.kept:
            return _again(row.kept[row.stage], told, item, now, author)
        return change(row, Reason.KEPT, now, row.status, {"kept": {**row.kept, stage_name: told}}, Author(**author))
    return decide(item, outcome, plan, now, jitter, outside=True, forced=forced, **author)


def refused(item: Item, value: Any, plan: Plan, now: int, jitter: float, *, by: str, why: str | None = None) -> Change | None:
    """The write for an answer that does not confirm the item's stage. None: there is nothing new to write.

    An external stage that awaits its answer waits for a short, growing pause (its `checks`) and is then offered again: who answered
    believes that the work is done. The line is written once for each reason, and at most fifty times at a stage. Elsewhere the
    answer is only noted.
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
    fields = {"look_at": look_at if row.look_at is None else min(look_at, row.look_at), "looks": row.looks + 1, "note": text}
    if row.note == text or row.looks >= MOST_REFUSALS:
        # Said before: the row moves, the history does not grow.
        return Change(row, replace(row, updated_at=now, status=Status.WAITING, **fields))
    return change(row, Reason.NOT_YET, now, Status.WAITING, fields, author, note=note)


def was_refused(row: Row) -> bool:
    """Was the last answer for the row's stage one that confirms nothing?"""
    return row.note is not None and row.note.startswith(REFUSED)


def _bounded(value: Any) -> Any:
    text = canonical_json(value)
    if len(text) <= LARGEST_ANSWER:
        return value
    return {"cut": text[:LARGEST_ANSWER].decode(errors="ignore"), "bytes": len(text), "sha256": sha256(text).hexdigest()}


def too_late(item: Item, stage_name: str, outcome: Outcome, now: int, *, by: str, why: str | None = None) -> Change:
    """A note of what was said of an item that had ended."""
    note = {"for": stage_name, "too late": outcome_to_builtins(outcome)}
    return change(item.row, Reason.NOTED, now, item.row.status, {}, Author(by, why=why), note=note)


def noted_once(decided: Change | Refusal, lines: Callable[[], Iterable[Line]]) -> Change | Refusal:
    """The same, but for a note that something else was said: however often somebody says the same, it is written once. The item's
    `lines` are asked for only then."""
    line = decided.line if isinstance(decided, Change) else None
    if line is None or line.reason is not Reason.NOTED:
        return decided
    note = canonical_json(line.note)
    noted = [old for old in lines() if old.reason is Reason.NOTED]
    refusals = sum(isinstance(old.note, dict) and "confirms nothing" in old.note for old in noted)
    full = isinstance(line.note, dict) and "confirms nothing" in line.note and refusals >= MOST_REFUSALS
    if full or any(old.by == line.by and canonical_json(old.note) == note for old in noted):
        return Refusal(RefusalKind.NOTED_BEFORE, "something else was said of this stage before; that this was said is noted already")
    return decided


def _again(kept: Any, told: Any, item: Item, now: int, author: dict[str, Any]) -> Change | Refusal:
    if canonical_json(kept) == canonical_json(told):
        return Refusal(RefusalKind.KNOWN, "known: this confirmation was given before")
    return change(item.row, Reason.NOTED, now, item.row.status, {}, Author(**author), note={"differs": told})


def _second(item: Item, stage_name: str, outcome: Outcome, now: int, author: dict[str, Any]) -> Change | Refusal:
    """The stage is behind the item already."""
    given = item.results.get(stage_name)
    same = isinstance(outcome, Done) and (outcome.output is True or canonical_json(given) == canonical_json(outcome.output))
    if same:
        return Refusal(RefusalKind.KNOWN, "known: the item is through this stage already")
    note = {"for": stage_name, "differs": outcome_to_builtins(outcome)}
    return change(item.row, Reason.NOTED, now, item.row.status, {}, Author(**author), note=note)
