"""Milepost as a library: open a ledger, submit items, run the work, and read the results."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from milepost.application.declaration import Application, ConfiguredApplication
from milepost.application.installation import install, services
from milepost.composition import DEFAULT_LEDGER, open_context, restore_ledger
from milepost.core.errors import UsageError
from milepost.core.routes.route import Route
from milepost.core.values.durations import Span, span_ms
from milepost.core.values.file_modes import read_mode
from milepost.engine.events.follow_ups import follow_up_routes
from milepost.evidence.signing import read_signer
from milepost.operations import Operations
from milepost.ports.runner import Chance, Clock
from milepost.ports.subscriber import Subscriber
from milepost.ports.upkeep import RestoreReport
from milepost.route_files import load_application
from milepost.runners.signals import collected_signals
from milepost.runners.threads import ThreadRunner
from milepost.station import Station

log = logging.getLogger(__name__)

SIGNALS_S = 0.2
"""Time until Python handles a signal that came just before a wait, or to another thread."""


class Milepost(Operations):
    """A ledger with its routes and applications. A context manager (`with` or `async with`), or
    call `close`. `signing_key`: file of the private key that signs the daily heads (None:
    unsigned). `grace`: time for running handlers to finish when the work is stopped.
    `applications`: each an `Application`, one `with_settings`, or the name of one; settings that
    are not given here come from the environment and the defaults. `mode`: permissions of new files
    of a SQLite ledger, such as "0660" (None: of a new ledger private, "0600")."""

    def __init__(
        self,
        ledger: str = DEFAULT_LEDGER,
        routes: Iterable[Route] = (),
        *,
        applications: Iterable[str | Application[Any] | ConfiguredApplication[Any]] = (),
        subscribers: Sequence[Subscriber] = (),
        clock: Clock | None = None,
        chance: Chance | None = None,
        signing_key: str | Path | None = None,
        grace: Span = "30s",
        mode: str | None = None,
    ) -> None:
        self._grace_ms = span_ms(grace, "grace")
        file_mode = None if mode is None else read_mode(mode)
        for name, n in Counter(one.name for one in subscribers).items():
            if n > 1:
                raise UsageError(
                    f"two subscribers are called {name!r}: they would share a cursor, and each miss events; rename one"
                )
        self._signer = None if signing_key is None else read_signer(Path(signing_key))
        self._applications = [_configured(one) for one in applications]
        given = [*routes, *(route for one in self._applications for route in one.routes)]
        super().__init__(
            open_context(
                ledger,
                [*given, *follow_up_routes(given)],
                clock=clock,
                chance=chance,
                mode=file_mode,
            )
        )
        install(self.context, self._applications)
        self._subscribers = tuple(subscribers)
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._runs: set[BackgroundRun] = set()
        self._started: BackgroundRun | None = None
        self._closed = False

    def run(self, *, until_idle: float | None = 2) -> None:
        """Work in this process until no item is in progress and none becomes due within
        `until_idle` seconds (None: for ever), or until `stop` is called in another thread.

        Ctrl-C and SIGTERM drain first, and then have their usual effect: KeyboardInterrupt, or the
        end of the program. A second one does not wait for the drain. That holds in the main thread,
        for signals that the program does not handle itself."""
        with collected_signals(signal.SIGINT, signal.SIGTERM) as received:
            run = self._new_run(ThreadRunner(), until_idle)
            run.start()
            try:
                run.wait(lambda: not received)
                if received:
                    run.stop(self._grace_ms)
                    run.wait(lambda: len(received) == 1)
                if not run.ended:
                    run.stop(0)
            except BaseException:
                # A handler of the program's own raised an error.
                _drain([run], self._grace_ms)
                raise
        if run.ended:
            run.result()
        if received:
            signal.raise_signal(received[0])

    def start(self) -> None:
        """Start to work in the background, in threads of this process, until `stop` or `close`;
        async handlers run on their own event loop. Does nothing if already started. If an earlier
        run failed, this raises its error.

        It never touches signals: the program calls `stop` when its host shuts it down (the end of a
        lifespan, `atexit`, a `finally`)."""
        with self._starting:
            if self._started is not None and not self._started.ended:
                return
            self._raise_error_of_started()
            self._started = self._new_run(ThreadRunner(), None, log_error=True)
            self._started.start()

    async def run_async(self, *, until_idle: float | None = None) -> None:
        """Work until cancelled or stopped, with async handlers on the calling event loop; plain
        handlers and the ledger use threads. A cancellation drains first; a second one cancels
        running handlers. So does SIGTERM, in the main thread, if the program does not handle it;
        after the drain it ends the program. (Ctrl-C is a cancellation in asyncio.run.) With
        `until_idle`, ends as `run` does."""
        loop = asyncio.get_running_loop()
        run = self._new_run(ThreadRunner(loop), until_idle)
        stops = iter([self._grace_ms])

        def stop() -> None:
            run.stop(next(stops, 0))

        with collected_signals(
            signal.SIGTERM, on_signal=lambda: loop.call_soon_threadsafe(stop)
        ) as received:
            run.start()
            ended = asyncio.wrap_future(run.end)
            cancelled: asyncio.CancelledError | None = None
            while not ended.done():
                try:
                    await asyncio.shield(ended)
                except asyncio.CancelledError as error:
                    cancelled = error
                    stop()
        run.result()
        if cancelled is not None:
            raise cancelled
        if received:
            signal.raise_signal(received[0])

    def stop(self, grace: Span | None = None) -> bool:
        """Drain all runs (`start`, `run`, `run_async`) and return when they have ended: no item is
        claimed any more, running handlers have `grace` to finish, other claimed items are given
        back without counting an attempt, then the threads end. Raises the error that ended a run of
        `start`. Does nothing if nothing runs. `start` may be called again afterwards.

        Called by a handler or a subscriber, or on the event loop of `run_async`, it cannot wait: it
        starts the drain and returns False.
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
        """`stop` for async code: the event loop continues meanwhile."""
        return await asyncio.to_thread(self.stop, grace)

    @property
    def running(self) -> bool:
        """Whether a run of `start`, `run` or `run_async` is active."""
        with self._lock:
            return any(not run.ended for run in self._runs)

    def _new_run(
        self, runner: ThreadRunner, until_idle: float | None, *, log_error: bool = False
    ) -> BackgroundRun:
        def on_end(run: BackgroundRun, error: BaseException | None) -> None:
            if log_error and error is not None:
                log.error(
                    "the background work ended with an error; stop() raises it", exc_info=error
                )
            with self._lock:
                self._runs.discard(run)

        with self._lock:
            if self._closed:
                raise UsageError("this ledger has been closed; open it again with milepost.open(…)")
        station = Station(
            self.context,
            subscribers=self._subscribers,
            services=services(self.context, self._applications),
            signer=self._signer,
            runner=runner,
            grace_ms=self._grace_ms,
        )
        run = BackgroundRun(station, runner, until_idle, on_end)
        with self._lock:
            self._runs.add(run)
        return run

    def _raise_error_of_started(self) -> None:
        """Raise the error of a run of `start` once, to the first caller."""
        with self._lock:
            run = self._started
            if run is None or not run.ended:
                return
            self._started = None
        run.result()

    def close(self) -> None:
        """Stop all runs as `stop` does, then close the ledger."""
        try:
            stopped = self.stop()
            if not stopped:
                raise UsageError(
                    "close() was called by a handler, or on the event loop of run_async, where it cannot wait for the work to end;"
                    " the drain has started: close in another thread, use 'async with', or let run_async end first"
                )
        finally:
            if not self.running:
                self._closed = True
                self.context.ledger.close()

    def __enter__(self) -> Milepost:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except Exception:
            if error is None:
                raise
            log.warning("the background work ended with an error too", exc_info=True)

    async def __aenter__(self) -> Milepost:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)


