"""Milepost inside your own program: open a ledger, hand over items, run the station, look at what became of them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from milepost.background import BackgroundRun, run_on_loop, settled_on
from milepost.core.errors import ActRefused, UsageError
from milepost.core.item import Item, Row
from milepost.core.outcome import Done, Outcome
from milepost.core.refusal import SAID_BEFORE, Refusal
from milepost.core.routes.route import Route
from milepost.core.values.durations import Span, span_ms
from milepost.engine.acts.bulk import act, confirm_outside
from milepost.engine.events.follow_ups import follow_up_routes
from milepost.engine.intake import Receipt, submit
from milepost.engine.lists.reconcile import ListReport, submit_list
from milepost.engine.retention import PruneReport, prune
from milepost.engine.views.items import show, status
from milepost.engine.views.queries import statuses_of
from milepost.evidence.signing import read_signer
from milepost.ports.answers import BackupReport, RestoreReport
from milepost.ports.runner import Chance, Clock
from milepost.ports.subscriber import Subscriber
from milepost.runners.threads import ThreadRunner
from milepost.station import Station
from milepost.wiring import DEFAULT_LEDGER, open_context, restore_ledger

log = logging.getLogger(__name__)


class Milepost:
    """A ledger with its routes. Use it as a context manager (`with` or `async with`), or call `close`. `signing_key` is the file of the
    private key with which the daily heads are signed (None: they are not). `grace` is how long running handlers may go on when the work
    is stopped."""

    def __init__(
        self,
        ledger: str = DEFAULT_LEDGER,
        routes: Iterable[Route] = (),
        *,
        subscribers: Sequence[Subscriber] = (),
        clock: Clock | None = None,
        chance: Chance | None = None,
        signing_key: str | Path | None = None,
        grace: Span = "30s",
    ) -> None:
        self._grace_ms = span_ms(grace, "grace")
        self._signer = None if signing_key is None else read_signer(Path(signing_key))
        given = list(routes)
        self.context = open_context(ledger, [*given, *follow_up_routes(given)], clock=clock, chance=chance)
        self._subscribers = tuple(subscribers)
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._runs: set[BackgroundRun] = set()
        self._started: BackgroundRun | None = None
        self._closed = False

    def submit(
        self,
        route: str,
        *inputs: Any,
        correlation_id: str | None = None,
        not_before: str | datetime | timedelta | None = None,
        by: str | None = None,
        failed_again: str | None = None,
    ) -> list[Receipt]:
        """Hand over items; the answer for each says new, known, changed (same key, other content) or malformed.
        A new item is on disk when this returns. With `not_before` (a time, or a span from now) it does not start earlier.
        With `failed_again`, a reason that `by` signs, keys that have failed or were cancelled, and whose rows were pruned, are taken
        in again."""
        return submit(
            self.context, route, inputs, correlation_id=correlation_id, not_before=not_before, by=by, failed_again=failed_again
        )  # fmt: skip

    def prune(
        self, route: str, older_than: Span, *, by: str, reason: str, statuses: Iterable[str] = (), dry_run: bool = False
    ) -> PruneReport:
        """Let go of rows that ended longer ago than this: of COMPLETED items, or of those with one of these `statuses` ("failed" is
        both failed ones). Their seals stay. With `dry_run` nothing is changed, and the report counts what would go by status."""
        span = span_ms(older_than, "older_than")
        return prune(self.context, route, span, by=by, reason=reason, statuses=statuses_of(statuses), dry_run=dry_run)

    def submit_list(
        self,
        route: str,
        path: str,
        *,
        name: str | None = None,
        full: bool = False,
        no_header: bool = False,
        dry_run: bool = False,
        by: str | None = None,
        not_before: str | datetime | timedelta | None = None,
        replace_changed: bool = False,
        rerun: bool = False,
        reason: str = "",
    ) -> ListReport:
        """Take in a file of items (txt, csv or jsonl), reconcile it with what is known, and record it, as `milepost submit`
        does. `full` says that it is the whole master list, `no_header` that the first line of a CSV is an item already; with `dry_run`
        nothing is written. The answer has the `counts`, the first malformed lines with their numbers, and the first vanished keys. `not_before`: what is new does not start earlier.
        `replace_changed`: items that are known with other content are given that of the list, signed by `by` with a `reason`; with
        `rerun` also COMPLETED ones, which then run again."""
        how: dict[str, Any] = {
            "no_header": no_header,
            "replace_changed": replace_changed,
            "rerun": rerun,
            "reason": reason,
            "not_before": not_before,
        }
        return submit_list(self.context, route, path, name=name, full=full, dry_run=dry_run, by=by, **how)

    def run(self, *, until_idle: float | None = 2) -> None:
        """Work in this process until nothing is in hand and nothing falls due within `until_idle` seconds (None: for ever), or until
        `stop` is called in another thread. Ctrl-C drains first; a second one ends at once."""
        run = self._new_run(ThreadRunner(), until_idle)
        run.start()
        try:
            run.result()
        except BaseException:
            _drain([run], self._grace_ms)
            raise

    def start(self) -> None:
        """Begin to work in the background, in threads of this process, until `stop` or `close`; async handlers run on an event loop
        of their own. Does nothing where it has been started already. If a run that was started before has failed, this raises its error."""
        with self._starting:
            if self._started is not None and not self._started.ended:
                return
            self._raise_error_of_started()
            self._started = self._new_run(ThreadRunner(), None, _log_error)
            self._started.start()

    async def run_async(self, *, until_idle: float | None = None) -> None:
        """Work until cancelled or stopped, with async handlers on the event loop that this is called on; plain handlers and the ledger
        stay in threads. A cancellation drains first; a second one cuts running handlers off. With `until_idle`, ends as `run` does."""
        loop = asyncio.get_running_loop()
        ended, on_end = settled_on(loop)
        await run_on_loop(self._new_run(ThreadRunner(loop), until_idle, on_end), ended, self._grace_ms)

    def stop(self, grace: Span | None = None) -> bool:
        """Drain everything that runs here (`start`, `run`, `run_async`) and return when it has ended: no item is claimed any more,
        running handlers have `grace` to finish, what is left is given back uncounted, then the threads end. Raises the error that
        ended a run made by `start`. Where nothing runs, does nothing. `start` may be called again afterwards.

        Called by a handler or a subscriber, or on the event loop of `run_async`, it cannot wait: it begins the drain and returns False.
        """
        with self._lock:
            runs = list(self._runs)
        grace_ms = self._grace_ms if grace is None else span_ms(grace, "grace")
        if any(run.cannot_wait_here() for run in runs):
            for run in runs:
                run.stop(grace_ms)
            return False
        _drain(runs, grace_ms)
        self._raise_error_of_started()
        return True

    async def stop_async(self, grace: Span | None = None) -> bool:
        """`stop`, awaited: the event loop goes on meanwhile."""
        return await asyncio.to_thread(self.stop, grace)

    @property
    def running(self) -> bool:
        """Is a run of `start`, `run` or `run_async` under way?"""
        with self._lock:
            return any(not run.ended for run in self._runs)

    def _new_run(
        self, runner: ThreadRunner, until_idle: float | None, on_end: Callable[[BackgroundRun], None] | None = None
    ) -> BackgroundRun:
        def ended(run: BackgroundRun) -> None:
            try:
                if on_end is not None:
                    on_end(run)
            finally:
                with self._lock:
                    self._runs.discard(run)

        with self._lock:
            if self._closed:
                raise UsageError("this ledger has been closed; open it again with milepost.open(…)")
        station = Station(self.context, subscribers=self._subscribers, signer=self._signer, runner=runner, grace_ms=self._grace_ms)
        run = BackgroundRun(station, runner, until_idle, ended)
        with self._lock:
            self._runs.add(run)
        return run

    def _raise_error_of_started(self) -> None:
        """The error of a run made by `start` is raised once, to the first caller who can be told."""
        with self._lock:
            run = self._started
            if run is None or not run.ended:
                return
            self._started = None
        if run.error is not None:
            raise run.error

    def confirm(
        self,
        route: str,
        key: str,
        stage: str,
        value: Any = True,
        *,
        by: str,
        outcome: Outcome | None = None,
        force: bool = False,
        reason: str = "",
    ) -> Row:
        """An outside answer for a stage: a confirmation, or any outcome; the row as it then is. The same said again changes
        nothing. Raises ActRefused if it cannot be taken: no such item or stage, a value that confirms nothing, … With `force`
        an operator confirms the stage whatever the value covers, and must give the `reason`."""
        if force:
            report = act(self.context, "confirm", route, keys=[key], by=by, reason=reason, stage=stage, outcome=Done(value), force=True)
            for _, why in report.refused:
                raise ActRefused(f"{route}/{key}: {why}")
            [item] = self.context.ledger.get([(route, key)])
            if not isinstance(item, Item):
                raise ActRefused(f"{route}/{key}: it was confirmed, and its row has left")
            return item.row
        answer = confirm_outside(self.context, route, key, stage, outcome or Done(value), by)
        if isinstance(answer, Refusal) and answer.kind in SAID_BEFORE:
            item = self.context.ledger.get([(route, key)])[0]
            answer = item.row if isinstance(item, Item) else answer
        if isinstance(answer, Refusal):
            raise ActRefused(f"{route}/{key}: {answer}")
        return answer

    def rerun(self, route: str, key: str, *, by: str, reason: str, stage: str | None = None, as_new: bool = False) -> Row:
        """Run a COMPLETED item again from a stage, the first if none is named; the row as it then is. `as_new`: with a new work_id also
        at the last stage. Raises ActRefused if it cannot be done."""
        return self._act("rerun", route, key, by, reason, stage=stage, as_new=as_new)

    def replace(self, route: str, content: Any, *, by: str, reason: str, here: bool = False, rerun: bool = False) -> Row:
        """Give the item that has the content's key this content instead of its own; the row as it then is. It starts again at the first
        stage, or, with `here`, at its own; with `rerun` also if it is COMPLETED. Raises ActRefused if it cannot be done."""
        key = self.context.plan(route).route.key_of(content)
        return self._act("replace", route, key, by, reason, content=content, here=here, rerun=rerun)

    def reschedule(self, route: str, key: str, not_before: str | datetime | timedelta, *, by: str, reason: str) -> Row:
        """Set an item that has not started for another time (or for a span from now); the row as it then is. Raises ActRefused if it
        cannot be done."""
        return self._act("reschedule", route, key, by, reason, not_before=not_before)

    def _act(self, verb: str, route: str, key: str, by: str, reason: str, **options: Any) -> Row:
        report = act(self.context, verb, route, keys=[key], by=by, reason=reason, **options)
        [item] = self.context.ledger.get([(route, key)])
        if report.refused or not isinstance(item, Item):
            raise ActRefused(f"{route}/{key}: {report.refused[0][1] if report.refused else 'its row has left'}")
        return item.row

    def show(self, route: str, key: str) -> dict[str, Any] | None:
        """Everything about one item, with its history; None if the key was never seen."""
        return show(self.context, route, key)

    def status(self) -> dict[str, Any]:
        """How many items are where."""
        return status(self.context, afresh=True)

    def backup(self, file: str | Path, *, overwrite: bool = False) -> BackupReport:
        """Copy the ledger as it is at this moment, with its blobs, to a file that is a ledger itself; work may go on meanwhile. Raises
        UsageError where the file is there already, LedgerError where the ledger cannot be copied (in memory, on AWS)."""
        return self.context.ledger.backup(Path(file), overwrite, lambda done, whole: None)

    def close(self) -> None:
        """Stop what runs here as `stop` does, then close the ledger."""
        try:
            stopped = self.stop()
            if not stopped:
                raise UsageError(
                    "close() was called by a handler, or on the event loop of run_async, and cannot wait there for the work to end;"
                    " the drain has begun: close in another thread, use 'async with', or let run_async end first"
                )
        finally:
            if not self.running:
                self._closed = True
                self.context.ledger.close()

    def __enter__(self) -> Milepost:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close()
        except Exception:
            if error is None:
                raise
            log.warning("the work in the background ended with an error too", exc_info=True)

    async def __aenter__(self) -> Milepost:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)


def _drain(runs: Sequence[BackgroundRun], grace_ms: int) -> None:
    """Stop the runs and wait for their end. Whoever interrupts the wait (a second Ctrl-C) wants the end at once: handlers are cut off."""
    for run in runs:
        run.stop(grace_ms)
    try:
        for run in runs:
            run.wait()
    except BaseException:
        for run in runs:
            run.stop(0)
        raise


def _log_error(run: BackgroundRun) -> None:
    if run.error is not None:
        log.error("the work in the background has ended with an error; stop() raises it", exc_info=run.error)


def restore(file: str | Path, ledger: str = DEFAULT_LEDGER, *, overwrite: bool = False, force: bool = False) -> RestoreReport:
    """Put a backup in the place of the ledger, which no process may use meanwhile. One that is there is set aside with `overwrite`, else
    refused. The backup is checked before and after it is copied; `force` accepts items in it whose history was changed by other means."""
    return restore_ledger(Path(file), ledger, overwrite=overwrite, force=force, on_progress=lambda done, whole: None)


open = Milepost
"""`milepost.open("sqlite:///milepost.db", routes=[…])`"""
