"""A ledger that does what another one does, and copies new history lines to a text file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from milepost import ports
from milepost_mirrored.mirror import Mirror


class MirroredLedger:
    """A `ports.Ledger`. What it does not define itself is done by the ledger that it wraps. Calls
    that usually write history lines copy them to the mirror before they return; lines of the rarer
    ones follow with the next such call."""

    def __init__(self, url: str, wrapped: ports.Ledger, mirror: Mirror) -> None:
        self.url = url
        self.missing_capabilities = wrapped.missing_capabilities | {"backup"}
        self._wrapped, self._mirror = wrapped, mirror
        mirror.copy_new(wrapped)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def add(
        self, plan: ports.Plan, new_items: Sequence[ports.NewItem], now: int
    ) -> list[ports.KnownKey | ports.Refused | None]:
        answers = self._wrapped.add(plan, new_items, now)
        self._mirror.copy_new(self._wrapped)
        return answers

    def claim(
        self, asks: Sequence[ports.ClaimRequest], now: int, jitter: float
    ) -> list[ports.ClaimResult]:
        results = self._wrapped.claim(asks, now, jitter)
        self._mirror.copy_new(self._wrapped)
        return results

    def apply(
        self, changes: Sequence[ports.Change], now: int, versions: dict[str, int] | None = None
    ) -> list[ports.Conflict | ports.Refused | None]:
        answers = self._wrapped.apply(changes, now, versions)
        self._mirror.copy_new(self._wrapped)
        return answers

    def apply_and_claim(
        self,
        changes: Sequence[ports.Change],
        now: int,
        versions: dict[str, int],
        asks: Sequence[ports.ClaimRequest],
        jitter: float,
    ) -> tuple[list[ports.Conflict | ports.Refused | None], list[ports.ClaimResult]]:
        answers = self._wrapped.apply_and_claim(changes, now, versions, asks, jitter)
        self._mirror.copy_new(self._wrapped)
        return answers

    def prune(self, asked: ports.PruneCriteria) -> ports.Pruned:
        """Lines that leave the ledger are in the mirror before."""
        self._mirror.copy_new(self._wrapped)
        return self._wrapped.prune(asked)

    def forget(self, asked: ports.ForgetRequest) -> ports.Forgotten:
        """The key leaves the mirror, too. A repeat continues a call that was cut off."""
        forgotten = self._wrapped.forget(asked)
        if not asked.dry_run and not forgotten.refused:
            self._mirror.forget(asked.route, asked.key)
        return forgotten

    def backup(
        self, target: Path, overwrite: bool, on_progress: ports.Progress
    ) -> ports.BackupReport:
        raise ports.LedgerError(
            f"{self.url} cannot be backed up into a file: a restored ledger would not fit its text file"
        )

    def close(self) -> None:
        self._mirror.copy_new(self._wrapped)
        self._wrapped.close()
