"""TTL cache for expensive ledger queries."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

KEEP_S = 60.0
"""How long an answer is usually valid."""
T = TypeVar("T")


class TtlCache:
    """Caches answers for `keep_s`, or the usual time; at most one query runs at a time."""

    def __init__(self, ticks: Callable[[], float] = time.monotonic, keep_s: float | None = None) -> None:
        self._ticks, self._keep_s = ticks, keep_s
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, ...], tuple[float, Any]] = {}

    def once(self, about: tuple[str, ...], ask: Callable[[], T]) -> T:
        """The cached answer, or a new one."""
        with self._lock:
            now, kept = self._ticks(), self._kept.get(about)
            if kept is None or now - kept[0] >= (self._keep_s or KEEP_S):
                kept = self._kept[about] = now, ask()
            return cast(T, kept[1])
