"""No place for blobs: small values are all that can be kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from milepost.core.errors import ConfigMistake


class NoBlobs:
    """Says what to set when the first large value comes."""

    def __init__(self, cure: str) -> None:
        self.cure = cure

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        raise ConfigMistake(f"a value is too large for its row, and there is no place for it: {self.cure}")

    def read(self, name: str) -> Iterator[bytes]:
        raise FileNotFoundError(f"{name}: {self.cure}")

    def remove(self, name: str) -> None:
        """There never was one."""
