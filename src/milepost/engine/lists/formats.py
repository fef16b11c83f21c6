"""The forms a list may have: txt (a key a line), csv (with or without a header) and jsonl (an object a line).

A line that cannot be read is set aside with its number and the reason; it never stops the others. Lines come and go in
slices, so that memory stays constant. Each format takes a sound slice at once, and any other line by line.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct

from milepost.core.errors import MalformedInput, UsageError
from milepost.core.routes.route import Route
from milepost.core.values.json import json_fault

LONGEST_LINE = 1 << 20
LONGEST_RECORD = 100
"""A CSV record with line breaks inside quotes has at most this many lines, so that a stray quote cannot swallow the file."""
SHOWN = 200

_EXTENSIONS = {".txt": "txt", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}

Slices = Iterator[tuple[int, list[bytes]]]
"""Consecutive lines without their ends, with the number of the first. One over `LONGEST_LINE` comes cut, and ends in a byte
that is in no UTF-8 text, so that it cannot pass for a whole one."""


class BadLine(Struct, frozen=True):
    """A line that was not taken in: where, why, and how it begins."""

    line: int
    reason: str
    text: str


class LineBatch(Struct, frozen=True):
    """What some consecutive lines hold: inputs, each with its line's number and raw text, and lines that cannot be read."""

    numbers: list[int]
    inputs: list[Any]
    raw: list[bytes]
    bad: list[BadLine]
    note: str = ""
    """What whoever gave the list ought to know of how it is read."""

    def add(self, number: int, content: Any, line: bytes) -> None:
        self.numbers.append(number)
        self.inputs.append(content)
        self.raw.append(line)


def read_batches(slices: Slices, name: str, route: Route, format: str | None = None, *, no_header: bool = False) -> Iterator[LineBatch]:
    """The inputs of the list called `name`. Its form is the one given, else by the name's ending, else by how it begins. A CSV must have
    a header, unless `no_header` says that its first line is an item already."""
    if format is not None and format not in _READERS:
        raise UsageError(f"there is no list format {format!r}; use one of {', '.join(_READERS)}")
    for first in slices:
        form = format or _EXTENSIONS.get(os.path.splitext(name)[1].lower()) or _sniff(first[1], name, route)
        if form == "csv":
            yield from _read_csv(chain([first], slices), name, route, no_header)
        elif no_header and form == "jsonl":
            raise UsageError(f"{name} is jsonl, which has no header; leave out --no-header")
        else:
            yield from _READERS[form](chain([first], slices), name, route)


def _sniff(lines: list[bytes], name: str, route: Route) -> str:
    begin = next((line for line in lines if line.strip()), b"").lstrip()
    if begin.startswith(b"["):
        raise UsageError(f"{name} is one JSON array; make it one object a line, as in: jq -c '.[]' FILE | milepost submit ROUTE -")
    if begin.startswith(b"{"):
        return "jsonl"
    text = begin.decode(errors="replace")
    return "csv" if "," in text or (_key_fields(route) and _header(text, route)) else "txt"


def _key_fields(route: Route) -> list[str]:
    """The fields that make up a key; none if a function does."""
    if callable(route.key):
        return []
    return [route.key] if isinstance(route.key, str) else list(route.key)


def bad_line(number: int, reason: str, line: bytes) -> BadLine:
    return BadLine(number, reason, line[: 4 * SHOWN].decode(errors="replace").rstrip("\r")[:SHOWN])


def _text(line: bytes) -> str:
    if len(line) > LONGEST_LINE:
        raise MalformedInput("it is longer than 1 MiB")
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise MalformedInput(f"it is not UTF-8: byte 0x{line[error.start]:02x} at position {error.start + 1}") from None


def _singly(first: int, lines: list[bytes], parse: Callable[[str], Any]) -> LineBatch:
    """Line by line; `parse` gives None for a line that holds nothing."""
    batch = LineBatch([], [], [], [])
    for number, line in enumerate(lines, first):
        try:
            content = parse(_text(line))
        except MalformedInput as error:
            batch.bad.append(bad_line(number, str(error), line))
        else:
            if content is not None:
                batch.add(number, content, line)
    return batch


# txt -----------------------------------------------------------------------------------------------------------------------


