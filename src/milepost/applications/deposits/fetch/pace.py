"""Pace of requests to a partner: the partner's own rate limits, shared by the threads of a process."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

from milepost import net

_INTERVAL = re.compile(r"\s*(\d+)\s*(s|m|h)?\s*")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
MARGIN = 1.1
"""A tenth slower than allowed: requests do not arrive as evenly as they are sent, and a 429 costs more than it saves."""
SLOWEST = 60.0
"""Most seconds between two requests, whatever the partner says."""


def gap_s(headers: net.HeaderList) -> float | None:
    """Seconds between two requests by X-Rate-Limit-Limit and X-Rate-Limit-Interval ("1s"); None: the headers do not say."""
    limit, interval = headers.get("X-Rate-Limit-Limit") or "", _INTERVAL.fullmatch(headers.get("X-Rate-Limit-Interval") or "")
    if interval is None or not limit.isascii() or not limit.strip().isdecimal() or int(limit) == 0:
        return None
    return min(SLOWEST, MARGIN * int(interval[1]) * _SECONDS[interval[2] or "s"] / int(limit))


class RequestPace:
    """Lets a request start every `gap` seconds. A partner that answers 429 stops all requests for a while and halves the pace."""

    def __init__(self, gap: float, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self.gap = gap
        self._clock, self._sleep = clock, sleep
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Wait until the next request may start."""
        while True:
            with self._lock:
                now = self._clock()
                if self._next <= now:
                    # A thread that has slept a little too long takes nothing away from the next.
                    self._next = max(self._next, now - self.gap) + self.gap
                    return
                left = self._next - now
            self._sleep(left)

    def heard(self, headers: net.HeaderList) -> None:
        """Obey the limits that an answer's headers state."""
        gap = gap_s(headers)
        if gap is not None:
            with self._lock:
                self.gap = gap

    def slow_down(self, seconds: float) -> None:
        """Start no request for so long, and then only half as many."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)
            self.gap = min(SLOWEST, self.gap * 2)
