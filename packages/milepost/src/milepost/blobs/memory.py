"""Blobs in memory, for tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from milepost.blobs.folder import check_name


class MemoryBlobs:
    """Keeps blobs in memory; accepts the same names as a folder."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        check_name(name)
        self.held[name] = b"".join(chunks)

    def read(self, name: str) -> Iterator[bytes]:
        check_name(name)
        if name not in self.held:
            raise FileNotFoundError(f"there is no blob {name!r}")
        return iter((self.held[name],))

    def remove(self, name: str) -> None:
        check_name(name)
        self.held.pop(name, None)
