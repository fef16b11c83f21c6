"""What the rounds came to: medians, ratios within each round, and the bars that they are held to."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Iterator
from statistics import median
from typing import Any, NamedTuple

Case = tuple[str, str, str, str, int]
"""(who, ledger, keys, handlers or setting, n)"""


class Results:
    """Every part's facts, by case and part, in the order of the rounds."""

    def __init__(self, prefilled: int) -> None:
        self.prefilled = prefilled
        self.facts: dict[tuple[Case, str], list[dict[str, float]]] = {}

    def add(self, case: Case, what: str, facts: dict[str, float]) -> None:
        self.facts.setdefault((case, what), []).append(facts)

    def all(self, case: Case, what: str, fact: str) -> list[float]:
        return [facts[fact] for facts in self.facts.get((case, what), [])]

    def median(self, case: Case, what: str, fact: str = "rate") -> float | None:
        values = self.all(case, what, fact)
        return median(values) if values else None

    def ratio(self, case: Case, other: Case, what: str) -> float | None:
        """Rate over rate, round by round, then the median: what slows a whole round down slows both."""
        pairs = list(zip(self.all(case, what, "rate"), self.all(other, what, "rate"), strict=False))
        return median(one / two for one, two in pairs) if pairs else None

    def cases(self, who: str) -> list[Case]:
        return list(dict.fromkeys(case for case, _ in self.facts if case[0] == who))


class Bar(NamedTuple):
    name: str
    case: str
    wanted: str
    measured: float
    good: bool
    more: str = ""


def bars(results: Results) -> Iterator[Bar]:
    yield from _against_raw(results)
    yield from _against_dbos(results)
    for case in _plain(results):
        if case[1] == "prefilled":
            ratio = results.ratio((*case[:1], "empty", *case[2:]), case, "process")
            if ratio is not None:
                yield Bar(f"processing cost, {_short(results.prefilled)} items there / empty", _name(case), "<= 1.25", ratio, ratio <= 1.25)
    yield from _memory_and_size(results)


def _plain(results: Results) -> list[Case]:
    return [case for case in results.cases("ours") if case[3] == "plain" and case[1] != "prefill"]


def _against_raw(results: Results) -> Iterator[Bar]:
    for what, title, least in (("process", "processing", 0.15), ("intake", "intake", 0.25), ("again", "second intake", 0.20)):
        for case in _plain(results):
            raw: Case = ("raw", *case[1:])
            ratio = results.ratio(case, raw, what)
            if ratio is not None:
                rates = f"{_number(results.median(case, what))}/s of {_number(results.median(raw, what))}/s"
                yield Bar(f"{title} / raw", _name(case), f">= {least:.2f}", ratio, ratio >= least, rates)


def _against_dbos(results: Results) -> Iterator[Bar]:
    tuned = [case for case in results.cases("dbos") if case[3] == "tuned"]
    for case in _plain(results):
        theirs = results.median(tuned[0], "process") if tuned else None
        ours = results.median(case, "process")
        if theirs and ours and case[1:3] == ("empty", "sequential"):
            yield Bar("processing / DBOS tuned", _name(case), ">= 30", ours / theirs, ours / theirs >= 30, f"{theirs:,.0f}/s")


def _memory_and_size(results: Results) -> Iterator[Bar]:
    peaks = {key: max(f["mb"] for f in facts) for key, facts in results.facts.items() if key[0][0] == "ours"}
    if peaks:
        case, what = max(peaks, key=lambda key: peaks[key])
        yield Bar("peak memory, MB", f"highest: {what}, {_name(case)}", "< 150", peaks[case, what], peaks[case, what] < 150)
    for case in results.cases("ours"):
        if case[3] == "plain" and case[1] != "prefilled":
            size = results.median(case, "process", "bytes_each")
            if size is not None:
                yield Bar("bytes per finished item", _name(case), "< 1,200", size, size < 1200)


# Text ------------------------------------------------------------------------------------------------------------------


def text(results: Results) -> str:
    lines = ["", f"Milepost, raw SQLite and DBOS in one run ({_machine()})", "", *_table(results), "", *_bar_lines(results)]
    return "\n".join(lines)


def _table(results: Results) -> Iterator[str]:
    yield f"{'who':5}{'N':>10}  {'keys':11}{'ledger':10}{'handlers':9}{'intake/s':>10}{'again/s':>10}{'items/s':>9}{'CPU µs':>8}{'MB':>6}{'B/item':>8}"
    for who in ("ours", "raw", "dbos"):
        for case in sorted(results.cases(who), key=lambda case: (case[4], case[1], case[3], case[2])):
            _, ledger, keys, handlers, n = case
            rates = [_number(results.median(case, what)) for what in ("intake", "again", "process")]
            cpu = _number(results.median(case, "process", "cpu_us"))
            mb = max((m for what in ("intake", "again", "process") if (m := results.median(case, what, "mb"))), default=None)
            size = None if ledger == "prefilled" else results.median(case, "process", "bytes_each")
            yield (
                f"{who:5}{n:>10,}  {keys:11}{ledger:10}{handlers:9}{rates[0]:>10}{rates[1]:>10}{rates[2]:>9}"
                f"{cpu:>8}{_number(mb):>6}{_number(size):>8}"
            )


def _bar_lines(results: Results) -> Iterator[str]:
    last = ""
    short = 0
    for bar in bars(results):
        if bar.name != last:
            last = bar.name
            yield f"{bar.name}, wanted {bar.wanted}"
        short += not bar.good
        measured = f"{bar.measured:.2f}" if bar.measured < 10 else f"{bar.measured:,.0f}"
        yield f"  {'PASS ' if bar.good else 'short'} {measured:>7}  {bar.case:40} {bar.more}".rstrip()
    if not any(case for case in results.cases("dbos")):
        yield "processing / DBOS tuned: not measured"
    yield ""
    yield "all bars are met" if not short else f"{short} short"


def _name(case: Case) -> str:
    return f"N = {case[4]:,}, {case[2]} keys, {case[1]}"


def _short(n: int) -> str:
    return f"{n // 1_000_000} M" if n % 1_000_000 == 0 else f"{n:,}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _machine() -> str:
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, load {os.getloadavg()[0]:.1f}"


def as_json(results: Results) -> dict[str, Any]:
    names: tuple[str, ...] = ("who", "ledger", "keys", "handlers", "n")
    return {
        "machine": _machine(),
        "prefilled": results.prefilled,
        "medians": [
            {
                **dict(zip(names, case, strict=True)),
                "what": what,
                **{fact: median(each[fact] for each in rounds) for fact in rounds[0]},
                "rounds": rounds,
            }
            for (case, what), rounds in results.facts.items()
        ],
        "bars": [bar._asdict() for bar in bars(results)],
    }
