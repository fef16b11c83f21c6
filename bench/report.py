"""What the rounds came to: medians, ratios within each round, and the bars that they are held
to."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Iterator
from datetime import datetime
from statistics import median
from typing import Any, NamedTuple

from bench.bars import Figure


class Case(NamedTuple):
    """What was measured: by whom, with how many finished items there before, which keys and
    handlers (or DBOS's setting), how many."""

    who: str
    there: int
    keys: str
    handlers: str
    n: int


class Results:
    """Every part's facts, by case and part, in the order of the rounds."""

    def __init__(self) -> None:
        self.facts: dict[tuple[Case, str], list[dict[str, float]]] = {}

    def add(self, case: Case, what: str, facts: dict[str, float]) -> None:
        self.facts.setdefault((case, what), []).append(facts)

    def all(self, case: Case, what: str, fact: str) -> list[float]:
        return [facts[fact] for facts in self.facts.get((case, what), []) if fact in facts]

    def median(self, case: Case, what: str, fact: str = "rate") -> float | None:
        values = self.all(case, what, fact)
        return median(values) if values else None

    def ratio(
        self, case: Case, other: Case, what: str, *, other_what: str = "", by: str = "clock"
    ) -> float | None:
        """The first's speed over the other's, round by round, then the median: what slows a whole
        round down slows both."""
        fact = "rate" if by == "clock" else "cpu_us"
        pairs = list(
            zip(self.all(case, what, fact), self.all(other, other_what or what, fact), strict=False)
        )
        if not pairs:
            return None
        return median(one / two if by == "clock" else two / one for one, two in pairs)

    def cases(self, who: str) -> list[Case]:
        return list(dict.fromkeys(case for case, _ in self.facts if case.who == who))

    def of(self, handlers: str) -> list[Case]:
        """Milepost's own cases with these handlers."""
        return [case for case in self.cases("ours") if case.handlers == handlers]


# Figures ------------------------------------------------------------------------------------------


def figures(results: Results) -> Iterator[Figure]:
    """Everything that has a bar, in the order of the bars."""
    yield from _processing(results)
    yield from _other_handlers(results)
    yield from _on_large_ledgers(results)
    yield from _intake(results)
    yield from _memory_and_size(results)
    yield from _beside(results)


def _raw(case: Case, handlers: str = "") -> Case:
    return case._replace(who="raw", handlers=handlers or case.handlers)


def _against(
    results: Results,
    name: str,
    case: Case,
    other: Case,
    what: str = "process",
    *,
    other_what: str = "",
    by: str = "clock",
) -> Iterator[Figure]:
    ratio = results.ratio(case, other, what, other_what=other_what, by=by)
    if ratio is None:
        return
    ours, theirs = ((case, what), (other, other_what or what))
    if by == "clock":
        beside = results.ratio(case, other, what, other_what=other_what, by="CPU")
        more = f"{_number(results.median(*ours))}/s of {_number(results.median(*theirs))}/s; by CPU {beside:.2f}"
    else:
        more = f"{_number(results.median(*ours, 'cpu_us'), 1)} µs, raw {_number(results.median(*theirs, 'cpu_us'), 1)} µs"
    yield Figure(name, _name(case), ratio, more)


def _processing(results: Results) -> Iterator[Figure]:
    for case in results.of("plain"):
        yield from _against(results, "processing / raw", case, _raw(case))
    for case in results.of("plain"):
        cpu = results.median(case, "process", "cpu_us")
        if cpu is not None:
            yield Figure("processing, CPU µs an item", _name(case), cpu)


def _other_handlers(results: Results) -> Iterator[Figure]:
    for case in results.of("output"):
        yield from _against(results, "processing with outputs / raw", case, _raw(case))
    for case in results.of("async"):
        yield from _against(
            results, "processing with async handlers / raw", case, _raw(case, "plain")
        )
    tuned = [case for case in results.cases("dbos") if case.handlers == "tuned"]
    for case in results.of("plain"):
        theirs = results.median(tuned[0], "process") if tuned else None
        ours = results.median(case, "process")
        if theirs and ours and not case.there and case.keys == "sequential":
            yield Figure("processing / DBOS tuned", _name(case), ours / theirs, f"{theirs:,.0f}/s")
    for case in results.of("busy 2"):
        ratio = results.ratio(case, case._replace(handlers="busy 1"), "process")
        if ratio is not None:
            yield Figure("two processes / one, handlers of 1 ms of CPU", _name(case), ratio)
    for handlers, title, limit in (
        ("retry", "processing with retries", "plain"),
        ("lanes", "processing in 50 lanes", "plain"),
        ("few", "processing with few in hand", "few"),
        ("batch", "processing in batches", "plain"),
        ("ones", "one at a time, submitted and processed", "ones"),
    ):
        for case in results.of(handlers):
            yield from _against(
                results, f"{title} / raw, by CPU", case, _raw(case, limit), by="CPU"
            )


def _on_large_ledgers(results: Results) -> Iterator[Figure]:
    for by, title in (("clock", "by the clock"), ("CPU", "by CPU")):
        for case in results.of("plain"):
            cost = (
                results.ratio(case._replace(there=0), case, "process", by=by)
                if case.there
                else None
            )
            if cost is not None:
                yield Figure(f"processing cost, items there / empty, {title}", _name(case), cost)


def _intake(results: Results) -> Iterator[Figure]:
    for case in results.of("plain"):
        yield from _against(results, "intake / raw", case, _raw(case), "intake")
    for limit, title in (("again", "INSERT"), ("select", "SELECT")):
        for by, how in (("clock", "by the clock"), ("CPU", "by CPU")):
            for case in results.of("plain"):
                yield from _against(
                    results,
                    f"second intake / {title}, {how}",
                    case,
                    _raw(case),
                    "again",
                    other_what=limit,
                    by=by,
                )


def _memory_and_size(results: Results) -> Iterator[Figure]:
    peaks = {
        key: max(f["mb"] for f in facts)
        for key, facts in results.facts.items()
        if key[0].who == "ours" and "mb" in facts[0]
    }
    if peaks:
        case, what = max(peaks, key=lambda key: peaks[key])
        yield Figure("peak memory, MB", f"highest: {what}, {_name(case)}", peaks[case, what])
    most = max((case.n for case in results.of("plain")), default=0)
    for case in results.of("plain"):
        size = results.median(case, "process", "bytes_each")
        # Of a few items the empty file's own pages would be a good part.
        if size is not None and not case.there and case.n == most:
            yield Figure("bytes per finished item", _name(case), size)


def _beside(results: Results) -> Iterator[Figure]:
    for case in results.of("start-up"):
        for fact, name in (("help_ms", "milepost --help"), ("status_ms", "milepost status --json")):
            cpu = results.median(case, "start-up", fact)
            if cpu is not None:
                yield Figure(f"{name}, CPU ms", f"median of {case.n}", cpu)
    queued = sorted(results.of("queued"), key=lambda case: case.n)
    if len(queued) > 1:
        few, many = (
            results.median(case, "resend", "cpu_ms") or 0 for case in (queued[0], queued[-1])
        )
        yield Figure(
            "resender's run, many items queued / few, by CPU",
            f"{queued[-1].n:,} queued",
            many / few,
            f"{many:.1f} ms, {few:.1f} ms",
        )


# Text ---------------------------------------------------------------------------------------------


def text(results: Results) -> str:
    lines = [
        "",
        f"Milepost, raw SQLite and DBOS in one run ({_machine()})",
        "",
        *_table(results),
        "",
        *_bar_lines(results),
    ]
    return "\n".join(lines)


def _table(results: Results) -> Iterator[str]:
    yield (
        f"{'who':5}{'N':>10}  {'keys':11}{'there':>10}  {'handlers':9}{'intake/s':>10}{'again/s':>10}{'select/s':>10}{'items/s':>9}"
        f"{'CPU µs':>8}{'MB':>6}{'B/item':>8}"
    )
    for who in ("ours", "raw", "dbos"):
        for case in sorted(
            results.cases(who), key=lambda case: (case.n, case.there, case.handlers, case.keys)
        ):
            if results.median(case, "process") is None:
                continue
            rates = [
                _number(results.median(case, what))
                for what in ("intake", "again", "select", "process")
            ]
            cpu = _number(results.median(case, "process", "cpu_us"))
            mb = max(
                (
                    m
                    for what in ("intake", "again", "process")
                    if (m := results.median(case, what, "mb"))
                ),
                default=None,
            )
            size = None if case.there else results.median(case, "process", "bytes_each")
            yield (
                f"{who:5}{case.n:>10,}  {case.keys:11}{case.there:>10,}  {case.handlers:9}{rates[0]:>10}{rates[1]:>10}{rates[2]:>10}"
                f"{rates[3]:>9}{cpu:>8}{_number(mb):>6}{_number(size):>8}"
            )


def _bar_lines(results: Results) -> Iterator[str]:
    last = ""
    short = 0
    for figure in figures(results):
        if figure.name != last:
            last = figure.name
            yield f"{figure.name}, wanted {figure.wanted}"
        short += not figure.good
        measured = f"{figure.measured:.2f}" if figure.measured < 10 else f"{figure.measured:,.0f}"
        yield f"  {'PASS ' if figure.good else 'short'} {measured:>7}  {figure.case:48} {figure.more}".rstrip()
    if not any(case for case in results.cases("dbos")):
        yield "processing / DBOS tuned: not measured"
    yield ""
    yield "all bars are met" if not short else f"{short} short"


def _name(case: Case) -> str:
    return f"N = {case.n:,}, {case.keys} keys, {f'{case.there:,} there' if case.there else 'empty'}"


def _number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _machine() -> str:
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, load {os.getloadavg()[0]:.1f}"


def as_json(results: Results) -> dict[str, Any]:
    """Everything: the facts of every round with their medians, and each figure with its bar."""
    return {
        "date": f"{datetime.now():%d %B %Y}".lstrip("0"),
        "machine": _machine(),
        "medians": [
            {
                **case._asdict(),
                "what": what,
                **{fact: median(each[fact] for each in rounds) for fact in rounds[0]},
                "rounds": rounds,
            }
            for (case, what), rounds in results.facts.items()
        ],
        "bars": [
            {**figure._asdict(), "wanted": figure.wanted, "good": figure.good}
            for figure in figures(results)
        ],
    }
