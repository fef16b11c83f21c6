"""Paused lanes that are open again: all of them resume, at the set pace, and none is forgotten
while the index lags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.aws.ledger.repair.repair_scene import DAY, Scene, scene_at

from milepost.core.admission.controls import Hold, Limit
from milepost.ports.documents import HOLD, LIMIT
from milepost_aws.ledger.claim import paused_lanes
from milepost_aws.ledger.claim.paused_lanes import EMPTY_MS, HOLDING, HeldLanes, Resumed
from milepost_aws.ledger.upkeep import Sweeper

LANES = ("air", "road", "sea")


@pytest.fixture
def scene(endpoint: str, prefix: str) -> Iterator[Scene]:
    with scene_at(endpoint, prefix) as made:
        yield made


def put_apart(scene: Scene, each: int) -> list[str]:
    """So many rows of each lane stand apart; the lanes are open again."""
    keys = []
    for lane in LANES:
        here = [f"{lane}{n}" for n in range(each)]
        scene.add(*here, lane=lane)
        scene.hold(f"parcels/weigh/{lane}")
        keys += here
    scene.follow()
    while any(not shard.startswith("held#") for shard in shards(scene, keys)):
        assert scene.claim().items == []
    for lane in LANES:
        scene.release(f"parcels/weigh/{lane}")
    return keys


def shards(scene: Scene, keys: list[str]) -> list[str]:
    return [image["dueShard"]["S"] for image in scene.store.images("parcels", keys).values()]


def held(scene: Scene, keys: list[str]) -> list[str]:
    return [key for key in keys if scene.image(key)["dueShard"]["S"].startswith("held#")]


def test_all_lanes_resume_in_one_run(scene: Scene) -> None:
    keys = put_apart(scene, 40)
    assert HeldLanes(scene.store).resume(scene.clock) == Resumed(len(keys))
    assert held(scene, keys) == []


def test_a_run_that_ends_early_is_continued_with_the_lanes_that_it_did_not_reach(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paused_lanes, "PORTION", 2)
    keys, lanes = put_apart(scene, 3), HeldLanes(scene.store)

    def one_portion() -> Resumed:
        turns = iter([True, False])
        return lanes.resume(scene.clock, lambda: next(turns))

    first = [one_portion() for _ in LANES]
    assert first == [Resumed(2, ended=False)] * 3
    assert sorted(key[:-1] for key in held(scene, keys)) == sorted(LANES), (
        "each lane had its portion"
    )
    assert lanes.resume(scene.clock) == Resumed(3)
    assert {item.key for _ in range(3) for item in scene.claim().items} == set(keys)


def test_a_lane_with_a_rate_resumes_as_fast_as_its_rate_allows(scene: Scene) -> None:
    keys = put_apart(scene, 10)
    limit = Limit(rate="0.1/s", by="ops", reason="gently", at=scene.now)
    scene.store.control.write(LIMIT, "parcels/weigh/air", msgspec.to_builtins(limit))
    scene.store.forget(LIMIT)
    lanes = HeldLanes(scene.store)
    assert lanes.resume(scene.clock) == Resumed(26), (
        "six of the limited lane, which are those of a minute"
    )
    assert lanes.resume(scene.clock) == Resumed(0)
    assert len(held(scene, keys)) == 4
    scene.clock.advance("1m")
    assert lanes.resume(scene.clock) == Resumed(4)


def test_a_lane_that_is_open_again_is_noticed(scene: Scene) -> None:
    scene.add("a", lane="air")
    scene.hold("parcels/weigh/air")
    scene.follow()
    assert scene.claim().items == []
    lanes = HeldLanes(scene.store)
    assert not lanes.reopened(scene.now)
    scene.clock.advance("1d")
    assert lanes.oldest(scene.now) == DAY, "rows of a paused lane have waited for so long"
    scene.release("parcels/weigh/air")
    scene.store.forget(HOLD)
    assert lanes.reopened(scene.now)
    assert lanes.resume(scene.clock) == Resumed(1)
    assert not lanes.reopened(scene.now)
    lanes.resume(scene.clock)
    assert lanes.oldest(scene.now) == 0


def test_milepost_up_offers_the_rows_of_a_lane_within_seconds_after_it_is_resumed(
    scene: Scene,
) -> None:
    scene.add("a", lane="air")
    scene.hold("parcels/weigh/air")
    scene.follow()
    assert scene.claim().items == []
    sweeper = Sweeper(scene.store, {"parcels": scene.plan}, scene.clock, lambda: 0.0)
    for _ in range(10):
        scene.clock.advance(sweeper.turn() or 0.1)
    assert held(scene, ["a"]) == ["a"]
    scene.release("parcels/weigh/air")
    at = scene.now
    while held(scene, ["a"]):
        scene.clock.advance(sweeper.turn() or 0.1)
    assert scene.now - at <= 5_000


def test_a_row_that_the_index_shows_late_is_resumed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = put_apart(scene, 1)
    query = scene.store.requests.query
    lagging = True

    def late(table: str, **params: Any) -> Any:
        asked = params.get("ExpressionAttributeValues", {}).get(":shard", {}).get("S", "")
        return iter(()) if lagging and asked.startswith("held#") else query(table, **params)

    monkeypatch.setattr(scene.store.requests, "query", late)
    assert [HeldLanes(scene.store).resume(scene.clock).rows for _ in range(3)] == [0, 0, 0]
    assert len(scene.store.control.read(HOLDING)) == len(LANES)
    lagging = False
    scene.clock.advance(EMPTY_MS // 2000)
    assert HeldLanes(scene.store).resume(scene.clock).rows == len(keys)


def test_a_row_put_apart_after_its_lane_was_found_empty_keeps_the_record(scene: Scene) -> None:
    keys = put_apart(scene, 1)
    assert HeldLanes(scene.store).resume(scene.clock).rows == len(keys)
    assert {item.key for item in scene.claim().items} == set(keys)
    assert HeldLanes(scene.store).resume(scene.clock).rows == 0
    assert all(
        "emptyAt" in document.value for document in scene.store.control.read(HOLDING).values()
    )
    scene.add("late", lane="air")
    scene.hold("parcels/weigh/air")
    scene.follow()
    assert scene.claim().items == []
    scene.release("parcels/weigh/air")
    scene.clock.advance(EMPTY_MS // 1000)
    assert HeldLanes(scene.store).resume(scene.clock).rows == 1
    assert list(scene.store.control.read(HOLDING)) == ["parcels/weigh/air"]


def test_a_pause_with_an_end_lets_its_backlog_go_by_itself(scene: Scene) -> None:
    keys = ["a1", "a2", "a3"]
    scene.add(*keys, lane="air")
    ends = scene.now + 3_600_000
    scene.store.control.write(
        HOLD,
        "parcels/weigh/air",
        msgspec.to_builtins(Hold(scene.now, "ops", "down until three", until=ends)),
    )
    scene.follow()
    while any(not shard.startswith("held#") for shard in shards(scene, keys)):
        assert scene.claim().items == []
    scene.clock.advance(3_599)
    scene.resend()
    assert HeldLanes(scene.store).resume(scene.clock).rows == 0
    scene.clock.advance(1)
    scene.resend()
    scene.store.forget(HOLD)
    assert HeldLanes(scene.store).resume(scene.clock).rows == len(keys)
    assert {item.key for item in scene.claim().items} == set(keys)
