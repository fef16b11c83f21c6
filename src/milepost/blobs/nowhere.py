"""Blob store of a ledger that has none: refuses large values with the setting to make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from milepost.core.errors import ConfigMistake


class NoBlobs:
    """Refuses to write a blob; `advice` names the setting to make."""

    def __init__(self, advice: str) -> None:
        self.advice = advice

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        raise ConfigMistake(f"a value is too large for its row, and no blob store is configured: {self.advice}")

    def read(self, name: str) -> Iterator[bytes]:
        raise FileNotFoundError(f"{name}: {self.advice}")

    def remove(self, name: str) -> None:
        """No-op: there are no blobs."""
