"""System clock and system randomness."""

from __future__ import annotations

import random
import secrets
import time


class SystemClock:
    """The wall clock without jumps back: while the machine's clock is behind an earlier reading, time continues from that reading.
    Otherwise leases, retries and rates would stop until it has caught up."""

    def __init__(self) -> None:
        self._lead = 0
        self.now()

    def now(self) -> int:
        ticks = time.monotonic_ns() // 1_000_000
        ahead = time.time_ns() // 1_000_000 - ticks
        if ahead > self._lead:
            self._lead = ahead
        return ticks + self._lead

    def not_before(self, moment: int) -> None:
        """Set a minimum for the present time, such as the time of the newest history line."""
        self._lead = max(self._lead, moment - time.monotonic_ns() // 1_000_000)


class SystemChance:
    """The system's randomness."""

    def jitter(self) -> float:
        return random.uniform(-1.0, 1.0)

    def token(self) -> str:
        return secrets.token_hex(8)
