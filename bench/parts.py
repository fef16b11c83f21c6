"""Running parts of the benchmark, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Bench:
    """Runs parts, each in a process of its own, and says what goes on."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._began:6.1f} s] {text}", file=sys.stderr, flush=True)

    def part(
        self,
        *words: object,
        python: str | Path = sys.executable,
        module: str = "bench.part",
        sources: Sequence[Path] = (),
    ) -> dict[str, float]:
        """Run one part to its end; its answer is the last line that it prints. `sources`: the
        folders of another tree's code."""
        command = [str(python), "-m", module, *map(str, words)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sources))} if sources else None
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(
                f"{' '.join(command[1:])} failed: {(done.stderr or done.stdout).strip()[-1500:]}"
            )
        facts: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
        return facts
