"""A fork server: one process that has imported everything forks the others, so that dozens start in
seconds.

Each is a process of its own in every respect; its words go to a file named after its holder. A
module says what a process does: its function `run_process` gets the kind of process, and the fields
of its life, of which `holder` is one.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from tests.project import ROOT, TEST_PATH

WORKER = "tests.aws.ledger.processes.worker_process"


class ForkServer:
    """For `with`: whoever is still alive at the end is killed."""

    def __init__(self, folder: Path, module: str = WORKER) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.aws.ledger.processes.fork_server", str(folder), module],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": TEST_PATH},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def start(self, life: msgspec.Struct, kind: str = "live") -> int:
        """The new process's id."""
        return int(self._ask(["start", kind, msgspec.to_builtins(life)]))

    def wait(self, pid: int, at_most_s: float = 60.0) -> int:
        """How it ended: its exit code, or the signal that killed it, negative."""
        code = self.ended(pid, at_most_s)
        assert code is not None, f"{pid} is still at work; the last words of all:\n{self.words()}"
        return code

    def ended(self, pid: int, at_most_s: float = 0.0) -> int | None:
        """The same; None: it is still at work."""
        code: int | None = self._ask(["wait", pid, at_most_s])
        return code

    def words(self) -> str:
        """What the processes had to say."""
        return "\n".join(
            f"{path.stem}: {path.read_text()[-1500:]}"
            for path in sorted(self.folder.glob("*.log"))
            if path.stat().st_size
        )

    def _ask(self, wish: list[Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(wish) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def serve(folder: Path, module: str) -> None:
    run_process = importlib.import_module(module).run_process
    children: set[int] = set()
    try:
        for line in sys.stdin:
            what, *rest = json.loads(line)
            if what == "start":
                answer: int | None = _fork(folder, run_process, *rest)
                children.add(answer or 0)
            else:
                answer = _wait(*rest)
                if answer is not None:
                    children.discard(rest[0])
            print(json.dumps(answer), flush=True)
    finally:
        # Not waited for yet, so their ids are theirs.
        for pid in children:
            os.kill(pid, signal.SIGKILL)


def _fork(
    folder: Path,
    run_process: Callable[[str, dict[str, Any]], None],
    kind: str,
    life: dict[str, Any],
) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        log = os.open(folder / f"{life['holder']}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        run_process(kind, life)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(pid: int, at_most_s: float) -> int | None:
    until = time.monotonic() + at_most_s
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            return None
        time.sleep(0.01)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2])
