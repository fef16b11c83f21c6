"""Recovery of interrupted runs: what they did after their last note is found by its traces, in a
folder and in S3."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from tests.deposits.deposits_scene import DepositsScene

from milepost_deposits.runs import (
    RUNNING,
    TAKING_IN,
    begun,
    close_interrupted,
    interrupted_runs,
    runs,
    this_process,
)
from milepost_deposits.status_names import word_counts


def take_in_and_die(scene: DepositsScene) -> None:
    """A run that has dealt with the inbox and noted nothing of it."""
    gone = begun(
        "gone", scene.app.now(), replace(this_process(), started="0"), word_counts(scene.app)
    )
    scene.take_in()
    scene.app.documents.put(f"{RUNNING}gone", to_builtins(replace(gone, step=TAKING_IN)))


def test_files_that_were_moved_are_found_in_the_folder(tmp_path: Path) -> None:
    with DepositsScene(tmp_path) as scene:
        scene.deliver("earlier.csv", "10.1/e\n")
        old = scene.take_in().taken[0].archived
        # The intake of another day.
        for file in list((scene.inbox / "archived").iterdir()):
            file.rename(file.with_name(f"20200101T000000Z{file.name[16:]}"))
        assert old
        scene.deliver("wiley/march (2)-new.csv", "10.1/a\n10.1/b\nnonsense\n")
        scene.deliver("wiley/letter.txt", "Dear colleague\n")
        take_in_and_die(scene)
        [left] = interrupted_runs(scene.app)
        assert left.lists == []
        [run] = close_interrupted(scene.app, word_counts(scene.app))
        assert (run.state, run.lists, run.new, run.malformed) == (
            "interrupted",
            ["wiley/march (2)-new.csv"],
            2,
            1,
        )
        [(name, reason)] = run.refused
        assert name == "wiley/letter.txt"
        assert "no column" in reason
        assert run.changes == {"Processing": 2}
        assert [one.state for one in runs(scene.app)] == ["interrupted"]
        assert interrupted_runs(scene.app) == []
        assert close_interrupted(scene.app, {}) == [run], "until a run has reported it"


def test_files_that_were_moved_are_found_in_s3(
    tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3

    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "a")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    s3 = boto3.client("s3", endpoint_url=endpoint)
    s3.create_bucket(
        Bucket="traces", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
    )
    with DepositsScene(tmp_path, inbox="s3://traces/wiley") as scene:
        s3.put_object(Bucket="traces", Key="wiley/march.csv", Body=b"10.1/a\n")
        s3.put_object(Bucket="traces", Key="wiley/bad.csv", Body=b"title\nFoam\n")
        take_in_and_die(scene)
        [run] = close_interrupted(scene.app, word_counts(scene.app))
        assert (run.lists, run.new, [name for name, _ in run.refused]) == (
            ["march.csv"],
            1,
            ["bad.csv"],
        )


def test_an_inbox_that_has_vanished_stops_no_recovery(tmp_path: Path) -> None:
    with DepositsScene(tmp_path) as scene:
        take_in_and_die(scene)
        (scene.inbox).rename(tmp_path / "elsewhere")
        [run] = close_interrupted(scene.app, word_counts(scene.app))
        assert (run.state, run.lists) == ("interrupted", [])
