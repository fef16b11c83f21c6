"""Write the figures of a run into the docs: `python -m bench.page RUN.json`, made by `python -m
bench --json RUN.json`.

What stands in `docs/speed.md` between `<!-- measured: NAME -->` and `<!-- end -->` is replaced;
parts of which the run has nothing are left as they are.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.bars import BARS, Figure
from bench.route import KINDS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "speed.md"
PART = re.compile(r"(<!-- measured: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

Medians = dict[tuple[str, int, str, str, int, str], dict[str, Any]]
"""(who, there, keys, handlers, n, what)"""


class Run:
    """What a run has found."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.machine: str = found["machine"]
        self.date: str = found["date"]
        self.medians: Medians = {
            (
                line["who"],
                line["there"],
                line["keys"],
                line["handlers"],
                line["n"],
                line["what"],
            ): line
            for line in found["medians"]
        }
        self.bars: list[dict[str, Any]] = found["bars"]
        self.sections: dict[str, dict[str, Any]] = {
            name: found[name] for name in ("notifications", "deposits") if found.get(name)
        }

    @property
    def rounds(self) -> int:
        return max(len(line["rounds"]) for line in self.medians.values())

    def plain(self) -> list[tuple[int, str, int]]:
        """The cases with plain handlers, as (there, keys, n)."""
        found = {
            (there, keys, n)
            for who, there, keys, handlers, n, _ in self.medians
            if (who, handlers) == ("ours", "plain")
        }
        return sorted(found, key=lambda case: (case[0], case[1] == "random", case[2]))

    def number(
        self, who: str, there: int, keys: str, handlers: str, n: int, what: str, fact: str = "rate"
    ) -> str:
        line = self.medians.get((who, there, keys, handlers, n, what))
        return "" if line is None else f"{line[fact]:,.0f}"

    def ratio(self, name: str, there: int, keys: str, n: int) -> str:
        case = f"N = {n:,}, {keys} keys, {f'{there:,} there' if there else 'empty'}"
        return next(
            (
                f"{bar['measured']:.2f}"
                for bar in self.bars
                if (bar["name"], bar["case"]) == (name, case)
            ),
            "",
        )

    def all(self, name: str) -> list[dict[str, Any]]:
        return [bar for bar in self.bars if bar["name"] == name]


def machine(run: Run) -> str:
    if not run.medians:
        return ""
    rounds = "one round" if run.rounds == 1 else f"medians of {run.rounds} interleaved rounds"
    return f"What follows is one such run, of {run.date}: {run.machine}; {rounds}."


def processing(run: Run) -> str:
    rows = [
        (
            _ledger(there),
            keys,
            f"{n:,}",
            run.number("ours", there, keys, "plain", n, "process"),
            run.number("raw", there, keys, "plain", n, "process"),
            run.ratio("processing / raw", there, keys, n),
            run.number("ours", there, keys, "plain", n, "process", "cpu_us"),
            run.ratio("processing cost, items there / empty, by the clock", there, keys, n),
        )
        for there, keys, n in run.plain()
    ]
    return _table(
        ("ledger", "keys", "N", "Milepost", "raw limit", "ratio", "CPU µs", "cost, of empty"), rows
    )


def handlers(run: Run) -> str:
    titles = {
        "output": "processing with outputs / raw",
        "async": "processing with async handlers / raw",
        "retry": "processing with retries / raw, by CPU",
        "lanes": "processing in 50 lanes / raw, by CPU",
        "batch": "processing in batches / raw, by CPU",
        "few": "processing with few in hand / raw, by CPU",
    }
    rows = []
    for kind, name in titles.items():
        for case in sorted(
            key
            for key in run.medians
            if key[0] == "ours" and key[3] == kind and key[5] == "process"
        ):
            line = run.medians[case]
            ratio = run.ratio(name, case[1], case[2], case[4]) + (
                " by CPU" if name.endswith("CPU") else ""
            )
            rows.append(
                (
                    KINDS[kind],
                    f"{case[4]:,}",
                    f"{line['rate']:,.0f}",
                    f"{line['cpu_us']:,.0f}",
                    ratio,
                )
            )
    for bar in run.all("one at a time, submitted and processed / raw, by CPU"):
        case = next(key for key in run.medians if key[0] == "ours" and key[3] == "ones")
        line = run.medians[case]
        rows.append(
            (
                "def; each item is submitted by itself meanwhile",
                f"{case[4]:,}",
                f"{line['rate']:,.0f}",
                f"{line['cpu_us']:,.0f}",
                f"{bar['measured']:.2f} by CPU",
            )
        )
    return _table(("handlers", "N", "items a second", "CPU µs", "of raw"), rows)


