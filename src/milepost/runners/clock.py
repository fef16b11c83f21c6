"""Real time and real chance."""

from __future__ import annotations

import random
import secrets
import time


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000


class SystemChance:
    def jitter(self) -> float:
        return random.uniform(-1.0, 1.0)

    def token(self) -> str:
        return secrets.token_hex(8)
