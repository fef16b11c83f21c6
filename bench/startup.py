"""What it costs to start the command line: `python -m bench.startup LEDGER RUNS`, CPU in ms,
medians."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from statistics import median

from bench.route import make_route
from milepost.composition import open_context

# As the installed `milepost` does it.
PROGRAM = "import sys; from milepost.cli import main; sys.exit(main())"


def measure(words: Sequence[str]) -> dict[str, float]:
    """CPU (user and system) of `milepost --help` and of `milepost status --json` on a ledger with a
    route, in turns."""
    ledger, runs = words[0], int(words[1])
    open_context(f"sqlite:///{ledger}", [make_route()]).ledger.close()
    commands = {
        "help": ["--help"],
        "status": ["--ledger", f"sqlite:///{ledger}", "status", "--json"],
    }
    for command in commands.values():
        _cpu_ms(command)  # its bytecode is compiled and in memory from now on
    spent: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            spent[name].append(_cpu_ms(command))
    return {f"{name}_ms": median(values) for name, values in spent.items()}


def _cpu_ms(words: Sequence[str]) -> float:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=env,
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    with child:
        if child.returncode:
            assert child.stderr is not None
            raise RuntimeError(f"milepost {' '.join(words)}: {child.stderr.read().decode()[-500:]}")
    return (used.ru_utime + used.ru_stime) * 1000


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1:])), flush=True)
