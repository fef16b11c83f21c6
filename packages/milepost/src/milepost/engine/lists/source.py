"""Source of a list: slices of lines from a file, standard input or another stream of bytes, in
constant memory; and a thread that parses the next lines while the ledger looks up those before
them."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import count
from queue import SimpleQueue
from typing import NamedTuple, Protocol

from milepost.core.errors import MilepostError, UsageError
from milepost.core.routes.plan import Plan
from milepost.engine.intake import InputBatch, parse_inputs
from milepost.engine.lists.formats import LONGEST_LINE, LineBatch, Slices, read_batches

CHUNK = 1 << 19
BATCH = 8_000
"""Lines that are looked up together. Of a list that is delivered again few lines are new: those of
a whole batch share one write, and wait for the disk once."""
HEAD_START_S = 0.0003
"""The parser waits so long, from the second slice on, so that the caller has begun its look-up by
then. SQLite leaves the interpreter to other threads during a look-up, but a parser that has it
earlier would keep it, and the caller would wait. It is a matter of speed alone."""
_BOM = b"\xef\xbb\xbf"
_FOREIGN = {
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
    b"\x1f\x8b": "compressed; unpack it first, as in: gunzip -c FILE | milepost submit ROUTE -",
    b"\xfd7zXZ\0": "compressed; unpack it first, as in: xz -dc FILE | milepost submit ROUTE -",
    b"\x28\xb5\x2f\xfd": "compressed; unpack it first, as in: zstd -dc FILE | milepost submit ROUTE -",
    b"PK\x03\x04": "a zip archive or a spreadsheet; save it as CSV UTF-8",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet or document; save it as CSV UTF-8",
    b"\x89PNG": "an image; give txt, csv or jsonl",
    b"%PDF-": "a PDF document; give its lines as txt, csv or jsonl",
}


class Bytes(Protocol):
    """Byte stream of a list. Errors are OSErrors."""

    def read(self, size: int, /) -> bytes: ...


class Source:
    """Reads a list and counts lines and bytes. Holds one chunk and one line."""

    def __init__(self, stream: Bytes, name: str, size: int | None = None) -> None:
        self.name = name
        self.size = size
        self.bytes_done = 0
        self.lines_done = 0
        self._stream = stream
        self._digest = sha256()

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def slices(self) -> Slices:
        """All lines without byte order mark, in slices of a whole batch, because a remote ledger
        charges per look-up. Long lines come in smaller slices, so that at most about two chunks are
        held."""
        rest = b""
        held: list[bytes] = []
        while True:
            try:
                chunk = self._read()
            except MilepostError:
                yield from self._sliced(held)
                raise
            if chunk is None:
                break
            lines = chunk.split(b"\n")
            lines[0] = _cut(rest + lines[0])
            rest = lines.pop()
            held += lines
            whole = len(held) - len(held) % BATCH
            if sum(map(len, held[whole:])) > CHUNK:
                whole = len(held)
            yield from self._sliced(held[:whole])
            del held[:whole]
        if rest:
            held.append(rest)
        yield from self._sliced(held)

    def _sliced(self, lines: list[bytes]) -> Slices:
        for start in range(0, len(lines), BATCH):
            part = lines[start : start + BATCH]
            self.lines_done += len(part)
            yield self.lines_done - len(part) + 1, part

    def _read(self) -> bytes | None:
        """The next chunk, None at the end; the first may be empty if it was only a byte order
        mark."""
        at_start = self.bytes_done == 0
        try:
            chunk = self._stream.read(CHUNK)
            while at_start and _may_be_a_mark(chunk) and (more := self._stream.read(CHUNK)):
                chunk += more  # a pipe may deliver it in pieces
        except OSError as error:
            cure = "earlier lines were taken in; submit it again when it can be read"
            raise MilepostError(
                f"{self.name} cannot be read past byte {self.bytes_done:,}: {error}; {cure}"
            ) from error
        self._digest.update(chunk)
        self.bytes_done += len(chunk)
        if not at_start or not chunk:
            return chunk or None
        for magic, what in _FOREIGN.items():
            if chunk.startswith(magic):
                raise UsageError(f"{self.name} is {what}")
        if (nul := chunk.partition(b"\n")[0].find(b"\0")) >= 0:
            # In a later line it may belong to a value, or only that line is malformed.
            raise UsageError(
                f"{self.name} is not text: byte {nul + 1} is 0; give txt, csv or jsonl, in UTF-8"
            )
        return chunk.removeprefix(_BOM)


def _may_be_a_mark(start: bytes) -> bool:
    """Whether this is an incomplete beginning of one of the marks."""
    return bool(start) and any(
        len(start) < len(mark) and mark.startswith(start) for mark in (_BOM, *_FOREIGN)
    )


def _cut(line: bytes) -> bytes:
    return line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + b"\xff"


@contextmanager
def open_source(path: str) -> Iterator[Source]:
    """Open the file at `path`, or standard input for "-"; UsageError if it cannot be opened."""
    if path == "-":
        yield Source(sys.stdin.buffer, "standard input")
        return
    try:
        stream = open(path, "rb")  # noqa: SIM115  (closed below; only a failure to open it is a mistake of the call)
    except FileNotFoundError:
        raise UsageError(
            f"there is no file {path!r} in {os.getcwd()!r}; check the name, or give '-' for standard input"
        ) from None
    except IsADirectoryError:
        raise UsageError(
            f"{path!r} is a directory; give a file, such as {os.path.join(path, 'list.csv')!r}"
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path!r} cannot be opened: {error}; check its permissions, or give '-' and pipe it in"
        ) from None
    with stream:
        facts = os.fstat(stream.fileno())
        yield Source(stream, path, facts.st_size if stat.S_ISREG(facts.st_mode) else None)


class ParsedLines(NamedTuple):
    """A batch of lines with their parsed inputs, and how much of the list was read up to its
    end."""

    batch: LineBatch
    inputs: InputBatch
    lines_done: int
    bytes_done: int


@contextmanager
def parse_ahead(
    source: Source, plan: Plan, format: str | None, no_header: bool
) -> Iterator[Iterator[ParsedLines]]:
    """The batches of a list. While the caller works on one, the next one is parsed. An error
    follows the batches of the lines before it."""
    parser = _Parser(source.name, plan, format, no_header)
    parser.start()
    try:
        yield _batches(source, parser)
    finally:
        parser.slices.put(None)
        parser.join()


def _batches(source: Source, parser: _Parser) -> Iterator[ParsedLines]:
    slices = source.slices()
    batches: list[tuple[LineBatch, InputBatch]] = []
    end: BaseException | None = None
    while end is None:
        answer = parser.answers.get()
        if isinstance(answer, tuple):
            batches.append(answer)
            continue
        done = source.lines_done, source.bytes_done
        if answer is None:
            try:
                parser.slices.put(next(slices, None))
            except MilepostError as unreadable:
                end = unreadable
        else:
            end = answer
        for batch, inputs in batches:
            yield ParsedLines(batch, inputs, *done)
        batches = []
    if not isinstance(end, _Finished):
        raise end


class _Finished(Exception):
    """The list has no more lines."""


class _Parser(threading.Thread):
    """Parses slices of a list. It does not read the list itself, so it never waits for a file or a
    client, and can always be ended."""

    def __init__(self, name: str, plan: Plan, format: str | None, no_header: bool) -> None:
        super().__init__(name="milepost-list-parser", daemon=True)
        self.slices: SimpleQueue[tuple[int, list[bytes]] | None] = SimpleQueue()
        """Slices to parse; None at the end of the list."""
        self.answers: SimpleQueue[tuple[LineBatch, InputBatch] | BaseException | None] = (
            SimpleQueue()
        )
        """Parsed batches; None when it waits for the next slice; an error at the end."""
        self._plan = plan
        self._batches = read_batches(self._given(), name, plan.route, format, no_header=no_header)

    def run(self) -> None:
        try:
            for batch in self._batches:
                self.answers.put((batch, parse_inputs(self._plan, batch.inputs)))
            self.answers.put(_Finished())
        except BaseException as error:
            self.answers.put(error)

    def _given(self) -> Slices:
        for number in count():
            self.answers.put(None)
            slice = self.slices.get()
            if slice is None:
                return
            if number:
                time.sleep(HEAD_START_S)
            yield slice
