"""The start of a container: few imports, and clear messages about missing settings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from milepost.core.errors import ConfigMistake
from milepost_aws.lambdas import start

CHILD = "import json, sys, milepost_aws.lambdas.{0}; print(json.dumps(sorted(sys.modules)))"


@pytest.mark.parametrize("function", ["worker", "relay", "resender", "lists"])
def test_a_function_imports_nothing_of_the_command_line(function: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", CHILD.format(function)], check=True, capture_output=True, text=True
    ).stdout
    modules = set(json.loads(told))
    assert f"milepost_aws.lambdas.{function}" in modules
    assert not modules & {
        "click",
        "rich",
        "milepost.cli",
        "milepost.ledgers.sqlite",
        "milepost_testing",
        "boto3",
    }


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("MILEPOST_ROUTES", "MILEPOST_LEDGER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigMistake, match="MILEPOST_ROUTES is not set"):
        start.opened()
    path = tmp_path / "lonely.py"
    path.write_text(
        "import milepost as mp\n\nlonely = mp.Route('lonely', key='id')\nlonely.external('tape')\n"
    )
    monkeypatch.setenv("MILEPOST_ROUTES", str(path))
    with pytest.raises(ConfigMistake, match="MILEPOST_LEDGER is not set"):
        start.opened()
    monkeypatch.setenv("MILEPOST_LEDGER", "memory:")
    with pytest.raises(ConfigMistake, match="functions need a ledger on AWS"):
        start.opened()
    with pytest.raises(ConfigMistake, match="has no route 'others'"):
        start.opened("others")
