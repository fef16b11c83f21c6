"""Snapshots of the ledger: counts, one item, errors by group, and live updates."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.views.viewed_ledger import World

from milepost.core.errors import UsageError
from milepost.core.outcome import Done, NotYet, Reject, Retry
from milepost.core.routes.route import Route
from milepost.core.status import TERMINAL
from milepost.core.values.durations import iso
from milepost.engine.views import items
from milepost.engine.views.snapshot import snapshots
from milepost.ports.items import Query
from milepost.ports.retention import DeliveredLines, PruneCriteria


@pytest.fixture
def world() -> World:
    return World()


def test_status_of_an_empty_route_names_every_stage(world: World) -> None:
    assert items.status(world.ctx) == {
        "routes": {
            "parcels": {
                "total": 0,
                "statuses": {},
                "stages": {"weigh": {}, "stamp": {}, "delivered": {}},
                "unknown_stages": [],
            }
        }
    }


def test_status_counts_by_status_and_stage(world: World) -> None:
    world.add("A", "B", "C", "D")
    world.settle("weigh", Done({"grams": 1}))
    world.settle("weigh", Retry("busy"))
    assert items.status(world.ctx, "parcels")["routes"]["parcels"] == {
        "total": 4,
        "statuses": {"QUEUED": 3, "RETRY_SCHEDULED": 1},
        "stages": {
            "weigh": {"QUEUED": 2, "RETRY_SCHEDULED": 1},
            "stamp": {"QUEUED": 1},
            "delivered": {},
        },
        "unknown_stages": [],
    }


def test_status_needs_no_route_file_and_shows_stages_that_are_gone(world: World) -> None:
    world.add("A")
    world.ctx.plans.clear()
    assert list(items.status(world.ctx)["routes"]["parcels"]["stages"]) == [
        "weigh",
        "stamp",
        "delivered",
    ]
    other = Route("parcels", key="id")
    other.external("only")
    changed = World(other)
    changed.ctx.ledger = world.ledger
    found = items.status(changed.ctx)["routes"]["parcels"]
    assert found["stages"] == {"only": {}, "weigh": {"QUEUED": 1}}
    assert found["unknown_stages"] == ["weigh"]


def test_status_of_an_unknown_route_names_those_there_are(world: World) -> None:
    with pytest.raises(UsageError, match="no route 'letters'; known routes: parcels"):
        items.status(world.ctx, "letters")


def test_show_has_the_fields_that_are_promised(world: World) -> None:
    world.add("A", grams=5)
    world.clock.advance("2s")
    world.settle("weigh", Retry("scale is busy", http_status=503), response_ms=120)
    view = _shown(world, "A")
    promised = [
        "route",
        "key",
        "stage",
        "status",
        "attempts",
        "due_at",
        "input",
        "results",
        "error",
        "correlation_id",
        "created_at",
        "updated_at",
        "history",
    ]
    assert set(promised) <= set(view)
    assert (view["stage"], view["status"], view["attempts"], view["correlation_id"]) == (
        "weigh",
        "RETRY_SCHEDULED",
        1,
        "corr-1",
    )
    assert view["input"] == {"id": "A", "grams": 5}
    assert view["due_at"] == iso(world.clock.now() + 60_000)
    assert view["error"]["message"] == "scale is busy"
    assert [line["reason"] for line in view["history"]] == ["accepted", "retry"]
    failed = view["history"][1]
    assert failed["attempt_number"] == 1
    assert failed["error_details"]["message"] == "scale is busy"
    assert (failed["response_time"], failed["http_status"], failed["retry_delay_seconds"]) == (
        120,
        503,
        60.0,
    )
    assert failed["next_retry_timestamp"] == view["due_at"]
    assert view["verified"] is True


def test_show_of_a_held_item_says_by_whom(world: World) -> None:
    world.add("A")
    world.claim("weigh")
    view = _shown(world, "A")
    assert (view["status"], view["held_by"]) == ("PROCESSING", "host-a:1")


def test_show_of_an_unknown_key_is_none(world: World) -> None:
    assert items.show(world.ctx, "parcels", "Z") is None


def test_a_pruned_key_is_shown_from_its_seal(world: World) -> None:
    world.add("A")
    world.settle("weigh", Reject("no such parcel"))
    world.clock.advance("40d")
    assert (
        world.ledger.prune(
            PruneCriteria(
                "parcels",
                TERMINAL,
                world.clock.now(),
                None,
                DeliveredLines(world.ledger.last_seq()),
                10,
            )
        ).items
        == 1
    )
    view = _shown(world, "A")
    assert (view["status"], view["sealed"], view["history"], view["input"]) == (
        "REJECTED",
        True,
        [],
        None,
    )
    assert len(view["input_digest"]) == 64


def test_a_changed_history_is_not_verified(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add("A")
    world.settle("weigh", Done())
    lines = world.ledger.history("parcels", "A")
    monkeypatch.setattr(world.ledger, "history", lambda route, key: lines[1:])
    view = _shown(world, "A")
    assert view["verified"] is False
    assert view["chain"]["broken_at"] == 1


def test_each_walks_all_pages_up_to_a_limit(world: World) -> None:
    world.add(*(f"K{n:02d}" for n in range(25)))
    query = Query(route="parcels", limit=10)
    assert [item.key for item in items.each(world.ctx, query)] == [f"K{n:02d}" for n in range(25)]
    assert len(list(items.each(world.ctx, query, limit=13))) == 13


def test_groups_put_like_errors_together(world: World) -> None:
    world.add("A", "B", "C")
    for number in range(2):
        world.settle("weigh", Reject(f"parcel {number} is torn"))
    world.settle("weigh", Reject("no such parcel"))
    found = items.groups(world.ctx, "parcels")
    assert [(group["now"], group["category"]) for group in found] == [
        (2, "REJECTED"),
        (1, "REJECTED"),
    ]
    with pytest.raises(UsageError):
        items.groups(world.ctx, "letters")


def test_snapshots_count_what_is_past_a_stage_and_how_fast_items_end(world: World) -> None:
    world.add("A", "B", "C", "D")
    first = snapshots(world.ctx)
    assert first["parcels"].rate == 0
    world.settle("weigh", Done(), want=2)
    world.settle("stamp", NotYet())
    world.settle("weigh", Reject("torn"), want=2)
    world.clock.advance("4s")
    second = snapshots(world.ctx, first)["parcels"]
    assert [stage.past for stage in second.stages] == [2, 0, 0]
    assert (second.total, second.failed, second.live, second.ended) == (4, 2, 2, 2)
    assert second.rate == pytest.approx(0.5)
    assert second.oldest_ms == 4000
    assert [(kind.category, kind.stage, kind.now) for kind in second.kinds] == [
        ("REJECTED", "weigh", 2)
    ]


def test_the_age_of_old_items_comes_from_the_hour_they_entered_in(world: World) -> None:
    world.add("A")
    world.clock.advance("3d")
    oldest = snapshots(world.ctx)["parcels"].oldest_ms
    assert oldest is not None
    assert 71 * 3_600_000 <= oldest <= 72 * 3_600_000


def test_times_for_people(world: World) -> None:
    now = world.clock.now()
    assert items.when(now, now).startswith("now (")
    assert items.when(now + 300_000, now).startswith("in 5 min (")
    assert items.when(now - 7_200_000, now).startswith("2 h ago (")
    assert len(items.clock_time(now + 86_400_000, now)) == len("2033-11-15 22:13")


def _shown(world: World, key: str) -> dict[str, Any]:
    view = items.show(world.ctx, "parcels", key)
    assert view is not None
    return view
