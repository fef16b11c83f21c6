"""What is dear to ask of the ledger, asked once in a while however often somebody looks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

KEEP_S = 60.0
"""So long an answer holds."""
T = TypeVar("T")


class TtlCache:
    """Remembers answers for a while; one is asked for at a time."""

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        self._ticks = ticks
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, ...], tuple[float, Any]] = {}

    def once(self, about: tuple[str, ...], ask: Callable[[], T]) -> T:
        """What was answered a little while ago, or is now."""
        with self._lock:
            now, kept = self._ticks(), self._kept.get(about)
            if kept is None or now - kept[0] >= KEEP_S:
                kept = self._kept[about] = now, ask()
            return cast(T, kept[1])
