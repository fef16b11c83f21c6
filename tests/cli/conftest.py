"""The command as a user calls it: in a process of its own, in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


@parcels.stage("stamp")
async def stamp(item: mp.Item) -> mp.Outcome:
    return mp.Done()


parcels.external("delivered", resend_after="14d", lane=lambda content: content.get("depot", ""))
"""


class Answer:
    """What a command answered: its exit code and what it wrote."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Shell:
    """A folder in which milepost is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        left_out = ("MILEPOST_", "COLUMNS", "FORCE_COLOR")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}

    def command(self, *args: object) -> list[str]:
        return [sys.executable, "-m", "milepost", *map(str, args)]

    def __call__(self, *args: object, stdin: str | None = None, **env: str) -> Answer:
        done = subprocess.run(
            self.command(*args), cwd=self.folder, input=stdin, env={**self.env, **env}, capture_output=True, text=True, timeout=60
        )
        answer = Answer(done)
        assert "Traceback" not in answer.err, answer
        return answer

    def ok(self, *args: object, stdin: str | None = None, **env: str) -> Answer:
        """Call a command that must succeed."""
        answer = self(*args, stdin=stdin, **env)
        assert answer.code == 0, answer
        return answer

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def submit(self, *items: dict[str, Any]) -> None:
        self.ok("submit", "parcels", "-", "--format", "jsonl", stdin="".join(json.dumps(item) + "\n" for item in items))

    def signed(self, *args: object) -> Answer:
        """Call a command that a person signs."""
        return self(*args, "--by", "ops", "--reason", "a test")


@pytest.fixture
def bare(tmp_path: Path) -> Shell:
    """An empty folder."""
    return Shell(tmp_path)


@pytest.fixture
def shell(bare: Shell) -> Shell:
    """A folder with a route and a milepost.toml."""
    bare.write("parcels.py", ROUTES)
    bare.write("milepost.toml", 'routes = ["parcels.py"]\n')
    return bare
