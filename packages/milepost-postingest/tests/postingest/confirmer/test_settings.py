"""Settings of the stand-alone confirmer, and its messages about missing ones."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

import pytest

import milepost as mp
from milepost.cli import answer
from milepost.cli.commands import cli
from milepost_postingest.confirmer.rules import ConfirmerSettings, read_settings
from milepost_postingest.confirmer.service import ConfirmerLogFormat
from milepost_postingest.custodial_copy import CustodialCopy
from milepost_postingest.route import open_worker
from milepost_postingest.tape import Tape

NEEDED = {
    "SQS_QUEUE_URL": "https://queue",
    "DYNAMO_TABLE_NAME": "state",
    "DYNAMO_ATTRIBUTE_NAME": "result_CC",
}
TAPES = {
    "SCOUTAM_URL": "http://127.0.0.1:1",
    "SCOUTAM_USERNAME": "u",
    "SCOUTAM_PASSWORD": "p",
    "MOUNT_ROOT": "/archive",
}


@pytest.mark.parametrize(
    ("attribute", "more", "dialect", "worker"),
    [
        ("result_CC", {}, "today", "ocfl"),
        ("result_TC", {}, "today", "scoutam"),
        ("ingested_CC", {}, "seed", "ocfl"),
        ("ingested_Scout", {}, "seed", "scoutam"),
        ("result_Offsite", {"CONFIRMER": "scoutam"}, "today", "scoutam"),
        ("ingested_Second_CC", {"CONFIRMER": "ocfl"}, "seed", "ocfl"),
    ],
)
def test_the_attribute_tells_the_dialect_and_what_confirms(
    attribute: str, more: dict[str, str], dialect: str, worker: str
) -> None:
    found = read_settings({**NEEDED, "DYNAMO_ATTRIBUTE_NAME": attribute, **more})
    assert found == ConfirmerSettings(
        "https://queue", "state", attribute, dialect, worker, 50, None, None
    )


def test_the_rest_may_be_given() -> None:
    found = read_settings(
        {
            **NEEDED,
            "MAX_MESSAGES": "200",
            "QUARANTINE_URL": "https://aside",
            "MILEPOST_BLOBS": "s3://bucket/blobs",
        }
    )
    assert (found.max_messages, found.quarantine_url, found.blobs) == (
        200,
        "https://aside",
        "s3://bucket/blobs",
    )


@pytest.mark.parametrize("name", NEEDED)
def test_each_missing_setting_is_a_sentence(name: str) -> None:
    with pytest.raises(mp.ConfigMistake) as told:
        read_settings({**NEEDED, name: ""})
    expected = {
        "SQS_QUEUE_URL": "the URL of the queue of messages",
        "DYNAMO_TABLE_NAME": "the table whose rows are confirmed",
        "DYNAMO_ATTRIBUTE_NAME": "the attribute of a confirmation, such as result_CC or ingested_CC",
    }
    assert str(told.value) == f"{name} is not set; expected {expected[name]}"


def test_all_that_is_missing_is_said_at_once() -> None:
    with pytest.raises(mp.ConfigMistake) as told:
        read_settings({})
    assert [line.split(" ")[0] for line in str(told.value).splitlines()] == list(NEEDED)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"DYNAMO_ATTRIBUTE_NAME": "confirmed_CC"}, "write ingested_<stage> or result_<stage>"),
        ({"DYNAMO_ATTRIBUTE_NAME": "result_"}, "write ingested_<stage> or result_<stage>"),
        (
            {"DYNAMO_ATTRIBUTE_NAME": "result_OC"},
            "'result_OC', which does not say which worker confirms it; set CONFIRMER to ocfl or scoutam",
        ),
        ({"CONFIRMER": "tape"}, "CONFIRMER is 'tape'; expected ocfl or scoutam"),
        ({"MAX_MESSAGES": "0"}, "MAX_MESSAGES is '0'; expected a whole number from 1 up"),
        ({"MAX_MESSAGES": "many"}, "MAX_MESSAGES is 'many'; expected a whole number from 1 up"),
    ],
)
def test_what_cannot_be_is_said(changed: dict[str, str], told: str) -> None:
    with pytest.raises(mp.ConfigMistake, match=told):
        read_settings({**NEEDED, **changed})


def test_what_confirms_is_set_up_from_the_same_environment() -> None:
    copy = open_worker("ocfl", {"OCFL_REPO_DIR": "/repository", "OCFL_FIXITY": "1"})
    assert isinstance(copy, CustodialCopy)
    assert copy.fixity
    tape = open_worker("scoutam", TAPES)
    assert isinstance(tape, Tape)
    assert tape.mount_root == "/archive"
    tape.client.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The present folder has the application."""
    (tmp_path / "milepost.toml").write_text('applications = ["postingest"]\n')
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, "SQS_QUEUE_URL is not set"),
        (NEEDED, "OCFL_REPO_DIR is not set"),
        ({**NEEDED, "DYNAMO_ATTRIBUTE_NAME": "result_TC"}, "needs SCOUTAM_URL, SCOUTAM_USERNAME"),
        ({**NEEDED, "OCFL_REPO_DIR": "/repository"}, "AWS_DEFAULT_REGION is not set"),
    ],
)
def test_the_process_ends_with_2_and_says_what_is_missing(
    environment: dict[str, str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert answer(cli, ["postingest", "confirmer"]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_pause_that_is_none_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(cli, ["postingest", "confirmer", "--every", "often"]) == 2
    assert "--every is 'often'; give a span such as 60s or 5m" in capsys.readouterr().err


def test_a_log_line_is_one_json_object() -> None:
    try:
        raise ValueError("line\nbreak")
    except ValueError:
        record = logging.LogRecord(
            "milepost", logging.ERROR, __file__, 1, "not %s", ("confirmed é",), sys.exc_info()
        )
    record.created = 0.0
    record.__dict__.update({"row": {"assetId": "a"}, "kind": OSError})
    text = ConfirmerLogFormat().format(record)
    assert "\n" not in text
    line = json.loads(text)
    assert "ValueError: line\nbreak" in line.pop("trace")
    assert line == {
        "time": "1970-01-01T00:00:00.000Z",
        "level": "ERROR",
        "message": "not confirmed é",
        "row": {"assetId": "a"},
        "kind": "<class 'OSError'>",
    }
