"""Looking at a back-fill: what one would come to, and how far one has come."""

from __future__ import annotations

from math import ceil
from typing import Any

from msgspec import Struct

from milepost.core.admission.controls import scope
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost.core.values.durations import iso
from milepost.engine.context import Context
from milepost.engine.evidence.restore import can_bring_back
from milepost.ports.documents import BACK_FILL, HOLD, ROUTE, BackFill, RouteVersion, read_as
from milepost.ports.ledger import Ledger

SEALS = 500
COUNTED = 100_000
"""So many keys whose rows have left are counted; where there are more, that is said."""


class Preview(Struct, frozen=True):
    """What sending finished items on to a stage comes to."""

    stage: str
    items: int
    """Finished items, as far as the ledger's counters know."""
    pace: float | None
    """Items a second; None: all at once."""
    takes_ms: int | None
    again: tuple[str, ...] = ()
    """Stages after it, which they go through again."""
    sealed: int = 0
    """Finished keys whose rows have left."""
    sealed_more: bool = False
    """There are more of these than were counted."""
    brings_back: bool = False
    """The ledger takes rows back: at a pace those rows are brought back first, where their input and results are still on record.
    Elsewhere they cannot be sent on: what is kept of them proves what was done, and does not hold their input."""


def preview(ledger: Ledger, plan: Plan, stage: str, pace: float | None, *, with_seals: bool) -> Preview:
    """What there is to be sent on; counting the keys whose rows have left takes a walk along the seals."""
    items = finished_items(ledger, plan.name)
    sealed, more = _sealed(ledger, plan.name) if with_seals else (0, False)
    again = tuple(one.name for one in plan.stages[plan.position[stage] + 1 :])
    back = can_bring_back(ledger)
    return Preview(stage, items, pace, None if pace is None else _takes(items + sealed * back, pace), again, sealed, more, back)


def finished_items(ledger: Ledger, route: str) -> int:
    return max(0, sum(count.n for count in ledger.counts(route) if count.status is Status.COMPLETED))


def to_be_sent(ledger: Ledger, route: str) -> int:
    """How many a paced back-fill has to look at, as far as they were counted."""
    return finished_items(ledger, route) + (_sealed(ledger, route)[0] if can_bring_back(ledger) else 0)


def _takes(items: int, pace: float) -> int:
    return ceil(items / pace * 1000)


def _sealed(ledger: Ledger, route: str) -> tuple[int, bool]:
    found, after = 0, None
    while True:
        seals, after = ledger.sealed(route, after, SEALS)
        found += sum(known.status is Status.COMPLETED for known in seals)
        if after is None or found >= COUNTED:
            return found, after is not None


def sent(there: BackFill) -> str:
    """What is done to the finished items, in front of the stage's name."""
    return "sent on to" if there.rerun is None else "run again from"


def left(there: BackFill) -> int:
    """How many are still to be looked at."""
    return 0 if there.finished_at is not None else max(0, there.total - there.done - there.passed)


def hindrance(ctx: Context, route: str, there: BackFill) -> str | None:
    """What keeps it from going on, whoever tries. A pause of the route or of the stage holds it too."""
    version = ctx.ledger.read_one(ROUTE, route)
    if version is None or all(name != there.stage for name, _ in read_as(RouteVersion, version.value).shape):
        return f"the route has no stage {there.stage!r} any more"
    holds = ctx.ledger.read(HOLD)
    return next((f"{name} is paused" for name in (scope(route), scope(route, there.stage)) if name in holds), None)


def view(ctx: Context, route: str) -> dict[str, Any] | None:
    """A route's last back-fill for programs; None if it never had a paced one."""
    held = ctx.ledger.read_one(BACK_FILL, route)
    if held is None:
        return None
    there, now = read_as(BackFill, held.value), ctx.clock.now()
    state = "finished" if there.finished_at is not None else "stopped" if there.stopped_at is not None else "under way"
    return {
        "route": route,
        "verb": "back-fill" if there.rerun is None else "rerun",
        "stage": there.stage,
        "state": state,
        "done": there.done,
        "left": left(there),
        "passed_over": there.passed,
        "waits": hindrance(ctx, route, there) if there.under_way else None,
        "pace_per_s": there.pace,
        "eta": iso(now + _takes(left(there), there.pace)) if there.under_way else None,
        "since": iso(there.at),
        "by": there.by,
        "reason": there.reason,
        "act": there.act,
        "stopped_at": iso(there.stopped_at),
        "stopped_by": there.stopped_by or None,
        "stopped_why": there.stopped_why or None,
        "finished_at": iso(there.finished_at),
    }
