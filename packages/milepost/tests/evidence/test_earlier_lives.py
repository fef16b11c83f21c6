"""A lost record of one life of a key hides no other life: each gap is named by export, doctor and
verify."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.evidence.evidence_scene import ROUTE, SIGNED, Scene
from tests.evidence.heads_scene import next_day, turn
from tests.evidence.test_lost_records import exported
from tests.evidence.test_verify_with_heads import changed

from milepost.composition import open_context
from milepost.engine.evidence import records_of, scrub
from milepost.engine.forget import forget
from milepost.engine.health.doctor import doctor
from milepost.engine.intake import submit
from milepost.evidence.files import entry_of, header, write_file
from milepost.evidence.record import SCHEMA, SEAL_SCHEMA, blob_name, earlier_lives_of, life_of
from milepost.evidence.verify import verify
from milepost.evidence.views import VIEWS


def live_again(scene: Scene, *, damaged: bool) -> None:
    """The next life of a1, from an operator's submit after the failed one has left."""
    scene.clock.advance("1d")
    submit(scene.ctx, ROUTE, [{"id": "a1", "damaged": damaged}], by="ops", failed_again="repaired")
    scene.through()


@pytest.fixture
def four(scene: Scene) -> Scene:
    """a1 failed three times, and its fourth life is completed and has left too."""
    scene.bring("a1", damaged=True)
    scene.prune()
    for damaged in (True, True, False):
        live_again(scene, damaged=damaged)
        if not damaged:
            scene.tape("a1")
        scene.prune()
    return scene


def lives_of(scene: Scene) -> list[int]:
    return [life_of(found.record) for found in reversed(records_of(scene.ctx, ROUTE, "a1"))]


def statuses(scene: Scene) -> list[str]:
    return [found.record["status"] for found in reversed(records_of(scene.ctx, ROUTE, "a1"))]


def test_each_life_names_all_lives_before_it(four: Scene) -> None:
    latest, *earlier = records_of(four.ctx, ROUTE, "a1")
    named = earlier_lives_of(latest.record)
    assert named.complete
    assert [(life.life, life.head) for life in reversed(named.lives)] == [
        (life_of(found.record), found.record["chain"]["head"]) for found in earlier
    ]
    assert (named.lives[-1].status, named.lives[0].status) == ("REJECTED", "")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_lost_record_of_an_earlier_life_hides_no_other(
    four: Scene, tmp_path: Path, number: int
) -> None:
    life = lives_of(four)[number - 1]
    four.ctx.blobs.remove(blob_name(ROUTE, "a1", life))
    records = list(reversed(records_of(four.ctx, ROUTE, "a1")))
    assert [found.record["schema"] for found in records] == [
        SEAL_SCHEMA if place == number else SCHEMA for place in range(1, 5)
    ]
    [(key, fault)] = exported(four.ctx, tmp_path / "e.jsonl")
    assert key == "a1"
    assert fault.startswith(
        f"life {number} of 4: its record is missing: {blob_name(ROUTE, 'a1', life)} was lost"
    )
    verdict = verify(tmp_path / "e.jsonl")
    assert (verdict.holds, verdict.answer) == (True, "unproved")
    [point] = verdict.unproved
    assert (
        point.key,
        f"life {number} of 4" in point.what,
        "its record is missing" in point.what,
    ) == ("a1", True, True)
    assert list(scrub(four.ctx, ROUTE).faults.values()) == [fault]
    [finding] = [finding for finding in doctor(four.ctx).findings if finding.about == "evidence"]
    assert (finding.level, fault in finding.what) == ("bad", True)


def test_two_lost_records_of_earlier_lives_are_both_named(four: Scene, tmp_path: Path) -> None:
    _, second, third, _ = lives_of(four)
    for life in (second, third):
        four.ctx.blobs.remove(blob_name(ROUTE, "a1", life))
    faults = [fault for _, fault in exported(four.ctx, tmp_path / "e.jsonl")]
    assert [fault[:11] for fault in faults] == ["life 3 of 4", "life 2 of 4"]
    assert [found.record["schema"] for found in records_of(four.ctx, ROUTE, "a1")] == [
        SCHEMA,
        SEAL_SCHEMA,
        SEAL_SCHEMA,
        SCHEMA,
    ]
    assert len(verify(tmp_path / "e.jsonl").unproved) == 2


