"""Several worker processes on one file, with handlers that use 1 ms of CPU: `python -m
bench.workers LEDGER N HOW_MANY`."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.inputs import write_list
from bench.measure import Span, peak_mb
from bench.ours import PATIENCE_S, intake
from bench.route import make_route
from milepost.composition import open_context
from milepost.runners.process import tune_garbage_collection
from milepost.station import Station

ROOT = Path(__file__).resolve().parent.parent
HANDLERS = "busy"
POLL_S = 0.01
COMPLETED = "SELECT coalesce(sum(c.n), 0) FROM counter c JOIN status s ON s.id = c.status WHERE s.name = 'COMPLETED'"


def measure(words: Sequence[str]) -> dict[str, float]:
    """See n items through with so many processes. Timed from the moment at which all of them are
    open until the last item is COMPLETED; CPU is the sum of theirs, memory the highest of
    theirs."""
    ledger, n, how_many = words[0], int(words[1]), int(words[2])
    path = Path(ledger + ".jsonl")
    write_list(path, n, "sequential", 1)
    intake(ledger, str(path), n, HANDLERS, "new")
    path.unlink()
    command = [sys.executable, "-m", "bench.workers", ledger]
    children = [
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(how_many)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            if child.stdout.readline() != "ready\n":
                raise RuntimeError(f"a worker process ended with {child.wait()}")
        seconds = _time(ledger, n, children)
        answers = [json.loads(child.communicate()[0]) for child in children]
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.wait()
    return {
        "seconds": seconds,
        "rate": n / seconds,
        "cpu_us": sum(answer["cpu"] for answer in answers) * 1e6 / n,
        "mb": max(answer["mb"] for answer in answers),
    }


def _time(ledger: str, n: int, children: Sequence[subprocess.Popen[str]]) -> float:
    connection = sqlite3.connect(f"file:{ledger}?mode=ro", uri=True, timeout=30)
    try:
        began = time.monotonic()
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        while connection.execute(COMPLETED).fetchone()[0] < n:
            if time.monotonic() > began + PATIENCE_S or any(
                child.poll() is not None for child in children
            ):
                raise RuntimeError("a worker process has ended, or they take too long")
            time.sleep(POLL_S)
        return time.monotonic() - began
    finally:
        connection.close()


def work(ledger: str) -> None:
    """One of the processes: it says that it is ready, begins when its standard input says so, and
    stops at its end."""
    ctx = open_context(f"sqlite:///{ledger}", [make_route(HANDLERS)])
    tune_garbage_collection()
    station = Station(ctx)
    print("ready", flush=True)
    sys.stdin.readline()

    def stop_at_the_end() -> None:
        sys.stdin.read()
        span.stop()
        station.stop()

    with Span() as span:
        threading.Thread(target=stop_at_the_end, daemon=True).start()
        station.run()
    ctx.ledger.close()
    print(json.dumps({"cpu": span.cpu, "mb": peak_mb()}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        work(sys.argv[1])
    else:
        print(json.dumps(measure(sys.argv[1:])), flush=True)
