"""Journal of runs: a document for each run while it runs, and one with the runs that have ended.

A run writes its record when it begins, at each step, and every 20 seconds. If its process dies, the record stays, and says so.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import msgspec
from msgspec.structs import replace

from milepost.applications.deposits.runs.process import seen_from_here, this_process
from milepost.applications.deposits.runs.record import RunRecord, begun, cut_off, ended, is_running, moment
from milepost.applications.deposits.settings import DepositsApp

ENDED = "runs"
RUNNING = "run/"
KEPT = 60
"""Runs that are kept, the latest ones: two months of one run a day."""
LARGEST = 150_000
"""Most bytes of all of them: a ledger keeps a document as one value. Runs with many long names are kept in smaller number."""
TRIES = 10
RENEWED_S = 20.0
log = logging.getLogger(__name__)

Counts = Callable[[], dict[str, int]]


class RunJournal:
    """Record of one run, as a context: written at the beginning, ended at the end. `counts` gives the DOIs by word."""

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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        if kind is not None and not issubclass(kind, Exception):
            end_run(self._app, ended(self.record, self._app.now(), self._counts(), "interrupted", "it was stopped by a signal"))
        elif error is None:
            end_run(self._app, ended(self.record, self._app.now(), self._counts(), "finished"))
        else:
            try:
                end_run(self._app, ended(self.record, self._app.now(), self._counts(), "failed", str(error) or type(error).__name__))
            except Exception:
                # The run's own error is the one to see; without an end its record says that it was interrupted.
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
                log.warning("the record of the run could not be renewed; it is tried again", exc_info=True)


def runs(app: DepositsApp) -> list[RunRecord]:
    """The runs that are kept, the latest first. One whose process is gone is interrupted, also if no later run has noted it yet."""
    found = {one.id or one.at: one for one in _ended(app)}
    for one in _unended(app):
        found.setdefault(one.id, one if one.state == "running" else cut_off(one, one.counts))
    return sorted(found.values(), key=lambda one: one.at, reverse=True)


def interrupted_runs(app: DepositsApp) -> list[RunRecord]:
    """The records that runs have left whose processes are gone, as they are, the first one first."""
    return sorted((one for one in _unended(app) if one.state == "interrupted"), key=lambda one: one.at)


def end_run(app: DepositsApp, run: RunRecord) -> None:
    """Move a run to those that have ended. Runs that end at the same time are all kept, and one that is ended twice is kept once."""
    _change_ended(app, lambda earlier: sorted([run, *(one for one in earlier if one.id != run.id)], key=lambda one: one.at, reverse=True))
    app.documents.remove(f"{RUNNING}{run.id}")


def unreported(app: DepositsApp) -> list[RunRecord]:
    """Runs that were interrupted, and that no later one has reported yet, the first one first."""
    return sorted((one for one in _ended(app) if not one.reported), key=lambda one: one.at)


def mark_reported(app: DepositsApp, ids: Iterable[str]) -> None:
    """Note that these interrupted runs were reported to people."""
    reported = set(ids)
    if reported & {one.id for one in unreported(app)}:
        _change_ended(app, lambda earlier: [replace(one, reported=True) if one.id in reported else one for one in earlier])


def _change_ended(app: DepositsApp, change: Callable[[list[RunRecord]], list[RunRecord]]) -> None:
    for _ in range(TRIES):
        document = app.documents.get(ENDED)
        kept = change([] if document is None else msgspec.convert(document.value, list[RunRecord]))[:KEPT]
        while len(kept) > 1 and len(msgspec.json.encode(kept)) > LARGEST:
            kept.pop()
        if app.documents.put(ENDED, msgspec.to_builtins(kept), expect=0 if document is None else document.version):
            return
    log.error("the record of the run could not be kept: other runs wrote theirs %d times meanwhile", TRIES)


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
