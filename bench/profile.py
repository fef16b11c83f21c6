"""Where the time goes: `python -m bench.profile intake|again|process [N]`. Prints the functions
with the most time of their own.

A profile is made of every thread. It slows small functions down more than large ones: read it for
order, not for seconds.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from bench.inputs import write_list
from bench.measure import Span
from bench.ours import run_station
from bench.route import NAME, make_route, settles
from milepost.composition import open_context
from milepost.engine.lists.reconcile import submit_list


class AllThreads:
    """A profile per thread: those that are started within, and the one that starts them."""

    def __init__(self) -> None:
        self.profiles: list[cProfile.Profile] = []

    def _begin(self, *_: Any) -> None:
        """Called on the first event of a new thread, in whose place a profile of its own is put."""
        profile = cProfile.Profile()
        self.profiles.append(profile)
        profile.enable()

    def __enter__(self) -> AllThreads:
        threading.setprofile(self._begin)
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        threading.setprofile(None)
        self.profiles[0].disable()

    def show(self, count: int) -> None:
        stats = pstats.Stats(self.profiles[0], stream=sys.stdout)
        for profile in self.profiles[1:]:
            try:
                stats.add(profile)
            except TypeError:
                continue  # a thread that did nothing
        stats.strip_dirs().sort_stats("tottime").print_stats(count)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("what", choices=("intake", "again", "process"))
    parser.add_argument("n", type=int, nargs="?", default=20_000)
    parser.add_argument("--keys", default="random")
    parser.add_argument("--handlers", default="plain")
    parser.add_argument("--top", type=int, default=15)
    a = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix=".run-", dir=Path(__file__).parent))
    try:
        path = folder / "list.jsonl"
        write_list(path, a.n, a.keys, 1)
        ctx = open_context(f"sqlite:///{folder / 'ledger.db'}", [make_route(a.handlers)])
        if a.what != "intake":
            submit_list(ctx, NAME, str(path))
        with AllThreads() as threads, Span() as span:
            if a.what == "process":
                run_station(ctx, a.n * settles(a.handlers), span)
            else:
                submit_list(ctx, NAME, str(path))
        ctx.ledger.close()
        print(
            f"{a.what} of {a.n:,}: {span.seconds:.2f} s under the profiler, {span.cpu * 1e6 / a.n:.0f} µs CPU an item"
        )
        threads.show(a.top)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
