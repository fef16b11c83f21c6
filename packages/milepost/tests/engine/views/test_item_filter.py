"""Filters of items, compared with the functions that took each condition as a parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.engine.world import ROUTE, World

import milepost as mp
from milepost.core.errors import UsageError
from milepost.core.outcome import Reject
from milepost.core.values.durations import span_ms
from milepost.core.values.key_text import SEPARATOR
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost.engine.views.item_filter import (
    ItemFilter,
    filter_as_given,
    query_of,
    unchecked_query,
)
from milepost.engine.views.items import check_route, route_counts
from milepost.engine.views.queries import list_ids, named_parts, read_parts, statuses_of
from milepost.ledgers.memory import MemoryLedger
from milepost.ports.documents import LIST, ListRecord
from milepost.ports.items import Query
from milepost_testing.clock import VirtualClock


def small_world() -> World:
    """A route with a key of two fields, a group of failures, and two lists of one name."""
    route = mp.Route(ROUTE, key=("asset", "batch"))
    route.stage("weigh")(lambda item: mp.Done())
    route.stage("stamp")(lambda item: mp.Done())
    clock = VirtualClock()
    world = World(MemoryLedger(), clock, route).registered()
    submit(world.ctx, ROUTE, [{"asset": "a#1", "batch": "b"}])
    world.work("weigh", Reject("no such asset"))
    for list_id in ("l1", "l2"):
        record = ListRecord(list_id, ROUTE, "march.csv", "", clock.now(), False, {}, "")
        world.ledger.write(LIST, list_id, record)
    clock.advance("1h")
    return world


WORLD = small_world()
[GROUP] = [group.group for group in WORLD.ledger.groups(ROUTE)]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "statuses": st.lists(st.sampled_from(["failed", "Live", "QUEUED", "lost"]), max_size=3),
    "stages": st.lists(st.sampled_from(["weigh", "stamp", "nowhere"]), max_size=3),
    "lane": st.sampled_from(["", "north"]),
    "group": st.sampled_from([GROUP, "none-such"]),
    "list_": st.sampled_from(["l1", "march.csv", "april.csv"]),
    "prefix": st.sampled_from(["", "a"]),
    "parts": st.lists(
        st.sampled_from(["asset=a#1", "batch=b", " batch = c ", "other=1", "asset"]), max_size=3
    ),
    "older_than": st.sampled_from(["2d", "0s", "long"]),
}
CONDITIONS_OF_PROGRAMS = ("statuses", "stages", "lane", "group", "prefix", "parts")
routes = st.sampled_from([ROUTE, ROUTE, ROUTE, "letters"])


def conditions_of(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    """Random values of some of these conditions, or of one."""
    one = st.sampled_from(names).flatmap(lambda name: st.fixed_dictionaries({name: VALUES[name]}))
    some = st.fixed_dictionaries({}, optional={name: VALUES[name] for name in names})
    return st.one_of(one, some)


def filter_of(conditions: dict[str, Any]) -> ItemFilter:
    return ItemFilter(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in conditions.items()
        }
    )


def old_query(route: str, **conditions: Any) -> Query:
    """The query as one function made it, from a parameter for each condition."""
    ctx, group = WORLD.ctx, conditions.get("group")
    check_route(ctx, route)
    stages = frozenset(conditions.get("stages", ()))
    known = route_counts(ctx, route)["routes"][route]["stages"]
    for stage in sorted(stages - set(known)):
        raise UsageError(
            f"route {route!r} has no stage {stage!r}; its stages are {', '.join(known)}"
        )
    age = conditions.get("older_than")
    before = None if age is None else ctx.clock.now() - span_ms(age, "the least age")
    if group == "none-such":
        raise UsageError(
            f"there is no error group {group!r} in route {route!r}; see 'milepost groups {route}'"
        )
    parts = read_parts(ctx, route, conditions.get("parts", ()))
    first = next((part.text for part in parts if part.position == 0), None)
    name = conditions.get("list_")
    return Query(
        route=route,
        prefix=conditions.get("prefix") or (None if first is None else first + SEPARATOR),
        parts=parts,
        statuses=statuses_of(conditions.get("statuses", ())),
        stages=stages or None,
        lane=conditions.get("lane"),
        group=group,
        lists=None if name is None else list_ids(ctx, route, name),
        entered_before=before,
    )


def old_query_of_programs(route: str, **conditions: Any) -> Query:
    """The query as `Operations` made it."""
    check_route(WORLD.ctx, route)
    return Query(
        route=route,
        statuses=statuses_of(conditions.get("statuses", ())),
        stages=frozenset(conditions.get("stages", ())) or None,
        lane=conditions.get("lane"),
        prefix=conditions.get("prefix"),
        parts=read_parts(WORLD.ctx, route, conditions.get("parts", ())),
        group=conditions.get("group"),
    )


def result(function: Callable[..., Any], *args: Any, **conditions: Any) -> Any:
    """What the function returns, or the text of its error."""
    try:
        return function(*args, **conditions)
    except UsageError as error:
        return str(error)


def check_same(
    new: Callable[..., Any], old: Callable[..., Any], route: str, conditions: dict[str, Any]
) -> None:
    """Both give the same query or error. Of several wrong conditions each names one; which is named
    first may differ."""
    query = result(new, WORLD.ctx, route, filter_of(conditions))
    expected = result(old, route, **conditions)
    if query != expected:
        alone = [result(old, route, **{name: value}) for name, value in conditions.items()]
        faults = [fault for fault in alone if isinstance(fault, str)]
        assert query in faults
        assert expected in faults


@given(routes, conditions_of(*VALUES))
def test_a_filter_is_the_same_query(route: str, conditions: dict[str, Any]) -> None:
    check_same(query_of, old_query, route, conditions)


@given(routes, conditions_of(*CONDITIONS_OF_PROGRAMS))
def test_a_filter_of_a_program_is_the_same_query(route: str, conditions: dict[str, Any]) -> None:
    def programs_query(ctx: Context, route: str, item_filter: ItemFilter) -> Query:
        check_route(ctx, route)
        return unchecked_query(ctx, route, item_filter)

    check_same(programs_query, old_query_of_programs, route, conditions)


def old_filter_as_given(route: str, **conditions: Any) -> dict[str, Any]:
    """The filter as it was stored with an act, from a parameter for each condition."""
    if conditions.get("parts"):
        parts = named_parts(WORLD.ctx, route, conditions["parts"])
        conditions["parts"] = [f"{field}={text}" for field, text in parts]
    return {
        name: value if isinstance(value, str) else sorted(set(value))
        for name, value in conditions.items()
        if value not in (None, "", (), [])
    }


@given(conditions_of(*VALUES))
def test_a_filter_is_stored_as_the_same(conditions: dict[str, Any]) -> None:
    stored = result(filter_as_given, WORLD.ctx, ROUTE, filter_of(conditions))
    assert stored == result(old_filter_as_given, ROUTE, **conditions)


def test_a_filter_finds_the_item_of_each_condition() -> None:
    for conditions in (
        {"statuses": ["failed"]},
        {"stages": ["weigh"]},
        {"group": GROUP},
        {"parts": ["asset=a#1", "batch=b"]},
        {"older_than": "0s"},
    ):
        query = query_of(WORLD.ctx, ROUTE, filter_of(conditions))
        assert len(WORLD.ledger.find(replace(query, limit=10)).items) == 1, conditions
