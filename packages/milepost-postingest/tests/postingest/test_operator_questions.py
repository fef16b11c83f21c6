"""Questions of operators about assets, and a paced back-fill of a third stage for thousands of
completed assets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.postingest.in_process_scene import LEDGERS, InProcessScene, key_of, url_of

import milepost as mp
from milepost.composition import open_context
from milepost.core.status import Status
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.controls import pause, resume
from milepost.engine.acts.verbs import ConfirmVerb
from milepost.engine.resend import Resender
from milepost.engine.routes.versions import apply_route
from milepost.engine.views.items import status
from milepost.engine.views.late_items import LateItem, late_item_view, nearest, overdue, share
from milepost.engine.views.snapshot import snapshots
from milepost.ports.items import Query
from milepost_postingest import postingest

QUEUES = [
    {"queueAlias": "CC", "queueOrder": 1, "resendAfter": "4d"},
    {"queueAlias": "Scout", "queueOrder": 2, "worker": "scoutam"},
]
THIRD = {"queueAlias": "Offsite", "queueOrder": 3, "statusText": "Tapes are off site."}
ROUTE = "postingest"
ALL = Query(route=ROUTE)


class Shelves:
    """Stands where the tape library is asked: what it says of each asset is in the test's hands."""

    def __init__(self) -> None:
        self.said: dict[str, mp.Outcome] = {}
        self.asked: list[str] = []

    def __call__(self, item: mp.Item) -> mp.Outcome:
        asset = item.key.partition("#")[0]
        self.asked.append(asset)
        return self.said.get(asset, mp.NotYet(note="0 of 4 files on tape"))


@pytest.fixture
def shelves() -> Shelves:
    return Shelves()


@pytest.fixture(params=LEDGERS)
def scene(
    request: pytest.FixtureRequest, tmp_path: Path, shelves: Shelves
) -> Iterator[InProcessScene]:
    scene = InProcessScene(
        url_of(request.param, tmp_path), queues=QUEUES, workers={"Scout": shelves}
    )
    yield scene
    scene.close()


def on_disk(scene: InProcessScene, *assets: str) -> None:
    for asset in assets:
        scene.put(asset)
        scene.confirm("CC", asset=asset)
    look(scene)


def look(scene: InProcessScene) -> None:
    """Whatever is due now, and what the shelves say to it (which takes them a moment)."""
    scene.run(scene.clock.now() + 1000)


def offered(scene: InProcessScene, stage: str = "CC") -> list[str]:
    return [offer.key for offer in scene.asked() if offer.stage == stage]


def keys(found: tuple[list[LateItem], bool]) -> list[str]:
    return [asked.item.key.partition("#")[0] for asked in found[0]]


def test_how_old_the_assets_at_each_stage_are(scene: InProcessScene) -> None:
    for number in range(20):
        scene.put(f"old-{number}")
    scene.clock.advance("9d")
    for number in range(79):
        scene.put(f"young-{number}")
    scene.put("through")
    scene.confirm("CC", asset="through")
    scene.run()
    scene.clock.advance("1d")
    cc, scout = snapshots(scene.ctx)[ROUTE].stages
    day, hour = 86_400_000, 3_600_000
    assert (cc.p50_ms, cc.p95_ms, cc.oldest_ms) == tuple(
        pytest.approx(days * day, abs=hour) for days in (1, 10, 10)
    )
    assert scout.p50_ms == scout.p95_ms == scout.oldest_ms == pytest.approx(day, abs=hour)


def test_young_assets_are_told_to_the_millisecond(scene: InProcessScene) -> None:
    scene.put("a")
    scene.clock.advance("30s")
    scene.put("b")
    scene.clock.advance("10s")
    cc, scout = snapshots(scene.ctx)[ROUTE].stages
    assert (cc.p50_ms, cc.p95_ms, cc.oldest_ms) == (10_000, 40_000, 40_000)
    assert (scout.p50_ms, scout.oldest_ms) == (None, None)


