"""Whole journeys with confirmers that stand alone: rows and queues on a stand-in for AWS, a real
repository, a tape library that answers. Numbers are those of the scenario list for this system."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.postingest.aws_scene import ASSET, BATCH, Opener, Postingest, assets
from tests.postingest.scenarios.repository_and_tape import (
    PAYLOAD,
    SCRIPTS,
    RepositoryAndTape,
    long_names,
    whole,
)

from milepost.blobs.folder import FolderBlobs
from milepost.engine.evidence import evidence_of
from milepost.engine.views.story import story
from milepost.engine.views.timestamps import instant
from milepost.evidence.reported_files import reported_files
from milepost_aws.ledger.offers import LARGEST_PAYLOAD
from milepost_postingest.confirmer.rows import RowGone
from milepost_postingest.confirmer.rules import ConfirmerSettings
from milepost_postingest.confirmer.service import Confirmer, TurnTally

LAST = {"seed": "Scout", "today": "TC"}
STATUSES = [
    "Asset has been ingested to the Preservation System.",
    "Asset has been written to custodial copy disk.",
]


class Journey:
    """An asset's way through both stages; each confirmer has its turn when the test says so."""

    def __init__(
        self, post: Postingest, asset: RepositoryAndTape, dialect: str, blobs: Path
    ) -> None:
        self.post, self.asset, self.last = post, asset, LAST[dialect]
        self.confirmers = {
            stage: Confirmer(
                check,
                ConfirmerSettings(
                    post.store.queues.url(post.route, stage),
                    post.table,
                    post.prefix + stage,
                    dialect,
                    "ocfl",
                    blobs=str(blobs),
                ),
                sqs=post.sqs,
                dynamodb=post.dynamodb,
                width=1,
                notes=stage != "CC",
            )
            for stage, check in (("CC", asset.on_disk.check), (self.last, asset.on_tape.check))
        }

    def turn(self, stage: str) -> TurnTally:
        tally = self.confirmers[stage].tick()
        self.post.follow()
        return tally

    def statuses(self) -> list[str]:
        bodies = [one.get("body", one) for one in self.post.told.notifications]
        return [one["parameters"]["status"] for one in bodies]


@pytest.mark.parametrize(
    ("names", "dialect"),
    [(SCRIPTS, "seed"), (SCRIPTS, "today"), (long_names(2000), "seed")],
    ids=["other alphabets", "other alphabets today", "two thousand files"],
)
def test_an_asset_goes_from_the_repository_to_tape_and_is_told_of_three_times(
    open_at: Opener, tmp_path: Path, names: list[str], dialect: str
) -> None:
    """Scenarios 18, 24, 32, 33 and 35: what is too large for a message or a row goes by reference,
    and every name is the same everywhere."""
    blobs = tmp_path / "blobs"
    post = open_at(route=assets(dialect=dialect), blobs=FolderBlobs(str(blobs)))
    with whole(tmp_path, names) as asset:
        journey = Journey(post, asset, dialect, blobs)
        post.put(content=json.dumps(PAYLOAD))
        post.follow()
        assert journey.turn("CC").confirmed == 1
        assert post.at() == (journey.last, "QUEUED")
        (message,) = post.shown(journey.last)
        by_reference = len(json.dumps(asset.paths)) > LARGEST_PAYLOAD
        assert by_reference == (len(names) == 2000)
        assert ("payloadAt" in message.body) == by_reference
        volumes = asset.archive()
        assert journey.turn(journey.last).confirmed == 1
    assert post.at() == (journey.last, "COMPLETED")
    results = post.item().results
    assert results["CC"]["filePaths"] == asset.paths
    assert results[journey.last] == volumes
    assert journey.statuses()[:2] == STATUSES
    assert len(journey.statuses()) == 3
    found = evidence_of(post.ctx, post.route, f"{ASSET}#{BATCH}")
    assert found is not None
    assert found.faults == []
    assert {
        path: [volume for named in file.volumes.values() for volume in named]
        for path, file in reported_files(found.record["stages"]).items()
    } == volumes
    assert (post.received("CC"), post.received(journey.last), post.aside()) == ([], [], [])


@pytest.mark.parametrize("dialect", ["seed", "today"])
def test_the_files_that_are_missing_on_tape_are_named_in_the_ledger(
    open_at: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    monkeypatch.setattr("milepost_postingest.confirmer.service.wait_s", lambda *_: 0)
    blobs = tmp_path / "blobs"
    post = open_at(route=assets(dialect=dialect), blobs=FolderBlobs(str(blobs)))
    with whole(tmp_path, ["a.txt", "b.txt", "c.txt"]) as asset:
        journey = Journey(post, asset, dialect, blobs)
        post.put(content=json.dumps(PAYLOAD))
        post.follow()
        journey.turn("CC")

        def look() -> str:
            """One turn at the last stage; what `show` then says of why the asset waits."""
            assert journey.turn(journey.last).not_yet >= 1
            post.follow()
            assert f"waiting_{journey.last}" not in (post.row() or {})
            found = story(post.ctx, post.route, f"{ASSET}#{BATCH}", instant)
            assert found is not None
            return " ".join(found.why)

        asset.library.standin.put(asset.paths[0], "L1")
        first = look()
        assert "1 of 3 files on tape" in first
        assert "missing: b.txt, c.txt" in first
        noted = len(post.lines())
        assert look() == first
        assert len(post.lines()) == noted
        asset.library.standin.put(asset.paths[1], "L1")
        assert "missing: c.txt" in look()
        assert [post.lines()[-1], post.notes()[-1]] == ["noted", post.item().row.note]
        asset.archive()
        assert journey.turn(journey.last).confirmed >= 1
    assert post.at() == (journey.last, "COMPLETED")


@pytest.mark.parametrize("trouble", ["gone", "denied"])
def test_a_row_that_takes_no_note_waits_all_the_same(
    open_at: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    post = open_at(route=assets(dialect="seed"))
    with whole(tmp_path, ["a.txt"]) as asset:
        journey = Journey(post, asset, "seed", tmp_path / "blobs")
        post.put(content=json.dumps(PAYLOAD))
        post.follow()
        journey.turn("CC")

        def fails(*_: object) -> None:
            raise (
                RowGone("there is no such row")
                if trouble == "gone"
                else PermissionError("AccessDeniedException")
            )

        monkeypatch.setattr(journey.confirmers["Scout"]._rows, "note", fails)
        assert journey.turn("Scout") == TurnTally(
            received=1,
            not_yet=1,
            notes={
                "0 of 1 files on tape, 1 not known to ScoutAM; missing: a.txt (in "
                + asset.paths[0].rpartition("/")[0]
                + ")": 1
            },
        )
