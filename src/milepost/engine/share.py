"""Share of a process between accepting items and working on them (decision 27).

A server and a worker in one process share one interpreter and one writer. While calls hand over items, the worker rests
between its turns: never longer than the turn before took, so that work keeps at least half of the time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from milepost.ports.runner import Clock, Service

PER_CALL_MS = 1
"""Rest for each call that came or waits. A call takes 0.2 ms of CPU; the rest is for its client to send the next one."""
LONGEST_MS = 1_000
"""A turn counts for no more, however long it took: leases are extended by turns, and the clock may be set forward during one."""


def rest_ms(worked_ms: int, rested_ms: int, calls: int) -> int:
    """How long the worker rests now: `worked_ms` is what its last turn took, `rested_ms` how long ago that ended, `calls` how many calls
    have come since it was last asked, or are waiting, whichever is more. 0: it goes on."""
    return max(0, min(min(worked_ms, LONGEST_MS) - rested_ms, calls * PER_CALL_MS))


class Accepts:
    """Counter of the calls that hand over items to this process. Enter it for the time of a call; any thread may."""

    def __init__(self) -> None:
        self.came = 0
        self.waiting = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.came += 1
            self.waiting += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.waiting -= 1


class SharedTurns:
    """A service whose turns leave time for accepting items. When it is stopping, it does not rest."""

    def __init__(self, service: Service, accepts: Accepts, clock: Clock, stopping: Callable[[], bool]) -> None:
        self.name = service.name
        self._service = service
        self._accepts = accepts
        self._clock = clock
        self._stopping = stopping
        self._worked_ms = 0
        self._ended_at = 0
        self._rests_until = 0
        self._seen = 0

    def turn(self) -> float:
        began = self._clock.now()
        rest = 0 if self._stopping() else self._rest(began)
        if rest:
            return rest / 1000
        try:
            return self._service.turn()
        finally:
            self._ended_at = self._clock.now()
            self._worked_ms = self._ended_at - began

    def _rest(self, now: int) -> int:
        if now < self._ended_at:
            # The clock was set back: how long it has rested is not known.
            self._worked_ms, self._ended_at, self._rests_until = 0, now, now
        if now < self._rests_until:
            # A finished job woke it.
            return self._rests_until - now
        came, self._seen = self._accepts.came - self._seen, self._accepts.came
        rest = rest_ms(self._worked_ms, now - self._ended_at, max(came, self._accepts.waiting))
        self._rests_until = now + rest
        return rest
