"""The examples, run as their first lines say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.docs.samples import shell
from tests.project import ROOT

from milepost_postingest.standins.scoutam import StandIn

EXAMPLES = ROOT / "examples"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(folder: Path, command: str, code: int = 0, env: dict[str, str] | None = None) -> str:
    done = shell(command, folder, env)
    assert done.returncode == code, (
        f"{command}\nended with {done.returncode}, not {code}:\n{done.stdout}"
    )
    return done.stdout


def show(folder: Path, route: str, key: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(folder, f"milepost show {route} {key} --json"))
    return found


def test_parcels(folder: Path) -> None:
    routes = "milepost --routes examples/parcels.py"
    run(folder, f"{routes} submit parcels examples/parcels.csv")
    run(folder, f"{routes} work --until-idle")

    sent = show(folder, "parcels", "P-1")
    assert (sent["stage"], sent["status"], sent["handed_over"], sent["lane"]) == (
        "send",
        "WAITING",
        True,
        "York",
    )
    assert sent["results"] == {"weigh": {"grams": 340}, "label": {"label": "YORK-P-1"}}
    assert show(folder, "parcels", "P-3")["error"]["category"] == "NO_WEIGHT"
    too_heavy = show(folder, "parcels", "P-4")
    assert (too_heavy["status"], too_heavy["error"]["http_status"]) == ("REJECTED", 422)

    answer = """--stage send --output '{"tracking": "T-1"}' --by carrier --reason "their mail" """
    run(folder, f"{routes} confirm parcels P-1 {answer}")
    run(
        folder,
        f"{routes} confirm parcels P-2 --stage send --failed 'lost in a depot' --by carrier --reason 'their mail'",
    )
    assert show(folder, "parcels", "P-1")["results"]["send"] == {"tracking": "T-1"}
    assert show(folder, "parcels", "P-2")["attempts"] == 1


def test_archive(folder: Path) -> None:
    (folder / "letter.txt").write_text("Dear archive", encoding="utf-8")
    (folder / "files.txt").write_text("letter.txt\nlate.txt\n", encoding="utf-8")
    (folder / "milepost.toml").write_text(
        'routes = ["examples/archive.py"]\nsubscribers = ["examples/archive.py:ask_the_tape_library"]\n',
        encoding="utf-8",
    )
    run(folder, "milepost submit archive files.txt")
    run(folder, "milepost up --until-idle")

    late = show(folder, "archive", "late.txt")
    assert (late["stage"], late["status"], late["attempts"]) == ("copy", "WAITING", 0)
    there = show(folder, "archive", "letter.txt")
    assert (there["stage"], there["status"]) == ("on-tape", "QUEUED")
    assert (folder / there["results"]["copy"]["copy"]).read_text(encoding="utf-8") == "Dear archive"
    [offer] = [
        json.loads(path.read_text(encoding="utf-8")) for path in (folder / "tape-inbox").iterdir()
    ]
    assert (offer["key"], offer["work_id"], offer["payload"]) == (
        "letter.txt",
        there["work_id"],
        there["payload"],
    )

    signed = "--by 'tape library' --reason 'nightly run'"
    run(
        folder,
        f"milepost confirm archive letter.txt --stage on-tape --output '\"yes\"' {signed}",
        code=1,
    )
    run(
        folder,
        f"""milepost confirm archive letter.txt --stage on-tape --output '{{"tape": "T-0042"}}' {signed}""",
    )
    assert show(folder, "archive", "letter.txt")["status"] == "COMPLETED"


def test_a_repository_that_cannot_be_made_is_told_in_a_sentence(folder: Path) -> None:
    here = folder / "examples/postingest"
    for arguments in ("", "repository", "--help"):
        assert "usage: python make_repository.py FOLDER ID" in run(
            here, f"python make_repository.py {arguments} 2>&1", code=2
        )
    assert "give another folder" in run(
        here, "python make_repository.py queues.json p-1 2>&1", code=1
    )
    assert not (here / "repository").exists()


def test_postingest(folder: Path) -> None:
    here = folder / "examples/postingest"
    run(here, "python make_repository.py repository p-1")
    [made] = here.glob("repository/*/*/*/*")
    # Whether it is OCFL is for somebody else to say.
    library = ROOT / ".standins/ocfl/bin"
    assert "is VALID" in run(here, f"{library}/python {library}/ocfl-validate.py {made}")

    run(here, "milepost submit postingest assets.jsonl")
    assert "OCFL_REPO_DIR is not set" in run(here, "milepost up --until-idle", code=2)
    with StandIn(everything=True) as tapes:
        env = {
            "SCOUTAM_URL": tapes.url,
            "SCOUTAM_USERNAME": tapes.user,
            "SCOUTAM_PASSWORD": tapes.password,
            "MOUNT_ROOT": tapes.root,
        }
        told = run(here, "milepost up --until-idle", env={**env, "OCFL_REPO_DIR": "repository"})

    assert [told.count(f"asset.ingest.{kind}") for kind in ("update", "complete")] == [3, 1]
    there = show(here, "postingest", "'a-1#b-7'")
    assert there["status"] == "COMPLETED"
    assert set(there["results"]["Scout"]) == set(there["results"]["CC"]["filePaths"])
    late = show(here, "postingest", "'a-2#b-7'")
    assert (late["stage"], late["status"], late["note"]) == (
        "CC",
        "WAITING",
        "not in the repository yet",
    )
