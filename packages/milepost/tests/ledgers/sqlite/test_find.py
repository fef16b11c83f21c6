"""Queries on SQLite, by every index: exactly the matching items, each once, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from milepost.composition import open_context
from milepost.core.outcome import Done, Reject
from milepost.core.routes.route import Route
from milepost.core.status import FAILED, LIVE, Status
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act, confirm_outside
from milepost.engine.acts.verbs import CancelVerb
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost.ledgers.sqlite.find import find
from milepost.ledgers.sqlite.ledger import SqliteLedger
from milepost.ports.items import Query
from milepost_testing import VirtualClock

HOUR = 3_600_000


def parcels() -> Route:
    route = Route("parcels", key="id")
    route.external("weigh", lane=lambda content: content["depot"])
    route.external("deliver")
    return route


@pytest.fixture(scope="module")
def ctx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    """Forty items of two lists and two lanes over four hours: at both stages, through, failed in
    two ways, cancelled, retried."""
    clock = VirtualClock()
    found = open_context(
        f"sqlite:///{tmp_path_factory.mktemp('finding')}/ledger.db", [parcels()], clock=clock
    )
    for hour in range(4):
        inputs = [
            {
                "id": f"{'AB'[number % 2]}-{hour}{number}",
                "depot": ("north", "south")[number % 3 == 0],
            }
            for number in range(10)
        ]
        submit(found, "parcels", inputs, list_id=("first", None, "second", "first")[hour])
        keys = [content["id"] for content in inputs]
        for key in keys[:6]:
            confirm_outside(
                found,
                "parcels",
                key,
                "weigh",
                Reject("too heavy") if key == keys[5] else Done(True),
                "scale",
            )
        confirm_outside(found, "parcels", keys[0], "deliver", Done(True), "van")
        confirm_outside(found, "parcels", keys[1], "deliver", Reject("nobody at home"), "van")
        act(found, select(found, "parcels", keys=[keys[9]]), CancelVerb(), by="ops", reason="test")
        clock.advance(HOUR / 1000)
    yield found
    found.ledger.close()


def paged(ctx: Context, query: Query, limit: int) -> list[str]:
    """All that are found, page by page, as they come."""
    keys: list[str] = []
    query = replace(query, limit=limit)
    while True:
        page = ctx.ledger.find(query)
        assert len(page.items) <= limit
        keys += [item.key for item in page.items]
        if page.next is None:
            return keys
        query = replace(query, after=page.next)


def matches(query: Query, item: Any, group: str | None) -> bool:
    row = item.row
    return (
        (query.statuses is None or row.status in query.statuses)
        and (query.stages is None or row.stage in query.stages)
        and (query.lane is None or row.lane == query.lane)
        and (query.lists is None or row.list_id in query.lists)
        and (query.entered_before is None or row.entered_at < query.entered_before)
        and (query.prefix is None or row.key.startswith(query.prefix))
        and (query.group is None or query.group == group)
    )


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_every_filter_finds_just_what_matches_it(ctx: Context, limit: int) -> None:
    everything = ctx.ledger.find(Query(route="parcels")).items
    assert len(everything) == 40
    groups = {
        item.key: None if item.row.error is None else item.row.error.group for item in everything
    }
    kinds = sorted({group for group in groups.values() if group is not None})
    assert len(kinds) == 2
    asked = 0
    for statuses, stages, lane, group, lists, before, prefix in product(
        [
            None,
            LIVE,
            FAILED,
            frozenset({Status.CANCELLED}),
            frozenset({Status.COMPLETED}),
            LIVE | FAILED,
        ],
        [None, frozenset({"weigh"}), frozenset({"weigh", "deliver"})],
        [None, "south"],
        [None, kinds[0]],
        [None, frozenset({"first"}), frozenset({"first", "second"})],
        [None, ctx.clock.now() - 2 * HOUR],
        [None, "A-"],
    ):
        query = Query(
            route="parcels",
            statuses=statuses,
            stages=stages,
            lane=lane,
            group=group,
            lists=lists,
            entered_before=before,
            prefix=prefix,
        )
        found = paged(ctx, query, limit)
        assert sorted(found) == sorted(
            item.key for item in everything if matches(query, item, groups[item.key])
        ), query
        asked += bool(found)
    assert asked > 100


def test_what_has_been_there_longest_comes_first(ctx: Context) -> None:
    query = Query(
        route="parcels",
        statuses=LIVE,
        stages=frozenset({"deliver"}),
        entered_before=ctx.clock.now(),
    )
    entered = [item.row.entered_at for item in ctx.ledger.find(query).items]
    assert len(entered) > 8
    assert entered == sorted(entered)


def test_few_among_many_are_found_without_reading_the_others(tmp_path: Path) -> None:
    """SQLite counts its own steps: for few that are late, or have one error, or are of one list,
    they do not grow with all the rest."""
    steps = {n: _steps(tmp_path / f"{n}.db", n) for n in (200, 4_000)}
    assert steps[4_000] == steps[200]


def _steps(path: Path, n: int) -> list[int]:
    clock = VirtualClock()
    ctx = open_context(f"sqlite:///{path}", [parcels()], clock=clock)
    submit(
        ctx,
        "parcels",
        [{"id": f"old-{number}", "depot": "north"} for number in range(5)],
        list_id="few",
    )
    confirm_outside(ctx, "parcels", "old-4", "weigh", Reject("too heavy"), "scale")
    [failed] = ctx.ledger.get([("parcels", "old-4")])
    assert failed is not None
    assert failed.row.error is not None
    clock.advance(3600)
    submit(
        ctx,
        "parcels",
        ({"id": f"new-{number}", "depot": "north"} for number in range(n)),
        list_id="many",
    )
    counted = []
    for query, found in (
        (Query(route="parcels", statuses=LIVE, entered_before=clock.now() - 60_000), 4),
        (Query(route="parcels", group=failed.row.error.group), 1),
        (Query(route="parcels", lists=frozenset({"few"})), 5),
    ):
        counted.append(_counted(ctx, query, found))
    ctx.ledger.close()
    return counted


def _counted(ctx: Context, query: Query, found: int) -> int:
    assert isinstance(ctx.ledger, SqliteLedger)
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    def read(tx: Any) -> Any:
        tx.connection.set_progress_handler(step, 1)
        try:
            return find(tx, query)
        finally:
            tx.connection.set_progress_handler(None, 1)

    assert len(ctx.ledger._store.read(read).items) == found
    return steps
