"""Runs: the record of each `milepost deposits run` from its start on, and what is known of one
whose process died.

A run writes its record when it begins, at each step, and every 20 seconds. If its process dies, the
record stays, and says so; the next run completes it from the traces that the other has left.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from milepost.blobs import Inbox, InboxFile, open_inbox
from milepost_deposits.intake import ARCHIVED, QUARANTINE, IntakeReport
from milepost_deposits.settings import DepositsApp

log = logging.getLogger(__name__)

# The process --------------------------------------------------------------------------------------
PROC = Path("/proc")


class RunProcess(msgspec.Struct, frozen=True):
    """The process of a run: where it is, and when it was started, since a number is used again when
    a process has ended."""

    host: str
    pid: int
    space: str = ""
    """The start of the machine and the space of process numbers in it (a container has its own);
    empty where the system does not say."""
    started: str = ""


def this_process(proc: Path = PROC) -> RunProcess:
    pid = os.getpid()
    return RunProcess(platform.node(), pid, _space(proc), started(pid, proc))


def seen_from_here(process: RunProcess, proc: Path = PROC) -> bool | None:
    """Is the process alive? None: it runs elsewhere, or the system does not say, so that only its
    silence can tell."""
    if not process.space or not process.started or process.space != _space(proc):
        return None
    return started(process.pid, proc) == process.started


def started(pid: int, proc: Path = PROC) -> str:
    """When a process was started, in ticks since the start of the machine; empty if there is none,
    or if it has ended already."""
    try:
        # The name, in brackets, may hold blanks and brackets itself.
        state, *fields = (
            (proc / f"{pid}" / "stat").read_text(errors="replace").rpartition(")")[2].split()
        )
        return "" if state in "ZXx" else fields[18]
    except (OSError, ValueError, IndexError):
        return ""


def _space(proc: Path) -> str:
    try:
        return f"{(proc / 'sys/kernel/random/boot_id').read_text().strip()} {(proc / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


# The record ---------------------------------------------------------------------------------------
NAMED = 5
"""Most files that are named in the record of a run."""
LONGEST = 300
SILENCE = timedelta(minutes=3)
"""A run in another place whose record is older was interrupted: it is renewed every 20 seconds."""


class RunRecord(msgspec.Struct, frozen=True):
    """One run. If it was interrupted, what it had recorded until then."""

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
    """By status name: how many more DOIs than before the run. Zeros are left out."""
    counts: dict[str, int] = {}
    """All DOIs by status name, after the run; while it runs, before it."""
    digests: list[str] = []
    """Keys of the mail items."""
    id: str = ""
    state: Literal["running", "finished", "failed", "interrupted"] = "finished"
    """"failed": it ended with an error; "interrupted": its process is gone, and has not ended
    it."""
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
    """The record of a run that begins now, with these DOIs by status name."""
    return RunRecord(
        moment(at), counts=dict(counts), id=id, state="running", process=process, seen_at=moment(at)
    )


def intake_facts(intake: IntakeReport) -> dict[str, Any]:
    """The fields of a record that say what was taken in."""
    refused = [*intake.refused, *intake.unread][:NAMED]
    return {
        "lists": [one.name[:LONGEST] for one in intake.taken[:NAMED]],
        "new": intake.new,
        "malformed": sum(one.report.counts.get("malformed", 0) for one in intake.taken),
        "refused": [
            (one.name[:LONGEST], one.reason.removeprefix(f"{one.name}: ")[:LONGEST])
            for one in refused
        ],
    }


def ended(
    run: RunRecord,
    at: datetime,
    counts: Mapping[str, int],
    state: Literal["finished", "failed", "interrupted"],
    error: str = "",
) -> RunRecord:
    """The record of a run that has ended, with these DOIs by status name. `run.counts` are those
    before it."""
    changes = {
        word: counts.get(word, 0) - run.counts.get(word, 0) for word in {**run.counts, **counts}
    }
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
    """Does a run whose record says so still run? `alive`: whether its process is there; None: that
    cannot be seen from here."""
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


# The journal --------------------------------------------------------------------------------------
ENDED = "runs"
RUNNING = "run/"
KEPT = 60
"""Runs that are kept, the latest ones: two months of one run a day."""
LARGEST = 150_000
"""Most bytes of all of them: a ledger keeps a document as one value. Runs with many long names are
kept in smaller number."""
RENEWED_S = 20.0
Counts = Callable[[], dict[str, int]]


class RunJournal:
    """Record of one run, as a context: written at the beginning, ended at the end. `counts` gives
    the DOIs by status name."""

    def __init__(self, app: DepositsApp, counts: Counts) -> None:
        self._app, self._counts = app, counts
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="deposits-run", daemon=True)
        self.record = begun(secrets.token_hex(8), app.now(), this_process(), counts())

    def __enter__(self) -> RunJournal:
        self._write()
        self._thread.start()
        return self

    def note(self, **facts: Any) -> None:
        """Note a step, or facts about the run, at once."""
        with self._lock:
            self.record = replace(self.record, **facts)
        self._write()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        if kind is not None and not issubclass(kind, Exception):
            end_run(
                self._app,
                ended(
                    self.record,
                    self._app.now(),
                    self._counts(),
                    "interrupted",
                    "it was stopped by a signal",
                ),
            )
        elif error is None:
            end_run(self._app, ended(self.record, self._app.now(), self._counts(), "finished"))
        else:
            try:
                end_run(
                    self._app,
                    ended(
                        self.record,
                        self._app.now(),
                        self._counts(),
                        "failed",
                        str(error) or type(error).__name__,
                    ),
                )
            except Exception:
                # The run's own error is the one to see; without an end its record says that it was
                # interrupted.
                log.exception("the end of the run could not be recorded")

    def _write(self) -> None:
        with self._lock:
            self.record = replace(self.record, seen_at=moment(self._app.now()))
            self._app.documents.put(f"{RUNNING}{self.record.id}", msgspec.to_builtins(self.record))

    def _renew(self) -> None:
        while not self._over.wait(RENEWED_S):
            try:
                self._write()
            except Exception:
                log.warning(
                    "the record of the run could not be renewed; it is tried again", exc_info=True
                )


def runs(app: DepositsApp) -> list[RunRecord]:
    """The runs that are kept, the latest first. One whose process is gone is interrupted, also if
    no later run has noted it yet."""
    found = {one.id or one.at: one for one in _ended(app)}
    for one in _unended(app):
        found.setdefault(one.id, one if one.state == "running" else cut_off(one, one.counts))
    return sorted(found.values(), key=lambda one: one.at, reverse=True)


def interrupted_runs(app: DepositsApp) -> list[RunRecord]:
    """The records that runs have left whose processes are gone, as they are, the first one
    first."""
    return sorted(
        (one for one in _unended(app) if one.state == "interrupted"), key=lambda one: one.at
    )


def end_run(app: DepositsApp, run: RunRecord) -> None:
    """Move a run to those that have ended. Runs that end at the same time are all kept, and one
    that is ended twice is kept once."""
    _change_ended(
        app,
        lambda earlier: sorted(
            [run, *(one for one in earlier if one.id != run.id)],
            key=lambda one: one.at,
            reverse=True,
        ),
    )
    app.documents.remove(f"{RUNNING}{run.id}")


def unreported(app: DepositsApp) -> list[RunRecord]:
    """Runs that were interrupted, and that no later one has reported yet, the first one first."""
    return sorted((one for one in _ended(app) if not one.reported), key=lambda one: one.at)


def mark_reported(app: DepositsApp, ids: Iterable[str]) -> None:
    """Note that these interrupted runs were reported to people."""
    reported = set(ids)
    if reported & {one.id for one in unreported(app)}:
        _change_ended(
            app,
            lambda earlier: [
                replace(one, reported=True) if one.id in reported else one for one in earlier
            ],
        )


def _change_ended(app: DepositsApp, change: Callable[[list[RunRecord]], list[RunRecord]]) -> None:
    def changed(earlier: list[RunRecord] | None) -> list[RunRecord]:
        kept = change(earlier or [])[:KEPT]
        while len(kept) > 1 and len(msgspec.json.encode(kept)) > LARGEST:
            kept.pop()
        return kept

    app.documents.update(ENDED, list[RunRecord], changed)


def _ended(app: DepositsApp) -> list[RunRecord]:
    document = app.documents.get(ENDED)
    return [] if document is None else msgspec.convert(document.value, list[RunRecord])


def _unended(app: DepositsApp) -> list[RunRecord]:
    """Runs whose end is not recorded: "running", or "interrupted" if the process is gone."""
    now = app.now()
    found = []
    for document in app.documents.find(RUNNING).values():
        run = msgspec.convert(document.value, RunRecord)
        alive = None if run.process is None else seen_from_here(run.process)
        found.append(run if is_running(run, now, alive) else replace(run, state="interrupted"))
    return found


# Recovery -----------------------------------------------------------------------------------------
TAKING_IN = "taking in lists"
REPORT, REASON = ".report.json", ".reason.txt"
_TRACE = re.compile(
    rf"({ARCHIVED}|{QUARANTINE})/(?:(.*)/)?([0-9]{{8}}T[0-9]{{6}}Z)-[0-9a-f]+-(.*)", re.DOTALL
)
"""Name of a file that an intake has dealt with (`intake.archive_name`)."""


def close_interrupted(app: DepositsApp, counts: dict[str, int]) -> list[RunRecord]:
    """End the records of runs whose processes are gone, with what can be found of them, and return
    all interrupted ones that no run has reported yet. `counts` are the DOIs by status name now."""
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
        log.warning(
            "the files that the run of %s has moved cannot be looked for: %s", run.at, error
        )
        return found


def _digests(app: DepositsApp, run: RunRecord) -> list[str]:
    if app.settings.mail is None:
        return []
    noted = {key for one in runs(app) for key in one.digests}
    rows = app.items(app.settings.digests_route, created_from=run.at, limit=1_000)
    return sorted({row["key"] for row in rows} - noted)


def _intake_traces(inbox: Inbox, since: str) -> dict[str, Any]:
    """Lists that were taken in, and lists that were not, since this time, by the files in the
    inbox."""
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
            refused.append(
                (shown, reason.removeprefix(f"{shown}: ")[:LONGEST] or "no reason is recorded")
            )
    return {"lists": lists[:NAMED], "refused": refused[:NAMED], "new": new, "malformed": malformed}


def _counts(inbox: Inbox, report: InboxFile | None) -> dict[str, int]:
    try:
        return msgspec.convert(
            msgspec.json.decode(_content(inbox, report) or b"{}").get("counts", {}), dict[str, int]
        )
    except (msgspec.MsgspecError, AttributeError):
        return {}


def _content(inbox: Inbox, file: InboxFile | None) -> bytes:
    if file is None:
        return b""
    with inbox.open(file) as stream:
        return stream.read()