def _configured(
    given: str | Application[Any] | ConfiguredApplication[Any],
) -> ConfiguredApplication[Any]:
    if isinstance(given, ConfiguredApplication):
        return given
    return (load_application(given) if isinstance(given, str) else given).configured()


def _drain(runs: Sequence[BackgroundRun], grace_ms: int) -> None:
    """Stop the runs and wait for their end. If the wait is interrupted (a second Ctrl-C), running
    handlers are cancelled."""
    for run in runs:
        run.stop(grace_ms)
    try:
        for run in runs:
            run.wait()
    except BaseException:
        for run in runs:
            run.stop(0)
        raise


class BackgroundRun:
    """One run of a station in a thread of its own. It ends when the station is stopped, becomes
    idle (`until_idle_s`), or fails."""

    def __init__(
        self,
        station: Station,
        runner: ThreadRunner,
        until_idle_s: float | None,
        on_end: Callable[[BackgroundRun, BaseException | None], None],
    ) -> None:
        self.end: Future[BaseException | None] = Future()
        """Its end: the error if it failed. It is a result, because some errors, such as
        StopIteration, cannot be raised into a future."""
        self._station = station
        self._runner = runner
        self._until_idle_s = until_idle_s
        self._on_end = on_end

    def start(self) -> None:
        self.end.set_running_or_notify_cancel()  # from now on it cannot be cancelled, only stopped
        threading.Thread(target=self._run, name="milepost", daemon=True).start()

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            self._station.run(until_idle_s=self._until_idle_s)
        except BaseException as error:
            failure = error
        # Call `on_end` first, so that a program that sees the end also sees its effects.
        self._on_end(self, failure)
        self.end.set_result(failure)

    @property
    def ended(self) -> bool:
        return self.end.done()

    def stop(self, grace_ms: int) -> None:
        """Start to drain; returns at once."""
        self._station.stop(grace_ms)

    def cannot_wait_here(self) -> bool:
        """Whether the caller is a handler or subscriber of this run, or on the event loop that
        these run on: then it cannot wait for the end."""
        return not self.ended and self._runner.needs_this_thread()

    def wait(self, while_true: Callable[[], bool] = lambda: True) -> None:
        """Return when the run has ended, with or without error, or this no longer holds. Waits a
        moment at a time: Python runs signal handlers between two waits of the main thread, and a
        signal that came just before a wait without a timeout would be noticed late."""
        while not self.ended and while_true():
            with suppress(TimeoutError):
                self.end.result(timeout=SIGNALS_S)

    def result(self) -> None:
        """Wait for the end; raise the error that ended the run."""
        self.wait()
        error = self.end.result()
        if error is not None:
            raise error


def restore(
    file: str | Path, ledger: str = DEFAULT_LEDGER, *, overwrite: bool = False, force: bool = False
) -> RestoreReport:
    """Replace the ledger by a backup; no process may use the ledger meanwhile. An existing ledger
    is renamed with `overwrite`, else refused. The backup is checked before and after copying;
    `force` accepts items with broken hash chains."""
    return restore_ledger(
        Path(file), ledger, overwrite=overwrite, force=force, on_progress=lambda done, whole: None
    )


open = Milepost
"""`milepost.open("sqlite:///milepost.db", routes=[…])`"""
