"""Kept evidence that is lost or altered is found by doctor and export, and used by nobody; earlier
lives of a key are exported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.evidence.evidence_scene import ROUTE, SIGNED, Scene, assets

import milepost as mp
from milepost.core.routes.plan import Plan
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.verbs import CancelVerb
from milepost.engine.context import Context
from milepost.engine.evidence import (
    SCRUBBED,
    OnVolume,
    all_evidence,
    life_before,
    on_volume,
    records_of,
    scrub,
)
from milepost.engine.forget import forget
from milepost.engine.heads.evidence_lines import entries, first_line
from milepost.engine.health.doctor import doctor
from milepost.engine.intake import submit
from milepost.evidence.files import write_file
from milepost.evidence.record import SEAL_SCHEMA, blob_name
from milepost.evidence.verify import verify
from milepost.ports.items import Query


@pytest.fixture
def damaged(scene: Scene) -> Scene:
    """Of four kept records one is lost, one altered so that its chain fits, and one cannot be
    read."""
    scene.through("a1", "a2", "a3", "a4")
    scene.prune()
    blobs = scene.ctx.blobs
    blobs.remove(blob_name(ROUTE, "a1"))
    other = json.loads(b"".join(blobs.read(blob_name(ROUTE, "a2"))))
    other["record"]["chain"]["lines"].pop()
    blobs.write(blob_name(ROUTE, "a2"), [json.dumps(other).encode()])
    blobs.write(blob_name(ROUTE, "a3"), [b"{"])
    return scene


def exported(ctx: Context, path: Path) -> list[tuple[str, str]]:
    """The doubts of an export of the whole route."""
    doubts: list[tuple[str, str]] = []
    with path.open("wb") as out:
        records = entries(
            ctx, all_evidence(ctx, Query(route=ROUTE, with_content=True)), None, doubts
        )
        write_file(out, first_line(ctx, ROUTE, "0", {}), records, None)
    return doubts


def test_an_export_names_every_record_that_is_lost_or_does_not_match_its_seal(
    damaged: Scene, tmp_path: Path
) -> None:
    doubts = dict(exported(damaged.ctx, tmp_path / "e.jsonl"))
    assert sorted(doubts) == ["a1", "a2", "a3"]
    assert doubts["a1"].startswith(
        f"its kept evidence {blob_name(ROUTE, 'a1')} is missing: it was lost"
    )
    assert "the lines lead to" in doubts["a2"]
    assert "is damaged" in doubts["a3"]


def test_a_record_that_is_lost_or_altered_is_not_used_for_a_volume(damaged: Scene) -> None:
    faults: dict[str, str] = {}
    found: list[OnVolume] = list(on_volume(damaged.ctx, ROUTE, "V1", on_fault=faults.__setitem__))
    assert [one.key for one in found] == ["a4"]
    assert sorted(faults) == ["a1", "a2", "a3"]


def test_doctor_finds_them_and_says_what_it_looked_at(damaged: Scene) -> None:
    [finding] = [finding for finding in doctor(damaged.ctx).findings if finding.about == "evidence"]
    assert finding.level == "bad"
    assert finding.what.startswith(
        f"4 of the 4 kept records of {ROUTE} were compared with their seals: 3 cannot be used: a1: "
    )
    assert f"milepost export {ROUTE} --evidence" in finding.next


def test_doctor_compares_some_of_many_by_chance(archive: Scene) -> None:
    archive.through(*(f"a{n}" for n in range(SCRUBBED + 20)))
    archive.prune()
    [finding] = [finding for finding in doctor(archive.ctx).findings if finding.about == "evidence"]
    assert (finding.level, finding.what) == (
        "ok",
        f"100 of the 120 kept records of {ROUTE} were compared with their seals",
    )
    for n in range(SCRUBBED + 20):
        archive.ctx.blobs.remove(blob_name(ROUTE, f"a{n}"))
    first, second = scrub(archive.ctx, ROUTE).faults, scrub(archive.ctx, ROUTE).faults
    assert (len(first), len(second)) == (SCRUBBED, SCRUBBED)
    assert first.keys() != second.keys()


def test_a_forgotten_item_and_a_route_without_evidence_lack_nothing(archive: Scene) -> None:
    archive.through("a1")
    archive.prune()
    forget(archive.ctx, ROUTE, "a1", **SIGNED)
    assert scrub(archive.ctx, ROUTE).faults == {}
    bare = Scene(evidence=False)
    bare.through("a1")
    bare.prune()
    assert [finding for finding in doctor(bare.ctx).findings if finding.about == "evidence"] == []
    assert [
        found.faults
        for found in all_evidence(bare.ctx, Query(route=ROUTE, with_content=True))
        if found.record["key"] == "a1"
    ] == [[]]


# The whole route ----------------------------------------------------------------------------------
def test_the_whole_route_has_the_earlier_lives_of_a_key(scene: Scene, tmp_path: Path) -> None:
    scene.bring("a1", damaged=True)
    scene.prune()
    scene.clock.advance("1d")
    submit(scene.ctx, ROUTE, [{"id": "a1", "damaged": True}], by="ops", failed_again="repaired")
    scene.through()
    scene.prune()
    scene.clock.advance("1d")
    submit(scene.ctx, ROUTE, [{"id": "a1"}], by="ops", failed_again="repaired again")
    scene.through()
    scene.tape("a1")
    lives = [found.record["status"] for found in records_of(scene.ctx, ROUTE, "a1")]
    assert lives == ["COMPLETED", "REJECTED", "REJECTED"], "while its row is there"
    scene.prune()
    assert [found.record["status"] for found in records_of(scene.ctx, ROUTE, "a1")] == lives
    assert exported(scene.ctx, tmp_path / "e.jsonl") == []
    verdict = verify(tmp_path / "e.jsonl")
    assert verdict.holds
    assert verdict.records == len(lives) + len(scene.ledger.find(Query(route=ROUTE)).items)


def test_a_damaged_record_of_an_earlier_life_is_named_and_stops_no_export(
    archive: Scene, tmp_path: Path
) -> None:
    archive.bring("a1", damaged=True)
    archive.prune()
    submit(archive.ctx, ROUTE, [{"id": "a1"}], by="ops", failed_again="repaired")
    archive.through()
    archive.tape("a1")
    archive.prune()
    archive.ctx.blobs.write(blob_name(ROUTE, "a1"), [b"{"])
    [latest, earlier] = records_of(archive.ctx, ROUTE, "a1")
    assert (latest.record["status"], latest.faults) == ("COMPLETED", [])
    assert (earlier.record["schema"], earlier.record["status"]) == (SEAL_SCHEMA, "REJECTED")
    assert "is damaged" in earlier.faults[0]
    [(key, fault)] = exported(archive.ctx, tmp_path / "e.jsonl")
    assert key == "a1"
    assert fault == earlier.faults[0]
    assert verify(tmp_path / "e.jsonl").holds


def test_an_earlier_life_that_was_recorded_without_its_number_is_found(archive: Scene) -> None:
    """Lines of an earlier Milepost name the head of the life before, not its number: the first one
    has none."""
    archive.bring("a1", damaged=True)
    archive.prune()
    archive.clock.advance("1d")
    submit(archive.ctx, ROUTE, [{"id": "a1"}], by="ops", failed_again="repaired")
    act(archive.ctx, select(archive.ctx, ROUTE, keys=["a1"]), CancelVerb(), **SIGNED)
    [latest, _] = records_of(archive.ctx, ROUTE, "a1")
    text = latest.record["chain"]["lines"][0]
    assert ',"life":0}' in text
    latest.record["chain"]["lines"][0] = text.replace(',"life":0}', "}")
    assert life_before(latest) == 0


def test_an_export_refers_to_the_route_that_follows_its_items(tmp_path: Path) -> None:
    scene = Scene()
    follower = mp.Route("rechecks", key="id")
    follower.stage("recheck")(lambda item: mp.NotYet())
    route = assets()
    route.then(follower, lambda item, at: {"id": item.key})
    scene.ctx.take(Plan(route))
    scene.through("a1")
    exported(scene.ctx, tmp_path / "e.jsonl")
    sentence = (
        "what happened to its items afterwards on the route 'rechecks': export that route too"
    )
    assert sentence in verify(tmp_path / "e.jsonl").not_proved
    act(scene.ctx, select(scene.ctx, ROUTE, keys=["a1"]), CancelVerb(), **SIGNED)
    scene.prune()
    assert (
        "the item that follows it on the route 'rechecks', if there is one: forget that too"
        in forget(scene.ctx, ROUTE, "a1", **SIGNED).stays
    )
