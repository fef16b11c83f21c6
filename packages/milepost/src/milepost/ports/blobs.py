"""Blob store: large values kept beside the ledger, by name (a folder or a bucket)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol


class Blobs(Protocol):
    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Atomic: a reader never sees part of a blob."""

    def read(self, name: str) -> Iterator[bytes]:
        """The blob in chunks; FileNotFoundError if there is none."""

    def remove(self, name: str) -> None: ...
