"""What operators ask of the assets, and how a third stage is added to thousands that are complete, at a pace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.applications.postingest.in_process_scene import LEDGERS, Desk, key_of, url_of

import milepost as mp
from milepost.applications.postingest import postingest
from milepost.composition import open_context
from milepost.core.status import Status
from milepost.engine.acts.bulk import act, pause, resume
from milepost.engine.resend import Resender
from milepost.engine.routes.versions import apply_route
from milepost.engine.views.items import status
from milepost.engine.views.late_items import LateItem, late_item_view, nearest, overdue, share
from milepost.engine.views.snapshot import snapshots
from milepost.ports.items import Query

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
def desk(request: pytest.FixtureRequest, tmp_path: Path, shelves: Shelves) -> Iterator[Desk]:
    desk = Desk(url_of(request.param, tmp_path), queues=QUEUES, workers={"Scout": shelves})
    yield desk
    desk.close()


def on_disk(desk: Desk, *assets: str) -> None:
    for asset in assets:
        desk.put(asset)
        desk.confirm("CC", asset=asset)
    look(desk)


def look(desk: Desk) -> None:
    """Whatever is due now, and what the shelves say to it (which takes them a moment)."""
    desk.run(desk.clock.now() + 1000)


def offered(desk: Desk, stage: str = "CC") -> list[str]:
    return [offer.key for offer in desk.asked() if offer.stage == stage]


def keys(found: tuple[list[LateItem], bool]) -> list[str]:
    return [asked.item.key.partition("#")[0] for asked in found[0]]


def test_how_old_the_assets_at_each_stage_are(desk: Desk) -> None:
    for number in range(20):
        desk.put(f"old-{number}")
    desk.clock.advance("9d")
    for number in range(79):
        desk.put(f"young-{number}")
    desk.put("through")
    desk.confirm("CC", asset="through")
    desk.run()
    desk.clock.advance("1d")
    cc, scout = snapshots(desk.ctx)[ROUTE].stages
    day, hour = 86_400_000, 3_600_000
    assert (cc.p50_ms, cc.p95_ms, cc.oldest_ms) == tuple(pytest.approx(days * day, abs=hour) for days in (1, 10, 10))
    assert scout.p50_ms == scout.p95_ms == scout.oldest_ms == pytest.approx(day, abs=hour)


def test_young_assets_are_told_to_the_millisecond(desk: Desk) -> None:
    desk.put("a")
    desk.clock.advance("30s")
    desk.put("b")
    desk.clock.advance("10s")
    cc, scout = snapshots(desk.ctx)[ROUTE].stages
    assert (cc.p50_ms, cc.p95_ms, cc.oldest_ms) == (10_000, 40_000, 40_000)
    assert (scout.p50_ms, scout.oldest_ms) == (None, None)


def test_which_are_overdue_and_why(desk: Desk, shelves: Shelves) -> None:
    shelves.said = {"half": mp.NotYet(note="2 of 4 files on tape")}
    desk.put("unanswered")
    desk.clock.advance("10d")
    on_disk(desk, "half", "none")
    came = desk.shown("half")["entered_at"]
    desk.clock.advance("13d")
    assert overdue(desk.ctx, ALL, 50) == ([], False)
    desk.clock.advance("1d")
    look(desk)
    on_disk(desk, "young")
    found, more = overdue(desk.ctx, ALL, 50)
    assert [(asked.item.key, asked.why) for asked in found] == [
        (key_of("half"), "2 of 4 files on tape"),
        (key_of("none"), "0 of 4 files on tape"),
    ]
    assert not more
    view = late_item_view(found[0], desk.clock.now())
    assert (view["note"], view["entered_at"], view["here_for_s"] - view["overdue_for_s"]) == ("2 of 4 files on tape", came, 14 * 86_400.0)
    desk.clock.advance("6d")
    look(desk)
    found, more = overdue(desk.ctx, ALL, 2)
    assert (keys((found, more)), more) == (["half", "none"], True), "the one that has been late for longest first"
    assert keys(overdue(desk.ctx, Query(route=ROUTE, stages=frozenset({"CC"})), 50)) == ["unanswered"]
    [asked] = overdue(desk.ctx, Query(route=ROUTE, stages=frozenset({"CC"})), 50)[0]
    assert asked.why == "offered; not confirmed yet"
    desk.confirm("CC", asset="unanswered")
    assert overdue(desk.ctx, Query(route=ROUTE, stages=frozenset({"CC"})), 50) == ([], False)


def test_an_error_and_a_pause_are_told_as_the_reason(desk: Desk, shelves: Shelves) -> None:
    shelves.said = {"a": mp.Retry("the library does not answer", category="UNREACHABLE", after="20d")}
    on_disk(desk, "a")
    desk.clock.advance("15d")
    assert [asked.why for asked in overdue(desk.ctx, ALL, 5)[0]] == ["try 1 failed: UNREACHABLE: the library does not answer"]
    pause(desk.ctx, ROUTE, "Scout", by="ops", reason="the robot is serviced")
    assert [asked.why for asked in overdue(desk.ctx, ALL, 5)[0]] == ["postingest/Scout is paused by ops: the robot is serviced"]


def test_what_would_be_complete_next(desk: Desk, shelves: Shelves) -> None:
    shelves.said = {
        "most": mp.NotYet(note="at least 1,999 of 2,000 files on tape"),
        "half": mp.NotYet(note="2 of 4 files on tape", after="5m"),
        "half-later": mp.NotYet(note="2 of 4 files on tape", after="9h"),
        "failing": mp.Retry("the library does not answer"),
    }
    desk.put("on-the-way")
    on_disk(desk, "failing", "none", "half-later", "half", "most")
    assert keys(nearest(desk.ctx, ALL, 50)) == ["most", "half", "half-later", "none", "failing", "on-the-way"]
    assert (keys(nearest(desk.ctx, ALL, 2)), nearest(desk.ctx, ALL, 2)[1], nearest(desk.ctx, ALL, 6)[1]) == (["most", "half"], True, False)
    shelves.said["most"] = mp.Done({"a": ["L1"]})
    desk.clock.advance("1d")
    look(desk)
    assert keys(nearest(desk.ctx, ALL, 1)) != ["most"]


@pytest.mark.parametrize(
    ("note", "there"), [(None, 0.0), ("", 0.0), ("none of it", 0.0), ("1 of 0 files", 0.0), ("3 of 4", 0.75), ("5 of 4", 1.0)]
)
def test_a_notes_share_is_read_where_it_tells_one(note: str | None, there: float) -> None:
    assert share(note) == there


def test_the_answers_need_the_route_file(desk: Desk) -> None:
    desk.ctx.plans.clear()
    for question in (overdue, nearest):
        with pytest.raises(mp.UsageError, match=r"give --routes file\.py"):
            question(desk.ctx, ALL, 5)


def test_a_paused_tape_stage_is_not_asked_and_counts_nothing(desk: Desk, shelves: Shelves) -> None:
    pause(desk.ctx, ROUTE, "Scout", by="ops", reason="the robot is serviced")
    on_disk(desk, "a")
    desk.clock.advance("2d")
    desk.run()
    assert shelves.asked == []
    shown = desk.shown("a")
    assert (shown["stage"], shown["attempts"], shown["looks"]) == ("Scout", 0, 0)
    resume(desk.ctx, ROUTE, "Scout", by="ops", reason="it turns again")
    desk.run()
    assert shelves.asked == ["a"]


def test_a_paused_external_stage_is_offered_once_and_still_confirmed(desk: Desk) -> None:
    pause(desk.ctx, ROUTE, "CC", by="ops", reason="the disks are moved")
    desk.put("a")
    assert offered(desk) == [key_of("a")]
    desk.clock.advance("5d")
    assert offered(desk) == [], "it is past its time, and not sent again"
    desk.confirm("CC", asset="a")
    assert desk.at("a")[0] == "Scout"
    desk.put("b")
    desk.clock.advance("5d")
    assert offered(desk) == [key_of("b")]
    resume(desk.ctx, ROUTE, "CC", by="ops", reason="they stand")
    assert offered(desk) == [key_of("b")]


def test_a_person_confirms_by_hand_with_a_reason(desk: Desk) -> None:
    on_disk(desk, "a")
    done = act(desk.ctx, "confirm", ROUTE, keys=[key_of("a")], stage="Scout", by="ops", reason="seen on tape L03721 myself")
    assert done.done == 1
    last = desk.shown("a")["history"][-1]
    assert (last["reason"], last["by"], last["why"]) == ("confirmed", "ops", "seen on tape L03721 myself")


def test_assets_at_a_stage_that_the_route_has_not_got_are_named(desk: Desk) -> None:
    desk.put("a")
    narrow = open_context("memory:", [postingest([{"queueAlias": "Scout", "queueOrder": 1}])], check=False)
    narrow.ledger = desk.ctx.ledger
    assert status(narrow)["routes"][ROUTE]["unknown_stages"] == ["CC"]
    assert status(desk.ctx)["routes"][ROUTE]["unknown_stages"] == []


def test_a_third_stage_is_back_filled_at_a_pace_and_nobody_is_told_complete_twice(tmp_path: Path, shelves: Shelves) -> None:
    url, assets = url_of("sqlite", tmp_path), [f"asset-{number:02d}" for number in range(12)]
    desk = Desk(url, queues=QUEUES, workers={"Scout": shelves})
    shelves.said = {asset: mp.Done({"file": ["L1"]}) for asset in assets}
    on_disk(desk, *assets)
    assert desk.statuses().count("Asset has been written to data tape.") == 12
    desk.close()
    desk.clock.advance("1d")

    queues = [*QUEUES, THIRD]
    ctx = open_context(url, [postingest(queues, workers={"Scout": shelves})], clock=desk.clock, check=False)
    given: dict[str, Any] = {"mapping": {}, "by": "ops", "reason": "tapes go off site", "back_fill": "Offsite", "pace": 5.0}
    coming = apply_route(ctx, ctx.plan(ROUTE), dry_run=True, **given).back_fill
    assert coming is not None
    assert (coming.items, coming.takes_ms, coming.sealed) == (12, 2400, 0)
    apply_route(ctx, ctx.plan(ROUTE), **given)
    ctx.ledger.close()

    later = Desk(url, start=desk.clock.now(), queues=queues, workers={"Scout": shelves})
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
    assert {one["body"]["properties"]["messageType"].rpartition(".")[2] for one in later.heard} == {"update"}
    assert {later.at(asset) for asset in assets} == {("Offsite", Status.COMPLETED.value)}
    later.close()
