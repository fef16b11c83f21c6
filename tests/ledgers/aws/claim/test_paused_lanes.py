"""Paused lanes that are open again: all of them resume, at the set pace, and none is forgotten while the index lags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.ledgers.aws.repair.repair_scene import Scene, scene_at

from milepost.core.admission.controls import Hold
from milepost.ledgers.aws.claim.paused_lanes import EMPTY_MS, HOLDING, resume
from milepost.ports.documents import HOLD

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


def test_all_lanes_resume_at_the_set_pace(scene: Scene) -> None:
    keys = put_apart(scene, 3)
    paces, left = [], []
    for _ in range(5):
        paces.append(resume(scene.store, scene.now, most=2))
        left.append(sum(shard.startswith("held#") for shard in shards(scene, keys)))
    assert (paces, left) == ([2, 2, 2, 2, 1], [7, 5, 3, 1, 0])
    assert {item.key for _ in range(3) for item in scene.claim().items} == set(keys)


def test_the_pace_is_shared_among_the_lanes(scene: Scene) -> None:
    keys = put_apart(scene, 3)
    assert resume(scene.store, scene.now, most=3) == 3
    apart = [key for key in keys if scene.image(key)["dueShard"]["S"].startswith("held#")]
    assert sorted(key[:-1] for key in apart) == sorted([*LANES, *LANES])


def test_a_row_that_the_index_shows_late_is_resumed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = put_apart(scene, 1)
    query = scene.store.requests.query
    lagging = True

    def late(table: str, **params: Any) -> Any:
        asked = params.get("ExpressionAttributeValues", {}).get(":shard", {}).get("S", "")
        return iter(()) if lagging and asked.startswith("held#") else query(table, **params)

    monkeypatch.setattr(scene.store.requests, "query", late)
    assert [resume(scene.store, scene.now) for _ in range(3)] == [0, 0, 0]
    assert len(scene.store.control.read(HOLDING)) == len(LANES)
    lagging = False
    assert resume(scene.store, scene.now + EMPTY_MS // 2) == len(keys)


def test_a_row_put_apart_after_its_lane_was_found_empty_keeps_the_record(scene: Scene) -> None:
    keys = put_apart(scene, 1)
    assert resume(scene.store, scene.now) == len(keys)
    assert {item.key for item in scene.claim().items} == set(keys)
    assert resume(scene.store, scene.now) == 0
    assert all("emptyAt" in document.value for document in scene.store.control.read(HOLDING).values())
    scene.add("late", lane="air")
    scene.hold("parcels/weigh/air")
    scene.follow()
    assert scene.claim().items == []
    scene.release("parcels/weigh/air")
    scene.clock.advance(EMPTY_MS // 1000)
    assert resume(scene.store, scene.now) == 1
    assert list(scene.store.control.read(HOLDING)) == ["parcels/weigh/air"]


def test_a_pause_with_an_end_lets_its_backlog_go_by_itself(scene: Scene) -> None:
    keys = ["a1", "a2", "a3"]
    scene.add(*keys, lane="air")
    ends = scene.now + 3_600_000
    scene.store.control.write(HOLD, "parcels/weigh/air", msgspec.to_builtins(Hold(scene.now, "ops", "down until three", until=ends)))
    scene.follow()
    while any(not shard.startswith("held#") for shard in shards(scene, keys)):
        assert scene.claim().items == []
    scene.clock.advance(3_599)
    scene.resend()
    assert resume(scene.store, scene.now) == 0
    scene.clock.advance(1)
    scene.resend()
    scene.store.forget(HOLD)
    assert resume(scene.store, scene.now) == len(keys)
    assert {item.key for item in scene.claim().items} == set(keys)
