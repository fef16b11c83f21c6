"""Time sharing between submit calls and the worker in one process (decision 27).

Server and worker share one interpreter and one writer. While calls submit items, the worker pauses
between its turns, never longer than its last turn took, so that it keeps at least half of the time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from milepost.ports.runner import Clock
from milepost.ports.service import Service

PER_CALL_MS = 1
"""Pause for each call that arrived or waits. A call takes 0.2 ms of CPU; the rest lets its client
send the next one."""
LONGEST_MS = 1_000
"""A longer turn counts as this: leases are extended in turns, and the clock may have been set
forward during one."""


def rest_ms(worked_ms: int, rested_ms: int, calls: int) -> int:
    """The worker's pause before its next turn, in milliseconds. `worked_ms`: length of its last
    turn; `rested_ms`: time since then; `calls`: calls that arrived since the last pause, or that
    wait, whichever is more."""
    return max(0, min(min(worked_ms, LONGEST_MS) - rested_ms, calls * PER_CALL_MS))


class Accepts:
    """Counter of submit calls to this process; a context manager for the duration of a call,
    thread-safe."""

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


class SharedTurns(Service):
    """A service that pauses between turns for submit calls; it does not pause while stopping."""

    def __init__(
        self, service: Service, accepts: Accepts, clock: Clock, stopping: Callable[[], bool]
    ) -> None:
        self.name = service.name
        self.follows_others = service.follows_others
        self._service = service
        self._accepts = accepts
        self._clock = clock
        self._stopping = stopping
        self._worked_ms = 0
        self._ended_at = 0
        self._rests_until = 0
        self._seen = 0

    @property
    def quiet(self) -> bool:
        return self._service.quiet

    def stop(self) -> None:
        self._service.stop()

    def turn(self) -> float:
        began = self._clock.now()
        rest = 0 if self._stopping() else self._rest(began)
        if rest:
            return rest / 1000
        try:
            return self._service.turn()
        finally:
            self.failed = self._service.failed
            self.stands_still = self._service.stands_still
            self._ended_at = self._clock.now()
            self._worked_ms = self._ended_at - began

    def _rest(self, now: int) -> int:
        if now < self._ended_at:
            # The clock was set back, so the length of the pause is unknown.
            self._worked_ms, self._ended_at, self._rests_until = 0, now, now
        if now < self._rests_until:
            # A finished job woke the service early.
            return self._rests_until - now
        came, self._seen = self._accepts.came - self._seen, self._accepts.came
        rest = rest_ms(self._worked_ms, now - self._ended_at, max(came, self._accepts.waiting))
        self._rests_until = now + rest
        return rest
