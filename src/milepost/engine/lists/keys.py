"""Keys of a list: external sorting, storage as a blob, and comparison with another list."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from tempfile import TemporaryFile
from typing import IO, Self

HELD = 12 << 20
"""Bytes of keys held in memory before they are written to disk as a sorted run."""
MOST_RUNS = 64

_OVERHEAD = 64
# Sorts before every character of a key, so that "key, mark" sorts like the key alone.
_BETWEEN = "\t"


class SortedKeys:
    """Any number of keys with a mark of `width` characters each; returned in order, each key once, in constant memory.

    The order is by code point, which equals the order of the UTF-8 bytes.
    """

    def __init__(self, held: int = HELD, width: int = 1) -> None:
        self.total = 0
        self._width = width
        self._limit = held
        self._size = 0
        self._entries: list[str] = []
        self._runs: list[IO[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self._runs:
            run.close()

    def add(self, keys: Iterable[str], marks: Iterable[str]) -> None:
        entries = [f"{key}{_BETWEEN}{mark}\n" for key, mark in zip(keys, marks, strict=True)]
        self.total += len(entries)
        self._entries += entries
        self._size += sum(map(len, entries)) + _OVERHEAD * len(entries)
        if self._size > self._limit:
            self._write_run(sorted(self._entries))
            self._entries, self._size = [], 0
            if len(self._runs) == MOST_RUNS:
                self._write_run(self._merged())
                for run in self._runs[:-1]:
                    run.close()
                del self._runs[:-1]

    def distinct(self) -> Iterator[tuple[str, str]]:
        """Each key once, in order, with its lowest mark. May be called again, but not concurrently."""
        last, end = None, -self._width - 1
        for entry in self._merged():
            key = entry[: end - 1]
            if key != last:
                yield key, entry[end:-1]
                last = key

    def all(self) -> Iterator[tuple[str, str]]:
        """Each key as often as it was added, with its marks in order."""
        end = -self._width - 1
        return ((entry[: end - 1], entry[end:-1]) for entry in self._merged())

    def _write_run(self, entries: Iterable[str]) -> None:
        # The file has no name, so nothing remains even if the process dies.
        run = TemporaryFile("w+", encoding="utf-8", newline="\n", prefix="milepost-")  # noqa: SIM115  (closed in __exit__)
        run.writelines(entries)
        self._runs.append(run)

    def _merged(self) -> Iterator[str]:
        for run in self._runs:
            run.seek(0)
        self._entries.sort()
        return heapq.merge(*self._runs, self._entries) if self._runs else iter(self._entries)


def pack(keys: Iterable[str]) -> Iterator[bytes]:
    """Keys as chunks of a blob: one key per line, compressed."""
    # Sorted keys are so similar that a higher level would hardly help.
    compressor = zlib.compressobj(1)
    rest = iter(keys)
    while some := list(islice(rest, 10_000)):
        yield compressor.compress("\n".join([*some, ""]).encode())
    yield compressor.flush()


def unpack(chunks: Iterable[bytes]) -> Iterator[str]:
    """Keys of a blob; EOFError if it is truncated, zlib.error if it is damaged."""
    expander = zlib.decompressobj()
    begun = b""
    for chunk in chunks:
        *whole, begun = (begun + expander.decompress(chunk)).split(b"\n")
        for key in whole:
            yield key.decode()
    if not expander.eof:
        raise EOFError("truncated")


def missing(earlier: Iterable[str], later: Iterable[str]) -> Iterator[str]:
    """Keys of `earlier` that are not in `later`; both are sorted and read once."""
    rest = iter(later)
    other = next(rest, None)
    for key in earlier:
        while other is not None and other < key:
            other = next(rest, None)
        if other != key:
            yield key
