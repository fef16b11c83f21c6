"""What people may do to items. Each verb is a pure rule: the change, or a sentence that says why not."""

from __future__ import annotations

from typing import Any

from milepost.core.change import Change, Fields, Teller, change
from milepost.core.decide import enter, pass_on
from milepost.core.due import resent
from milepost.core.failing import end
from milepost.core.item import Item
from milepost.core.outcome import Done
from milepost.core.plan import Plan
from milepost.core.status import FAILED, Reason, Status

VERBS = ("retry", "skip", "confirm", "cancel", "resend")


def retry(item: Item, plan: Plan, now: int, *, stage: str | None = None, as_new: bool = False, **teller: Any) -> Change | str:
    """Start the item's stage again (or send it back to an earlier one): counts return to zero, the round rises.

    Confirmations of what is done again (the stage itself, or all if it is sent back) move into the history in the same write;
    one that came early for a later stage still waits for the item.
    """
    row = item.row
    if row.status is Status.COMPLETED:
        return "it is COMPLETED; a finished item is not sent again"
    if row.status is Status.PROCESSING:
        return "a worker holds it now; wait for its outcome, or cancel it first"
    target = plan.by_name.get(stage or row.stage)
    if target is None:
        return f"route {plan.name!r} has no stage {stage or row.stage!r}; its stages are {', '.join(plan.by_name)}"
    here = plan.position.get(row.stage, len(plan.stages))
    if plan.position[target.name] > here:
        return f"it has not reached {target.name!r} yet; use skip to move it forward"
    back = plan.position[target.name] < here
    pass_no = row.pass_no + 1 if back or as_new else row.pass_no
    status, fields, offered = enter(item, target, now, pass_no=pass_no)
    fields["round"] = 1 if back else row.round + 1
    # The same work again: if nobody knows whether it was done, verify asks first.
    fields["unknown"] = row.unknown and not back and not as_new
    note = None
    stale = row.kept if back or as_new else {name: told for name, told in row.kept.items() if name == target.name}
    if stale:
        fields["kept"], note = {name: told for name, told in row.kept.items() if name not in stale}, {"kept": stale}
        fields["look_at"] = now + (target.offer_life_ms if status is Status.QUEUED else target.grace_ms)
    to = target.name if back else None
    return change(row, Reason.OPERATOR_RETRY, now, status, fields, Teller(**teller), to=to, offered=offered, note=note)


def skip(item: Item, plan: Plan, now: int, **teller: Any) -> Change | str:
    """Past this stage without its work being done."""
    row = item.row
    if row.status is Status.COMPLETED:
        return "it is COMPLETED; there is no stage to skip"
    if row.stage not in plan.by_name:
        return f"it is at {row.stage!r}, which is not a stage of this route any more; run 'milepost routes apply'"
    if not plan.route.skips:
        return f"route {plan.name!r} lets nobody skip a stage; if its work is done, confirm it: milepost confirm … --stage {row.stage}"
    return pass_on(item, Done(), plan, now, Reason.SKIPPED, Teller(**teller))


def cancel(item: Item, plan: Plan, now: int, **teller: Any) -> Change | str:
    """Off the route. A worker that still holds the item will find its outcome refused."""
    row = item.row
    if row.terminal:
        return f"it has ended already ({row.status})"
    fields = end(now)
    fields["unknown"] = row.unknown or row.status is Status.PROCESSING
    return change(row, Reason.CANCELLED, now, Status.CANCELLED, fields, Teller(**teller))


def resend(item: Item, plan: Plan, now: int, **teller: Any) -> Change | str:
    """Offer the item's external stage again now."""
    row = item.row
    stage = plan.by_name.get(row.stage)
    if stage is None or not stage.external or row.status not in (Status.QUEUED, Status.WAITING, Status.RETRY_SCHEDULED):
        return f"it is {row.status} at {row.stage!r}; only an external stage that waits for its answer can be sent again"
    return resent(row, stage, now, **teller)


def move(item: Item, plan: Plan, to: str | None, now: int, **teller: Any) -> Change | str:
    """A route has changed: an item at a stage that is gone comes to the stage named instead, or ends if `to` is None."""
    row = item.row
    if row.status is Status.COMPLETED or (row.terminal and row.status not in FAILED | {Status.CANCELLED}):
        return "it has ended already"
    if to is None:
        if row.terminal:
            return "it has ended already"
        return change(row, Reason.CANCELLED, now, Status.CANCELLED, end(now), Teller(**teller))
    status, fields, offered = enter(item, plan.by_name[to], now)
    if row.terminal:
        # A failed item keeps its end; only its place is renamed, so that it can be found and retried.
        place: Fields = {"stage": to, "lane": fields["lane"]}
        return change(row, Reason.NOTED, now, row.status, place, Teller(**teller), to=to, note={"moved": row.stage})
    return change(row, Reason.MOVED, now, status, fields, Teller(**teller), to=to, offered=offered)


def back_fill(item: Item, plan: Plan, to: str, now: int, **teller: Any) -> Change | str:
    """A finished item goes on to a stage that was added after it had finished."""
    if item.row.status is not Status.COMPLETED:
        return f"it is {item.row.status}; only finished items are back-filled"
    status, fields, offered = enter(item, plan.by_name[to], now)
    fields["again"] = True
    return change(item.row, Reason.BACK_FILL, now, status, fields, Teller(**teller), to=to, offered=offered)