def _read_txt(slices: Slices, name: str, route: Route) -> Iterator[LineBatch]:
    """A key a line; blank lines and lines that begin with '#' hold nothing. A key function is given {"value": line}."""
    fields = _key_fields(route)
    if len(fields) > 1:
        raise UsageError(f"{name} has one key a line, but a key of route {route.name!r} is {' + '.join(fields)}; give csv or jsonl instead")
    field = fields[0] if fields else "value"

    def parse(text: str) -> Any:
        key = text.strip()
        return {field: key} if key and key[0] != "#" else None

    for first, lines in slices:
        yield _singly(first, lines, parse)


# jsonl ---------------------------------------------------------------------------------------------------------------------

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def _read_jsonl(slices: Slices, name: str, route: Route) -> Iterator[LineBatch]:
    """An object a line; blank lines hold nothing."""
    for first, lines in slices:
        try:
            inputs = [_decode(line) for line in lines]
        except (ValueError, RecursionError):
            yield _singly(first, lines, _object)
        else:
            yield LineBatch(list(range(first, first + len(lines))), inputs, lines, [])


def _object(text: str) -> Any:
    if not text.strip():
        return None
    try:
        return _decode(text)
    except RecursionError:
        raise MalformedInput("it is nested too deeply") from None
    except ValueError as error:
        if isinstance(error, msgspec.ValidationError) and not text.lstrip().startswith("{"):
            raise MalformedInput('it is JSON, but not an object; write one object a line, such as {"id": "…"}') from None
        raise MalformedInput(f"it is not JSON: {json_fault(text, error)}") from None


# csv -----------------------------------------------------------------------------------------------------------------------


class _Table(Struct, frozen=True):
    """How the rows of a CSV are to be read; `header` is its header's line number, 0 if it has none."""

    names: list[str]
    delimiter: str
    header: int = 0
    note: str = ""

    def content(self, row: list[str]) -> dict[str, str]:
        if len(row) != len(self.names):
            raise MalformedInput(f"it has {len(row)} columns where {len(self.names)} are expected: {', '.join(self.names)}")
        return dict(zip(self.names, row, strict=True))


def _read_csv(slices: Slices, name: str, route: Route, no_header: bool = False) -> Iterator[LineBatch]:
    """A row a line, or several lines where quotes hold line breaks.

    The first line is a header and must have the route's key fields (any header will do if the key is a function); only then may the
    delimiter be ';' or a tab. With `no_header` the columns are the key's fields in order, and the others column2, column3, …
    """
    table: _Table | None = None
    opened: list[bytes] = []
    end = 1
    for first, lines in slices:
        if table is None:
            table = _table(first, lines, name, route, no_header)
            if table is None:
                yield _singly(first, lines, lambda text: None)
                continue
            if table.note:
                yield LineBatch([], [], [], [], table.note)
        first, lines, end = first - len(opened), opened + lines, first + len(lines)
        batch, opened = _rows_at_once(table, first, lines) or _rows_singly(table, first, lines, at_end=False)
        yield batch
    if table is not None and opened:
        yield _rows_singly(table, end - len(opened), opened, at_end=True)[0]


def _rows_at_once(table: _Table, first: int, lines: list[bytes]) -> tuple[LineBatch, list[bytes]] | None:
    """The usual case: every line is one sound row. None: some line is not, or is the header."""
    if first <= table.header:
        return None
    try:
        rows = list(csv.reader([line.decode() for line in lines], delimiter=table.delimiter, strict=True))
    except (UnicodeDecodeError, csv.Error):
        return None
    names, width = table.names, len(table.names)
    # As many rows as lines: then each line is a row, for no row takes less than a line.
    if len(rows) != len(lines) or any(len(row) != width for row in rows):
        return None
    inputs = [dict(zip(names, row, strict=True)) for row in rows]
    return LineBatch(list(range(first, first + len(lines))), inputs, lines, []), []


