"""Missing blob store: only small values can be kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from milepost.core.errors import ConfigMistake


class NoBlobs:
    """Raises an error with the setting to make when the first large value comes."""

    def __init__(self, cure: str) -> None:
        self.cure = cure

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        raise ConfigMistake(f"a value is too large for its row, and no blob store is configured: {self.cure}")

    def read(self, name: str) -> Iterator[bytes]:
        raise FileNotFoundError(f"{name}: {self.cure}")

    def remove(self, name: str) -> None:
        """No-op: there are no blobs."""
