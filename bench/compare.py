"""Compare trees of Milepost: `python -m bench.compare BASE TREE…`, with the same parts run on each
in turn.

A tree is a clone of this repository. What is compared is CPU per item, as ratios to the first tree:
in each round the trees run one after the other, the next round the other way round; a ratio is the
median of the rounds' ratios. That holds on a busy machine too, where the clock says little. (The
parts use Milepost's inner modules: a tree in which these have other names cannot be compared.)
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.parts import ROOT, Bench
from bench.report import Case, Results
from bench.sqlite import Section

ONES = 50
"""How many times fewer items are submitted one at a time, and seen through with few in hand: each
costs more."""
FEW = 10


def cases(n: int, queued: int) -> dict[str, Callable[[Section], None]]:
    """By name: what is run on each tree."""
    runs: dict[str, Callable[[Section], None]] = {
        handlers: partial(
            _chain, Case("ours", 0, "sequential", handlers, n // FEW if handlers == "few" else n)
        )
        for handlers in ("plain", "async", "output", "retry", "lanes", "batch", "few")
    }
    runs["random"] = partial(_chain, Case("ours", 0, "random", "plain", n))
    runs["ones"] = lambda section: section.ones(
        Case("ours", 0, "sequential", "ones", max(n // ONES, 10))
    )
    runs["busy"] = lambda section: section.workers(2, max(n // ONES, 10))
    runs["queued"] = lambda section: section.queued(queued)
    runs["start-up"] = lambda section: section.start_up(5)
    return runs


def _chain(case: Case, section: Section) -> None:
    section.chain(case)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("trees", type=Path, nargs="+", metavar="TREE")
    parser.add_argument("-n", type=int, default=10_000, help="items per run (default 10000)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--queued",
        type=int,
        default=20_000,
        help="queued items while the resender runs (default 20000)",
    )
    parser.add_argument(
        "--cases", nargs="+", metavar="CASE", help=f"of {', '.join(cases(1, 1))} (default: all)"
    )
    parser.add_argument(
        "--there",
        type=int,
        default=0,
        metavar="N",
        help="also on a ledger with so many finished items, random keys",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=ROOT / "bench",
        help="where the ledgers are made; in memory, if only CPU counts",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures there")
    a = parser.parse_args()
    wanted = {
        name: run
        for name, run in cases(a.n, a.queued).items()
        if a.cases is None or name in a.cases
    }
    if a.cases and len(wanted) < len(a.cases):
        parser.error(f"the cases are {', '.join(cases(1, 1))}")
    found = run(a.trees, wanted, a.rounds, a.there, a.n, a.folder)
    print(text(found))
    if a.json:
        a.json.write_text(json.dumps(as_json(found), indent=2) + "\n")


def run(
    trees: list[Path],
    wanted: dict[str, Callable[[Section], None]],
    rounds: int,
    there: int,
    n: int,
    within: Path,
) -> dict[str, Results]:
    """Every case on every tree, in interleaved rounds."""
    bench = Bench()
    folder = Path(tempfile.mkdtemp(prefix=".run-", dir=within))
    try:
        sections = {}
        for number, tree in enumerate(trees):
            inside = folder / str(number)
            inside.mkdir()
            part = partial(bench.part, sources=sources_of(tree.resolve()))
            sections[tree] = Section(inside, Results(), part, lambda text: None, None)
        filled = (
            {tree: section.prefill(there) for tree, section in sections.items()} if there else {}
        )
        for number in range(rounds):
            turn = list(sections.items())[:: -1 if number % 2 else 1]
            for name, measured in wanted.items():
                for _, section in turn:
                    measured(section)
                bench.say(f"round {number + 1} of {rounds}: {name}")
            for tree, section in turn if there else ():
                section.chain(Case("ours", there, "random", "plain", n), filled[tree])
        return {str(tree): section.results for tree, section in sections.items()}
    finally:
        shutil.rmtree(folder)


def sources_of(tree: Path) -> list[Path]:
    """The folders with a tree's code: one for each package; an old tree has one for all."""
    return [tree / "src"] if (tree / "src").exists() else sorted(tree.glob("packages/*/src"))


FACTS = {
    "cpu_us": "µs an item",
    "cpu_ms": "ms",
    "help_ms": "ms for --help",
    "status_ms": "ms for status",
}


def lines(found: dict[str, Results]) -> list[dict[str, Any]]:
    """One for each case and part: the median of each tree, and its ratios to the first tree, round
    by round."""
    base, *others = found
    told = []
    for case, what in found[base].facts:
        for fact, unit in FACTS.items():
            first = found[base].all(case, what, fact)
            if not first:
                continue
            line: dict[str, Any] = {
                **case._asdict(),
                "what": what,
                "unit": unit,
                "trees": {base: {"median": median(first)}},
            }
            for tree in others:
                values = found[tree].all(case, what, fact)
                ratios = [one / two for one, two in zip(values, first, strict=False)]
                line["trees"][tree] = {
                    "median": median(values),
                    "ratio": median(ratios),
                    "ratios": ratios,
                }
            told.append(line)
    return told


def text(found: dict[str, Results]) -> str:
    base, *others = found
    rows = [f"CPU, as ratios to {base} (median; least and most of the rounds)"]
    for line in lines(found):
        there = f", {line['there']:,} there" if line["there"] else ""
        row = f"  {line['handlers']:9}{line['what']:9}{line['n']:>8,} {line['keys']}{there}: {line['trees'][base]['median']:,.1f}"
        for tree in others:
            facts = line["trees"][tree]
            row += f" | {facts['median']:,.1f} {line['unit']}, {facts['ratio']:.2f} ({min(facts['ratios']):.2f}–{max(facts['ratios']):.2f})"
        rows.append(row)
    return "\n".join(rows)


def as_json(found: dict[str, Results]) -> dict[str, Any]:
    return {"base": next(iter(found)), "lines": lines(found)}


if __name__ == "__main__":
    main()