def _rows_singly(table: _Table, first: int, lines: list[bytes], at_end: bool) -> tuple[LineBatch, list[bytes]]:
    """Row by row; also the lines of a last row that goes on in lines to come.

    A row of several lines that does not come out right costs its first line only: a stray quote harms nobody else.
    """
    batch = LineBatch([], [], [], [])
    place = 0
    while place < len(lines):
        line, number = lines[place], first + place
        window = (_text(each) + "\n" for each in lines[place : place + LONGEST_RECORD])
        reader = csv.reader(window, delimiter=table.delimiter, strict=True)
        try:
            row = next(reader)
            if line.strip() and number != table.header:
                batch.add(number, table.content(row), line)
            place += reader.line_num
            continue
        except MalformedInput as error:
            reason = str(error)
        except csv.Error as error:
            reason = f"it is not CSV: {str(error).partition(' - ')[0]}"
            if "unexpected end of data" in reason:
                if not at_end and reader.line_num < LONGEST_RECORD:
                    return batch, lines[place:]
                reason = "it is not CSV: a quote is opened and not closed"
        batch.bad.append(bad_line(number, reason, line))
        place += 1
    return batch, []


def _table(first: int, lines: list[bytes], name: str, route: Route, no_header: bool) -> _Table | None:
    """How to read this CSV, by its first lines; None: they hold nothing."""
    filled = [(number, line.decode(errors="replace")) for number, line in enumerate(lines, first) if line.strip()]
    if not filled:
        return None
    number, text = filled[0]
    header, fields = _header(text, route), _key_fields(route)
    if no_header and fields and header is not None:
        raise UsageError(f"{name}, line {number} is a header with {' and '.join(map(repr, fields))}; leave out --no-header")
    if header is None and not no_header:
        raise UsageError(_wrong_header(name, number, text, fields, route))
    if header is not None and not no_header:
        names, delimiter = header
        twice = [column for column, times in Counter(names).items() if times > 1]
        if twice or "\ufffd" in text:
            wrong = f"names the column {twice[0]!r} twice; give each a name of its own" if twice else "is not UTF-8; save it as UTF-8"
            raise UsageError(f"{name}, line {number}: the header {wrong}")
        return _Table(names, delimiter, number)
    # The most usual width is the right one, so that a broken first row does not condemn the others.
    width = Counter(len(_cells(text, ",")) for _, text in filled).most_common(1)[0][0]
    if width < len(fields):
        raise UsageError(f"{name} has {width} columns and no header, but a key of route {route.name!r} is {' + '.join(fields)}; add them")
    return _Table([*fields, *(f"column{place}" for place in range(len(fields) + 1, width + 1))], ",", note=_headless(fields, text))


def _headless(fields: list[str], text: str) -> str:
    """What the columns were taken for, for a person to compare."""
    if not fields:
        return "the list has no header: its columns are called column1, column2, …"
    taken = "the first column of every line was" if len(fields) == 1 else f"the first {len(fields)} columns of every line were"
    begins = ", ".join(repr(cell[:SHOWN]) for cell in _cells(text, ",")[: len(fields)])
    return f"the list has no header: {taken} taken for the key, in the first line {begins}"


def _wrong_header(name: str, number: int, text: str, fields: list[str], route: Route) -> str:
    """Why a CSV is refused whose first line has not all fields of the key."""
    cells = _cells(text, ",")
    missing = [field for field in fields if field not in cells]
    columns = "the column " + repr(missing[0]) if len(missing) == 1 else "the columns " + ", ".join(map(repr, missing))
    found = ", ".join(repr(cell[:SHOWN]) for cell in cells[:10]) or "nothing"
    return (
        f"{name}, line {number}: the header lacks {columns}, which a key of route {route.name!r} is made of; it has {found}."
        " Name the columns so; if that line is an item already, give --no-header (no_header=true over HTTP)"
    )


def _header(text: str, route: Route) -> tuple[list[str], str] | None:
    """The columns' names and the delimiter, if the line is a header. Capitals and spaces around a key's field do not matter."""
    fields = _key_fields(route)
    for delimiter in sorted(",;\t", key=lambda mark: -len(_cells(text, mark))):
        cells = _cells(text, delimiter)
        spelled = {field.lower(): field for field in fields if field not in cells}
        names = [spelled.get(cell.lower(), cell) or f"column{place}" for place, cell in enumerate(cells, 1)]
        if all(field in names for field in fields):
            return names, delimiter
    return None


def _cells(text: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter), [])]
    except csv.Error:
        return []


_READERS: dict[str, Callable[[Slices, str, Route], Iterator[LineBatch]]] = {"txt": _read_txt, "csv": _read_csv, "jsonl": _read_jsonl}
