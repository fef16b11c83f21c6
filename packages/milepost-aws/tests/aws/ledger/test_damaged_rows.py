"""A damaged row, or one whose blob is damaged or missing, affects that item alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from tests.aws.ledger.repair.repair_scene import Scene, scene_at

from milepost.core.outcome import Done, Reject
from milepost.core.routes.plan import Plan
from milepost.core.status import FAILED, LIVE, TERMINAL
from milepost.engine.context import Context
from milepost.engine.work.settle import settle
from milepost.ports.items import Query
from milepost.ports.retention import DeliveredLines, PruneCriteria
from milepost.ports.runner import JobResult
from milepost_aws.ledger.claim.paused_lanes import HeldLanes, hold
from milepost_aws.ledger.retention import SEALED_FOR_MS

LONG = "x" * 9000
HOWS = ["spoilt", "damaged", "gone"]


@pytest.fixture
def scene(endpoint: str, prefix: str) -> Iterator[Scene]:
    with scene_at(endpoint, prefix) as made:
        yield made


def spoil(scene: Scene, key: str, how: str) -> None:
    """The row itself cannot be read any more. Nobody reads of it in the stream."""
    scene.follow()
    if how == "spoilt":
        scene.damage(key, head={"S": "?"})
    else:
        if how == "damaged":
            scene.blobs.write("elsewhere/blob", [b"not what it was"])
        reference = {
            "blob": {"S": "elsewhere/blob"},
            "sha256": {"S": "0" * 64},
            "size": {"N": "9000"},
        }
        scene.damage(key, ingested_stamp={"M": reference})
    scene.lose()


def damage_blobs(scene: Scene, *beginnings: str) -> int:
    """What is kept apart under these names is not what it was; how many."""
    names = [name for name in scene.blobs.held if name.startswith(beginnings)]
    for name in names:
        scene.blobs.write(name, [b"damaged"])
    return len(names)


# The row ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", HOWS)
def test_the_others_are_found_sent_again_and_due(
    scene: Scene, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene.add("a", "bad", "c")
    spoil(scene, "bad", how)
    assert {item.key for item in scene.aws.find(Query(route="parcels")).items} == {"a", "c"}
    assert {
        item.key
        for item in scene.aws.find(Query(route="parcels", statuses=LIVE, due_before=2**45)).items
    } == {"a", "c"}
    refs = [("parcels", key) for key in ("a", "bad", "c", "d")]
    assert [type(found).__name__ for found in scene.aws.get(refs)] == [
        "Item",
        "Refused",
        "Item",
        "NoneType",
    ]
    assert [known is None for known in scene.aws.peek("parcels", ["a", "bad", "c", "d"])] == [
        False,
        False,
        False,
        True,
    ]
    assert scene.aws.next_due([scene.plan]) is not None
    queue = scene.store.queues.url("parcels", "weigh")
    scene.store.queues.delete(scene.store.queues.receive(queue, 100, 60))
    scene.clock.advance("15d")
    scene.resend()
    assert {message.body["key"] for message in scene.store.queues.receive(queue, 100, 60)} == {
        "a",
        "c",
    }
    assert "bad" in caplog.text


@pytest.mark.parametrize("how", HOWS[:2])
def test_the_others_leave_when_their_time_has_come(scene: Scene, how: str) -> None:
    scene.add("a", "bad", "c")
    scene.follow()
    for item in scene.claim().items:
        scene.settle(item, Reject("no"))
    spoil(scene, "bad", how)
    scene.clock.advance_to(scene.now + 3 * SEALED_FOR_MS)
    assert (
        scene.aws.prune(
            PruneCriteria("parcels", TERMINAL, scene.now, None, DeliveredLines(2**62), 100)
        ).items
        == 2
    )
    assert set(scene.store.images("parcels", ["a", "bad", "c"])) == {"bad"}


@pytest.mark.parametrize("how", HOWS[:2])
def test_the_others_of_a_lane_are_resumed(scene: Scene, how: str) -> None:
    scene.add("a", "bad", "c", lane="north")
    scene.follow()
    scene.hold("parcels/weigh/north")
    assert scene.claim().items == []
    spoil(scene, "bad", how)
    scene.release("parcels/weigh/north")
    assert HeldLanes(scene.store).resume(scene.clock).rows == 2
    assert {item.key for item in scene.claim().items} == {"a", "c"}


@pytest.mark.parametrize("how", HOWS[:2])
def test_the_repair_goes_on_and_sets_it_aside_once(scene: Scene, how: str) -> None:
    scene.add("a", "bad", "c")
    scene.lose()
    spoil(scene, "bad", how)
    scene.clock.advance("1d")
    progress = scene.run()
    assert (progress.found.rows, progress.found.left) == (3, {"set aside": 1})
    assert progress.found.mended["set aside"] == 1
    assert [found["content"]["row"]["id"] for found in scene.quarantined()] == ["bad"]
    assert "set aside" not in scene.mended()


@pytest.mark.parametrize("how", HOWS[:2])
def test_the_others_go_with_a_stage_that_is_renamed(scene: Scene, how: str) -> None:
    scene.add("a", "bad", "c")
    spoil(scene, "bad", how)
    scene.aws.rename_stage("parcels", "weigh", "scale")
    images = scene.store.images("parcels", ["a", "bad", "c"])
    assert {key: image["queue"]["S"] for key, image in images.items()} == {
        "a": "scale",
        "bad": "weigh",
        "c": "scale",
    }


def test_whoever_loses_a_race_for_a_spoilt_row_finds_nobody_there(scene: Scene) -> None:
    scene.add("a", "bad")
    scene.follow()
    items = sorted(scene.claim().items, key=lambda item: item.key)
    spoil(scene, "bad", "spoilt")
    assert settle(context(scene), [JobResult(item, Done(), 5) for item in items]).written == 1
    assert scene.row("a").stage == "stamp"


# What it carries ----------------------------------------------------------------------------------
def context(scene: Scene, plan: Plan | None = None) -> Context:
    return Context(
        scene.aws, {"parcels": plan or scene.plan}, scene.clock, scene.chance, scene.blobs
    )


def at_delivered(scene: Scene) -> None:
    """Three parcels at somebody else's stage, one of which carries what cannot be read any more."""
    scene.add("a", "c")
    scene.add("bad", text=LONG)
    scene.follow()
    for stage in ("weigh", "stamp"):
        for item in scene.claim(stage).items:
            assert scene.settle(item, Done()) is None
        scene.follow()
    assert damage_blobs(scene, "parcels/") == 1


