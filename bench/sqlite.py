"""The SQLite section: Milepost beside the raw limit and DBOS, in interleaved rounds.

Each part (an intake, a processing run) is a process of its own on a file of its own, so that memory
and CPU are its alone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.inputs import KEYS, write_list
from bench.report import Case, Results

PREFILL_SEED = 99
PREFILL = "prefill"
Part = Callable[..., dict[str, float]]


class Sizes(NamedTuple):
    """How much is measured."""

    items: Sequence[int]
    """Items per run."""
    there: Sequence[int]
    """Finished items in the pre-filled ledgers."""
    rounds: int
    dbos: int
    busy: int
    """Items whose handlers use 1 ms of CPU."""
    queued: Sequence[int]
    """Queued items while the resender runs: few, many."""
    starts: int
    """How often the command line is started."""
    full: bool
    """All cases, or fewer of those on pre-filled ledgers."""


class Section:
    """The section's cases, one after the other. `part` runs one part and gives its facts."""

    def __init__(
        self,
        folder: Path,
        results: Results,
        part: Part,
        say: Callable[[str], None],
        dbos_python: Path | None,
    ) -> None:
        self.folder = folder
        self.results = results
        self.part = part
        self.say = say
        self.dbos_python = dbos_python

    def run(self, sizes: Sizes) -> Results:
        load = os.getloadavg()[0]
        if load > 0.5:
            self.say(
                f"this machine is busy (load {load:.1f}): figures will be noisy, ratios less so"
            )
        filled = {there: self.prefill(there) for there in sizes.there}
        for number in range(1, sizes.rounds + 1):
            self.say(f"round {number} of {sizes.rounds}")
            self.round(sizes, filled, turned=number % 2 == 0)
        for n in sizes.queued:
            self.queued(n)
        self.start_up(sizes.starts)
        return self.results

    def prefill(self, n: int) -> Path:
        """A ledger of n finished items, made by Milepost itself; copied for each run on a
        pre-filled ledger."""
        self.say(f"making a ledger of {n:,} finished items")
        ledger = self.folder / f"prefilled-{n}.db"
        path = self.list_of(n, "random", PREFILL_SEED)
        for what in ("intake", "process"):
            facts = self.part("ours", what, ledger, n, path)
            self.results.add(Case("ours", 0, "random", PREFILL, n), what, facts)
            self.say(f"  {what}: {facts['rate']:,.0f}/s, {facts['mb']:.0f} MB")
        path.unlink()
        return ledger

    def round(self, sizes: Sizes, filled: dict[int, Path], *, turned: bool) -> None:
        """Every case once. `turned`: raw before ours, so that neither always comes first."""
        sides = ("raw", "ours") if turned else ("ours", "raw")
        small, large = min(sizes.items), max(sizes.items)
        most = max(filled, default=0)
        for n in sizes.items:
            for keys in KEYS:
                for there in (0, *filled):
                    if there and keys == "sequential" and not (sizes.full and there == most):
                        continue
                    if there and n < large and not (sizes.full and there == most):
                        continue
                    for who in sides:
                        self.chain(Case(who, there, keys, "plain", n), filled.get(there))
        for who in sides:
            self.chain(Case(who, 0, "sequential", "output", large))
            self.chain(Case(who, 0, "sequential", "few", max(small // 10, 20)))
            self.ones(Case(who, 0, "sequential", "ones", max(small // 50, 10)))
        self.chain(Case("ours", 0, "sequential", "async", large))
        for handlers in ("retry", "lanes", "batch"):
            self.chain(Case("ours", 0, "sequential", handlers, small))
        for how_many in (2, 1) if turned else (1, 2):
            self.workers(how_many, sizes.busy)
        for tuned in (False, True):
            self.dbos(tuned, sizes.dbos)

    def chain(self, case: Case, source: Path | None = None) -> None:
        """Intake, second intake and processing of one list, one after the other on one file."""
        path = self.list_of(case.n, case.keys)
        parts = ["intake", "process"]
        if case.handlers == "plain":
            parts[1:1] = ["again", "select"] if case.who == "raw" else ["again"]
        rates = []
        with self.ledger(source) as file:
            for what in parts:
                facts = self.part(case.who, what, file, case.n, path, "--handlers", case.handlers)
                self.results.add(case, what, facts)
                rates.append(f"{what} {facts['rate']:,.0f}/s {facts['cpu_us']:.1f} µs")
        there = f" {case.there:,} there" if case.there else ""
        self.say(
            f"  {case.who:4} {case.handlers:6} {case.n:>7,} {case.keys}{there}: {', '.join(rates)}"
        )

    def ones(self, case: Case) -> None:
        with self.ledger(None) as file:
            self._one(case, "process", "ones", file, case.n, self.list_of(case.n, case.keys))

    def workers(self, how_many: int, n: int) -> None:
        with self.ledger(None) as file:
            self._one(
                Case("ours", 0, "sequential", f"busy {how_many}", n),
                "process",
                file,
                n,
                how_many,
                module="bench.workers",
            )

    def queued(self, n: int) -> None:
        path = self.list_of(n, "random")
        with self.ledger(None) as file:
            self._one(
                Case("ours", 0, "random", "queued", n),
                "resend",
                file,
                n,
                path,
                module="bench.overdue",
            )

    def start_up(self, runs: int) -> None:
        with self.ledger(None) as file:
            self._one(
                Case("ours", 0, "sequential", "start-up", runs),
                "start-up",
                file,
                runs,
                module="bench.startup",
            )

    def _one(self, case: Case, what: str, *words: object, module: str = "bench.part") -> None:
        if module == "bench.part":
            words = (case.who, *words)
        facts = self.part(*words, module=module)
        self.results.add(case, what, facts)
        told = {
            "cpu_ms": "ms CPU",
            "help_ms": "ms CPU for --help",
            "status_ms": "ms CPU for status",
            "rate": "/s",
            "cpu_us": "µs",
        }
        wanted = (
            ("rate", "cpu_us")
            if what == "process"
            else [name for name in told if name.endswith("_ms") and name in facts]
        )
        self.say(
            f"  {case.who:4} {case.handlers:6} {case.n:>7,}: {', '.join(f'{facts[name]:,.1f} {told[name]}' for name in wanted)}"
        )

    def dbos(self, tuned: bool, n: int) -> None:
        if self.dbos_python is None:
            return
        setting = "tuned" if tuned else "default"
        case = Case("dbos", 0, "sequential", setting, n)
        more = ["--tuned"] if tuned else []
        with self.ledger(None) as file:
            try:
                for what, verb in (("intake", "submit"), ("again", "submit"), ("process", "work")):
                    facts = self.part(
                        verb, file, n, *more, python=self.dbos_python, module="bench.dbos_job"
                    )
                    self.results.add(case, what, facts)
                self.say(f"  dbos {n:>7,} {setting}: process {facts['rate']:,.0f}/s")
            except RuntimeError as error:
                # Unbounded by default, it runs into time-outs of its own on a busy machine; that is
                # not ours to mend.
                self.say(f"  dbos {setting} failed in this round: {str(error).splitlines()[-1]}")

    def list_of(self, n: int, keys: str, seed: int = 1) -> Path:
        path = self.folder / f"{keys}-{n}-{seed}.jsonl"
        if not path.exists():
            write_list(path, n, keys, seed)
        return path

    @contextmanager
    def ledger(self, source: Path | None) -> Iterator[Path]:
        """A file of its own for one chain: fresh, or a copy that is on disk before anything is
        timed."""
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
