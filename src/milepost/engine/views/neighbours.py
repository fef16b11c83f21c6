"""Handlers that must look at other items of their route: those with an `attach` are told how to find them."""

from __future__ import annotations

from functools import partial

from milepost.core.item import Item
from milepost.engine.context import Context
from milepost.engine.views.items import each
from milepost.ports.ledger import Query


def attach_all(ctx: Context) -> None:
    """Tell every handler that asks for it how the items of its route are found on this ledger."""
    for plan in ctx.plans.values():
        for stage in plan.stages:
            attach = getattr(stage.handler, "attach", None)
            if callable(attach):
                attach(partial(by_prefix, ctx, plan.name))


def by_prefix(ctx: Context, route: str, prefix: str) -> list[Item]:
    """The route's items whose keys begin so, as they are now, without what they carry."""
    return list(each(ctx, Query(route=route, prefix=prefix)))
