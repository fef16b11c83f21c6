"""Imports of commands: a command that only prints or reads does not load worker, server or drawing
code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from milepost.cli.sections import MODULES

STARTED = """
import sys
from milepost.cli import main
try:
    main(sys.argv[1:])
finally:
    print(*sys.modules, sep="\\n", file=sys.stderr)
"""
SERVES = {
    "asyncio",
    "concurrent.futures",
    "ssl",
    "socket",
    "subprocess",
    "multiprocessing",
    "uvicorn",
    "starlette",
    "milepost.http",
}
DRAWS = {"rich", "jinja2"}
PARTNERS = {"boto3", "botocore", "cryptography", "http.client", "urllib.request"}
PACKAGES = {"importlib.metadata", "importlib.resources", "zipfile", "email"}
"""Modules that look into installed packages, and read many small files to do so. They load
`socket`, for mail addresses."""
WORKS = {
    "milepost.app",
    "milepost.station",
    "milepost.engine.work.worker",
    "milepost.engine.events.deliver",
    "milepost.runners.threads",
}
READS = {
    "sqlite3",
    "msgspec",
    "logging",
    "tomllib",
    "hashlib",
    "milepost.engine",
    "milepost.ledgers",
    "milepost.composition",
    "milepost.core.routes.route",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a route file, a list and a ledger."""
    for command in (["init"], ["submit", "parcels", "parcels.jsonl"]):
        subprocess.run(
            [sys.executable, "-m", "milepost", *command],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )
    return tmp_path


def imported(folder: Path, *args: str, **env: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", STARTED, *args],
        cwd=folder,
        env=os.environ | env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


@pytest.mark.parametrize("args", [["--version"], ["submit", "--help"], ["completion", "zsh"]])
def test_what_only_prints_needs_no_ledger(args: list[str], tmp_path: Path) -> None:
    assert not imported(tmp_path, *args) & (SERVES | DRAWS | PARTNERS | PACKAGES | WORKS | READS)


def test_the_help_reads_which_packages_add_commands_and_loads_nothing_else(tmp_path: Path) -> None:
    assert not imported(tmp_path, "--help") & (
        SERVES - {"socket"} | DRAWS | PARTNERS | WORKS | READS
    )


def test_the_help_names_an_application_without_loading_it(tmp_path: Path) -> None:
    (tmp_path / "milepost.toml").write_text('applications = ["postingest"]\n', encoding="utf-8")
    found = imported(tmp_path, "--help")
    assert not found & (SERVES - {"socket"} | DRAWS | PARTNERS | WORKS | (READS - {"tomllib"}))
    assert "milepost_postingest" not in found


def test_a_shell_completes_a_command_without_a_ledger(tmp_path: Path) -> None:
    found = imported(
        tmp_path, _MILEPOST_COMPLETE="zsh_complete", COMP_WORDS="milepost st", COMP_CWORD="1"
    )
    assert not found & (SERVES - {"socket"} | DRAWS | PARTNERS | WORKS | READS)


@pytest.mark.parametrize(
    "args",
    [["status", "--json"], ["show", "parcels", "P-1", "--json"], ["list", "parcels", "--json"]],
)
def test_what_reads_does_not_load_what_works(args: list[str], folder: Path) -> None:
    found = imported(folder, *args)
    assert not found & (SERVES | DRAWS | PARTNERS | PACKAGES | WORKS | {"shutil"})
    assert "milepost.ledgers.sqlite.ledger" in found


def test_a_list_is_submitted_without_what_works(folder: Path) -> None:
    assert not imported(folder, "submit", "parcels", "parcels.jsonl", "--json") & (
        SERVES | DRAWS | PARTNERS | PACKAGES | WORKS
    )


def test_a_command_loads_no_other_commands_file(tmp_path: Path) -> None:
    assert imported(tmp_path, "status", "--help") & set(MODULES.values()) == {
        "milepost.cli.look.status"
    }
