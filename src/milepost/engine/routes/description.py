"""Description of a route: stages, version, and the difference between its file and the ledger."""

from __future__ import annotations

from typing import Any

from milepost.core.values.durations import iso
from milepost.engine.context import Context
from milepost.engine.routes.backfill_progress import view
from milepost.engine.routes.versions import compare
from milepost.ports.documents import ROUTE, RouteVersion, read_versioned


def route_view(ctx: Context, name: str) -> dict[str, Any]:
    """One route as JSON. `cure`: the command that puts a changed file into force."""
    stored, _ = read_versioned(ctx.ledger, ROUTE, name, RouteVersion)
    plan = ctx.plans.get(name)
    difference = None if plan is None else compare(ctx.ledger, plan)
    if difference is None:
        text = "not given"
    elif stored is None:
        text = "not in the ledger yet"
    else:
        text = "the same" if difference.same else str(difference)
    return {
        "route": name,
        "version": None if stored is None else stored.version,
        "digest": None if stored is None else stored.digest,
        "at": None if stored is None else iso(stored.at),
        "by": None if stored is None else stored.by,
        "stages": [list(pair) for pair in (stored.shape if stored is not None else plan.shape if plan is not None else [])],
        "remembers_s": None if plan is None or plan.route.remember_ms is None else plan.route.remember_ms / 1000,
        "differs": bool(difference is not None and stored is not None and not difference.same),
        "difference": text,
        "cure": None if difference is None or stored is None or difference.same else difference.cure,
        "back_fill": view(ctx, name),
    }
