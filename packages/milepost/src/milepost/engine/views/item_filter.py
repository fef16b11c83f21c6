"""Filter of items, as people and programs give it, and the ledger's query that it means."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from milepost.core.errors import UsageError
from milepost.core.item import KeyPart
from milepost.core.values.durations import span_ms
from milepost.core.values.key_text import SEPARATOR
from milepost.engine.context import Context
from milepost.engine.views.items import check_route, route_counts
from milepost.engine.views.queries import list_ids, named_parts, read_parts, statuses_of
from milepost.ports.items import Query


class ItemFilter(Struct, frozen=True, kw_only=True):
    """Conditions on the items of a route, as they were given. All must hold."""

    statuses: tuple[str, ...] = ()
    """Names of statuses, "failed" or "live"."""
    stages: tuple[str, ...] = ()
    lane: str | None = None
    group: str | None = None
    """A group of failures."""
    list_: str | None = None
    """The name or id of a list that has brought them."""
    prefix: str | None = None
    """How the key begins."""
    parts: tuple[str, ...] = ()
    """Parts of a key of several fields, such as "batchId=B-7"."""
    older_than: str | None = None
    """A span, such as "2d": they entered their stage, or ended, longer ago."""

    def conditions(self) -> dict[str, Any]:
        """The conditions that are set."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "", ())}


def query_of(ctx: Context, route: str, item_filter: ItemFilter) -> Query:
    """The filter as a query. An unknown stage, group or list raises UsageError instead of matching
    nothing."""
    check_route(ctx, route)
    _check_stages(ctx, route, item_filter)
    _check_group(ctx, route, item_filter)
    query = unchecked_query(ctx, route, item_filter)
    return replace(query, prefix=item_filter.prefix or _prefix_of(query.parts))


def unchecked_query(ctx: Context, route: str, item_filter: ItemFilter) -> Query:
    """As `query_of`, for programs: an unknown stage or group matches nothing, and parts of keys
    imply no prefix."""
    age, list_name = item_filter.older_than, item_filter.list_
    return Query(
        route=route,
        entered_before=None if age is None else ctx.clock.now() - span_ms(age, "the least age"),
        parts=read_parts(ctx, route, item_filter.parts),
        prefix=item_filter.prefix,
        statuses=statuses_of(item_filter.statuses),
        stages=frozenset(item_filter.stages) or None,
        lane=item_filter.lane,
        group=item_filter.group,
        lists=None if list_name is None else list_ids(ctx, route, list_name),
    )


def filter_as_given(ctx: Context, route: str, item_filter: ItemFilter) -> dict[str, Any]:
    """The conditions that are set, in one form for every door: what may be given several times is
    in order and once. Parts of keys are as in keys: the text of a field may be a secret."""
    conditions = item_filter.conditions()
    if item_filter.parts:
        parts = named_parts(ctx, route, item_filter.parts)
        conditions["parts"] = [f"{field}={text}" for field, text in parts]
    return {
        name: value if isinstance(value, str) else sorted(set(value))
        for name, value in conditions.items()
    }


def _check_stages(ctx: Context, route: str, item_filter: ItemFilter) -> None:
    stages = route_counts(ctx, route)["routes"][route]["stages"]
    for stage in sorted(set(item_filter.stages) - set(stages)):
        raise UsageError(
            f"route {route!r} has no stage {stage!r}; its stages are {', '.join(stages)}"
        )


def _check_group(ctx: Context, route: str, item_filter: ItemFilter) -> None:
    group = item_filter.group
    if group is None or any(known.group == group for known in ctx.ledger.groups(route)):
        return
    raise UsageError(
        f"there is no error group {group!r} in route {route!r}; see 'milepost groups {route}'"
    )


def _prefix_of(parts: tuple[KeyPart, ...]) -> str | None:
    """The prefix of keys with this first part: they are adjacent, so the index serves it."""
    for part in parts:
        if part.position == 0:
            return part.text + SEPARATOR
    return None
