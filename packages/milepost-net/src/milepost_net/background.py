"""The event loop behind synchronous calls: one thread for all clients of the process, while any of
them needs it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

R = TypeVar("R")

_lock = threading.Lock()
_current: BackgroundLoop | None = None


class BackgroundLoop:
    """An event loop in a thread of its own. It ends when its last holder releases it."""

    def __init__(self) -> None:
        self.loop = new_event_loop()
        self.pid = os.getpid()
        self.holders = 0
        # A daemon: the end of the process waits for no partner.
        self.thread = threading.Thread(target=self._run, name="milepost-net", daemon=True)
        self.thread.start()

    def call(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the loop and wait for its result. An interrupt of the wait cancels it.
        (A lock is all that is needed; `run_coroutine_threadsafe` makes two futures and a
        condition.)"""
        done = threading.Lock()
        done.acquire()
        tasks: list[asyncio.Task[R]] = []

        def ended(task: asyncio.Task[R]) -> None:
            if not task.cancelled():
                task.exception()  # seen, even if the caller was interrupted and never asks for it
            done.release()

        def start() -> None:
            tasks.append(self.loop.create_task(coroutine))
            tasks[0].add_done_callback(ended)

        self.loop.call_soon_threadsafe(start)
        try:
            done.acquire()
        except BaseException:
            self.loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            raise
        return tasks[0].result()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()


def hold() -> BackgroundLoop:
    """The process's loop, started if need be; it runs until every `hold` has had its `release`."""
    global _current
    with _lock:
        if _current is None:
            _current = BackgroundLoop()
        _current.holders += 1
        return _current


def release(background: BackgroundLoop) -> None:
    """End a `hold`; the last one ends the loop and waits for its thread."""
    global _current
    with _lock:
        background.holders -= 1
        if background.holders or background.pid != os.getpid():
            return
        if _current is background:
            _current = None
    background.loop.call_soon_threadsafe(background.loop.stop)
    if threading.current_thread() is not background.thread:
        background.thread.join()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's event loop where it is installed (it comes with `milepost[http]`), else asyncio's
    own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _after_fork() -> None:
    """Threads do not survive a fork: the child starts a loop of its own."""
    global _current, _lock
    _current, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
