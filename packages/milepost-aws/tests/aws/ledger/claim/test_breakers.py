"""Circuit breakers on AWS: messages and rows while a lane is closed, and processes that die in
between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.aws.ledger.repair.repair_scene import Scene
from tests.aws.ledger.table_scene import Died

from milepost.core.errors import LedgerBusy
from milepost.core.outcome import Done, Retry
from milepost.core.routes.backoff import Backoff
from milepost.core.routes.breaker import Breaker
from milepost.ports.documents import BREAKER
from milepost_aws.ledger.breakers import take_probes
from milepost_aws.ledger.claim.paused_lanes import HeldLanes
from milepost_testing.contract.world import LEASE, sample_route

DOWN = Retry("the partner does not answer")
LANE = "parcels/weigh/north"


def made(endpoint: str, prefix: str, **options: Any) -> Scene:
    settings = {
        "breaker": Breaker(failures=2, cooldown="30s"),
        "retry": Backoff(attempts=9, base="1h", jitter=0),
    }
    return Scene(endpoint, prefix, sample_route(**(settings | options)))


@pytest.fixture
def scene(endpoint: str, prefix: str) -> Iterator[Scene]:
    scene = made(endpoint, prefix)
    yield scene
    scene.close()


@pytest.fixture
def alone(endpoint: str, prefix: str) -> Iterator[Scene]:
    """A stage without lanes."""
    scene = made(endpoint, prefix, lane=None)
    yield scene
    scene.close()


def open_breaker(scene: Scene, **content: Any) -> None:
    scene.add("f1", "f2", **content)
    scene.follow()
    items = scene.claim().items
    assert len(items) == 2
    for item in items:
        assert scene.settle(item, DOWN) is None


def shards(scene: Scene, *keys: str) -> list[bool]:
    """Which of these rows stand apart."""
    images = scene.store.images("parcels", keys)
    return [images[key]["dueShard"]["S"].startswith("held#") for key in keys]


def depth(scene: Scene) -> int:
    return sum(scene.store.queues.depth(scene.store.queues.url("parcels", "weigh")))


def test_rows_of_a_closed_lane_stand_apart_until_it_is_open_again(scene: Scene) -> None:
    open_breaker(scene, lane="north")
    scene.add("n1", "n2", "n3", lane="north")
    scene.follow()
    assert scene.claim().items == []
    assert shards(scene, "n1", "n2", "n3") == [True] * 3
    assert depth(scene) == 0, "their messages are gone: nobody goes through them again and again"
    assert HeldLanes(scene.store).resume(scene.clock).rows == 0
    scene.clock.advance(30)
    assert HeldLanes(scene.store).resume(scene.clock).rows == 1, "one probe is offered"
    [probe] = scene.claim().items
    assert scene.settle(probe, Done()) is None
    assert scene.breaker(LANE) is None
    assert HeldLanes(scene.store).resume(scene.clock).rows == 2
    assert len(scene.claim().items) == 2
    scene.follow()


def test_messages_of_a_stage_without_lanes_stay_in_the_queue(alone: Scene) -> None:
    open_breaker(alone)
    alone.add("p1", "p2")
    alone.follow()
    claimed = alone.claim()
    assert claimed.items == []
    assert claimed.next_at is not None
    assert shards(alone, "p1", "p2") == [False, False]
    assert depth(alone) == 2
    alone.clock.advance(30)
    assert len(alone.claim().items) == 1
    assert alone.claim().items == []


def test_of_two_processes_one_takes_the_last_probe(scene: Scene) -> None:
    open_breaker(scene, lane="north")
    scene.clock.advance(30)
    other = scene.open(scene.process)
    other.prepare(scene.plan)
    stage = scene.plan.by_name["weigh"]
    taken = [
        take_probes(store, "parcels", stage, "north", [key], scene.now, scene.now + LEASE)
        for store, key in ((scene.store, "a"), (other.store, "b"))
    ]
    assert taken == [["a"], []]


def test_a_probe_whose_process_dies_before_its_claim_frees_its_slot(scene: Scene) -> None:
    open_breaker(scene, lane="north")
    scene.clock.advance(30)
    stage = scene.plan.by_name["weigh"]
    assert take_probes(
        scene.store, "parcels", stage, "north", ["gone"], scene.now, scene.now + LEASE
    ) == ["gone"]
    assert (
        take_probes(scene.store, "parcels", stage, "north", ["next"], scene.now, scene.now + LEASE)
        == []
    )
    scene.clock.advance(LEASE / 1000)
    assert take_probes(
        scene.store, "parcels", stage, "north", ["next"], scene.now, scene.now + LEASE
    ) == ["next"]


def test_a_probe_that_cannot_be_claimed_after_all_frees_its_slot(scene: Scene) -> None:
    open_breaker(scene, lane="north")
    scene.add("n1", lane="north")
    scene.follow()
    scene.clock.advance(30)
    [image] = scene.store.images("parcels", ["n1"]).values()
    # Its message is there, and its row has gone meanwhile.
    scene.store.requests.call(
        "dynamodb", "delete_item", TableName=scene.table, Key=scene.layout.key_image("n1")
    )
    assert image is not None
    assert scene.claim().items == []
    record = scene.breaker(LANE)
    assert record is not None
    assert record.probes == []


def test_a_process_that_dies_between_the_row_and_the_breaker_loses_one_failure_alone(
    scene: Scene,
) -> None:
    scene.add("f1", "f2", "f3", lane="north")
    scene.follow()
    one, two, three = scene.claim().items
    scene.settle(one, DOWN)
    real, scene.store.control.write = scene.store.control.write, _die  # type: ignore[method-assign]
    with pytest.raises(Died):
        scene.settle(two, DOWN)
    scene.store.control.write = real  # type: ignore[method-assign]
    assert scene.row(two.key).attempts == 1, "the row was written"
    record = scene.breaker(LANE)
    assert record is not None
    assert len(record.failures) == 1
    scene.settle(three, DOWN)
    record = scene.breaker(LANE)
    assert record is not None
    assert not record.closed


def _die(*_: Any, **__: Any) -> bool:
    raise Died


def test_a_breaker_that_cannot_be_reached_does_not_hinder_the_outcome(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.add("f1", lane="north")
    scene.follow()
    [item] = scene.claim().items

    def busy(*_: Any, **__: Any) -> bool:
        raise LedgerBusy("throttled")

    monkeypatch.setattr(scene.store.control, "write", busy)
    assert scene.settle(item, DOWN) is None
    assert scene.row("f1").attempts == 1


def test_a_closed_breaker_costs_no_write_for_an_item(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    real = scene.store.control.write

    def counted(kind: str, name: str, value: Any, expect: int | None = None) -> bool:
        written.append(kind)
        return real(kind, name, value, expect)

    monkeypatch.setattr(scene.store.control, "write", counted)
    scene.add("p1", "p2", lane="north")
    scene.follow()
    for item in scene.claim().items:
        assert scene.settle(item, Done()) is None
    assert BREAKER not in written
