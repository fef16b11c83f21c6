"""The command line on an AWS ledger, called in this process through its entry point."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import DELIVERED, WEIGHED, Answer
from tests.standins import REGION

from milepost.cli import answer
from milepost.cli.commands import cli

ROUTES = WEIGHED + DELIVERED
SIGNED = ("--by", "ops", "--reason", "a test")


class AwsCommandLine:
    """A folder with a route file and a milepost.toml that names the ledger."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], ledger: str) -> None:
        self.folder, self.ledger = folder, ledger
        self._capsys = capsys
        self.write("parcels.py", ROUTES)
        self.settle(ledger)

    def settle(self, ledger: str) -> None:
        """From now on this is the ledger."""
        self.ledger = ledger
        self.write(
            "milepost.toml",
            f'ledger = "{ledger}"\nroutes = ["parcels.py"]\nsubscribers = ["log"]\n',
        )

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def __call__(self, *args: object) -> Answer:
        # Each call reads the route file anew, as a process of its own would.
        for name in ("parcels", "parcels_routes"):
            sys.modules.pop(name, None)
        self._capsys.readouterr()
        code = answer(cli, [str(arg) for arg in args])
        said = self._capsys.readouterr()
        assert "Traceback" not in said.err, said.err
        return Answer(code, said.out, said.err)

    def ok(self, *args: object) -> Answer:
        found = self(*args)
        assert found.code == 0, (args, found)
        return found

    def signed(self, *args: object) -> Answer:
        return self.ok(*args, *SIGNED)

    def up(self) -> Answer:
        return self.ok("up", "--until-idle", "0.3")

    def submit(self, *items: dict[str, Any]) -> None:
        for item in items:
            self.ok("submit", "parcels", "--item", json.dumps(item))

    def show(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ok("show", "parcels", key, "--json").json
        return found

    def keys(self, *filters: str) -> set[str]:
        return {
            item["key"] for item in self.ok("list", "parcels", *filters, "--json").json["items"]
        }


def address(endpoint: str, prefix: str) -> str:
    return f"dynamodb://{REGION}/{prefix}?endpoint={endpoint}"
