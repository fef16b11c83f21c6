"""Deadline for requests to AWS: no request begins, waits or is retried after the end of its Lambda call."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Deadline:
    """The deadline of the present work, shared by all threads that make requests for it; optional."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends_at = math.inf

    def left(self) -> float:
        """Seconds until the deadline; infinite if there is none."""
        return self._ends_at - self._clock()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Set the deadline in so many seconds; within another deadline the earlier one applies."""
        before = self._ends_at
        self._ends_at = min(before, self._clock() + seconds)
        try:
            yield
        finally:
            self._ends_at = before


CALL = Deadline()
"""The deadline of this process: a Lambda container handles one call at a time and sets it from that call's remaining time."""
