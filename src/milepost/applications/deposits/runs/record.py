"""Record of a run: what it took in, tried and mailed, and how it ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from milepost.applications.deposits.intake import IntakeReport
from milepost.applications.deposits.runs.process import RunProcess

NAMED = 5
"""Most files that are named in the record of a run."""
LONGEST = 300
SILENCE = timedelta(minutes=3)
"""A run in another place whose record is older was interrupted: it is renewed every 20 seconds."""


class RunRecord(msgspec.Struct, frozen=True):
    """One run. What a run that was interrupted had noted is in it."""

    at: str
    took_s: int = 0
    lists: list[str] = []
    """Names of lists that were taken in, the first ones."""
    new: int = 0
    malformed: int = 0
    refused: list[tuple[str, str]] = []
    """Names of files that were not taken in, each with the reason."""
    tried_again: int = 0
    changes: dict[str, int] = {}
    """By word: how many more DOIs than before the run. Zeros are left out."""
    counts: dict[str, int] = {}
    """All DOIs by word, after the run; while it runs, before it."""
    digests: list[str] = []
    """Keys of the mail items."""
    id: str = ""
    state: Literal["running", "finished", "failed", "interrupted"] = "finished"
    """"failed": it ended with an error; "interrupted": its process is gone, and has not ended it."""
    process: RunProcess | None = None
    step: str = ""
    """Its last step, in words."""
    seen_at: str = ""
    error: str = ""
    reported: bool = True
    """False: it was interrupted, and no later run has said so yet."""


def moment(at: datetime) -> str:
    """A time as records have it."""
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def begun(id: str, at: datetime, process: RunProcess, counts: Mapping[str, int]) -> RunRecord:
    """The record of a run that begins now, with these DOIs by word."""
    return RunRecord(moment(at), counts=dict(counts), id=id, state="running", process=process, seen_at=moment(at))


def intake_facts(intake: IntakeReport) -> dict[str, Any]:
    """The fields of a record that say what was taken in."""
    refused = [*intake.refused, *intake.unread][:NAMED]
    return {
        "lists": [one.name[:LONGEST] for one in intake.taken[:NAMED]],
        "new": intake.new,
        "malformed": sum(one.report.counts.get("malformed", 0) for one in intake.taken),
        "refused": [(one.name[:LONGEST], one.reason.removeprefix(f"{one.name}: ")[:LONGEST]) for one in refused],
    }


def ended(
    run: RunRecord, at: datetime, counts: Mapping[str, int], state: Literal["finished", "failed", "interrupted"], error: str = ""
) -> RunRecord:
    """The record of a run that has ended so, with these DOIs by word. `run.counts` are those before it."""
    changes = {word: counts.get(word, 0) - run.counts.get(word, 0) for word in {**run.counts, **counts}}
    return replace(
        run,
        took_s=max(0, round((at - datetime.fromisoformat(run.at)).total_seconds())),
        changes={word: change for word, change in changes.items() if change},
        counts=dict(counts),
        state=state,
        error=error[:LONGEST],
        reported=state != "interrupted",
    )


def cut_off(run: RunRecord, counts: Mapping[str, int]) -> RunRecord:
    """The record of a run whose process is gone. It was seen last when it renewed its record."""
    return ended(run, datetime.fromisoformat(run.seen_at or run.at), counts, "interrupted")


def is_running(run: RunRecord, now: datetime, alive: bool | None) -> bool:
    """Does a run whose record says so still run? `alive`: whether its process is there; None: that cannot be seen from here."""
    if alive is not None:
        return alive
    # A time in the future is that of a clock that was set back.
    return abs(now - datetime.fromisoformat(run.seen_at or run.at)) < SILENCE


def interruption_text(run: RunRecord) -> str:
    """A sentence about a run that was interrupted."""
    where = "" if run.process is None else f" (process {run.process.pid} on {run.process.host})"
    doing = f" while it was {run.step}" if run.step else ""
    files = "".join(f" It did not take in {name}: {why}." for name, why in run.refused)
    return f"The run of {run.at[:10]} {run.at[11:16]} UTC{where} was interrupted{doing}.{files}"
