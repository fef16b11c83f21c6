"""Numbers of overdue items: exact on embedded ledgers, bounds where only hourly counters are
known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.world import World
from tests.http.servers_on_ledgers import new_aws_ledger, server_over

import milepost as mp
from milepost.core.counters import HOUR
from milepost.core.outcome import Done
from milepost.core.routes.backoff import Checks
from milepost.core.routes.route import Route
from milepost.engine.health.doctor import doctor
from milepost.engine.metrics import ledger_families
from milepost.engine.resend import Resender
from milepost.engine.views.items import status
from milepost.engine.views.overdue_counts import OverdueCount, by_hours
from milepost.engine.views.snapshot import snapshots
from milepost.ledgers.memory import MemoryLedger
from milepost.ledgers.sqlite.ledger import SqliteLedger
from milepost.station import Station
from milepost_testing.clock import VirtualClock

N = 1_250


@pytest.fixture(params=["memory", "sqlite"])
def quick(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Items with an overdue mark of two minutes, which came in 29 minutes ago; the last one a
    minute ago."""
    route = Route("parcels", key="id")
    route.stage("weigh", checks=Checks(every="1h", up_to="1h", overdue="2m"))(lambda item: Done())
    ledger = MemoryLedger() if request.param == "memory" else SqliteLedger(f"{tmp_path}/ledger.db")
    world = World(ledger, VirtualClock(), route).registered()
    world.add(*(f"k{n}" for n in range(N)))
    world.clock.advance("28m")
    world.add("last")
    world.clock.advance("1m")
    yield world
    ledger.close()


def test_a_mark_below_an_hour_is_counted_at_every_door(quick: World) -> None:
    [stage] = snapshots(quick.ctx)["parcels"].stages
    assert stage.overdue == OverdueCount(N, N)
    assert [one.what for one in doctor(quick.ctx).findings if one.about == "overdue"] == [
        f"{N:,} items of parcels are overdue"
    ]
    assert status(quick.ctx)["routes"]["parcels"]["overdue"] == {"weigh": {"least": N, "most": N}}
    [family] = [one for one in ledger_families(quick.ctx) if one.name == "milepost_overdue_items"]
    assert family.samples == {("parcels", "weigh"): N}


def test_the_event_of_an_overdue_item_does_not_change_the_number(quick: World) -> None:
    Resender(quick.ctx).run_once(pages=1000)
    [stage] = snapshots(quick.ctx)["parcels"].stages
    assert stage.overdue == OverdueCount(N, N)
    quick.work("weigh", want=50)
    assert snapshots(quick.ctx)["parcels"].overdue == OverdueCount(N - 50, N - 50)


def test_on_aws_the_counters_are_never_below_what_is_overdue() -> None:
    clock = VirtualClock()
    route = mp.Route("tapes", key="id")
    route.external("taped", overdue="2m")
    with new_aws_ledger() as ledger, server_over(ledger, route, clock) as at:
        at.milepost.submit("tapes", *({"id": f"t{n}"} for n in range(3)))
        clock.advance("29m")
        Station(at.ctx).run(until_idle_s=0)
        found = snapshots(at.ctx)["tapes"].overdue
        assert (found.least, found.most) == (0, 3)
        assert [one.what for one in doctor(at.ctx).findings if one.about == "overdue"] == [
            "3 items of tapes are overdue"
        ]
        assert at.call("GET", "/api/v1/routes/tapes/counts").body["stages"][0]["overdue_most"] == 3


def test_the_words_of_bounds() -> None:
    assert [OverdueCount(*one).words for one in ((0, 0), (1_250, 1_250), (0, 300), (12, 300))] == [
        "0",
        "1,250",
        "up to 300",
        "at least 12",
    ]


@given(st.lists(st.integers(0, 4 * HOUR), max_size=30), st.integers(0, 5 * HOUR))
def test_the_bounds_by_the_hour_hold_the_true_number(entered: list[int], latest: int) -> None:
    hours: dict[int, int] = {}
    for at in entered:
        hours[at // HOUR] = hours.get(at // HOUR, 0) + 1
    truth = sum(at <= latest for at in entered)
    found = by_hours(hours, latest)
    assert found.least <= truth <= found.most
    assert found.most - found.least <= hours.get(latest // HOUR, 0)
