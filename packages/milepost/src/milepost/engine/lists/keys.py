"""Keys of a list: external sorting, storage as a blob, and comparison with another list."""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import ge
from os import SEEK_END
from tempfile import SpooledTemporaryFile, TemporaryFile
from typing import IO, Self

HELD = 12 << 20
"""Bytes of keys held in memory before they are written to disk as a sorted run."""
MOST_RUNS = 64
CHUNK = 1 << 16
"""Bytes of a run that are read at once."""
BLOCK = 1_000
"""Keys in memory that are merged at once."""
SPARSE = 20
"""If at most one of so many keys is out of order, these are few and are inserted into the
others."""

_OVERHEAD = 64
# Sorts before every character of a key, so that "key, mark" sorts like the key alone.
_BETWEEN = "\t"
_END = "\n"


class SortedKeys:
    """Any number of keys with a mark of `width` characters each; returned in order, each key once,
    in constant memory.

    The order is by code point, which equals the order of the UTF-8 bytes. A list that comes in
    order, as many are exported, is not sorted again.
    """

    def __init__(self, held: int = HELD, width: int = 1) -> None:
        self.total = 0
        self._width = width
        self._limit = held
        self._size = 0
        self._entries: list[str] = []
        self._runs: list[IO[bytes]] = []
        self._ordered: _OrderedKeys | None = None
        """All keys that came in order."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self._runs:
            run.close()
        if self._ordered is not None:
            self._ordered.close()

    def add(self, keys: Sequence[str], marks: Sequence[str], *, ordered: bool = True) -> None:
        """Add keys with the mark of each; marks of one character may be one text. `ordered=False`:
        other keys of the list will follow that belong before these."""
        if not keys:
            return
        self.total += len(keys)
        if (
            ordered
            and (self._ordered is None or keys[0] > self._ordered.last)
            and not any(map(ge, keys, keys[1:]))
        ):
            if self._ordered is None:
                self._ordered = _OrderedKeys(self._limit, self._width)
            self._ordered.add(keys, marks)
            return
        entries = [f"{key}{_BETWEEN}{mark}" for key, mark in zip(keys, marks, strict=True)]
        self._entries += entries
        self._size += sum(map(len, entries)) + _OVERHEAD * len(entries)
        if self._size > self._limit:
            self._write_run(self._held())
            self._entries, self._size = [], 0
            if len(self._runs) == MOST_RUNS:
                merged, self._runs = self._runs, []
                self._write_run(_merged([_read(run) for run in merged]))
                for run in merged:
                    run.close()

    def distinct_blocks(self) -> Iterator[tuple[list[str], Sequence[str]]]:
        """Blocks of keys, each key once and in order, with the lowest mark of each. May be called
        again, but not concurrently."""
        if (
            self._ordered is not None
            and not self._runs
            and len(self._entries) * SPARSE <= self.total
        ):
            yield from self._ordered.with_few(*self._split(sorted(self._entries)))
            return
        last = None
        for entries in self._blocks():
            keys, marks = self._split(entries)
            if keys[0] == last or len(set(keys)) < len(keys):
                first = [
                    place
                    for place, key in enumerate(keys)
                    if key != (keys[place - 1] if place else last)
                ]
                last = keys[-1]
                keys, marks = [keys[place] for place in first], [marks[place] for place in first]
            else:
                last = keys[-1]
            if keys:
                yield keys, marks

    def all(self) -> Iterator[tuple[str, str]]:
        """Each key as often as it was added, with its marks in order."""
        for entries in self._blocks():
            yield from zip(*self._split(entries), strict=True)

    def _split(self, entries: list[str]) -> tuple[list[str], list[str]]:
        end = -self._width
        return [entry[: end - 1] for entry in entries], [entry[end:] for entry in entries]

    def _write_run(self, blocks: Iterable[list[str]]) -> None:
        # The file has no name, so nothing remains even if the process dies.
        run = TemporaryFile("w+b", prefix="milepost-")  # noqa: SIM115  (closed in __exit__)
        for block in blocks:
            run.write(_END.join([*block, ""]).encode())
        self._runs.append(run)

    def _blocks(self) -> Iterator[list[str]]:
        """All entries in order, in blocks."""
        sources = [*map(_read, self._runs), self._held()]
        return _merged(sources if self._ordered is None else [*sources, self._ordered.entries()])

    def _held(self) -> Iterator[list[str]]:
        """The entries in memory in order, in blocks."""
        self._entries.sort()
        return (
            self._entries[start : start + BLOCK] for start in range(0, len(self._entries), BLOCK)
        )


class _OrderedKeys:
    """Keys that came in order, each once, and their marks of `width` characters; on disk from
    `held` bytes on. They are kept apart, because whole blocks of them can be read and compared at
    once."""

    def __init__(self, held: int, width: int) -> None:
        self.last = ""
        self._width = width
        self._keys = SpooledTemporaryFile(held, prefix="milepost-")  # noqa: SIM115  (closed in close)
        self._marks = SpooledTemporaryFile(held, prefix="milepost-")  # noqa: SIM115  (closed in close)

    def close(self) -> None:
        self._keys.close()
        self._marks.close()

    def add(self, keys: Sequence[str], marks: Sequence[str]) -> None:
        self.last = keys[-1]
        self._keys.write(_END.join([*keys, ""]).encode())
        self._marks.write("".join(marks).encode())

    def blocks(self) -> Iterator[tuple[list[str], Sequence[str]]]:
        self._marks.seek(0)
        for keys in _read(self._keys):
            marks = self._marks.read(len(keys) * self._width).decode()
            yield (
                keys,
                marks
                if self._width == 1
                else [marks[at : at + self._width] for at in range(0, len(marks), self._width)],
            )
        # Later keys are written behind these.
        self._marks.seek(0, SEEK_END)

    def with_few(
        self, others: list[str], their_marks: list[str]
    ) -> Iterator[tuple[list[str], Sequence[str]]]:
        """The blocks with a few other sorted keys in their places; of equal keys the lowest mark
        counts."""
        at = 0
        for keys, marks in self.blocks():
            until = bisect_right(others, keys[-1], at)
            if until > at:
                marks = list(marks)
                for other, mark in zip(others[at:until], their_marks[at:until], strict=True):
                    place = bisect_left(keys, other)
                    if keys[place] == other:
                        marks[place] = min(marks[place], mark)
                    else:
                        keys.insert(place, other)
                        marks.insert(place, mark)
                at = until
            yield keys, marks
        rest = dict(zip(reversed(others[at:]), reversed(their_marks[at:]), strict=True))
        if rest:
            yield [*reversed(rest)], [*reversed(rest.values())]

    def entries(self) -> Iterator[list[str]]:
        return (
            [f"{key}{_BETWEEN}{mark}" for key, mark in zip(keys, marks, strict=True)]
            for keys, marks in self.blocks()
        )


def _read(run: IO[bytes]) -> Iterator[list[str]]:
    """The lines of a run in blocks."""
    run.seek(0)
    while chunk := run.read(CHUNK):
        whole = chunk if chunk[-1:] == b"\n" else chunk + run.readline()
        yield whole[:-1].decode().split(_END)


def _merged(sources: list[Iterator[list[str]]]) -> Iterator[list[str]]:
    """All entries in order, in blocks. Sorting what the sources have in common up to a bound is
    faster than merging entry by entry."""
    heads: list[list[str]] = [[] for _ in sources]
    while sources:
        for place, source in enumerate(sources):
            if not heads[place]:
                heads[place] = next(source, [])
        left = [place for place, head in enumerate(heads) if head]
        sources, heads = [sources[place] for place in left], [heads[place] for place in left]
        if not heads:
            return
        # Behind the lowest of the last entries there may be lower ones that were not read yet.
        bound = min(head[-1] for head in heads)
        block: list[str] = []
        for place, head in enumerate(heads):
            cut = bisect_right(head, bound)
            block += head[:cut]
            heads[place] = head[cut:]
        block.sort()
        yield block


def pack(blocks: Iterable[list[str]]) -> Iterator[bytes]:
    """Blocks of keys as chunks of a blob: one key per line, compressed."""
    # Sorted keys are so similar that a higher level would hardly help.
    compressor = zlib.compressobj(1)
    for keys in blocks:
        yield compressor.compress("\n".join([*keys, ""]).encode())
    yield compressor.flush()


def unpack(chunks: Iterable[bytes]) -> Iterator[list[str]]:
    """Keys of a blob, in blocks; EOFError if it is truncated, zlib.error if it is damaged."""
    expander = zlib.decompressobj()
    begun = b""
    for chunk in chunks:
        while chunk:
            # Blocks stay small, however much a chunk expands.
            whole, end, rest = (begun + expander.decompress(chunk, CHUNK)).rpartition(b"\n")
            chunk = expander.unconsumed_tail
            begun = rest if end else whole + rest
            if end:
                yield whole.decode().split("\n")
    if not expander.eof:
        raise EOFError("truncated")


def missing(earlier: Iterator[list[str]], later: Iterable[list[str]]) -> Iterator[list[str]]:
    """Keys of `earlier` that are not in `later`, in blocks; both are sorted blocks and read
    once."""
    held: list[str] = []
    at = 0  # the keys of `held` from here on are behind the later list so far
    for block in later:
        bound = block[-1]
        while not held or held[-1] <= bound:
            more = next(earlier, None)
            if more is None:
                break
            held, at = held[at:] + more, 0
        cut = bisect_right(held, bound, at)
        passed, at = held[at:cut], cut
        if passed != block:
            yield sorted(set(passed).difference(block))
    yield held[at:]
    yield from earlier
