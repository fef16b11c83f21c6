"""Time limits of async handler calls: one timer for all calls of the same length on an event loop,
instead of one for each call."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

EARLY_S = 0.001
"""Timers of event loops count milliseconds: one that fires so much early is on time."""


class CallLimit:
    """Cancels the running task if the block within takes longer; the block then raises
    TimeoutError, as with `asyncio.timeout`. None: the block may take as long as it likes."""

    __slots__ = ("_cancelling", "_limits", "_ms", "_task", "expired")

    def __init__(self, ms: int | None) -> None:
        self._ms = ms
        self.expired = False

    def __enter__(self) -> Self:
        if self._ms is None:
            return self
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        limits = _running.get((loop, self._ms))
        if limits is None:
            limits = _running[loop, self._ms] = _EqualLimits(loop, self._ms)
        self._limits = limits
        limits.begin(self)
        return self

    def expire(self) -> None:
        self.expired = True
        self._task.cancel()

    def end(self, kind: type[BaseException] | None) -> bool:
        """End the limit of a block that raised an exception of this kind, or none. Returns whether
        the limit has ended the block."""
        if self.expired:
            return self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError
        if self._ms is not None:
            self._limits.end(self)
        return False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if self.end(kind):
            raise TimeoutError from error
        return None


class _EqualLimits:
    """The running calls of one length on one event loop. They end in the order in which they began,
    so the first has the timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ms: int) -> None:
        self._loop, self._ms = loop, ms
        self._ends: dict[CallLimit, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, limit: CallLimit) -> None:
        at = self._ends[limit] = self._loop.time() + self._ms / 1000
        if self._timer is None:
            self._timer = self._loop.call_at(at, self._check)

    def end(self, limit: CallLimit) -> None:
        del self._ends[limit]
        if not self._ends:
            self._close()

    def _check(self) -> None:
        """The timer: the call that had it is late, or has ended meanwhile."""
        now = self._loop.time() + EARLY_S
        while self._ends:
            limit = next(iter(self._ends))
            at = self._ends[limit]
            if at > now:
                self._timer = self._loop.call_at(at, self._check)
                return
            del self._ends[limit]
            limit.expire()
        self._close()

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        _running.pop((self._loop, self._ms), None)


_running: dict[tuple[asyncio.AbstractEventLoop, int], _EqualLimits] = {}