def test_the_resender_offers_the_others_again(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    at_delivered(scene)
    scene.clock.advance("15d")
    with caplog.at_level(logging.ERROR):
        scene.resend()
    assert {key: scene.reasons(key)[-1] for key in ("a", "bad", "c")} == {
        "a": "resent",
        "bad": "retry",
        "c": "resent",
    }
    [bad] = scene.aws.find(Query(route="parcels", prefix="bad")).items
    assert bad.row.error is not None
    assert bad.row.error.category == "CANNOT_BE_STORED", (
        "it is a counted try, and ends by the stage's threshold"
    )


def test_what_cannot_be_found_with_its_content_is_left_out(scene: Scene) -> None:
    at_delivered(scene)
    assert {
        item.key for item in scene.aws.find(Query(route="parcels", with_content=True)).items
    } == {"a", "c"}
    assert {item.key for item in scene.aws.find(Query(route="parcels")).items} == {"a", "bad", "c"}


def test_a_lane_of_somebody_elses_stage_is_resumed_but_for_the_one(scene: Scene) -> None:
    at_delivered(scene)
    for item in scene.aws.find(Query(route="parcels")).items:
        hold(scene.store, scene.layout, item.row, scene.now)
    assert HeldLanes(scene.store).resume(scene.clock).rows == 2
    assert [scene.reasons(key)[-1] for key in ("a", "bad", "c")] == ["resent", "offered", "resent"]


def offering(plan: Plan) -> Plan:
    """The same route without any grace: what comes to somebody else's stage is offered in the same
    write."""
    return Plan(plan.route, version=plan.version, offer_life_ms=60_000)


def test_an_outcome_that_would_offer_what_cannot_be_read_is_a_counted_try_of_that_item_alone(
    scene: Scene,
) -> None:
    scene.add("a", "c")
    scene.add("bad", text=LONG)
    scene.follow()
    for item in scene.claim("weigh").items:
        scene.settle(item, Done())
    scene.follow()
    items = scene.claim("stamp").items
    damage_blobs(scene, "parcels/")
    settle(context(scene, offering(scene.plan)), [JobResult(item, Done(), 5) for item in items])
    found = {
        item.key: (item.stage, item.row.attempts)
        for item in scene.aws.find(Query(route="parcels")).items
    }
    assert found == {"a": ("delivered", 0), "bad": ("stamp", 1), "c": ("delivered", 0)}


# Its history --------------------------------------------------------------------------------------
def rejected(scene: Scene) -> None:
    """Three parcels that failed, one with more to say than a row can hold."""
    scene.add("a", "bad", "c")
    scene.follow()
    for item in scene.claim().items:
        scene.settle(item, Reject("no", details={"body": LONG} if item.key == "bad" else None))


def test_a_line_that_cannot_be_read_is_told_to_nobody_and_stops_nobody(scene: Scene) -> None:
    rejected(scene)
    scene.follow()
    assert damage_blobs(scene, "history/") == 1
    told = {
        (written.key, written.line.version, written.line.reason.value)
        for written in scene.aws.feed(0, 100)
    }
    assert {key for key, version, reason in told if reason == "rejected"} == {"a", "c"}
    assert ("bad", 0, "noted") in told
    assert [line.reason.value for line in scene.lines("bad")] == ["accepted", "noted"]
    assert "digest differs" in str(scene.lines("bad")[-1].note)


def test_a_line_that_cannot_be_read_is_written_again_from_its_row_and_the_repair_ends(
    scene: Scene,
) -> None:
    rejected(scene)
    lose_but_the_lines(scene)
    assert damage_blobs(scene, "history/") == 1
    scene.clock.advance("1d")
    progress = scene.run()
    assert (progress.done, progress.found.rows) == (True, 3)
    assert [line.reason.value for line in scene.lines("bad")] == ["accepted", "rejected"]
    scene.follow()
    assert {item.key for item in scene.aws.find(Query(route="parcels", statuses=FAILED)).items} == {
        "a",
        "bad",
        "c",
    }


def lose_but_the_lines(scene: Scene) -> None:
    """The relay writes the lines down and dies before the rows are finished."""
    while scene.stream.poll(
        lambda records: scene.relay.handle(records, scene.now) and None, scene.clock
    ):
        pass


def test_the_relay_goes_on_though_a_line_that_comes_again_cannot_be_read(scene: Scene) -> None:
    rejected(scene)
    records: list[list[object]] = []

    def handle(batch: list[object]) -> None:
        records.append(batch)
        scene.relay.handle(batch, scene.now)  # type: ignore[arg-type]

    while scene.stream.poll(handle, scene.clock):  # type: ignore[arg-type]
        pass
    damage_blobs(scene, "history/")
    for batch in records:
        scene.relay.handle(batch, scene.now)  # type: ignore[arg-type]
    assert [line.reason.value for line in scene.lines("bad")] == ["accepted", "rejected"]
