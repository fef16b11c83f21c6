"""Answers that confirm a stage, and answers that do not: operators see the reason in every view."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.postingest.in_process_scene import (
    INPUT,
    LAST,
    LEDGERS,
    PATHS,
    VOLUMES,
    InProcessScene,
    key_of,
    url_of,
)

import milepost as mp
from milepost.core.status import Status
from milepost.engine.health.doctor import doctor
from milepost.engine.views.late_items import nearest
from milepost.engine.views.story import story
from milepost.ports.items import Query
from milepost_postingest.answers import accepts_of, named, next_payload

GIVEN = {"filePaths": ["o/a", "o/b", "o/c"]}
WHOLE = {path: ["L1"] for path in GIVEN["filePaths"]}


def why_not(
    value: Any, payload: Any = GIVEN, dialect: str = "seed", stage: str = "Scout"
) -> str | None:
    """Why it is refused; None: it confirms."""
    try:
        assert accepts_of(dialect, stage)(value, payload)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("dialect", ["seed", "today"])
def test_an_answer_with_each_file_confirms(dialect: str) -> None:
    stage = LAST[dialect]
    assert why_not(WHOLE, dialect=dialect, stage=stage) is None
    assert why_not(json.dumps(WHOLE), dialect=dialect, stage=stage) is None
    assert why_not(WHOLE, json.dumps(GIVEN), dialect, stage) is None
    assert why_not({**WHOLE, "o/d": ["L2"]}, dialect=dialect, stage=stage) is None


@pytest.mark.parametrize("dialect", ["seed", "today"])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"o/a": ["L1"]}, "it covers 1 of 3 files; missing: b, c (in o)"),
        ({**WHOLE, "o/c": []}, "it covers 2 of 3 files; missing: c (in o)"),
        ({**WHOLE, "o/c": [""]}, "it covers 2 of 3 files; missing: c (in o)"),
        ({**WHOLE, "o/c": ["pending"]}, "it covers 2 of 3 files; missing: c (in o)"),
        (
            {**WHOLE, "o/c": {"archdone": False, "volumes": ["L1"]}},
            "it covers 2 of 3 files; missing: c (in o)",
        ),
        (True, "names none of the 3 files"),
        ("yes", "names none of the 3 files"),
        (3, "names none of the 3 files"),
        (["o/a", "o/b", "o/c"], "names none of the 3 files"),
        ({"archdone": False}, "says no, or not yet"),
        ("pending", "says no, or not yet"),
        ("Error: no drive", "says no, or not yet"),
        ("ERROR", "says no, or not yet"),
        ("not yet", "says no, or not yet"),
        ("failed after 3 tries", "says no, or not yet"),
        ({"status": "pending"}, "says no, or not yet"),
        ({"error": "no drive"}, "says no, or not yet"),
        (-1, "says no, or not yet"),
        ("-1", "says no, or not yet"),
        (0, "says no, or not yet"),
        (None, "says no, or not yet"),
        ("", "says no, or not yet"),
        ({}, "says no, or not yet"),
        ([], "says no, or not yet"),
        ("false", "says no, or not yet"),
    ],
)
def test_what_does_not_cover_each_file_confirms_nothing(
    value: Any, said: str, dialect: str
) -> None:
    told = why_not(value, dialect=dialect, stage=LAST[dialect])
    assert told is not None
    assert said in told


def test_as_in_the_design_document_a_file_may_be_told_in_other_ways() -> None:
    assert why_not(dict.fromkeys(GIVEN["filePaths"], True)) is None
    assert why_not(dict.fromkeys(GIVEN["filePaths"], "L1")) is None
    assert (
        why_not({path: {"archdone": True, "volumes": ["L1"]} for path in GIVEN["filePaths"]})
        is None
    )
    assert why_not({**GIVEN, "shelf": 7}) is None
    assert why_not({"filePaths": ["o/a"]}) == "it covers 1 of 3 files; missing: b, c (in o)"
    assert why_not(dict.fromkeys(GIVEN["filePaths"], True), dialect="today", stage="TC") is not None


@pytest.mark.parametrize(
    "value",
    [
        True,
        1,
        "yes",
        "done",
        "true",
        "ingested at noon",
        {"a": 1},
        ["a", 2],
        {"archdone": True},
        "noted",
    ],
)
def test_a_stage_that_was_given_no_files_is_confirmed_by_any_yes(value: Any) -> None:
    assert why_not(value, INPUT) is None
    assert why_not(value, None) is None


def test_only_the_paths_are_handed_on() -> None:
    assert next_payload({**GIVEN, "digests": {}, "version": "v1"}) == GIVEN
    assert next_payload(GIVEN) is GIVEN
    assert next_payload(WHOLE) is WHOLE
    assert next_payload(True) is True


def test_many_and_long_names_are_told_in_a_few_words() -> None:
    paths = [f"abc/def/v1/content/{number:03}" for number in range(100)]
    assert named(paths, paths[:2]) == "000, 001 (in abc/def/v1/content)"
    assert named(paths, paths).endswith("008, 009 and 90 more (in abc/def/v1/content)")
    assert named(["a"], ["a"]) == "a"
    assert named(["a/x", "b/y"], ["b/y"]) == "b/y"
    assert named(["ab/x", "abc/y"], ["ab/x"]) == "ab/x"
    assert len(named(["x" * 500], ["x" * 500])) < 130


# On a ledger --------------------------------------------------------------------------------------
@pytest.fixture(params=LEDGERS)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = InProcessScene(url_of(request.param, tmp_path))
    yield made
    made.close()


def part_refused(scene: InProcessScene) -> None:
    scene.put()
    scene.confirm("CC", PATHS)
    scene.asked()
    with pytest.raises(mp.ActRefused, match="it covers 1 of 2 files; missing: two"):
        scene.confirm("Scout", dict(list(VOLUMES.items())[:1]))


def test_a_refused_answer_is_shown_wherever_people_look(scene: InProcessScene) -> None:
    part_refused(scene)
    told = story(scene.ctx, scene.route.name, key_of())
    assert told is not None
    assert told.why == [
        "The answer did not confirm it: its answer was refused: it covers 1 of 2 files; missing: two (in abc/def/0a1/v1/content)."
    ]
    assert told.next[0].startswith("The stage is offered again in ")
    assert told.happened[-1].text.startswith(
        "an answer for 'Scout' was refused: it covers 1 of 2 files"
    )
    [asked], _ = nearest(scene.ctx, Query(route=scene.route.name), 5)
    assert "it covers 1 of 2 files" in asked.why
    [finding] = [finding for finding in doctor(scene.ctx).findings if finding.about == "answer"]
    assert finding.what.startswith(
        "the answers for 1 item at postingest/Scout confirm nothing, such as "
    )
    assert scene.at() == ("Scout", Status.WAITING)


def test_the_stage_is_offered_again_within_minutes_and_completes_with_the_whole_answer(
    scene: InProcessScene,
) -> None:
    part_refused(scene)
    scene.run(scene.clock.now() + 5 * 60_000)
    scene.clock.advance("5m")
    assert [(offer.stage, offer.payload) for offer in scene.asked()] == [("Scout", PATHS)]
    scene.confirm("Scout", VOLUMES)
    assert scene.at() == ("Scout", Status.COMPLETED)


def test_a_person_confirms_with_force_and_a_reason(scene: InProcessScene) -> None:
    part_refused(scene)
    with pytest.raises(mp.UsageError):
        scene.milepost.confirm(scene.route.name, key_of(), "Scout", by="ops", force=True)
    row = scene.milepost.confirm(
        scene.route.name, key_of(), "Scout", by="ops", force=True, reason="seen on the shelf"
    )
    assert row.status is Status.COMPLETED
    line = scene.shown()["history"][-1]
    assert (line["reason"], line["by"], line["why"]) == ("confirmed", "ops", "seen on the shelf")
    assert "forced" in line["note"]
    told = story(scene.ctx, scene.route.name, key_of())
    assert told is not None
    assert "forced: it would have been refused otherwise" in told.happened[-1].text


def test_looks_of_assets_taken_in_together_are_spread(tmp_path: Path) -> None:
    queues = [{"queueAlias": "CC", "queueOrder": 1, "worker": "ocfl"}]
    scene = InProcessScene(queues=queues, workers={"CC": lambda item: mp.NotYet(note="not there")})
    for number in range(20):
        scene.put(f"a-{number}")
    scene.run(scene.clock.now() + 10_000)
    rows = [item.row for item in scene.ctx.ledger.find(Query(route="postingest", limit=50)).items]
    pauses = sorted((row.look_at or 0) - row.updated_at for row in rows)
    assert {row.looks for row in rows} == {1}
    assert len(set(pauses)) > 15
    assert 45_000 <= pauses[0] < pauses[-1] <= 75_000
    scene.close()
