"""Rows that an earlier clock dated in the future: the repair scan counts them, and doctor says as
of when."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from tests.aws.ledger.repair.repair_scene import DAY, Scene, scene_at

from milepost.blobs.memory import MemoryBlobs
from milepost.core.outcome import Done, Reject
from milepost.engine.acts.redate import redate_rows
from milepost.engine.context import Context
from milepost.engine.health.doctor import doctor
from milepost.ports.documents import read_as
from milepost.ports.upkeep import FutureCount
from milepost_aws.ledger.repair.repair import REPAIR, RepairRun
from milepost_testing.clock import SeededChance


@pytest.fixture
def scene(endpoint: str, prefix: str) -> Iterator[Scene]:
    with scene_at(endpoint, prefix) as scene:
        yield scene


@pytest.fixture
def ctx(scene: Scene) -> Context:
    return Context(
        scene.aws, {scene.plan.name: scene.plan}, scene.clock, SeededChance(), MemoryBlobs()
    )


def dated_ahead(scene: Scene) -> None:
    """One live row and one failed row that are dated three days ahead, and a sound one."""
    scene.add("sound")
    scene.clock.advance("3d")
    scene.add("live", "failed")
    scene.follow()
    [item] = [item for item in scene.claim().items if item.key == "failed"]
    scene.settle(item, Reject("not a parcel"))
    scene.follow()
    scene.clock.set_back("3d")


def findings(ctx: Context) -> list[tuple[str, str]]:
    return [
        (finding.level, finding.what)
        for finding in doctor(ctx).findings
        if "dated in the future" in finding.what
    ]


def test_before_the_first_count_it_is_not_known(scene: Scene, ctx: Context) -> None:
    dated_ahead(scene)
    assert scene.aws.counted_future("parcels") is None
    [(level, what)] = findings(ctx)
    assert (level, "it is not known whether items of parcels are dated in the future" in what) == (
        "ok",
        True,
    )


def test_the_repair_counts_them_and_doctor_says_as_of_when(scene: Scene, ctx: Context) -> None:
    dated_ahead(scene)
    began = scene.now
    scene.run()
    assert scene.aws.counted_future("parcels") == FutureCount(3, began), (
        "the claim of the sound row is dated ahead too"
    )
    scene.clock.advance("1h")
    [(level, what)] = findings(ctx)
    assert level == "warn"
    assert what.startswith("3 items of parcels were dated in the future, as of ")
    assert "1 h ago" in what or "when the daily repair began to count" in what


def test_after_redate_the_count_is_said_to_be_old_until_the_next_one(
    scene: Scene, ctx: Context
) -> None:
    dated_ahead(scene)
    scene.run()
    report = redate_rows(ctx, "parcels", by="ops", reason="the clock was ahead")
    scene.follow()
    assert report.done + report.refused_count == 3
    [(level, what)] = findings(ctx)
    assert (level, "they were redated at" in what) == ("ok", True)
    scene.clock.advance("1d")
    scene.run()
    counted = scene.aws.counted_future("parcels")
    assert counted is not None
    assert counted.n == report.refused_count


def test_no_item_is_a_count_with_its_time(scene: Scene, ctx: Context) -> None:
    scene.add("sound")
    scene.run()
    [(level, what)] = findings(ctx)
    assert (level, what.startswith("no item of parcels is dated in the future, as of ")) == (
        "ok",
        True,
    )


def test_completed_rows_are_not_counted(scene: Scene) -> None:
    scene.clock.advance("3d")
    scene.add("a")
    for stage in ("weigh", "stamp"):
        scene.follow()
        scene.settle(scene.claim(stage).items[0], Done())
    scene.confirm("a", "delivered")
    scene.follow()
    scene.clock.set_back("3d")
    scene.run()
    counted = scene.aws.counted_future("parcels")
    assert counted is not None
    assert counted.n == 0


def test_a_run_that_an_earlier_version_took_part_in_leaves_the_last_count(scene: Scene) -> None:
    dated_ahead(scene)
    scene.run()
    counted = scene.aws.counted_future("parcels")
    scene.clock.advance("1d")
    scene.repair(page=1).step(scene.clock)
    scene.clock.advance_to(scene.now + DAY // 24)
    document = scene.store.control.read_one(REPAIR, "parcels")
    assert document is not None
    # An earlier version writes the fields that it knows.
    run = replace(read_as(RepairRun, document.value), counts_future=False)
    scene.store.control.write(REPAIR, "parcels", run, document.version)
    scene.run()
    assert scene.aws.counted_future("parcels") == counted


def test_a_count_goes_on_during_the_next_run(scene: Scene) -> None:
    dated_ahead(scene)
    scene.run()
    counted = scene.aws.counted_future("parcels")
    scene.clock.advance("1d")
    scene.repair(page=1).step(scene.clock)
    assert scene.aws.counted_future("parcels") == counted


def test_a_damaged_record_of_the_run_begins_a_new_one(scene: Scene) -> None:
    scene.add("a")
    scene.store.control.write(REPAIR, "parcels", {"started": "never"})
    assert scene.repair().due(scene.now)
    assert scene.run().done
