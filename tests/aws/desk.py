"""The command line on a ledger on a stand-in, called in this process through its own entry point: what it answers, and how it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from standins import REGION

from milepost.cli import answer
from milepost.cli.commands import cli

ROUTES = """
from __future__ import annotations

import milepost as mp

parcels = mp.Route("parcels", key="id")


@parcels.stage("weigh", retry=mp.Backoff(attempts=2, base=0.05, factor=1, jitter=0))
def weigh(item: mp.Item) -> mp.Outcome:
    if item.input.get("torn"):
        return mp.Reject("it is torn", category="TORN")
    if item.input.get("busy"):
        return mp.Retry("the scale is busy", category="BUSY")
    if item.input.get("later"):
        return mp.NotYet(after="1h", note="not brought yet")
    return mp.Done({"grams": 340})


parcels.external("delivered", resend_after="14d", lane=lambda content: content.get("depot", ""))
"""
SIGNED = ("--by", "ops", "--reason", "a test")


class Answer:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def flat(self) -> str:
        """All that was said, in one line."""
        return " ".join((self.out + " " + self.err).split())

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Desk:
    """A folder with a route file and a milepost.toml that names the ledger."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], ledger: str) -> None:
        self.folder, self.ledger = folder, ledger
        self._capsys = capsys
        self.write("parcels.py", ROUTES)
        self.settle(ledger)

    def settle(self, ledger: str) -> None:
        """From now on this is the ledger."""
        self.ledger = ledger
        self.write("milepost.toml", f'ledger = "{ledger}"\nroutes = ["parcels.py"]\nsubscribers = ["log"]\n')

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
        return {item["key"] for item in self.ok("list", "parcels", *filters, "--json").json["items"]}


def address(endpoint: str, prefix: str) -> str:
    return f"dynamodb://{REGION}/{prefix}?endpoint={endpoint}"
