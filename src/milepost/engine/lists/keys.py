"""Keys of a list: external sorting, storage as a blob, and comparison with another list."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from tempfile import TemporaryFile
from typing import IO, Self

HELD = 12 << 20
"""Bytes of keys held in memory before they are written to disk as a sorted run."""
MOST_RUNS = 64
BLOCK = 1_000
"""Entries of a run that are read at once."""

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
                self._write_run(chain.from_iterable(self._merged()))
                for run in self._runs[:-1]:
                    run.close()
                del self._runs[:-1]

    def distinct_blocks(self) -> Iterator[tuple[list[str], list[str]]]:
        """Blocks of keys, each key once and in order, with the lowest mark of each. May be called again, but not concurrently."""
        last, end = None, -self._width - 1
        for entries in self._merged():
            keys = [entry[: end - 1] for entry in entries]
            marks = [entry[end:-1] for entry in entries]
            if keys[0] == last or len(set(keys)) < len(keys):
                first = [place for place, key in enumerate(keys) if key != (keys[place - 1] if place else last)]
                last = keys[-1]
                keys, marks = [keys[place] for place in first], [marks[place] for place in first]
            else:
                last = keys[-1]
            if keys:
                yield keys, marks

    def distinct(self) -> Iterator[tuple[str, str]]:
        """Each key once, in order, with its lowest mark."""
        for keys, marks in self.distinct_blocks():
            yield from zip(keys, marks, strict=True)

    def all(self) -> Iterator[tuple[str, str]]:
        """Each key as often as it was added, with its marks in order."""
        end = -self._width - 1
        return ((entry[: end - 1], entry[end:-1]) for entries in self._merged() for entry in entries)

    def _write_run(self, entries: Iterable[str]) -> None:
        # The file has no name, so nothing remains even if the process dies.
        run = TemporaryFile("w+", encoding="utf-8", newline="\n", prefix="milepost-")  # noqa: SIM115  (closed in __exit__)
        run.writelines(entries)
        self._runs.append(run)

    def _merged(self) -> Iterator[list[str]]:
        """All entries in order, in blocks. Sorting what the runs have in common up to a bound is faster than merging entry by entry."""
        for run in self._runs:
            run.seek(0)
        self._entries.sort()
        sources: list[Iterator[str]] = [*map(iter, self._runs), iter(self._entries)]
        heads: list[list[str]] = [[] for _ in sources]
        while sources:
            for place, source in enumerate(sources):
                if not heads[place]:
                    heads[place] = list(islice(source, BLOCK if len(sources) > 1 else 10 * BLOCK))
            left = [place for place, head in enumerate(heads) if head]
            sources, heads = [sources[place] for place in left], [heads[place] for place in left]
            if not heads:
                return
            # Behind the lowest of the last entries there may be lower ones that were not read yet.
            bound = min(head[-1] for head in heads)
            block: list[str] = []
            for head in heads:
                cut = bisect_right(head, bound)
                block += head[:cut]
                del head[:cut]
            block.sort()
            yield block


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
        whole, end, rest = (begun + expander.decompress(chunk)).rpartition(b"\n")
        begun = rest if end else whole + rest
        if end:
            yield from whole.decode().split("\n")
    if not expander.eof:
        raise EOFError("truncated")


def missing(earlier: Iterable[str], later: Iterable[str]) -> Iterator[str]:
    """Keys of `earlier` that are not in `later`; both are sorted and read once."""
    before, after = iter(earlier), iter(later)
    held: list[list[str]] = []
    while block := list(islice(before, 10 * BLOCK)):
        while not held or held[-1][-1] < block[-1]:
            more = list(islice(after, 10 * BLOCK))
            if not more:
                break
            held.append(more)
        known = set().union(*held)
        yield from (key for key in block if key not in known)
        held = [some for some in held if some[-1] > block[-1]]
