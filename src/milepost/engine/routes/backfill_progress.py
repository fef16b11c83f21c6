"""Preview and progress of a back-fill."""

from __future__ import annotations

from math import ceil
from typing import Any

from msgspec import Struct

from milepost.core.admission.controls import scope
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost.core.values.durations import iso
from milepost.engine.context import Context
from milepost.engine.evidence.restore import can_restore
from milepost.ports.documents import BACK_FILL, HOLD, ROUTE, BackFill, RouteVersion, read_versioned
from milepost.ports.ledger import Ledger

SEALS = 500
COUNTED = 100_000
"""Most keys of removed rows that are counted; the view says if there are more."""


class Preview(Struct, frozen=True):
    """Expected effect of sending finished items to a stage."""

    stage: str
    items: int
    """Finished items according to the counters."""
    pace: float | None
    """Items per second; None: all at once."""
    takes_ms: int | None
    again: tuple[str, ...] = ()
    """Later stages, which the items pass again."""
    sealed: int = 0
    """Finished keys whose rows were removed."""
    sealed_more: bool = False
    """There are more of these than were counted."""
    brings_back: bool = False
    """The ledger can restore rows: at a pace, removed rows are restored first if their input and results are still recorded. Otherwise they
    cannot be sent, because evidence does not contain the input."""


def preview(ledger: Ledger, plan: Plan, stage: str, pace: float | None, *, with_seals: bool) -> Preview:
    """Preview of a back-fill; counting removed rows reads the seals."""
    items = finished_items(ledger, plan.name)
    sealed, more = _sealed(ledger, plan.name) if with_seals else (0, False)
    again = tuple(one.name for one in plan.stages[plan.position[stage] + 1 :])
    back = can_restore(ledger)
    return Preview(stage, items, pace, None if pace is None else _takes(items + sealed * back, pace), again, sealed, more, back)


def finished_items(ledger: Ledger, route: str) -> int:
    return max(0, sum(count.n for count in ledger.counts(route) if count.status is Status.COMPLETED))


def to_be_sent(ledger: Ledger, route: str) -> int:
    """Number of items that a paced back-fill has to check, as far as counted."""
    return finished_items(ledger, route) + (_sealed(ledger, route)[0] if can_restore(ledger) else 0)


def _takes(items: int, pace: float) -> int:
    return ceil(items / pace * 1000)


def _sealed(ledger: Ledger, route: str) -> tuple[int, bool]:
    """Number of completed keys whose rows have left, and whether there are more than were counted."""
    found, after = 0, None
    while True:
        seals, after = ledger.sealed(route, after, SEALS)
        found += sum(known.status is Status.COMPLETED for known in seals)
        if after is None or found >= COUNTED:
            return found, after is not None


def sent(back_fill: BackFill) -> str:
    """Verb in front of the stage's name."""
    return "sent to" if back_fill.rerun is None else "run again from"


def left(back_fill: BackFill) -> int:
    """Number of items still to be checked."""
    return 0 if back_fill.finished_at is not None else max(0, back_fill.total - back_fill.done - back_fill.passed)


def hindrance(ctx: Context, route: str, back_fill: BackFill) -> str | None:
    """Why no process can continue it, or None. A pause of the route or stage also stops it."""
    version, _ = read_versioned(ctx.ledger, ROUTE, route, RouteVersion)
    if version is None or all(name != back_fill.stage for name, _ in version.shape):
        return f"the route no longer has the stage {back_fill.stage!r}"
    holds = ctx.ledger.read(HOLD)
    return next((f"{name} is paused" for name in (scope(route), scope(route, back_fill.stage)) if name in holds), None)


def view(ctx: Context, route: str) -> dict[str, Any] | None:
    """The route's last paced back-fill as JSON, or None."""
    back_fill, _ = read_versioned(ctx.ledger, BACK_FILL, route, BackFill)
    if back_fill is None:
        return None
    now = ctx.clock.now()
    state = "finished" if back_fill.finished_at is not None else "stopped" if back_fill.stopped_at is not None else "under way"
    return {
        "route": route,
        "verb": "back-fill" if back_fill.rerun is None else "rerun",
        "stage": back_fill.stage,
        "state": state,
        "done": back_fill.done,
        "left": left(back_fill),
        "passed_over": back_fill.passed,
        "waits": hindrance(ctx, route, back_fill) if back_fill.under_way else None,
        "pace_per_s": back_fill.pace,
        "eta": iso(now + _takes(left(back_fill), back_fill.pace)) if back_fill.under_way else None,
        "since": iso(back_fill.at),
        "by": back_fill.by,
        "reason": back_fill.reason,
        "act": back_fill.act,
        "stopped_at": iso(back_fill.stopped_at),
        "stopped_by": back_fill.stopped_by or None,
        "stopped_why": back_fill.stopped_why or None,
        "finished_at": iso(back_fill.finished_at),
    }
