"""Deadline for requests to AWS: none begins, waits or is repeated past the end of the function call that makes it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Deadline:
    """The end of the work at hand, for all threads that make requests for it; without one there is no end."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends_at = math.inf

    def left(self) -> float:
        """Seconds until the end; infinite where none is set."""
        return self._ends_at - self._clock()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Set the end so many seconds from now; within another deadline the earlier end holds."""
        before = self._ends_at
        self._ends_at = min(before, self._clock() + seconds)
        try:
            yield
        finally:
            self._ends_at = before


CALL = Deadline()
"""The deadline of this process: a Lambda container works on one call at a time, and sets it from that call's remaining time."""
