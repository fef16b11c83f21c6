"""Record of runs: what each `milepost deposits run` took in, tried and mailed, for people who look later."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from milepost.applications.deposits.acts import DepositsApp
from milepost.applications.deposits.intake import IntakeReport

DOCUMENT = "runs"
KEPT = 60
"""Runs that are kept, the latest ones: two months of one run a day."""
NAMED = 5
"""Most files that are named in the record of a run."""
LONGEST = 300
TRIES = 5


class RunRecord(msgspec.Struct, frozen=True):
    """One run."""

    at: str
    took_s: int
    lists: list[str]
    """Names of lists that were taken in, the first ones."""
    new: int
    malformed: int
    refused: list[tuple[str, str]]
    """Names of files that were not taken in, each with the reason."""
    tried_again: int
    changes: dict[str, int]
    """By word: how many more DOIs than before the run. Zeros are left out."""
    counts: dict[str, int]
    """All DOIs by word, after the run."""
    digests: list[str]
    """Keys of the mail items."""


def run_record(
    begun: datetime,
    ended: datetime,
    intake: IntakeReport,
    tried_again: int,
    before: Mapping[str, int],
    after: Mapping[str, int],
    digests: list[str],
) -> RunRecord:
    """The record of a run that began and ended at these times, with these counts before and after it."""
    changes = {word: after.get(word, 0) - before.get(word, 0) for word in after}
    return RunRecord(
        at=f"{begun:%Y-%m-%dT%H:%M:%SZ}",
        took_s=round((ended - begun).total_seconds()),
        lists=[one.name[:LONGEST] for one in intake.taken[:NAMED]],
        new=intake.new,
        malformed=sum(one.report.counts.get("malformed", 0) for one in intake.taken),
        refused=[
            (one.name[:LONGEST], one.reason.removeprefix(f"{one.name}: ")[:LONGEST]) for one in [*intake.refused, *intake.unread][:NAMED]
        ],
        tried_again=tried_again,
        changes={word: change for word, change in changes.items() if change},
        counts=dict(after),
        digests=digests,
    )


def note_run(app: DepositsApp, run: RunRecord) -> None:
    """Add a run to the record. Two runs that end at the same time are both kept."""
    for _ in range(TRIES):
        document = app.documents.get(DOCUMENT)
        earlier = [] if document is None else document.value
        kept = [msgspec.to_builtins(run), *earlier][:KEPT]
        if app.documents.put(DOCUMENT, kept, expect=0 if document is None else document.version):
            return


def runs(app: DepositsApp) -> list[RunRecord]:
    """The runs that are kept, the latest first."""
    document = app.documents.get(DOCUMENT)
    return [] if document is None else msgspec.convert(document.value, list[RunRecord])
