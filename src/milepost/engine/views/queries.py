"""Item queries from user-facing filters, and the cost of a query that no index serves."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from milepost.core.errors import UsageError
from milepost.core.item import Item
from milepost.core.status import FAILED, LIVE, Status
from milepost.core.values.durations import span_ms
from milepost.core.values.key_text import SEPARATOR
from milepost.engine.context import Context
from milepost.engine.views.items import check_route, each, lists
from milepost.engine.views.items import status as status_of
from milepost.engine.views.key_parts import read_parts
from milepost.ports.items import Query
from milepost.ports.upkeep import ScanCost

LISTS = 5
WARN_ROWS, CONFIRM_ROWS = 1_000, 100_000
"""Rows read without an index: warn from the first number on, ask for confirmation above the second."""
WORDS = {"failed": FAILED, "live": LIVE}
"""Names for sets of statuses."""


def choose(
    ctx: Context,
    route: str,
    *,
    statuses: Iterable[str] = (),
    stages: Iterable[str] = (),
    lane: str | None = None,
    group: str | None = None,
    list_: str | None = None,
    older_than: str | None = None,
    prefix: str | None = None,
    parts: Iterable[str] = (),
    with_content: bool = False,
) -> Query:
    """The filters as a query. An unknown stage, group or list raises UsageError instead of matching nothing."""
    check_route(ctx, route)
    stages = frozenset(stages)
    there = status_of(ctx, route)["routes"][route]["stages"]
    for stage in sorted(stages - set(there)):
        raise UsageError(f"route {route!r} has no stage {stage!r}; its stages are {', '.join(there)}")
    before = None if older_than is None else ctx.clock.now() - span_ms(older_than, "the least age")
    if group is not None and not any(known.group == group for known in ctx.ledger.groups(route)):
        raise UsageError(f"there is no error group {group!r} in route {route!r}; see 'milepost groups {route}'")
    wanted = read_parts(ctx, route, parts)
    first = next((part.text for part in wanted if part.position == 0), None)
    return Query(
        route=route,
        # Keys with the same first part are adjacent, so the index serves a prefix.
        prefix=prefix or (None if first is None else first + SEPARATOR),
        parts=wanted,
        statuses=statuses_of(statuses),
        stages=stages or None,
        lane=lane,
        group=group,
        lists=None if list_ is None else _list_ids(ctx, route, list_),
        entered_before=before,
        with_content=with_content,
    )


def cost_text(route: str, cost: ScanCost) -> str:
    """The cost of a query without an index, in words."""
    price = "" if cost.dollars is None else ", less than a cent" if cost.dollars < 0.01 else f", ${cost.dollars:,.2f}"
    return f"no index serves this: all {cost.rows:,} rows of {route} are read, about {cost.units:,} read units{price}"


def count_of_matches(ctx: Context, query: Query) -> int | None:
    """Approximate number of items that match, if the counters can tell: they know statuses and stages."""
    known = Query(route=query.route, statuses=query.statuses, stages=query.stages, with_content=query.with_content, limit=query.limit)
    if query != known:
        return None
    statuses, stages = query.statuses, query.stages
    counts = [count for count in ctx.ledger.counts(query.route) if statuses is None or count.status in statuses]
    return sum(count.n for count in counts if stages is None or count.stage in stages)


def statuses_of(words: Iterable[str]) -> frozenset[Status] | None:
    """The statuses that these words name; None if there are no words."""
    found: set[Status] = set()
    for word in words:
        if word.lower() in WORDS:
            found |= WORDS[word.lower()]
        elif word.upper() in Status.__members__:
            found.add(Status[word.upper()])
        else:
            raise UsageError(f"there is no status {word!r}; use {', '.join(Status)}, failed or live")
    return frozenset(found) or None


def _list_ids(ctx: Context, route: str, name: str) -> frozenset[str]:
    """The list with that id, or all with that name."""
    records = lists(ctx, route)
    found = frozenset(record.id for record in records if record.id == name)
    found = found or frozenset(record.id for record in records if record.name == name)
    if found:
        return found
    known = ", ".join(list(dict.fromkeys(record.name for record in reversed(records)))[:LISTS]) or "none"
    raise UsageError(f"route {route!r} has no list {name!r}; the latest are: {known}; see 'milepost lists {route}'")


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
