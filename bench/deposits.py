"""Deposits: intake of a master list of which almost everything is known, and a round with partners
that answer in 50 ms.

The measure of the intake is a program that reads the same file and normalises its DOIs, line by
line, and does nothing else; that of the round is the rate that Crossref's stand-in states. Each
part is a process of its own: `python -m bench.deposits PART FOLDER N FORM`.
"""

from __future__ import annotations

import csv
import json
import logging
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import milepost as mp
import milepost.application as mpa
from bench.measure import Span, peak_mb
from milepost.engine.lists.source import BATCH
from milepost_deposits.doi import normalise, normalise_all
from milepost_deposits.files import Deposit
from milepost_deposits.intake import take_in_lists
from milepost_deposits.rounds import run_round
from milepost_deposits.route import deposits_route
from milepost_deposits.settings import DepositsSettings
from milepost_deposits.standins.sources import CrossrefStandIn, PublisherStandIn
from milepost_testing.http_standin import HttpFault, StandInAnswer, StandInRequest

FORMS: dict[str, tuple[str, ...]] = {
    "plain": ("10.1002/abcd.{}",),
    "mixed": (
        "10.1002/abcd.{}",
        "10.1002/ABCD.{}",
        "https://doi.org/10.1002/abcd.{}",
        "doi:10.1002/abcd.{}",
    ),
}
"""How the DOIs of a list are written, in turn."""
NEW_EVERY = 1_000
"""Lines for each new one."""
ANSWER_S = 0.05
LIMIT = 50
"""Requests a second that Crossref's stand-in allows."""
Part = Callable[..., dict[str, float]]


def run(folder: Path, part: Part, *, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """All parts in interleaved rounds; medians and ratios."""
    lines, dois, rounds = (20_000, 200, 1) if quick else (1_000_000, 10_000, 3)
    found: dict[str, list[dict[str, float]]] = {}

    def one(name: str, n: int, form: str) -> None:
        inside = folder / "deposits"
        inside.mkdir()
        try:
            facts = part(name, inside, n, form, module="bench.deposits")
        finally:
            shutil.rmtree(inside)
        found.setdefault(f"{name} {form}", []).append(facts)
        say(
            f"deposits: {name} {form}: {', '.join(f'{key} {value:,.1f}' for key, value in facts.items())}"
        )

    for _ in range(rounds):
        for form in FORMS:
            one("alone", lines, form)
            one("batches", lines, form)
            one("intake", lines, form)
    one("intake", lines // 10, "plain-tenth")
    one("round", dois, "mixed")

    def ratio(form: str, to: str) -> float:
        return median(
            a["rate"] / b["rate"]
            for a, b in zip(found[f"intake {form}"], found[f"{to} {form}"], strict=True)
        )

    medians = {
        name: {key: median(facts[key] for facts in each) for key in each[0]}
        for name, each in found.items()
    }
    more_mb = medians["intake plain"]["mb"] - medians["intake plain-tenth"]["mb"]
    ratios = {
        "intake / reading and normalising line by line, DOIs in several forms": (
            ratio("mixed", "alone"),
            ">=",
            0.4,
        ),
        "intake / reading and normalising line by line, plain DOIs": (
            ratio("plain", "alone"),
            ">=",
            0.4,
        ),
        "intake / reading and normalising in batches, DOIs in several forms": (
            ratio("mixed", "batches"),
            ">=",
            0.4,
        ),
        "intake / reading and normalising in batches, plain DOIs": (
            ratio("plain", "batches"),
            ">=",
            0.4,
        ),
        "peak memory for ten times the lines, MB more": (more_mb, "<=", 40),
        "time of a round / time that Crossref's limit asks for": (
            medians["round mixed"]["over"],
            "<=",
            1.3,
        ),
    }
    return {
        "medians": medians,
        "ratios": {name: list(figure) for name, figure in ratios.items()},
        "lines": lines,
        "dois": dois,
    }


def text(found: dict[str, Any]) -> str:
    """The figures for people."""
    lines = [
        "",
        f"Deposits: a master list of {found['lines']:,} lines; a round of {found['dois']:,} DOIs (medians)",
        "",
    ]
    for name, facts in found["medians"].items():
        lines.append(
            f"  {name:64}{', '.join(f'{key} {value:,.1f}' for key, value in facts.items())}"
        )
    lines.append("")
    for name, (value, relation, bar) in found["ratios"].items():
        lines.append(f"  {name:64}{value:>10.2f}   (bar: {relation} {bar})")
    return "\n".join(lines)


# Lists --------------------------------------------------------------------------------------------


def write(path: Path, lines: int, form: str, *, new: bool) -> Path:
    """A list with a header and three columns; with `new` one DOI in a thousand is another than in
    the list without."""
    forms = FORMS[form.partition("-")[0]]
    with path.open("w") as out:
        out.write("Title,DOI,Year\n")
        for number in range(lines):
            suffix = f"new.{number:08}" if new and number % NEW_EVERY == 0 else f"{number:08}"
            out.write(f"Article number {number},{forms[number % len(forms)].format(suffix)},2020\n")
    return path


def alone(folder: Path, lines: int, form: str) -> dict[str, float]:
    """Read the file and normalise its DOIs, line by line."""
    path = write(folder / "list.csv", lines, form, new=True)
    with Span() as span, path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file)
        next(rows)
        read = sum(1 for row in rows if normalise(row[1]))
    assert read == lines
    return {"rate": lines / span.seconds, "cpu_us": span.cpu / lines * 1e6, "mb": peak_mb()}


def batches(folder: Path, lines: int, form: str) -> dict[str, float]:
    """The same for thousands of lines at once, as intake does it: the fastest way that is known."""
    path = write(folder / "list.csv", lines, form, new=True)
    read = 0
    with Span() as span, path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file)
        next(rows)
        while some := [row[1] for row in islice(rows, BATCH)]:
            read += len(normalise_all(some) or [normalise(one) for one in some])
    assert read == lines
    return {"rate": lines / span.seconds, "cpu_us": span.cpu / lines * 1e6, "mb": peak_mb()}


