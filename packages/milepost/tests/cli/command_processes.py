"""Processes for `milepost` commands, forked from one that has imported the program: each is a
process of its own, and starts at once.

The commands' own start, with all imports, is tested by `cli/test_cli_start_up.py`.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cli.commands import Answer
from tests.project import ROOT, TEST_PATH

PRELOADED = (
    "milepost.cli",
    "milepost.engine",
    "milepost.ledgers.sqlite",
    "milepost.http",
    "milepost.subscribers",
    "milepost.evidence",
)
"""Packages whose modules the processes find imported."""


class CommandProcesses:
    """Forks a process for each command, one after the other."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="commands-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.command_processes"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": TEST_PATH},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self.close)

    def run(
        self,
        args: list[str],
        folder: Path,
        env: Mapping[str, str],
        stdin: str | None = None,
        *,
        timeout: float,
        together: bool = False,
    ) -> Answer:
        """Run one command to its end. Its two outputs are kept apart, or come `together`, as a
        terminal shows them."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        files = {name: Path(self._folder.name) / name for name in ("in", "out", "err")}
        files["in"].write_text(stdin or "", encoding="utf-8")
        for name in ("out", "err"):
            files[name].write_bytes(b"")
        paths = {name: str(files["out" if together and name == "err" else name]) for name in files}
        wish = {
            "args": args,
            "folder": str(folder),
            "env": dict(env),
            "timeout": timeout,
            "files": paths,
        }
        self._process.stdin.write(json.dumps(wish) + "\n")
        self._process.stdin.flush()
        code = json.loads(self._process.stdout.readline())
        answer = Answer(code, *(files[name].read_text(encoding="utf-8") for name in ("out", "err")))
        assert code is not None, (
            f"milepost {' '.join(args)} has not ended within {timeout:g} s: {answer!r}"
        )
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()


_processes: CommandProcesses | None = None


def command_processes() -> CommandProcesses:
    """The one of this test process."""
    global _processes
    _processes = _processes or CommandProcesses()
    return _processes


def serve() -> None:
    for package in PRELOADED:
        for found in pkgutil.walk_packages(
            importlib.import_module(package).__path__, f"{package}."
        ):
            importlib.import_module(found.name)
    for line in sys.stdin:
        wish = json.loads(line)
        pid = os.fork()
        if not pid:
            _become(wish)
        print(json.dumps(_ended(pid, wish["timeout"])), flush=True)


def _ended(pid: int, timeout: float) -> int | None:
    """The exit code, or the negative signal; None: it was killed, since it took too long."""
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _become(wish: dict[str, Any]) -> None:
    """This process is the command from now on."""
    code: Any = 1
    try:
        os.chdir(wish["folder"])
        os.environ.clear()
        os.environ.update(wish["env"])
        time.tzset()
        sys.path[0] = wish["folder"]
        sys.argv = ["milepost", *wish["args"]]
        files = wish["files"]
        os.dup2(os.open(files["in"], os.O_RDONLY), 0)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(files[name], os.O_WRONLY | os.O_APPEND), number)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(number, mode, encoding="utf-8", closefd=False)
            for number, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        from milepost.cli import main

        try:
            main()
        except SystemExit as end:
            code = end.code
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                pass
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    serve()
