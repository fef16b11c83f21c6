"""Parser thread of a list: it parses the next lines while the ledger looks up those before them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from queue import SimpleQueue
from typing import NamedTuple

from milepost.core.errors import MilepostError
from milepost.core.routes.plan import Plan
from milepost.engine.intake import InputBatch, parse_inputs
from milepost.engine.lists.formats import LineBatch, Slices, read_batches
from milepost.engine.lists.source import Source

HEAD_START_S = 0.0003
"""The parser waits so long, from the second slice on, so that the caller has begun its look-up by then. SQLite leaves the interpreter to
other threads during a look-up, but a parser that has it earlier would keep it, and the caller would wait. It is a matter of speed alone."""


class ParsedLines(NamedTuple):
    """A batch of lines with their parsed inputs, and how much of the list was read up to its end."""

    batch: LineBatch
    inputs: InputBatch
    lines_done: int
    bytes_done: int


@contextmanager
def parse_ahead(source: Source, plan: Plan, format: str | None, no_header: bool) -> Iterator[Iterator[ParsedLines]]:
    """The batches of a list. While the caller works on one, the next one is parsed. An error follows the batches of the lines before it."""
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
    """Parses slices of a list. It does not read the list itself, so it never waits for a file or a client, and can always be ended."""

    def __init__(self, name: str, plan: Plan, format: str | None, no_header: bool) -> None:
        super().__init__(name="milepost-list-parser", daemon=True)
        self.slices: SimpleQueue[tuple[int, list[bytes]] | None] = SimpleQueue()
        """Slices to parse; None at the end of the list."""
        self.answers: SimpleQueue[tuple[LineBatch, InputBatch] | BaseException | None] = SimpleQueue()
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
