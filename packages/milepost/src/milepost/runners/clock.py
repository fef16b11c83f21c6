"""System clock and system randomness."""

from __future__ import annotations

import logging
import random
import secrets
import time

from milepost.core.clocks import FOLLOWED_MS, STEP_MS
from milepost.core.values.durations import short_span
from milepost.ports.clock import ClockState

SOURCE = "this machine's clock"

log = logging.getLogger(__name__)


class SystemClock:
    """The wall clock without jumps back: while the machine's clock is behind an earlier reading,
    time continues from that reading. Otherwise leases, retries and rates would stop until it has
    caught up.

    `check` notices that the machine's clock was set. If that leaves this clock more than minutes
    ahead, it starts from the machine's clock anew: another process, started since, would take this
    one's leases for expired.
    """

    def __init__(self) -> None:
        self._lead = 0
        self.now()
        self._machine = self._lead
        self._since: int | None = None

    def now(self) -> int:
        ticks = _ticks()
        ahead = _wall() - ticks
        if ahead > self._lead:
            self._lead = ahead
        return ticks + self._lead

    def check(self) -> ClockState:
        machine = _wall() - _ticks()
        step, self._machine = machine - self._machine, machine
        if abs(step) > STEP_MS:
            log.warning(
                "this machine's clock was set %s by %s",
                "forward" if step > 0 else "back",
                short_span(step),
            )
        ahead = self._lead - machine
        if ahead > FOLLOWED_MS:
            log.warning(
                "the time of this process was %s ahead of this machine's clock; it starts from that clock anew",
                short_span(ahead),
            )
            self._lead, ahead = machine, 0
        if abs(step) > STEP_MS:
            self._since = self.now()
        return ClockState(SOURCE, ahead if ahead > STEP_MS else 0, self._since)

    def follow(self, moment: int) -> None:
        """Do not fall behind this time, such as that of the newest history line, if it is at most
        minutes ahead of the machine's clock."""
        ticks = _ticks()
        if moment - _wall() <= FOLLOWED_MS:
            self._lead = max(self._lead, moment - ticks)


def _ticks() -> int:
    return time.monotonic_ns() // 1_000_000


def _wall() -> int:
    return time.time_ns() // 1_000_000


class SystemChance:
    """The system's randomness."""

    def jitter(self) -> float:
        return random.uniform(-1.0, 1.0)

    def token(self) -> str:
        return secrets.token_hex(8)
