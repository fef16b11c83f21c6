"""Slots for lists that are accepted at the same time, with a share for each caller."""

from __future__ import annotations

import threading
from collections import Counter


class NoSlot(Exception):
    """Every slot is taken. `own`: only those of this caller are."""

    def __init__(self, own: bool) -> None:
        super().__init__("no slot is free")
        self.own = own


class ListSlots:
    """`total` slots, of which one caller may hold `share`: slow senders of one key leave room for
    the lists of others. Thread-safe."""

    def __init__(self, total: int, share: int) -> None:
        self._total, self._share = total, share
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        with self._lock:
            return self._held.total()

    def take(self, caller: str, *, shared: bool) -> None:
        """Take a slot; NoSlot if none is free. `shared`: the caller has a share only."""
        with self._lock:
            if self._held.total() >= self._total:
                raise NoSlot(False)
            if shared and self._held[caller] >= self._share:
                raise NoSlot(True)
            self._held[caller] += 1

    def give_back(self, caller: str) -> None:
        with self._lock:
            self._held[caller] -= 1
            if not self._held[caller]:
                del self._held[caller]
