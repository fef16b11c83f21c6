"""Requests and units of a DOI on AWS, stage by stage: metadata, content, and submit, to DSpace or
through the submission service.

Counted on the model of AWS. The application is the real one, and its partners are the stand-ins on
loopback; only time is the benchmark's own.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import milepost as mp
import milepost.application as mpa
from bench.counted import READS, REGION, CountedRun, Figure, item_figures, on_model
from bench.deposits import settings_of
from milepost.core.status import Status
from milepost.runners.clock import SystemClock
from milepost_deposits.dss.results import ResultListener
from milepost_deposits.route import deposits_route
from milepost_deposits.settings import DepositsSettings
from milepost_deposits.standins.dspace import COLLECTION, PASSWORD, USER, DSpaceStandIn
from milepost_deposits.standins.dss import DssStandIn
from milepost_deposits.standins.sources import CrossrefStandIn, PublisherStandIn
from milepost_deposits.status_names import CONTENT, METADATA, SUBMIT
from milepost_testing.clock import VirtualClock

MOST_WRITES, MOST_READS = 2, 0
"""The bars for a stage of a DOI, besides the claim."""
QUEUES = ("dss-input", "dss-output")


class DepositCase(NamedTuple):
    title: str
    dss: bool


DEPOSIT_CASES = [
    DepositCase("submitted to DSpace", False),
    DepositCase("submitted through DSS, with its result", True),
]


class Phases:
    """Requests about rows, by the phase in which they were made: writes and reads."""

    def __init__(self, run: CountedRun) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self._meter, self._before = run.meter, Counter[str]()

    def end(self, name: str) -> None:
        now = Counter(
            {
                "writes": self._meter.made("rows"),
                "reads": self._meter.made("rows", operations=READS),
            }
        )
        self.counts[name] = now - self._before
        self._before = now


def count_deposits(folder: Path, n: int, batch: int, case: DepositCase) -> list[Figure]:
    """What one of n DOIs takes. Files are in a folder: requests to S3 are not counted."""
    clock = VirtualClock(SystemClock().now())
    with (
        on_model(clock) as endpoint,
        CrossrefStandIn(everything=True) as crossref,
        PublisherStandIn(everything=True) as publisher,
        DSpaceStandIn(clock=lambda: clock.now() / 1000) as dspace,
    ):
        os.environ |= {
            "AWS_ENDPOINT_URL": endpoint,
            "DSPACE_USER": USER,
            "DSPACE_PASSWORD": PASSWORD,
        }
        settings = _settings(folder, crossref, publisher, dspace, case, n)
        with mp.open(
            f"dynamodb://{REGION}/bench?endpoint={endpoint}",
            routes=[deposits_route(settings)],
            clock=clock,
        ) as ledger:
            run = CountedRun(ledger.context, clock, endpoint, settings.route, batch)
            urls = {
                name: run.outside["sqs"].create_queue(QueueName=name)["QueueUrl"] for name in QUEUES
            }
            phases = Phases(run)
            ledger.submit(
                settings.route, *({"doi": f"10.1002/abcd.{number:08}"} for number in range(n))
            )
            phases.end("intake")
            for stage in (METADATA, CONTENT, SUBMIT):
                run.relay()
                run.work(n)
                phases.end(stage)
            if case.dss:
                run.relay()
                phases.end("hand-over")
                DssStandIn(
                    run.outside["sqs"],
                    urls["dss-input"],
                    QUEUES[1:],
                    dspace,
                    lambda place: Path(place).read_bytes(),
                ).run()
                tally = ResultListener(
                    mpa.AppContext("deposits", settings, ledger.context), run.outside["sqs"]
                ).turn()
                if tally.deposited != n:
                    raise RuntimeError(f"{tally} of {n} DOIs")
                phases.end("result")
            run.relay()
            phases.end("end")
            run.check_ended(n, Status.COMPLETED)
    title = f"a DOI {case.title}, batches of {batch}"
    return [*_stage_figures(title, phases.counts, n, case), *item_figures(title, run, n, None)]


def _stage_figures(
    title: str, counts: dict[str, Counter[str]], n: int, case: DepositCase
) -> Iterator[Figure]:
    for kind in ("writes", "reads"):
        yield Figure(title, f"intake: {kind} of the row", counts["intake"][kind] / n)
    for stage in (METADATA, CONTENT, SUBMIT):
        phases = (stage, "hand-over", "result") if stage == SUBMIT and case.dss else (stage,)
        writes, reads = (
            sum(counts[phase][kind] for phase in phases) / n for kind in ("writes", "reads")
        )
        yield Figure(
            title, f"{stage}: writes of the row besides the claim", writes - 1, None, MOST_WRITES
        )
        yield Figure(title, f"{stage}: reads of the row", reads, None, MOST_READS)
    for kind in ("writes", "reads"):
        yield Figure(title, f"end: {kind} of the row", counts["end"][kind] / n)


def _settings(
    folder: Path,
    crossref: CrossrefStandIn,
    publisher: PublisherStandIn,
    dspace: DSpaceStandIn,
    case: DepositCase,
    n: int,
) -> DepositsSettings:
    dss = {"queue": QUEUES[0], "results": QUEUES[1], "system": "DSpace@MIT", "source": "wiley"}
    target: dict[str, Any] = (
        {"dss": dss, "search": dspace.url} if case.dss else {"dspace": dspace.url}
    )
    together = {"metadata": n, "content": n, "submit": n}
    return settings_of(
        folder,
        crossref.url,
        publisher.template,
        clean="never",
        concurrency=together,
        submit={**target, "collection": COLLECTION},
    )
