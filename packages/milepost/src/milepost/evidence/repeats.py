"""Repeated items of a file, found in sixteen bytes an item: a file may have millions."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from hashlib import sha256

PARTS = 256
"""Items are sorted by the first byte of their digest, so that only a small part is sorted at a
time."""
DIGEST = 8
"""Bytes of an item's digest that are compared: among ten million items two are equal by chance in
one file of 300,000."""


class SeenItems:
    """The items of a file with their line numbers."""

    def __init__(self) -> None:
        self._digests = [array("Q") for _ in range(PARTS)]
        self._numbers = [array("Q") for _ in range(PARTS)]

    def add(self, name: str, number: int) -> None:
        """Remember an item, by a name of its own, and the line that it stands in."""
        part, digest = _digest_of(name)
        self._digests[part].append(digest)
        self._numbers[part].append(number)

    def line_of(self, name: str) -> int | None:
        """The first line in which an item stood; None: it stood in none."""
        part, digest = _digest_of(name)
        try:
            return self._numbers[part][self._digests[part].index(digest)]
        except ValueError:
            return None

    def repeated(self) -> Iterator[tuple[int, int]]:
        """Each line with an item that stood in an earlier line, and that line."""
        for digests, numbers in zip(self._digests, self._numbers, strict=True):
            if len(set(digests)) == len(digests):
                continue
            first: dict[int, int] = {}
            for digest, number in zip(digests, numbers, strict=True):
                earlier = first.setdefault(digest, number)
                if earlier != number:
                    yield number, earlier


def _digest_of(name: str) -> tuple[int, int]:
    """The part in which an item is remembered, and the bytes of its digest."""
    digest = sha256(name.encode("utf-8", "surrogatepass")).digest()
    return digest[0], int.from_bytes(digest[:DIGEST], "big")
