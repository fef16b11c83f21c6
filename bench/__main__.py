"""`python -m bench`: everything in one run, in interleaved rounds; medians, ratios and bars at the
end."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from bench import aws, deposits, http, net, notifications, ocfl, pages, report, waiting
from bench.counted import Figure
from bench.parts import Bench
from bench.report import Results
from bench.sqlite import Section, Sizes

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve().parent
SECTIONS = ("sqlite", "aws", "ocfl", "waiting", "http", "pages", "net", "notifications", "deposits")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--sizes", type=int, nargs="+", metavar="N", help="items per run (default 10000 100000)"
    )
    parser.add_argument(
        "--prefilled",
        type=int,
        nargs="+",
        metavar="N",
        help="finished items in the pre-filled ledgers (default 100000 1000000)",
    )
    parser.add_argument("--rounds", type=int, metavar="R", help="interleaved rounds (default 3)")
    parser.add_argument("--dbos-items", type=int, metavar="N", help="items for DBOS (default 1000)")
    parser.add_argument("--no-dbos", action="store_true", help="leave DBOS out")
    parser.add_argument(
        "--dbos-python", type=Path, default=ROOT / ".bench-venv/bin/python", metavar="FILE"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a smoke run: 2000 and 10000 items, 50000 pre-filled, one round, fewer cases, 100 for DBOS",
    )
    parser.add_argument(
        "--only",
        choices=SECTIONS,
        help="only this section: speed on SQLite, requests and units on AWS, assets in an OCFL repository, many assets that wait, HTTP, "
        "requests that go out, notifications, or deposits",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures there")
    a = parser.parse_args()
    a.sizes = a.sizes or ([2_000, 10_000] if a.quick else [10_000, 100_000])
    a.prefilled = a.prefilled or ([50_000] if a.quick else [100_000, 1_000_000])
    a.rounds = a.rounds or (1 if a.quick else 3)
    a.dbos_items = a.dbos_items or (100 if a.quick else 1_000)
    return a


def main() -> None:
    a = arguments()
    bench = Bench()
    # Beside the code: on the repository's disk, and never on a tmpfs that /tmp may be.
    folder = Path(tempfile.mkdtemp(prefix=".run-", dir=HERE))
    results = Results()
    figures: list[Figure] = []
    found: dict[str, Any] = {}
    delays: dict[str, Any] = {}
    submits: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    sent: dict[str, Any] = {}
    delivered: dict[str, Any] = {}
    deposited: dict[str, Any] = {}
    wanted = (a.only,) if a.only else SECTIONS
    try:
        if "sqlite" in wanted:
            Section(folder, results, bench.part, bench.say, dbos_python(bench, a)).run(sizes_of(a))
        if "ocfl" in wanted:
            found = ocfl.run(folder, bench.part, quick=a.quick, say=bench.say)
        if "waiting" in wanted:
            delays = waiting.run(folder, bench.part, quick=a.quick, say=bench.say)
        if "http" in wanted:
            submits = http.run(folder, bench.part, quick=a.quick, say=bench.say)
        if "pages" in wanted:
            shown = pages.run(folder, quick=a.quick, say=bench.say)
        if "net" in wanted:
            sent = net.run(bench.part, quick=a.quick, say=bench.say)
        if "notifications" in wanted:
            delivered = notifications.run(folder, bench.part, quick=a.quick, say=bench.say)
        if "deposits" in wanted:
            deposited = deposits.run(folder, bench.part, quick=a.quick, say=bench.say)
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
    if "net" in wanted:
        print(net.text(sent))
    if "notifications" in wanted:
        print(notifications.text(delivered))
    if "deposits" in wanted:
        print(deposits.text(deposited))
    if "aws" in wanted:
        print(aws.text(figures))
    if a.json:
        sections = {
            "aws": aws.as_json(figures),
            "ocfl": found,
            "waiting": delays,
            "http": submits,
            "pages": shown,
            "net": sent,
            "notifications": delivered,
            "deposits": deposited,
        }
        a.json.write_text(json.dumps({**report.as_json(results), **sections}, indent=2) + "\n")


def sizes_of(a: argparse.Namespace) -> Sizes:
    """How much of the SQLite section is measured."""
    return Sizes(
        items=a.sizes,
        there=a.prefilled,
        rounds=a.rounds,
        dbos=a.dbos_items,
        busy=300 if a.quick else 2_000,
        queued=(2_000, 200_000),
        starts=15,
        full=not a.quick,
    )


def dbos_python(bench: Bench, a: argparse.Namespace) -> Path | None:
    """The interpreter that has DBOS, if it is wanted and there."""
    if a.no_dbos:
        return None
    python: Path = a.dbos_python
    if not python.exists():
        bench.say(
            f"DBOS is left out: there is no {python}; `make bench` makes it (a venv with dbos==3.3.0)"
        )
        return None
    return python


if __name__ == "__main__":
    main()
