"""The packages in `examples/` as another author's: they import public names alone, and are installed by
pip into an environment of their own, where an application's command, a route on the ledger and the
ledger contract run to the end."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.project import ROOT

PACKAGES = ("third-party-application", "third-party-ledger")
PUBLIC = {"milepost", "milepost.application", "milepost_testing", "milepost_testing.contract"}
TOML = """
ledger = "mirrored:///books.db"
applications = ["bookshelf"]

[bookshelf.shelves]
history = "A1"
"""


def imported_modules(folder: Path) -> Iterator[str]:
    """The modules of Milepost that the Python files of a folder import."""
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from (name.name for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield str(node.module)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_third_party_imports_public_names_alone(name: str) -> None:
    project = {"milepost", "milepost_testing"}
    modules = set(imported_modules(ROOT / "examples" / name))
    ours = {module for module in modules if module.partition(".")[0] in project}
    assert ours
    assert ours <= PUBLIC


class Environment:
    """A virtual environment that also sees the packages of the one that runs the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder / "venv", with_pip=False)
        self.python = folder / "venv/bin/python"
        own_packages = sysconfig.get_path("purelib", vars={"base": str(folder / "venv")})
        seen = sysconfig.get_path("purelib")
        # addsitedir: the packages of this project are there by .pth files.
        line = f"import site; site.addsitedir({seen!r})\n"
        Path(own_packages, "packages_of_the_tests.pth").write_text(line)

    def install(self, *packages: Path) -> None:
        """Install packages from their folders; nothing is fetched."""
        options = ("--no-index", "--no-deps", "--no-build-isolation", "--quiet")
        self.run("-m", "pip", "install", *options, *map(str, packages))

    def milepost(self, *arguments: str) -> str:
        return self.run("-m", "milepost", *arguments)

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(self.python), *arguments],
            cwd=self.folder,
            env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """With both packages, built from copies: setuptools writes beside the sources."""
    folder = tmp_path_factory.mktemp("third-party")
    copies = []
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
        copies.append(shutil.copytree(ROOT / "examples" / name, folder / name, ignore=ignored))
    made = Environment(folder)
    made.install(*copies)
    (folder / "milepost.toml").write_text(TOML)
    return made


@pytest.mark.slow
def test_the_command_of_the_application_runs_on_the_ledger(environment: Environment) -> None:
    places = "import milepost_bookshelf as a, milepost_mirrored as b; print(a.__file__, b.__file__)"
    assert environment.run("-c", places).count(str(environment.folder / "venv")) == 2

    added = environment.milepost("bookshelf", "add", "B-1", "The Histories", "history")
    assert added == "B-1: new\n"
    environment.milepost("bookshelf", "add", "B-2", "Almagest", "astronomy")
    environment.milepost("work", "--until-idle")
    placed = json.loads(environment.milepost("show", "books", "B-1", "--json"))
    assert placed["status"] == "COMPLETED"
    assert placed["results"] == {"place": {"shelf": "A1"}}
    refused = json.loads(environment.milepost("show", "books", "B-2", "--json"))
    assert refused["status"] == "REJECTED"
    assert "1 subjects have a shelf" in environment.milepost("doctor")

    mirror = (environment.folder / "books.db-history.txt").read_text()
    lines = [line.split("\t")[3:6] for line in mirror.splitlines()]
    assert sorted(lines) == [
        ["B-1", "accepted", "QUEUED"],
        ["B-1", "completed", "COMPLETED"],
        ["B-2", "accepted", "QUEUED"],
        ["B-2", "rejected", "REJECTED"],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKAGES)
def test_the_tests_of_a_third_party_pass(environment: Environment, name: str) -> None:
    """Those of the ledger are the contract, with the capabilities that it declares."""
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", "-W", "error")
    tests = environment.folder / name / "tests"
    told = environment.run("-m", "pytest", *options, f"--rootdir={tests}", str(tests))
    assert " passed" in told
    assert "failed" not in told
