"""The postingest document's scenarios on the ledgers inside one process, where confirmers speak by
API. Numbers are those of the scenario list for this system; where each is shown stands in
test_scenarios.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.postingest.in_process_scene import (
    ASSET,
    BATCH,
    INPUT,
    LAST,
    LEDGERS,
    OTHER,
    PATHS,
    VOLUMES,
    InProcessScene,
    Offer,
    key_of,
    url_of,
)
from tests.postingest.scenarios.repository_and_tape import PAYLOAD, SCRIPTS, long_names, whole

import milepost as mp
from milepost.composition import open_context
from milepost.engine.evidence import evidence_of
from milepost.engine.health.doctor import doctor
from milepost.engine.views.items import status
from milepost.evidence.reported_files import reported_files
from milepost_postingest import postingest

DAY = 86_400_000
Open = Callable[..., InProcessScene]


@pytest.fixture(params=LEDGERS)
def url(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    return url_of(request.param, tmp_path)


@pytest.fixture
def open_desk(url: str) -> Iterator[Open]:
    opened: list[InProcessScene] = []

    def open_desk(**options: Any) -> InProcessScene:
        opened.append(InProcessScene(url, **options))
        return opened[-1]

    yield open_desk
    for scene in opened:
        scene.close()


@pytest.fixture
def scene(open_desk: Open) -> InProcessScene:
    return open_desk()


def moment(written: str) -> int:
    return round(datetime.fromisoformat(written).replace(tzinfo=UTC).timestamp() * 1000)


# Intake -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "payload"),
    [(INPUT, INPUT), (json.dumps(INPUT), INPUT), ("input", "input"), ("", "")],
    ids=["object", "JSON", "text", "empty"],
)
def test_a_new_asset_is_offered_once_and_told_once(
    scene: InProcessScene, given: Any, payload: Any
) -> None:
    """Scenarios 1 and 2: JSON in text is read, other text is passed on as it is."""
    assert scene.put(content=given) == "new"
    (offer,) = scene.asked()
    assert offer == Offer(key_of(), "CC", payload, scene.shown()["work_id"])
    assert scene.statuses() == ["Asset has been ingested to the Preservation System."]
    assert scene.at() == ("CC", "QUEUED")


def test_one_malformed_asset_among_a_hundred_hinders_no_other_and_nobody_is_told_twice(
    scene: InProcessScene,
) -> None:
    """Scenario 13."""
    rows: list[dict[str, Any]] = [
        {"assetId": f"asset-{number}", "batchId": BATCH, "input": INPUT} for number in range(100)
    ]
    del rows[50]["input"]
    for expected in ("new", "known"):
        answers = [receipt.answer for receipt in scene.milepost.submit("postingest", *rows)]
        assert answers == [expected] * 50 + ["malformed"] + [expected] * 49
        assert len(scene.statuses()) == 99
    assert len(scene.asked()) == 99


def test_an_asset_put_again_at_any_stage_stays_where_it_is(scene: InProcessScene) -> None:
    """Scenario 17: before and after its end, with the same content and with other."""
    scene.put()
    for stage, value in (("CC", PATHS), ("Scout", VOLUMES)):
        scene.run()
        before, told = scene.at(), scene.statuses()
        assert (scene.put(), scene.put(content={"other": 1})) == ("known", "changed")
        assert (scene.at(), scene.statuses(), scene.shown()["input"]) == (before, told, INPUT)
        scene.confirm(stage, value)
    assert (scene.put(), scene.at(), len(scene.statuses())) == ("known", ("Scout", "COMPLETED"), 3)
    assert [offer.stage for offer in scene.asked()] == ["CC", "Scout"]


# Confirmations ------------------------------------------------------------------------------------
def test_the_result_of_a_stage_is_what_the_next_is_given(scene: InProcessScene) -> None:
    """Scenarios 4 and 5."""
    scene.put()
    scene.put(OTHER)
    scene.asked()
    scene.confirm("CC", PATHS)
    (offer,) = scene.asked()
    assert (offer.key, offer.stage, offer.payload) == (key_of(), "Scout", PATHS)
    scene.confirm("Scout", VOLUMES)
    assert scene.asked() == []
    assert (scene.at(), scene.at(OTHER)) == (("Scout", "COMPLETED"), ("CC", "QUEUED"))
    assert scene.shown()["results"] == {"CC": PATHS, "Scout": VOLUMES}


@pytest.mark.parametrize(
    "value", [False, 0, "", " ", "no", "false", "0", "null", "{}", "[]", [], {}, None]
)
def test_what_says_no_confirms_nothing(scene: InProcessScene, value: Any) -> None:
    """Scenario 16."""
    scene.put()
    with pytest.raises(mp.ActRefused, match="confirms nothing"):
        scene.confirm("CC", value)
    assert (scene.at(), len(scene.statuses())) == (
        ("CC", "QUEUED" if value is None else "WAITING"),
        1,
    )


def test_a_confirmation_for_a_later_stage_is_kept_and_told_of_in_order(
    scene: InProcessScene,
) -> None:
    """Scenario 8."""
    scene.put()
    scene.confirm("Scout", VOLUMES)
    assert (scene.at(), len(scene.statuses())) == (("CC", "QUEUED"), 1)
    scene.confirm("CC", PATHS)
    assert scene.statuses()[1:] == [
        "Asset has been written to custodial copy disk.",
        "Asset has been written to data tape.",
    ]


def test_what_nobody_takes_is_told_later_once_and_in_order(scene: InProcessScene) -> None:
    """Scenarios 14 and 15."""
    scene.deaf = True
    scene.put()
    scene.confirm("CC", PATHS)
    scene.confirm("Scout", VOLUMES)
    assert scene.statuses() == []
    scene.deaf = False
    scene.run(scene.clock.now() + DAY)
    assert len(scene.statuses()) == 3
    assert scene.statuses()[-1] == "Asset has been written to data tape."


# Sent again ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("dialect", LAST)
@pytest.mark.parametrize("last", [False, True], ids=["first stage", "last stage"])
def test_the_documents_example_of_a_resend(open_desk: Open, dialect: str, last: bool) -> None:
    """Scenarios 28, 29 and 30: on 2025-06-19 at 16:24 what was sent on 5 June is sent again as it
    was, and nothing else is touched."""
    scene = open_desk(start=moment("2025-06-05T10:00"), dialect=dialect)
    first: dict[str, Offer] = {}
    for asset, at in ((ASSET, "2025-06-05T10:00"), (OTHER, "2025-06-15T10:00")):
        scene.clock.advance_to(moment(at))
        scene.put(asset)
        if last:
            scene.confirm("CC", PATHS, asset)
        first[asset] = scene.asked()[-1]
    told = scene.statuses()
    untouched = scene.shown(OTHER)
    scene.clock.advance_to(moment("2025-06-19T16:24"))
    assert scene.asked() == [first[ASSET]]
    assert (scene.statuses(), scene.shown(OTHER)) == (told, untouched)
    assert scene.shown()["history"][-1]["reason"] == "resent"
    assert scene.asked() == []


def test_to_the_millisecond(open_desk: Open) -> None:
    """Scenario 27: four days, as the configuration says."""
    scene = open_desk(queues=[{"queueAlias": "CC", "queueOrder": 1, "resendAfter": "4d"}])
    scene.put()
    scene.asked()
    scene.clock.advance_to(scene.clock.now() + 4 * DAY - 1)
    assert scene.asked() == []
    scene.clock.advance_to(scene.clock.now() + 1)
    assert len(scene.asked()) == 1


# Whole journeys -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("names", "dialect"),
    [(SCRIPTS, "seed"), (SCRIPTS, "today"), (long_names(2000), "today")],
    ids=["other alphabets", "other alphabets today", "two thousand files"],
)
def test_an_asset_goes_from_the_repository_to_tape_and_is_told_of_three_times(
    tmp_path: Path, names: list[str], dialect: str
) -> None:
    """Scenarios 32, 33 and 35: with workers of ours, through the days in which it is not there
    yet."""
    last = LAST[dialect]
    queues = [
        {"queueAlias": "CC", "queueOrder": 1, "worker": "ocfl"},
        {"queueAlias": last, "queueOrder": 2, "worker": "scoutam"},
    ]
    with whole(tmp_path, names) as asset:
        assert len(names) < 2000 or min(map(len, asset.paths)) > 340
        scene = InProcessScene(
            url_of("sqlite", tmp_path),
            queues=queues,
            dialect=dialect,
            workers={"CC": asset.on_disk, last: asset.on_tape},
        )
        scene.put(content=PAYLOAD)
        scene.run(scene.clock.now() + DAY)
        assert scene.at() == (last, "WAITING")
        volumes = asset.archive()
        scene.run(scene.clock.now() + DAY)
    assert scene.at() == (last, "COMPLETED")
    shown = scene.shown()
    assert shown["results"]["CC"]["filePaths"] == asset.paths
    assert shown["results"][last] == volumes
    assert len(scene.statuses()) == 3
    assert {one.get("body", one)["parameters"]["assetId"] for one in scene.heard} == {ASSET}
    found = evidence_of(scene.ctx, "postingest", key_of())
    assert found is not None
    assert found.faults == []
    assert {
        path: [volume for named in file.volumes.values() for volume in named]
        for path, file in reported_files(found.record["stages"]).items()
    } == volumes
    scene.close()


# Stages that are gone -----------------------------------------------------------------------------
def test_an_asset_at_a_stage_that_the_configuration_has_not_got_is_reported(tmp_path: Path) -> None:
    """Scenario 34: nothing starts until a person has said where it goes; who only looks sees it."""
    url = url_of("sqlite", tmp_path)
    offsite = {"queueAlias": "Offsite", "queueOrder": 1, "statusText": "Tapes are off site."}
    scene = InProcessScene(url, queues=[offsite, {"queueAlias": "CC", "queueOrder": 2}])
    scene.put()
    scene.close()
    narrow = postingest([{"queueAlias": "CC", "queueOrder": 1}])
    with pytest.raises(mp.RouteChanged, match=r"removed 'Offsite' \(1 item there\)"):
        mp.open(url, routes=[narrow])
    ctx = open_context(url, [narrow], clock=scene.clock, check=False)
    assert status(ctx)["routes"]["postingest"]["stages"] == {"CC": {}, "Offsite": {"QUEUED": 1}}
    bad = [finding for finding in doctor(ctx).findings if finding.level == "bad"]
    assert [finding.about for finding in bad] == ["route"]
    assert "differs" in bad[0].what
    ctx.ledger.close()