def intake(run: Run) -> str:
    rows = [
        (
            _ledger(there),
            keys,
            f"{n:,}",
            run.number("ours", there, keys, "plain", n, "intake"),
            run.ratio("intake / raw", there, keys, n),
            run.number("ours", there, keys, "plain", n, "again"),
            run.ratio("second intake / INSERT, by the clock", there, keys, n),
            run.ratio("second intake / INSERT, by CPU", there, keys, n),
            run.ratio("second intake / SELECT, by the clock", there, keys, n),
            run.ratio("second intake / SELECT, by CPU", there, keys, n),
        )
        for there, keys, n in run.plain()
    ]
    return _table(
        (
            "ledger",
            "keys",
            "N",
            "new",
            "of raw",
            "known",
            "of INSERT",
            "by CPU",
            "of SELECT",
            "by CPU",
        ),
        rows,
    )


def others(run: Run) -> str:
    names = (
        "two processes / one, handlers of 1 ms of CPU",
        "peak memory, MB",
        "bytes per finished item",
        "milepost --help, CPU ms",
        "milepost status --json, CPU ms",
        "resender's run, many items queued / few, by CPU",
        "processing / DBOS tuned",
    )
    rows = [
        (
            name,
            Figure(name, "", 0).wanted,
            ", ".join(_short(bar["measured"]) for bar in run.all(name)),
            run.all(name)[-1]["more"],
        )
        for name in names
        if name in BARS and run.all(name)
    ]
    return _table(("figure", "bar", "measured", ""), rows)


def section(name: str, run: Run) -> str:
    """The figures of an application's section: each with its bar, and what was measured beside
    it."""
    found = run.sections.get(name)
    if found is None:
        return ""
    rows = [
        (what, f"{relation} {bar}".strip(), _short(value))
        for what, (value, relation, bar) in found["ratios"].items()
    ]
    facts = [
        (
            what,
            ", ".join(
                f"{LABELS[key]} {value:,.0f}" for key, value in each.items() if key in LABELS
            ),
        )
        for what, each in found["medians"].items()
    ]
    when = f"Run of {run.date}, {run.machine}."
    return f"{when}\n\n{_table(('figure', 'bar', 'measured'), rows)}\n\n{_table(('part', 'medians'), facts)}"


LABELS = {
    "rate": "per second:",
    "cpu_us": "CPU µs each:",
    "p50_ms": "p50 ms:",
    "p99_ms": "p99 ms:",
    "mb": "MB:",
    "seconds": "seconds:",
}

PARTS: dict[str, Callable[[Run], str]] = {
    "machine": machine,
    "processing": processing,
    "handlers": handlers,
    "intake": intake,
    "others": others,
    "notifications": partial(section, "notifications"),
    "deposits": partial(section, "deposits"),
}


def written(page: str, run: Run) -> str:
    """The page with this run's figures."""

    def part(found: re.Match[str]) -> str:
        made = PARTS[found[2]](run)
        return f"{found[1]}{made}\n{found[3]}" if made else found[0]

    return PART.sub(part, page)


def _ledger(there: int) -> str:
    return f"{there:,} finished items" if there else "empty"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def _table(heads: Iterable[str], rows: Sequence[tuple[str, ...]]) -> str:
    heads = tuple(heads)
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if rows else ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN.json")
    a = parser.parse_args()
    PAGE.write_text(written(PAGE.read_text(), Run(json.loads(a.run.read_text()))))


if __name__ == "__main__":
    main()
