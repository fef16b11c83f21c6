"""Fixtures: the templates of all cases, made once per test run, by the environment that has the
CDK."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import standins
from tests.aws.infra.cloudformation import Client
from tests.aws.infra.templates import CASES, VARIABLES, Template, write_case
from tests.project import ROOT

BIN = ROOT / ".infra-venv" / "bin"
DRIVER = "import json, sys; from milepost_aws.infra.app import main; sys.exit(max(main(arguments) for arguments in json.load(sys.stdin)))"


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Template]:
    """By case. The test processes of one run share them: the first makes them, the others wait."""
    if not (BIN / "cfn-lint").exists():
        pytest.fail("the CDK is not installed in .infra-venv; run make synth", pytrace=False)
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "templates"
    with (folder.parent / "templates.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            half_made = folder.with_suffix(".part")
            make_templates(half_made)
            half_made.rename(folder)
    return {case: Template(folder / case / "out") for case in CASES}


def make_templates(folder: Path) -> None:
    asked = []
    for case in CASES:
        (folder / case).mkdir(parents=True)
        asked.append(write_case(folder / case, case))
    made = subprocess.run(
        [BIN / "python", "-c", DRIVER],
        input=json.dumps(asked),
        cwd=ROOT,
        env=os.environ | VARIABLES,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    # Anything that the CDK has to say is a warning.
    assert made.stderr == ""


@pytest.fixture(params=sorted(CASES))
def template(request: pytest.FixtureRequest, templates: dict[str, Template]) -> Template:
    """Each of them."""
    return templates[request.param]


@pytest.fixture
def assets(templates: dict[str, Template]) -> Template:
    """Two external stages; a key of two parts."""
    return templates["assets"]


@pytest.fixture
def both(templates: dict[str, Template]) -> Template:
    """Two routes; the second has handlers, and a partner with a queue of their own."""
    return templates["both"]


@pytest.fixture(scope="module")
def account() -> Iterator[str]:
    """Empty, and found by boto3; one for all tests of a module."""
    fresh = standins.new_account()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in standins.environment(fresh).items():
            patch.setenv(name, value)
        yield fresh


@pytest.fixture(scope="module")
def client(ministack: standins.Server, account: str) -> Iterator[Client]:
    """client("dynamodb"): a boto3 client of that account."""
    with standins.clients(ministack.url) as make:
        yield make
