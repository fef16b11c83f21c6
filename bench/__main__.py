"""`python -m bench`: everything in one run, in interleaved rounds; medians and ratios at the end.

Each part (an intake, a processing run) is a process of its own on a file of its own, so that memory and CPU are its alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import aws, http, ocfl, pages, report, waiting
from bench.inputs import KEYS, write_list
from bench.report import Results

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve().parent
PREFILL_SEED = 99


class Bench:
    def __init__(self, folder: Path, results: Results, dbos_python: Path | None) -> None:
        self.folder = folder
        self.results = results
        self.dbos_python = dbos_python
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._began:6.1f} s] {text}", file=sys.stderr, flush=True)

    def part(self, *words: object, python: str | Path = sys.executable, module: str = "bench.part") -> dict[str, float]:
        """Run one part to its end; its answer is the last line that it prints."""
        command = [str(python), "-m", module, *map(str, words)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command[1:])} failed: {(done.stderr or done.stdout).strip()[-1500:]}")
        facts: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
        return facts

    def list_of(self, n: int, keys: str, seed: int = 1) -> Path:
        path = self.folder / f"{keys}-{n}-{seed}.jsonl"
        if not path.exists():
            write_list(path, n, keys, seed)
        return path

    def prefill(self, n: int) -> Path:
        """A ledger of n finished items, made by Milepost itself; copied for each run on a pre-filled ledger."""
        self.say(f"making a ledger of {n:,} finished items")
        ledger = self.folder / "prefilled.db"
        path = self.list_of(n, "random", PREFILL_SEED)
        for what in ("intake", "process"):
            facts = self.part("ours", what, ledger, n, path)
            self.results.add(("ours", "prefill", "random", "plain", n), what, facts)
            self.say(f"  {what}: {facts['rate']:,.0f}/s, {facts['mb']:.0f} MB")
        path.unlink()
        return ledger

    @contextmanager
    def ledger(self, source: Path | None) -> Iterator[Path]:
        """A file of its own for one chain: fresh, or a copy that is on disk before anything is timed."""
        inside = self.folder / "run"
        inside.mkdir()
        path = inside / "ledger.db"
        try:
            if source is not None:
                shutil.copyfile(source, path)
                with path.open("rb+") as copy:
                    os.fsync(copy.fileno())
            yield path
        finally:
            shutil.rmtree(inside)

    def chain(self, who: str, ledger: str, keys: str, n: int, source: Path | None, handlers: str = "plain") -> None:
        """Intake, second intake and processing of one list, one after the other on one file."""
        case = (who, ledger, keys, handlers, n)
        path = self.list_of(n, keys)
        rates = []
        with self.ledger(source) as file:
            for what in ("intake", "again", "process") if handlers == "plain" else ("intake", "process"):
                facts = self.part(who, what, file, n, path, "--handlers", handlers)
                self.results.add(case, what, facts)
                rates.append(f"{what} {facts['rate']:,.0f}/s")
        self.say(f"  {who:4} {n:>7,} {keys:10} {ledger:9} {'' if handlers == 'plain' else handlers + ': '}{', '.join(rates)}")

    def dbos(self, tuned: bool, n: int) -> None:
        if self.dbos_python is None:
            return
        setting = "tuned" if tuned else "default"
        case = ("dbos", "empty", "sequential", setting, n)
        more = ["--tuned"] if tuned else []
        with self.ledger(None) as file:
            try:
                for what, verb in (("intake", "submit"), ("again", "submit"), ("process", "work")):
                    facts = self.part(verb, file, n, *more, python=self.dbos_python, module="bench.dbos_job")
                    self.results.add(case, what, facts)
                self.say(f"  dbos {n:>7,} {setting}: process {facts['rate']:,.0f}/s")
            except RuntimeError as error:
                # Unbounded by default, it runs into time-outs of its own on a busy machine; that is not ours to mend.
                self.say(f"  dbos {setting} failed in this round: {str(error).splitlines()[-1]}")

    def round(self, title: str, sizes: list[int], prefilled: Path, dbos_n: int, *, turned: bool, quick: bool) -> None:
        """Every case once. `turned`: raw before ours, so that neither always comes first."""
        self.say(title)
        sides = ("raw", "ours") if turned else ("ours", "raw")
        for n in sizes:
            for keys in KEYS:
                for ledger, source in (("empty", None), ("prefilled", prefilled)):
                    if quick and source is not None and (n < max(sizes) or keys == "sequential"):
                        continue
                    for who in sides:
                        self.chain(who, ledger, keys, n, source)
        for who, handlers in (("ours", "async"), *((who, "output") for who in sides)):
            self.chain(who, "empty", "sequential", max(sizes), None, handlers)
        for tuned in (False, True):
            self.dbos(tuned, dbos_n)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help="items per run (default 10000 100000)")
    parser.add_argument("--prefilled", type=int, metavar="N", help="finished items in the pre-filled ledger (default 1000000)")
    parser.add_argument("--rounds", type=int, metavar="R", help="interleaved rounds (default 3)")
    parser.add_argument("--dbos-items", type=int, metavar="N", help="items for DBOS (default 1000)")
    parser.add_argument("--no-dbos", action="store_true", help="leave DBOS out")
    parser.add_argument("--dbos-python", type=Path, default=ROOT / ".bench-venv/bin/python", metavar="FILE")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke run: 2000 and 10000 items, 50000 pre-filled, one round, fewer cases, 100 for DBOS"
    )
    parser.add_argument(
        "--only",
        choices=("sqlite", "aws", "ocfl", "waiting", "http", "pages"),
        help="only this section: speed on SQLite, requests and units on AWS, assets in an OCFL repository, many assets that wait, or HTTP",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures there")
    a = parser.parse_args()
    a.sizes = a.sizes or ([2_000, 10_000] if a.quick else [10_000, 100_000])
    a.prefilled = a.prefilled or (50_000 if a.quick else 1_000_000)
    a.rounds = a.rounds or (1 if a.quick else 3)
    a.dbos_items = a.dbos_items or (100 if a.quick else 1_000)
    return a


def main() -> None:
    a = arguments()
    # Beside the code: on the repository's disk, and never on a tmpfs that /tmp may be.
    folder = Path(tempfile.mkdtemp(prefix=".run-", dir=HERE))
    results = Results(a.prefilled)
    figures: list[aws.Figure] = []
    found: dict[str, Any] = {}
    delays: dict[str, Any] = {}
    submits: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    wanted = (a.only,) if a.only else ("sqlite", "aws", "ocfl", "waiting", "http", "pages")
    try:
        bench = Bench(folder, results, None if a.no_dbos else a.dbos_python)
        if "sqlite" in wanted:
            on_sqlite(bench, a)
        if "ocfl" in wanted:
            found = ocfl.run(folder, bench.part, quick=a.quick, say=bench.say)
        if "waiting" in wanted:
            delays = waiting.run(folder, bench.part, quick=a.quick, say=bench.say)
        if "http" in wanted:
            submits = http.run(folder, bench.part, quick=a.quick, say=bench.say)
        if "pages" in wanted:
            shown = pages.run(folder, quick=a.quick, say=bench.say)
        if "aws" in wanted:
            figures = aws.run(folder, quick=a.quick, say=bench.say)
    finally:
        shutil.rmtree(folder)
    if "sqlite" in wanted:
        print(report.text(results))
    if "ocfl" in wanted:
        print(ocfl.text(found))
    if "waiting" in wanted:
        print(waiting.text(delays))
    if "http" in wanted:
        print(http.text(submits))
    if "pages" in wanted:
        print(pages.text(shown))
    if "aws" in wanted:
        print(aws.text(figures))
    if a.json:
        sections = {"aws": aws.as_json(figures), "ocfl": found, "waiting": delays, "http": submits, "pages": shown}
        a.json.write_text(json.dumps({**report.as_json(results), **sections}, indent=2) + "\n")


def on_sqlite(bench: Bench, a: argparse.Namespace) -> None:
    if bench.dbos_python is not None and not bench.dbos_python.exists():
        bench.say(f"DBOS is left out: there is no {bench.dbos_python}; `make bench` makes it (a venv with dbos==3.3.0)")
        bench.dbos_python = None
    load = os.getloadavg()[0]
    if load > 0.5:
        bench.say(f"this machine is busy (load {load:.1f}): figures will be noisy, ratios less so")
    prefilled = bench.prefill(a.prefilled)
    for number in range(1, a.rounds + 1):
        title = f"round {number} of {a.rounds}"
        bench.round(title, a.sizes, prefilled, a.dbos_items, turned=number % 2 == 0, quick=a.quick)


if __name__ == "__main__":
    main()