def intake(folder: Path, lines: int, form: str) -> dict[str, float]:
    """Take in the master list when all but one in a thousand are known."""
    settings = settings_of(folder)
    inbox = Path(settings.inbox)
    inbox.mkdir()
    with opened(folder, settings) as ledger:
        write(inbox / "1.csv", lines, form, new=False)
        take_in_lists(ledger, settings)
    with opened(folder, settings) as ledger:
        write(inbox / "2.csv", lines, form, new=True)
        with Span() as span:
            report = take_in_lists(ledger, settings)
    assert report.new == -(-lines // NEW_EVERY), report
    return {"rate": lines / span.seconds, "cpu_us": span.cpu / lines * 1e6, "mb": peak_mb()}


# A round ------------------------------------------------------------------------------------------


class SlowCrossref(CrossrefStandIn):
    """Crossref that takes its time; several requests wait at once."""

    def handle(self, request: StandInRequest) -> tuple[HttpFault | None, StandInAnswer]:
        time.sleep(ANSWER_S)
        return super().handle(request)


class SlowPublisher(PublisherStandIn):
    """A publisher that takes its time; several requests wait at once."""

    def handle(self, request: StandInRequest) -> tuple[HttpFault | None, StandInAnswer]:
        time.sleep(ANSWER_S)
        return super().handle(request)


def one_round(folder: Path, dois: int, form: str) -> dict[str, float]:
    """A round of new DOIs to the end of the submit stage, whose partner takes its time, too."""
    with (
        SlowCrossref(everything=True, limit=LIMIT, enforced=True) as crossref,
        SlowPublisher(everything=True) as publisher,
    ):
        settings = settings_of(folder, crossref.url, publisher.template)
        Path(settings.inbox).mkdir()
        write(Path(settings.inbox) / "list.csv", dois, form, new=False)
        with opened(folder, settings) as ledger:
            app = mpa.AppContext("deposits", settings, ledger.context)
            with Span() as span:
                report = run_round(app, lambda: ledger.run(until_idle=0))
    assert report.counts["Success"] == dois, report.counts
    return {"rate": dois / span.seconds, "over": span.seconds / (dois / LIMIT)}


class SlowSubmission:
    """A partner that takes its time and then has the deposit."""

    def ready(self) -> None:
        """Nothing is needed."""

    def present(self, doi: str) -> None:
        return None

    def submit(self, deposit: Deposit, item: mp.Item) -> mp.Outcome:
        time.sleep(ANSWER_S)
        return mp.Done({"handle": deposit.doi})

    def verify(self, deposit: Deposit, item: mp.Item) -> None:
        """Not known."""


def settings_of(
    folder: Path,
    crossref: str = "http://127.0.0.1:9",
    content: str = "http://127.0.0.1:9/{doi}",
    **more: Any,
) -> DepositsSettings:
    table: dict[str, Any] = {
        "inbox": str(folder / "inbox"), "files": str(folder / "files"), "inbox_quiet": "0s", "crossref": crossref, "content": content,
        "mailto": "bench@example.org", "allow_cidrs": ["127.0.0.0/8"], "concurrency": {"metadata": 8, "content": 8, "submit": 8},
        "submit": {"dspace": "http://127.0.0.1:9/server", "collection": "1/2"},
    }  # fmt: skip
    from milepost_deposits.application import application

    found: DepositsSettings = application.configured(table | more, {}).settings
    return found


def opened(folder: Path, settings: DepositsSettings) -> mp.Milepost:
    return mp.open(
        f"sqlite:///{folder}/milepost.db", routes=[deposits_route(settings, SlowSubmission())]
    )


def measure(words: Sequence[str]) -> dict[str, float]:
    """Run one part in this process."""
    parts = {"alone": alone, "batches": batches, "intake": intake, "round": one_round}
    return parts[words[0]](Path(words[1]), int(words[2]), words[3])


if __name__ == "__main__":
    logging.getLogger("milepost").setLevel(logging.ERROR)
    print(json.dumps(measure(sys.argv[1:])), flush=True)
