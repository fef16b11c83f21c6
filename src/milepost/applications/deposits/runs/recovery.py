"""Recovery of interrupted runs: the next run completes their records from the traces that they have left."""

from __future__ import annotations

import logging
import re
from typing import Any

import msgspec
from msgspec.structs import replace

from milepost.applications.deposits.intake import ARCHIVED, QUARANTINE
from milepost.applications.deposits.runs.journal import end_run, interrupted_runs, runs, unreported
from milepost.applications.deposits.runs.record import LONGEST, NAMED, RunRecord, cut_off
from milepost.applications.deposits.settings import DepositsApp
from milepost.blobs import Inbox, InboxFile, open_inbox

log = logging.getLogger(__name__)
TAKING_IN = "taking in lists"
REPORT, REASON = ".report.json", ".reason.txt"
_TRACE = re.compile(rf"({ARCHIVED}|{QUARANTINE})/(?:(.*)/)?([0-9]{{8}}T[0-9]{{6}}Z)-[0-9a-f]+-(.*)", re.DOTALL)
"""Name of a file that an intake has dealt with (`intake.archive_name`)."""


def close_interrupted(app: DepositsApp, counts: dict[str, int]) -> list[RunRecord]:
    """End the records of runs whose processes are gone, with what can be found of them, and return all interrupted ones that no run has
    reported yet. `counts` are the DOIs by word now."""
    for run in interrupted_runs(app):
        log.warning("the run of %s was interrupted; this one reports it", run.at)
        end_run(app, cut_off(replace(run, **_traces(app, run)), counts))
    return unreported(app)


def _traces(app: DepositsApp, run: RunRecord) -> dict[str, Any]:
    """Work of a run after its last note: the files that it moved, and its digests."""
    found: dict[str, Any] = {"digests": [*run.digests, *_digests(app, run)]}
    if run.step != TAKING_IN:
        return found
    try:
        return found | _intake_traces(open_inbox(app.settings.inbox), run.at)
    except OSError as error:
        log.warning("the files that the run of %s has moved cannot be looked for: %s", run.at, error)
        return found


def _digests(app: DepositsApp, run: RunRecord) -> list[str]:
    if app.settings.mail is None:
        return []
    noted = {key for one in runs(app) for key in one.digests}
    rows = app.items(app.settings.digests_route, created_from=run.at, limit=1_000)
    return sorted({row["key"] for row in rows} - noted)


def _intake_traces(inbox: Inbox, since: str) -> dict[str, Any]:
    """Lists that were taken in, and lists that were not, since this time, by the files in the inbox."""
    begun = re.sub("[-:]", "", since)
    files = {file.name: file for file in inbox.files()}
    lists, refused, new, malformed = [], [], 0, 0
    for name in files:
        parts = _TRACE.fullmatch(name)
        if parts is None or parts[3] < begun or name.endswith((REPORT, REASON)):
            continue
        shown = "/".join(part for part in (parts[2], parts[4]) if part)[:LONGEST]
        if parts[1] == ARCHIVED:
            counts = _counts(inbox, files.get(f"{name}{REPORT}"))
            lists.append(shown)
            new, malformed = new + counts.get("new", 0), malformed + counts.get("malformed", 0)
        else:
            reason = _content(inbox, files.get(f"{name}{REASON}")).decode(errors="replace").strip()
            refused.append((shown, reason.removeprefix(f"{shown}: ")[:LONGEST] or "no reason is recorded"))
    return {"lists": lists[:NAMED], "refused": refused[:NAMED], "new": new, "malformed": malformed}


def _counts(inbox: Inbox, report: InboxFile | None) -> dict[str, int]:
    try:
        return msgspec.convert(msgspec.json.decode(_content(inbox, report) or b"{}").get("counts", {}), dict[str, int])
    except (msgspec.MsgspecError, AttributeError):
        return {}


def _content(inbox: Inbox, file: InboxFile | None) -> bytes:
    if file is None:
        return b""
    with inbox.open(file) as stream:
        return stream.read()
