"""Failed items that have left the ledger: status counts them by their seals, and says as of when,
or that it is not known."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.engine.world import World, parcels

from milepost.core.outcome import Reject
from milepost.core.status import FAILED
from milepost.core.values.durations import iso
from milepost.engine import left_counts
from milepost.engine.left_counts import LeftCount, count_left
from milepost.engine.left_items import failed_and_left
from milepost.engine.retention import prune
from milepost.engine.views.caches import TtlCache
from milepost.engine.views.items import status
from milepost.ports.items import Query
from milepost.ports.ledger import Ledger
from milepost.ports.retention import LeftFailures
from milepost_testing.clock import VirtualClock


@pytest.fixture
def world(ledger: Ledger, clock: VirtualClock) -> World:
    return World(ledger, clock, parcels()).registered()


def leave(world: World, *keys: str) -> None:
    """These items fail, and their rows leave."""
    world.add(*keys)
    for item in world.claim("weigh", want=len(keys)):
        world.settle([item], Reject("no"))
    world.clock.advance("1h")
    prune(world.ctx, "parcels", 1, by="ops", reason="a test", statuses=FAILED)


def test_status_counts_what_the_list_of_failed_items_shows(world: World) -> None:
    leave(world, "a", "b", "c")
    found = status(world.ctx)["routes"]["parcels"]
    as_of = iso(world.clock.now())
    assert found["left_failed"] == {"count": 3, "more": False, "known": True, "as_of": as_of}
    assert found["total"] == 0
    assert len(failed_and_left(world.ctx, Query(route="parcels", statuses=FAILED), 10).seals) == 3


def test_a_route_without_any_says_nothing_and_costs_one_lookup(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str, str | None, int]] = []
    ask = world.ctx.ledger.left_failures

    def counted(route: str, prefix: str, after: str | None, limit: int) -> LeftFailures:
        asked.append((route, prefix, after, limit))
        return ask(route, prefix, after, limit)

    monkeypatch.setattr(world.ctx.ledger, "left_failures", counted)
    assert "left_failed" not in status(world.ctx, "parcels")["routes"]["parcels"]
    assert asked == [("parcels", "", None, 1)]


def test_many_are_counted_up_to_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_counts, "MOST", 2)
    leave(world, "a", "b")
    assert (count_left(world.ctx, "parcels").count, count_left(world.ctx, "parcels").more) == (
        2,
        False,
    )
    leave(world, "c", "d")
    count = count_left(world.ctx, "parcels")
    assert (count.count, count.more) == (2, True)
    assert count.text == "at least 2 failed items have left the ledger; their seals say so"


def test_while_old_seals_are_read_the_number_is_not_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = world.ctx.ledger.left_failures
    monkeypatch.setattr(
        world.ctx.ledger, "left_failures", lambda *asked: replace(ask(*asked), complete=False)
    )
    count = count_left(world.ctx, "parcels")
    assert (count.any, count.known) == (True, False)
    assert (
        count.text
        == "it is not known yet how many failed items have left the ledger: its old seals are being read"
    )
    leave(world, "a")
    assert (
        count_left(world.ctx, "parcels").text
        == "at least 1 failed item has left the ledger; its seal says so"
    )
    assert status(world.ctx)["routes"]["parcels"]["left_failed"]["known"] is False


def test_a_cached_count_keeps_the_time_of_its_count(world: World) -> None:
    leave(world, "a")
    cache, counted_at = TtlCache(lambda: 0.0), iso(world.clock.now())
    assert (
        status(world.ctx, once=cache.once)["routes"]["parcels"]["left_failed"]["as_of"]
        == counted_at
    )
    leave(world, "b")
    assert status(world.ctx, once=cache.once)["routes"]["parcels"]["left_failed"]["count"] == 1
    assert (
        status(world.ctx, once=cache.once)["routes"]["parcels"]["left_failed"]["as_of"]
        == counted_at
    )
    assert status(world.ctx)["routes"]["parcels"]["left_failed"]["count"] == 2


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (LeftCount(1, False, True, None), "1 failed item has left the ledger; its seal says so"),
        (
            LeftCount(12, False, True, None),
            "12 failed items have left the ledger; their seals say so",
        ),
        (
            LeftCount(1000, True, True, None),
            "at least 1,000 failed items have left the ledger; their seals say so",
        ),
    ],
)
def test_the_sentence(count: LeftCount, text: str) -> None:
    assert count.text == text
