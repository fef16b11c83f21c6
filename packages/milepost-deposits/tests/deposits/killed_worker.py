"""Worker process of the tests that kill it: takes in DOIs and deposits them, with a clock that is
ahead by so many seconds.

killed_worker.py FOLDER DSPACE_URL SECONDS DOI…
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec
from tests.deposits.submit_scene import ENVIRONMENT, pdf_of

import milepost as mp
from milepost_deposits.dspace.submission import DSpaceSubmission
from milepost_deposits.files import FileStore
from milepost_deposits.route import add_submit
from milepost_deposits.settings import (
    AttemptSettings,
    ConcurrencySettings,
    DepositsSettings,
    SubmitSettings,
)
from milepost_deposits.standins.dspace import COLLECTION


class ClockAhead:
    """The system's clock, and some seconds more: leases of dead processes and waits have run
    out."""

    def __init__(self, seconds: float) -> None:
        self._ahead = seconds

    def now(self) -> int:
        return round((time.time() + self._ahead) * 1000)


def main(folder: Path, dspace: str, ahead: float, dois: list[str]) -> None:
    settings = DepositsSettings(
        submit=SubmitSettings(dspace=dspace, collection=COLLECTION),
        content="http://127.0.0.1:9/{doi}",
        mailto="library@example.org",
        files=str(folder / "files"),
        allow_cidrs=("127.0.0.0/8",),
        attempts=AttemptSettings(submit=20),
        concurrency=ConcurrencySettings(submit=1),
    )
    files, clock = FileStore(settings.files), ClockAhead(ahead)
    route = mp.Route("deposits", key="doi")

    @route.stage("metadata")
    def metadata(item: mp.Item) -> mp.Outcome:
        content = {"dc.title": [{"value": item.key}], "dc.identifier.doi": [{"value": item.key}]}
        return mp.Done(
            {
                "file": msgspec.to_builtins(
                    files.write(item.key, ".json", [msgspec.json.encode(content)])
                ),
                "title": item.key,
            }
        )

    @route.stage("content")
    def content(item: mp.Item) -> mp.Outcome:
        return mp.Done(
            {"file": msgspec.to_builtins(files.write(item.key, ".pdf", [pdf_of(item.key)]))}
        )

    add_submit(
        route,
        settings,
        DSpaceSubmission(
            settings, files, environment=ENVIRONMENT, now=lambda: clock.now() / 1000, timeout=60
        ),
    )
    with mp.open(f"sqlite:///{folder}/ledger.db", routes=[route], clock=clock) as ledger:
        ledger.submit("deposits", *({"doi": doi} for doi in dois))
        ledger.act(
            "resend", "deposits", statuses=["RETRY_SCHEDULED"], by="round", reason="the next round"
        )
        ledger.run(until_idle=0)
        print(" ".join(sorted({row["status"] for row in ledger.items("deposits")})))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4:])
