"""Run of a station in a background thread: start, wait, stop, and its result."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from milepost.runners.threads import ThreadRunner
from milepost.station import Station


class BackgroundRun:
    """One run of a station. Its thread ends when the station is stopped, becomes idle (`until_idle_s`), or fails."""

    def __init__(self, station: Station, runner: ThreadRunner, until_idle_s: float | None, on_end: Callable[[BackgroundRun], None]) -> None:
        self.error: BaseException | None = None
        self._station = station
        self._runner = runner
        self._until_idle_s = until_idle_s
        self._on_end = on_end
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="milepost", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            self._station.run(until_idle_s=self._until_idle_s)
        except BaseException as error:
            self.error = error
        finally:
            # Call `on_end` first, so that a program that sees the end also sees its effects.
            try:
                self._on_end(self)
            finally:
                self._ended.set()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def stop(self, grace_ms: int) -> None:
        """Start to drain; returns at once."""
        self._station.stop(grace_ms)

    def cannot_wait_here(self) -> bool:
        """Whether the caller is a handler or subscriber of this run, or on the event loop that these run on: then it cannot wait for the end."""
        return not self.ended and self._runner.needs_this_thread()

    def wait(self) -> None:
        """Return when the run has ended, with or without error."""
        self._ended.wait()

    def result(self) -> None:
        """Wait for the end; raise the error that ended the run."""
        self.wait()
        if self.error is not None:
            raise self.error


async def run_on_loop(run: BackgroundRun, ended: asyncio.Future[None], grace_ms: int) -> None:
    """Start the run and wait for its end. A cancellation drains it; a second one cancels running handlers."""
    run.start()
    grace, cancelled = grace_ms, None
    while not ended.done():
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError as error:
            cancelled = error
            run.stop(grace)
            grace = 0
    run.result()
    if cancelled is not None:
        raise cancelled


def settled_on(loop: asyncio.AbstractEventLoop) -> tuple[asyncio.Future[None], Callable[[BackgroundRun], None]]:
    """A future of this loop, and a callback that completes it from any thread. A closed loop is ignored."""
    future: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not future.done():
            future.set_result(None)

    def on_end(_run: BackgroundRun) -> None:
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:
            pass

    return future, on_end
