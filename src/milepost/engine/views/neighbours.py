"""Access to other items of the route for handlers that ask for it with an `attach` method."""

from __future__ import annotations

from functools import partial

from milepost.core.item import Item
from milepost.engine.context import Context
from milepost.engine.views.items import each
from milepost.ports.items import Query


def attach_all(ctx: Context) -> None:
    """Give each handler with an `attach` method a function that finds items of its route by key prefix."""
    for plan in ctx.plans.values():
        for stage in plan.stages:
            attach = getattr(stage.handler, "attach", None)
            if callable(attach):
                attach(partial(by_prefix, ctx, plan.name))


def by_prefix(ctx: Context, route: str, prefix: str) -> list[Item]:
    """The route's items whose keys have this prefix, without content."""
    return list(each(ctx, Query(route=route, prefix=prefix)))