def test_a_lost_record_of_the_latest_life_does_not_hide_the_first(
    four: Scene, tmp_path: Path
) -> None:
    latest = lives_of(four)[-1]
    next_day(four)
    turn(four)
    four.prune()
    assert four.ledger.history(ROUTE, "a1") == [], "its lines have left"
    four.ctx.blobs.remove(blob_name(ROUTE, "a1", latest))
    assert statuses(four) == ["REJECTED", "COMPLETED"]
    [(_, fault)] = exported(four.ctx, tmp_path / "e.jsonl")
    assert fault.endswith(
        "this was not the first life of its key, and the record names the earlier ones"
    )


def test_lives_that_an_earlier_milepost_recorded_are_followed_one_by_one(
    four: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lines name the life before only. What is known of the others after a loss is said, and no
    number is made up."""
    monkeypatch.setattr("milepost.engine.intake.earlier_names", lambda *_: None)
    four.bring("old", damaged=True)
    four.prune()
    for _ in range(3):
        four.clock.advance("1d")
        submit(four.ctx, ROUTE, [{"id": "old", "damaged": True}], by="ops", failed_again="repaired")
        four.through()
        four.prune()
    whole = records_of(four.ctx, ROUTE, "old")
    assert len(whole) == 4
    assert not any(found.faults for found in whole)
    four.ctx.blobs.remove(blob_name(ROUTE, "old", life_of(whole[1].record)))
    latest, lost, first = records_of(four.ctx, ROUTE, "old")
    assert (latest.faults, first.faults, life_of(first.record)) == ([], [], 0)
    assert lost.lost.startswith(
        "an earlier life (how many there were is not known: a lost record names them): its record is missing"
    )


def test_a_new_life_names_lives_that_an_earlier_milepost_recorded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.bring("a1", damaged=True)
    scene.prune()
    with monkeypatch.context() as earlier:
        earlier.setattr("milepost.engine.intake.earlier_names", lambda *_: None)
        for _ in range(2):
            live_again(scene, damaged=True)
            scene.prune()
    live_again(scene, damaged=False)
    scene.tape("a1")
    latest, *before = records_of(scene.ctx, ROUTE, "a1")
    named = earlier_lives_of(latest.record)
    assert (named.complete, [life.life for life in reversed(named.lives)]) == (
        True,
        [life_of(found.record) for found in before],
    )


def test_an_altered_record_of_an_earlier_life_does_not_match_what_the_later_one_names(
    four: Scene, tmp_path: Path
) -> None:
    second = lives_of(four)[1]
    name = blob_name(ROUTE, "a1", second)
    kept = json.loads(b"".join(four.ctx.blobs.read(name)))
    third = json.loads(b"".join(four.ctx.blobs.read(blob_name(ROUTE, "a1", 0))))
    kept["record"] = third["record"]
    four.ctx.blobs.write(name, [json.dumps(kept).encode()])
    faults = [fault for _, fault in exported(four.ctx, tmp_path / "e.jsonl")]
    assert faults == ["life 2 of 4: its record is not the one that the later life names"]


def test_the_record_of_another_key_does_not_stand_for_a_life(four: Scene) -> None:
    """Also where no later record names the head of that life, because the latest is lost."""
    four.bring("other", damaged=True)
    four.prune()
    next_day(four)
    turn(four)
    four.prune()
    assert four.ledger.history(ROUTE, "a1") == [], "its lines have left"
    blobs = four.ctx.blobs
    blobs.remove(blob_name(ROUTE, "a1", lives_of(four)[-1]))
    blobs.write(blob_name(ROUTE, "a1"), [b"".join(blobs.read(blob_name(ROUTE, "other")))])
    _, first = records_of(four.ctx, ROUTE, "a1")
    assert first.faults[0].endswith("its record is not the one that the later life names")


def test_a_lost_life_is_in_views_too(four: Scene, tmp_path: Path) -> None:
    four.ctx.blobs.remove(blob_name(ROUTE, "a1", lives_of(four)[1]))
    records = [found.record for found in records_of(four.ctx, ROUTE, "a1")]
    for view in VIEWS.values():
        text = "".join(view(lambda: records, {"key_fields": ["id"]}))
        assert text.count("REJECTED") >= 2
        assert "<significantPropertiesValue></significantPropertiesValue>" not in text


def test_forget_removes_the_records_of_all_lives_around_a_lost_one(four: Scene) -> None:
    lives = lives_of(four)
    four.ctx.blobs.remove(blob_name(ROUTE, "a1", lives[2]))
    assert forget(four.ctx, ROUTE, "a1", **SIGNED).evidence == 3
    for life in lives:
        with pytest.raises(FileNotFoundError):
            b"".join(four.ctx.blobs.read(blob_name(ROUTE, "a1", life)))


def test_a_move_copies_the_records_of_all_lives_around_a_lost_one(archive: Scene) -> None:
    from milepost.engine.transfer.copy import _copy_earlier_lives

    archive.bring("a1", damaged=True)
    archive.prune()
    for _ in range(3):
        live_again(archive, damaged=True)
        archive.prune()
    first, second, third, _ = lives_of(archive)
    archive.ctx.blobs.remove(blob_name(ROUTE, "a1", third))
    target = open_context("memory:", [archive.ctx.plans[ROUTE].route], clock=archive.clock)
    assert _copy_earlier_lives(archive.ctx, target, ROUTE, "a1") == 2
    for life in (first, second):
        assert b"".join(target.blobs.read(blob_name(ROUTE, "a1", life)))
    target.ledger.close()


# Files --------------------------------------------------------------------------------------------
def entries_of(scene: Scene) -> list[dict[str, Any]]:
    return [found.record for found in records_of(scene.ctx, ROUTE, "a1")]


def written(path: Path, records: list[dict[str, Any]]) -> Path:
    with path.open("wb") as out:
        first = header(ROUTE, "2034-01-01T00:00:00.000Z", "0", {"keys": ["a1"]}, None, None)
        write_file(out, first, (entry_of(record, None, None) for record in records), None)
    return path


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_file_without_the_record_of_an_earlier_life_contradicts_itself(
    four: Scene, tmp_path: Path, number: int
) -> None:
    records = entries_of(four)
    del records[-number]
    verdict = verify(written(tmp_path / "e.jsonl", records))
    [difference] = verdict.differences
    assert (verdict.answer, difference.key, difference.field) == (
        "contradicted",
        "a1",
        "earlier life",
    )
    assert f"life {number} of 4" in difference.what


def test_the_lives_of_a_key_are_found_in_any_order(four: Scene, tmp_path: Path) -> None:
    assert (
        verify(written(tmp_path / "e.jsonl", sorted(entries_of(four), key=life_of))).answer
        == "proved"
    )


def test_an_earlier_life_that_ends_otherwise_than_the_later_one_says_is_a_contradiction(
    four: Scene, tmp_path: Path
) -> None:
    records = entries_of(four)
    records[3] = changed(records[3], lambda lines: lines.pop())
    [difference] = verify(written(tmp_path / "e.jsonl", records)).differences
    assert (difference.key, difference.field, difference.line) == ("a1", "chain.head", 5)
    assert "life 1 of 4" in difference.what
    assert "lines were cut off or added" in difference.what


def test_a_record_that_is_handed_on_alone_names_the_lives_that_it_lacks(
    four: Scene, tmp_path: Path
) -> None:
    lines = written(tmp_path / "e.jsonl", entries_of(four)).read_bytes().splitlines(keepends=True)
    alone = tmp_path / "alone.jsonl"
    alone.write_bytes(lines[1])
    verdict = verify(alone)
    assert verdict.answer == "proved"
    assert (
        "what happened in the 3 earlier lives of a1: their records are not here"
        in verdict.not_proved
    )
