"""Description of a route: stages, version, and the difference between its file and the ledger."""

from __future__ import annotations

from typing import Any

from milepost.core.values.durations import iso
from milepost.engine.context import Context
from milepost.engine.routes.backfill_progress import view
from milepost.engine.routes.versions import compare
from milepost.ports.documents import ROUTE, RouteVersion, read_as


def route_view(ctx: Context, name: str) -> dict[str, Any]:
    """One route as JSON. `cure`: the command that puts a changed file into force."""
    document = ctx.ledger.read_one(ROUTE, name)
    held = None if document is None else read_as(RouteVersion, document.value)
    plan = ctx.plans.get(name)
    difference = None if plan is None else compare(ctx.ledger, plan)
    if difference is None:
        text = "not given"
    elif held is None:
        text = "not in the ledger yet"
    else:
        text = "the same" if difference.same else str(difference)
    return {
        "route": name,
        "version": None if held is None else held.version,
        "digest": None if held is None else held.digest,
        "at": None if held is None else iso(held.at),
        "by": None if held is None else held.by,
        "stages": [list(pair) for pair in (held.shape if held is not None else plan.shape if plan is not None else [])],
        "remembers_s": None if plan is None or plan.route.remember_ms is None else plan.route.remember_ms / 1000,
        "differs": bool(difference is not None and held is not None and not difference.same),
        "difference": text,
        "cure": None if difference is None or held is None or difference.same else difference.cure,
        "back_fill": view(ctx, name),
    }
