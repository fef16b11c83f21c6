"""Fixtures: the command in a process and a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command_processes import command_processes
from tests.cli.commands import DELIVERED, STAMPED, WEIGHED, Answer

ROUTES = WEIGHED + STAMPED + DELIVERED


class Shell:
    """A folder in which milepost is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        left_out = ("MILEPOST_", "COLUMNS", "FORCE_COLOR")
        self.env = {
            name: value for name, value in os.environ.items() if not name.startswith(left_out)
        }

    def command(self, *args: object) -> list[str]:
        return [sys.executable, "-m", "milepost", *map(str, args)]

    def __call__(self, *args: object, stdin: str | None = None, **env: str) -> Answer:
        answer = command_processes().run(
            [str(arg) for arg in args], self.folder, {**self.env, **env}, stdin, timeout=60
        )
        assert "Traceback" not in answer.err, answer
        return answer

    def started(self, *args: object, **env: str) -> Answer:
        """The same in a process that imports everything by itself."""
        done = subprocess.run(
            self.command(*args),
            cwd=self.folder,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

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
        self.ok(
            "submit",
            "parcels",
            "-",
            "--format",
            "jsonl",
            stdin="".join(json.dumps(item) + "\n" for item in items),
        )

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