def test_which_are_overdue_and_why(scene: InProcessScene, shelves: Shelves) -> None:
    shelves.said = {"half": mp.NotYet(note="2 of 4 files on tape")}
    scene.put("unanswered")
    scene.clock.advance("10d")
    on_disk(scene, "half", "none")
    came = scene.shown("half")["entered_at"]
    scene.clock.advance("13d")
    assert overdue(scene.ctx, ALL, 50) == ([], False)
    scene.clock.advance("1d")
    look(scene)
    on_disk(scene, "young")
    found, more = overdue(scene.ctx, ALL, 50)
    assert [(asked.item.key, asked.why) for asked in found] == [
        (key_of("half"), "2 of 4 files on tape"),
        (key_of("none"), "0 of 4 files on tape"),
    ]
    assert not more
    view = late_item_view(found[0], scene.clock.now())
    assert (view["note"], view["entered_at"], view["here_for_s"] - view["overdue_for_s"]) == (
        "2 of 4 files on tape",
        came,
        14 * 86_400.0,
    )
    scene.clock.advance("6d")
    look(scene)
    found, more = overdue(scene.ctx, ALL, 2)
    assert (keys((found, more)), more) == (["half", "none"], True), (
        "the one that has been late for longest first"
    )
    assert keys(overdue(scene.ctx, Query(route=ROUTE, stages=frozenset({"CC"})), 50)) == [
        "unanswered"
    ]
    [asked] = overdue(scene.ctx, Query(route=ROUTE, stages=frozenset({"CC"})), 50)[0]
    assert asked.why == "offered; not confirmed yet"
    scene.confirm("CC", asset="unanswered")
    assert overdue(scene.ctx, Query(route=ROUTE, stages=frozenset({"CC"})), 50) == ([], False)


def test_an_error_and_a_pause_are_told_as_the_reason(
    scene: InProcessScene, shelves: Shelves
) -> None:
    shelves.said = {
        "a": mp.Retry("the library does not answer", category="UNREACHABLE", after="20d")
    }
    on_disk(scene, "a")
    scene.clock.advance("15d")
    assert [asked.why for asked in overdue(scene.ctx, ALL, 5)[0]] == [
        "try 1 failed: UNREACHABLE: the library does not answer"
    ]
    pause(scene.ctx, ROUTE, "Scout", by="ops", reason="the robot is serviced")
    assert [asked.why for asked in overdue(scene.ctx, ALL, 5)[0]] == [
        "postingest/Scout is paused by ops: the robot is serviced"
    ]


def test_what_would_be_complete_next(scene: InProcessScene, shelves: Shelves) -> None:
    shelves.said = {
        "most": mp.NotYet(note="at least 1,999 of 2,000 files on tape"),
        "half": mp.NotYet(note="2 of 4 files on tape", after="5m"),
        "half-later": mp.NotYet(note="2 of 4 files on tape", after="9h"),
        "failing": mp.Retry("the library does not answer"),
    }
    scene.put("on-the-way")
    on_disk(scene, "failing", "none", "half-later", "half", "most")
    assert keys(nearest(scene.ctx, ALL, 50)) == [
        "most",
        "half",
        "half-later",
        "none",
        "failing",
        "on-the-way",
    ]
    assert (
        keys(nearest(scene.ctx, ALL, 2)),
        nearest(scene.ctx, ALL, 2)[1],
        nearest(scene.ctx, ALL, 6)[1],
    ) == (
        ["most", "half"],
        True,
        False,
    )
    shelves.said["most"] = mp.Done({"a": ["L1"]})
    scene.clock.advance("1d")
    look(scene)
    assert keys(nearest(scene.ctx, ALL, 1)) != ["most"]


@pytest.mark.parametrize(
    ("note", "there"),
    [
        (None, 0.0),
        ("", 0.0),
        ("none of it", 0.0),
        ("1 of 0 files", 0.0),
        ("3 of 4", 0.75),
        ("5 of 4", 1.0),
    ],
)
def test_a_notes_share_is_read_where_it_tells_one(note: str | None, there: float) -> None:
    assert share(note) == there


def test_the_answers_need_the_route_file(scene: InProcessScene) -> None:
    scene.ctx.plans.clear()
    for question in (overdue, nearest):
        with pytest.raises(mp.UsageError, match=r"give --routes file\.py"):
            question(scene.ctx, ALL, 5)


