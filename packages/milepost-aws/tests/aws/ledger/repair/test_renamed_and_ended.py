"""Rows that stand apart when their stage is renamed, and rows that end just before the process that
reads of it dies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.aws.ledger.repair.repair_scene import Scene, scene_at
from tests.aws.ledger.synchronous_ledger import Moment
from tests.aws.ledger.table_scene import Died, Process

from milepost.core.outcome import Reject
from milepost.ports.documents import CURSOR, HOLD, Cursor
from milepost_aws.ledger.claim.paused_lanes import EMPTY_MS, HeldLanes
from milepost_aws.ledger.upkeep import StreamReader
from milepost_testing.contract.world import sample_route


@pytest.fixture
def scene(endpoint: str, prefix: str) -> Iterator[Scene]:
    with scene_at(endpoint, prefix) as made:
        yield made


@pytest.mark.parametrize("lane", ["", "north"])
def test_rows_of_a_paused_lane_are_resumed_under_the_stages_new_name(
    scene: Scene, endpoint: str, lane: str
) -> None:
    scope = f"parcels/weigh/{lane}"
    scene.add("a", lane=lane)
    scene.add("b", lane="south")
    scene.follow()
    scene.hold(scope)
    assert [item.key for item in scene.claim().items] == ["b"]
    scene.follow()
    scene.aws.rename_stage("parcels", "weigh", "scale")
    assert scene.image("a")["dueShard"]["S"].startswith(f"held#scale#{lane}#")
    assert list(scene.store.control.read("holding")) == [f"parcels/scale/{lane}"]
    assert list(scene.store.control.read(HOLD)) == [f"parcels/scale/{lane}"]
    scene.follow()
    renamed = sample_route()
    renamed.stages[0] = replace(renamed.stages[0], name="scale")
    newer = Scene(endpoint, scene.prefix, renamed)
    try:
        assert HeldLanes(newer.store).resume(newer.clock).rows == 0, "it is paused"
        newer.release(f"parcels/scale/{lane}")
        assert HeldLanes(newer.store).resume(newer.clock).rows == 1
        newer.take("a", "scale")
        assert HeldLanes(newer.store).resume(newer.clock).rows == 0
        assert HeldLanes(newer.store).resume(Moment(newer.now + EMPTY_MS)).rows == 0
        assert newer.store.control.read("holding") == {}
    finally:
        newer.close()


def test_a_partners_answer_that_reads_like_a_reference_to_the_stage_is_not_renamed(
    scene: Scene,
) -> None:
    answer = {"M": {"of": {"S": "weigh"}}}
    scene.add("a")
    scene.follow()
    scene.damage("a", ingested_weigh=answer)
    scene.aws.rename_stage("parcels", "weigh", "scale")
    assert scene.image("a")["ingested_scale"] == answer
    assert "ingested_weigh" not in scene.image("a")


class DiesAfterTheCheckpoint(Process):
    """Dies as soon as a shard has been moved on past something."""

    armed = False

    def call(self, service: str, operation: str, /, **params: Any) -> dict[str, Any]:
        answer = super().call(service, operation, **params)
        moved_on = params.get("Key", {}).get("kind") == {"S": "shard"} and '"seq"' in str(
            params.get("ExpressionAttributeValues")
        )
        if self.armed and operation == "update_item" and moved_on:
            raise Died(operation)
        return answer


def test_a_row_that_everybody_was_told_of_is_finished_though_its_reader_dies_right_after_the_checkpoint(
    scene: Scene,
) -> None:
    process = DiesAfterTheCheckpoint(scene.endpoint)
    store = scene.open(process).store
    store.load_route(scene.plan)
    reader = StreamReader(store, {scene.plan.name: scene.plan}, scene.clock, lambda: 0.0, "mortal")
    scene.add("a")
    while reader.turn() == 0.0:
        pass
    scene.settle(scene.take("a"), Reject("no"))
    process.armed = True
    with pytest.raises(Died):
        while reader.turn() == 0.0:
            pass
    assert scene.image("a")["dueShard"]["S"].startswith("failed#")
    assert "trail" not in scene.image("a")


def test_a_row_is_finished_by_one_write_whoever_has_still_to_be_told(scene: Scene) -> None:
    reader = StreamReader(
        scene.store, {scene.plan.name: scene.plan}, scene.clock, lambda: 0.0, "reader"
    )
    scene.aws.write(CURSOR, "away", Cursor(0, 0))
    scene.add("a")
    while reader.turn() == 0.0:
        pass
    scene.settle(scene.take("a"), Reject("no"))
    assert scene.image("a")["dueShard"]["S"].startswith("failed#"), "operators find it at once"
    while reader.turn() == 0.0:
        pass
    assert "trail" not in scene.image("a")
    assert scene.store.seals(scene.plan.name, ["a"])
