"""Presence of processes: which are alive, which are proved dead, and whether another process may have written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class LedgerPresence(Protocol):
    """A holder that signed on is alive until it signs off or is proved dead; only the items of a dead one may be reclaimed."""

    def sign_on(self, holder: str) -> None:
        """This process is alive as `holder` until it signs off or dies."""

    def sign_off(self, holder: str) -> None: ...

    def dead_workers(self) -> list[str]:
        """Holders that signed on here and are proved dead."""

    def reclaim(self, holders: Sequence[str], now: int) -> int:
        """Make the items claimed by these dead holders due at once; returns how many."""

    def change_counter(self) -> int:
        """A number that changes whenever a process may have written."""
