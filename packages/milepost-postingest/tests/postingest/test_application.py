"""Postingest as an application: its settings, its command, and the health checks of its workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import milepost as mp
from milepost.cli.commands import cli
from milepost.engine.health.doctor import doctor
from milepost_postingest import application
from milepost_postingest.standins.scoutam import StandIn

QUEUES: list[dict[str, Any]] = [
    {"queueAlias": "CC", "queueOrder": 1, "worker": "ocfl"},
    {"queueAlias": "Scout", "queueOrder": 2, "worker": "scoutam"},
]
VARIABLES = ("OCFL_REPO_DIR", "SCOUTAM_URL", "SCOUTAM_USERNAME", "SCOUTAM_PASSWORD", "MOUNT_ROOT")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty folder, and none of the workers' variables."""
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def findings() -> list[tuple[str, str]]:
    with mp.open("memory:", applications=[application.configured({"queues": QUEUES})]) as archive:
        return [
            (found.level, found.what)
            for found in doctor(archive.context).findings
            if found.about == "postingest"
        ]


def test_its_route_is_made_of_the_settings() -> None:
    [route] = application.configured({"route": "assets", "dialect": "today"}).routes
    assert (route.name, [stage.name for stage in route.stages]) == ("assets", ["CC", "TC"])
    [route] = application.configured(
        {"queues": QUEUES, "wait_for_batches": True, "recheck": "1y"}
    ).routes
    assert [stage.name for stage in route.stages] == ["CC", "Scout", "batches"]
    assert route.follow_up is not None


def test_the_environment_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILEPOST_POSTINGEST_QUEUES", '[{"queueAlias": "CC", "queueOrder": 1}]')
    monkeypatch.setenv("MILEPOST_POSTINGEST_DIALECT", "today")
    [route] = application.configured().routes
    assert [stage.name for stage in route.stages] == ["CC"]


def test_a_wrong_setting_is_told() -> None:
    with pytest.raises(
        mp.ConfigMistake,
        match=r"\[postingest\] dialect: Invalid enum value 'old'; expected seed or today",
    ):
        application.configured({"dialect": "old"})


def test_workers_that_are_not_set_up_here_are_no_alarm() -> None:
    assert [level for level, _ in findings()] == ["ok", "ok"]
    assert "the worker of CC is not set up in this environment" in findings()[0][1]


def test_a_repository_or_a_library_that_cannot_be_reached_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OCFL_REPO_DIR", str(tmp_path / "away"))
    monkeypatch.setenv("SCOUTAM_URL", "http://127.0.0.1:9")
    repository, tapes = findings()
    assert (repository[0], repository[1].startswith("assets wait at CC: ")) == ("bad", True)
    assert tapes == (
        "bad",
        "assets wait at Scout: the tape stage needs SCOUTAM_USERNAME, SCOUTAM_PASSWORD, MOUNT_ROOT in the environment; not set, or empty",
    )
    monkeypatch.setenv("SCOUTAM_USERNAME", "a")
    monkeypatch.setenv("SCOUTAM_PASSWORD", "b")
    monkeypatch.setenv("MOUNT_ROOT", "/archive")
    assert findings()[1][1].startswith("assets wait at Scout: ScoutAM: ")


def test_what_can_be_reached_is_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "0=ocfl_1.1").write_text("ocfl_1.1\n", encoding="utf-8")
    (tmp_path / "ocfl_layout.json").write_text(
        '{"extension": "0004-hashed-n-tuple-storage-layout", "description": ""}', encoding="utf-8"
    )
    monkeypatch.setenv("OCFL_REPO_DIR", str(tmp_path))
    with StandIn(everything=True) as tapes:
        for name, value in zip(
            VARIABLES[1:], (tapes.url, tapes.user, tapes.password, tapes.root), strict=True
        ):
            monkeypatch.setenv(name, value)
        assert findings() == [
            ("ok", "the worker of CC reaches its storage"),
            ("ok", "the worker of Scout reaches its storage"),
        ]


def test_the_confirmer_is_a_command_that_says_what_it_misses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SQS_QUEUE_URL", "DYNAMO_TABLE_NAME", "DYNAMO_ATTRIBUTE_NAME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "milepost.toml").write_text('applications = ["postingest"]\n', encoding="utf-8")
    answer = CliRunner().invoke(cli, ["postingest", "confirmer", "--once"])
    assert isinstance(answer.exception, mp.ConfigMistake)
    assert "SQS_QUEUE_URL is not set" in str(answer.exception)
    assert not (tmp_path / "milepost.db").exists()
    assert (
        "Confirm assets on the rows of a table"
        in CliRunner().invoke(cli, ["postingest", "--help"]).output
    )


def test_only_the_command_line_imports_what_commands_need() -> None:
    code = "import sys, milepost_postingest as it; it.application.configured().routes; print('click' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout
        == "False\n"
    )
