"""Common cause: one error that every DOI had at a stage, which is then no fault of a DOI, and is
said before all else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from milepost_deposits.settings import DepositsApp, DepositsSettings
from milepost_deposits.status_names import SUBMIT

LEAST = 3
"""Fewest DOIs whose same error is no accident."""
PORTION = 1_000
LONGEST = 300
FAILED = frozenset({"retry", "exhausted", "rejected"})
PASSED = frozenset({"advanced", "completed", "confirmed"})
NO_ITEM = "creating item from file"
"""Part of the submission service's error where DSpace refuses the metadata, among other causes."""
_OWN_WORDS = re.compile(r"'[^']*'|\"[^\"]*\"|\S*10\.[0-9.]+/\S+|[0-9a-f]{8}-[0-9a-f-]{27}|\d+")


class CommonCause(msgspec.Struct, frozen=True):
    """The error of all DOIs that were tried at a stage."""

    stage: str
    dois: int
    error: str
    """As one of them has it."""
    hint: str = ""

    @property
    def text(self) -> str:
        said = f"{self.dois:,} of {self.dois:,} DOIs failed at {self.stage} with the same cause: {self.error}"
        return f"{said}; {self.hint}" if self.hint else said


def cause_in(lines: Iterable[Mapping[str, Any]], settings: DepositsSettings) -> CommonCause | None:
    """The error that all DOIs had at a stage by these history lines; None: some passed it, or they
    had different errors, or were too few."""
    errors: dict[str, dict[str, str]] = {}
    passed: set[str] = set()
    for line in lines:
        if line["route"] != settings.route:
            continue
        if line["reason"] in PASSED:
            passed.add(line["stage"])
        elif line["reason"] in FAILED:
            errors.setdefault(line["stage"], {})[line["key"]] = _message(line)
    for stage, by_doi in errors.items():
        causes = Counter(_OWN_WORDS.sub("…", message) for message in by_doi.values())
        if len(causes) == 1 and len(by_doi) >= LEAST and stage not in passed:
            error = next(iter(by_doi.values()))[:LONGEST]
            return CommonCause(stage, len(by_doi), error, hint_of(stage, error, settings))
    return None


def hint_of(stage: str, error: str, settings: DepositsSettings) -> str:
    """The setting that is probably wrong; empty: none is known."""
    dss = settings.submit.dss
    if stage != SUBMIT or dss is None or NO_ITEM not in error:
        return ""
    other = "old" if dss.form == "dspace8" else "dspace8"
    return f'probably metadata = "{dss.form}" is not the form that this version of the submission service reads: try "{other}"'


def common_cause(app: DepositsApp, after: int) -> CommonCause | None:
    """The common cause of failures since this place in the history of all items."""
    return cause_in(_lines(app, after), app.settings)


def _lines(app: DepositsApp, after: int) -> Iterable[Mapping[str, Any]]:
    while portion := app.feed(after, PORTION):
        yield from (entry.public() for entry in portion)
        after = portion[-1].seq


def _message(line: Mapping[str, Any]) -> str:
    details = line.get("error_details")
    return str(details.get("message") or "") if isinstance(details, Mapping) else ""
