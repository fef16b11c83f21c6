"""Known keys: under which key the ledger has an item, where a route writes parts of its keys in a
form of their own (see `Route.key_forms`).

Such an item may be named by the fields' own texts. One that was accepted under these texts, by an
earlier version or from a row that another program put, keeps that key, and is found by both.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from milepost.core.routes.plan import Plan
from milepost.core.values.key_text import SEPARATOR
from milepost.engine.context import Context
from milepost.engine.ledger_pages import query_pages
from milepost.ports.items import Query

ALIKE = 1_000
"""Most rows that are compared with a key that the ledger does not have: those with the same parts
before the first one with a form."""


def keys_of_new(ctx: Context, plan: Plan, keys: Sequence[str]) -> Sequence[str]:
    """The keys of submitted items, given with the fields' own texts: each in its form, unless the
    ledger has the item under the given key."""
    if not plan.route.key_forms:
        return keys
    formed = {key: plan.route.formed(key) for key in keys}
    differing = [key for key, form in formed.items() if key != form]
    if not differing:
        return keys
    known = _known(ctx, plan.name, [*differing, *(formed[key] for key in differing)])
    return [key if key in known and formed[key] not in known else formed[key] for key in keys]


def known_keys(ctx: Context, route: str, keys: Sequence[str]) -> Sequence[str]:
    """The keys under which the ledger has the items that are named so, each in its form or with the
    fields' own texts. That of an unknown item is in its form: it may come into answers and
    records."""
    plan = ctx.plans.get(route)
    if plan is None or not plan.route.key_forms:
        return keys
    formed = {key: plan.route.formed(key) for key in keys}
    known = _known(ctx, route, list(dict.fromkeys([*formed, *formed.values()])))
    return [_named(ctx, plan, key, formed[key], known) for key in keys]


def known_key(ctx: Context, route: str, key: str) -> str:
    """As `known_keys`, for one item."""
    [known] = known_keys(ctx, route, [key])
    return known


def _named(ctx: Context, plan: Plan, key: str, formed: str, known: set[str]) -> str:
    if formed in known:
        return formed
    if key in known:
        return key
    return _with_own_texts(ctx, plan, formed) or formed


def _with_own_texts(ctx: Context, plan: Plan, formed: str) -> str | None:
    """The key of a row that has the fields' own texts, and would now have this one."""
    parts = formed.split(SEPARATOR)
    fields = plan.route.key
    assert not isinstance(fields, str)
    assert not callable(fields)
    first = min(list(fields).index(field) for field in plan.route.key_forms)
    if len(parts) != len(fields):
        return None
    query = Query(
        route=plan.name,
        prefix=SEPARATOR.join(parts[:first]) + SEPARATOR if first else None,
        limit=ALIKE,
    )
    rows = (item for page in query_pages(ctx.ledger, query) for item in page.items)
    return next(
        (item.key for item in islice(rows, ALIKE) if plan.route.formed(item.key) == formed), None
    )


def _known(ctx: Context, route: str, keys: Sequence[str]) -> set[str]:
    return {
        key
        for key, known in zip(keys, ctx.ledger.peek(route, keys), strict=True)
        if known is not None
    }
