"""How many are late, from counters: exact where that costs nothing, and never more than there
are."""

from __future__ import annotations

import pytest
from tests.engine.views.viewed_ledger import World

from milepost.core.counters import HOUR
from milepost.core.outcome import Done
from milepost.core.routes.route import Route
from milepost.engine.acts.bulk import confirm_outside
from milepost.engine.views.late_items import each_overdue, overdue
from milepost.engine.views.overdue_counts import OverdueCount
from milepost.engine.views.snapshot import StageView, snapshots
from milepost.ports.items import Query
from milepost_testing.clock import START


@pytest.fixture
def world() -> World:
    route = Route("parcels", key="id")
    route.external("taped", overdue="5h")
    route.external("told")
    world = World(route)
    world.clock.advance((HOUR - START % HOUR) / 1000)
    return world


def taped(world: World) -> StageView:
    return snapshots(world.ctx)["parcels"].stages[0]


def test_a_few_are_counted_to_the_moment(world: World) -> None:
    world.add("A")
    world.clock.advance("30m")
    world.add("B", "C")
    world.clock.advance("4h29m")
    assert taped(world).overdue == OverdueCount(0, 0)
    world.clock.advance("1m")
    assert taped(world).overdue == OverdueCount(1, 1)
    assert [asked.item.key for asked in each_overdue(world.ctx, Query(route="parcels"))] == ["A"]
    world.clock.advance("30m")
    assert taped(world).overdue == OverdueCount(3, 3)
    confirm_outside(world.ctx, "parcels", "B", "taped", Done(True), "tape library")
    assert taped(world).overdue == OverdueCount(2, 2)


def test_without_an_index_they_are_counted_by_the_hour_with_bounds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.ctx.ledger, "entered_by", lambda *asked: None)
    world.add("A", "B", "C")
    world.clock.advance("1h")
    world.add("D")
    world.clock.advance("5h")
    # Those of the first hour are late for certain; the fourth came in the hour that the mark falls
    # into.
    assert taped(world).overdue == OverdueCount(3, 4)
    world.clock.advance("1h")
    assert taped(world).overdue == OverdueCount(4, 4)
    assert [asked.item.key for asked in overdue(world.ctx, Query(route="parcels"), 3)[0]] == [
        "A",
        "B",
        "C",
    ]


def test_where_there_is_no_mark_there_is_no_number(world: World) -> None:
    world.add("A")
    world.clock.advance("90d")
    assert [stage.overdue for stage in snapshots(world.ctx)["parcels"].stages] == [
        OverdueCount(1, 1),
        None,
    ]
    world.ctx.plans.clear()
    assert taped(world).overdue is None