def test_a_paused_tape_stage_is_not_asked_and_counts_nothing(
    scene: InProcessScene, shelves: Shelves
) -> None:
    pause(scene.ctx, ROUTE, "Scout", by="ops", reason="the robot is serviced")
    on_disk(scene, "a")
    scene.clock.advance("2d")
    scene.run()
    assert shelves.asked == []
    shown = scene.shown("a")
    assert (shown["stage"], shown["attempts"], shown["looks"]) == ("Scout", 0, 0)
    resume(scene.ctx, ROUTE, "Scout", by="ops", reason="it turns again")
    look(scene)
    assert shelves.asked == ["a"]


def test_a_paused_external_stage_is_offered_once_and_still_confirmed(scene: InProcessScene) -> None:
    pause(scene.ctx, ROUTE, "CC", by="ops", reason="the disks are moved")
    scene.put("a")
    assert offered(scene) == [key_of("a")]
    scene.clock.advance("5d")
    assert offered(scene) == [], "it is past its time, and not sent again"
    scene.confirm("CC", asset="a")
    assert scene.at("a")[0] == "Scout"
    scene.put("b")
    scene.clock.advance("5d")
    assert offered(scene) == [key_of("b")]
    resume(scene.ctx, ROUTE, "CC", by="ops", reason="they stand")
    assert offered(scene) == [key_of("b")]


def test_a_person_confirms_by_hand_with_a_reason(scene: InProcessScene) -> None:
    on_disk(scene, "a")
    done = act(
        scene.ctx,
        select(scene.ctx, ROUTE, keys=[key_of("a")]),
        ConfirmVerb("Scout"),
        by="ops",
        reason="seen on tape L03721 myself",
    )
    assert done.done == 1
    last = scene.shown("a")["history"][-1]
    assert (last["reason"], last["by"], last["why"]) == (
        "confirmed",
        "ops",
        "seen on tape L03721 myself",
    )


def test_assets_at_a_stage_that_the_route_has_not_got_are_named(scene: InProcessScene) -> None:
    scene.put("a")
    narrow = open_context(
        "memory:", [postingest([{"queueAlias": "Scout", "queueOrder": 1}])], check=False
    )
    narrow.ledger = scene.ctx.ledger
    assert status(narrow)["routes"][ROUTE]["unknown_stages"] == ["CC"]
    assert status(scene.ctx)["routes"][ROUTE]["unknown_stages"] == []


def test_a_third_stage_is_back_filled_at_a_pace_and_nobody_is_told_complete_twice(
    tmp_path: Path, shelves: Shelves
) -> None:
    url, assets = url_of("sqlite", tmp_path), [f"asset-{number:02d}" for number in range(12)]
    scene = InProcessScene(url, queues=QUEUES, workers={"Scout": shelves})
    shelves.said = {asset: mp.Done({"file": ["L1"]}) for asset in assets}
    on_disk(scene, *assets)
    assert scene.statuses().count("Asset has been written to data tape.") == 12
    scene.close()
    scene.clock.advance("1d")

    queues = [*QUEUES, THIRD]
    ctx = open_context(
        url, [postingest(queues, workers={"Scout": shelves})], clock=scene.clock, check=False
    )
    given: dict[str, Any] = {
        "mapping": {},
        "by": "ops",
        "reason": "tapes go off site",
        "back_fill": "Offsite",
        "pace": 5.0,
    }
    coming = apply_route(ctx, ctx.plan(ROUTE), dry_run=True, **given).back_fill
    assert coming is not None
    assert (coming.items, coming.takes_ms, coming.sealed) == (12, 2400, 0)
    apply_route(ctx, ctx.plan(ROUTE), **given)
    ctx.ledger.close()

    later = InProcessScene(url, start=scene.clock.now(), queues=queues, workers={"Scout": shelves})
    resender = Resender(later.ctx)
    counts = []
    for _ in range(4):
        counts.append(resender.run_once().back_filled)
        later.clock.advance("1s")
    assert counts == [1, 5, 5, 1]
    assert sorted(offered(later, "Offsite")) == [key_of(asset) for asset in assets]
    for asset in assets:
        later.confirm("Offsite", asset=asset)
    assert later.statuses() == ["Tapes are off site."] * 12
    assert {one["body"]["properties"]["messageType"].rpartition(".")[2] for one in later.heard} == {
        "update"
    }
    assert {later.at(asset) for asset in assets} == {("Offsite", Status.COMPLETED.value)}
    later.close()
