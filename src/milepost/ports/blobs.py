"""Blobs: larger pieces kept beside the ledger, by name (a folder, or a bucket)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol


class Blobs(Protocol):
    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Whole or not at all: a reader never sees half a blob."""

    def read(self, name: str) -> Iterator[bytes]:
        """The blob in chunks; FileNotFoundError if there is none."""

    def remove(self, name: str) -> None: ...
