"""List formats: txt (one key per line), csv (with or without header) and jsonl (one object per
line).

A line that cannot be read is reported with its number and reason and does not affect the others.
Lines are read in slices, so that memory stays constant; a valid slice is parsed at once, any other
line by line.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct

from milepost.core.errors import MalformedInput, UsageError
from milepost.core.routes.one_field import OneField
from milepost.core.routes.parsed_input import key_fields
from milepost.core.routes.route import PORTION, Route
from milepost.core.values.json import each_name_once, json_fault, name_given_twice

LONGEST_LINE = 1 << 20
LONGEST_RECORD = 100
"""Most lines of one CSV record with line breaks in quotes, so that a stray quote does not swallow
the file."""
SHOWN = 200
AS_UTF8 = "save the list as UTF-8, and submit it again"

_EXTENSIONS = {".txt": "txt", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}

Slices = Iterator[tuple[int, list[bytes]]]
"""Consecutive lines without line ends, with the number of the first. A line over `LONGEST_LINE` is
cut and ends in a byte that is invalid in UTF-8, so that it is not taken for a whole line."""


class BadLine(Struct, frozen=True):
    """A malformed line: its number, the reason, and its beginning."""

    line: int
    reason: str
    text: str


class LineBatch(Struct, frozen=True):
    """The content of consecutive lines: inputs, each with line number and raw text, and malformed
    lines."""

    numbers: Sequence[int]
    inputs: Sequence[Any]
    raw: Sequence[bytes]
    bad: list[BadLine]
    note: str = ""
    """Note for the submitter on how the list was read."""

    @classmethod
    def of(cls, lines: list[tuple[int, Any, bytes]], bad: list[BadLine]) -> LineBatch:
        """The batch of lines that were parsed one by one."""
        return cls(
            [number for number, _, _ in lines],
            [content for _, content, _ in lines],
            [raw for _, _, raw in lines],
            bad,
        )

    @classmethod
    def joined(cls, parts: list[LineBatch]) -> LineBatch:
        """The batch of a slice that was parsed in portions: one look-up and one write serve all of
        it."""
        numbers, inputs, raw, bad = (
            [one for part in parts for one in getattr(part, name)]
            for name in ("numbers", "inputs", "raw", "bad")
        )
        return cls(numbers, inputs, raw, bad)


def read_batches(
    slices: Slices, name: str, route: Route, format: str | None = None, *, no_header: bool = False
) -> Iterator[LineBatch]:
    """Batches of inputs of the list `name`. The format is the given one, else by file extension,
    else by content. A CSV must have a header unless `no_header` is set."""
    if format is not None and format not in _READERS:
        raise UsageError(f"there is no list format {format!r}; use one of {', '.join(_READERS)}")
    for first in slices:
        form = (
            format
            or _EXTENSIONS.get(os.path.splitext(name)[1].lower())
            or _sniff(first[1], name, route)
        )
        if form == "csv" or (form == "txt" and route.key_column is not None):
            yield from _read_csv(chain([first], slices), name, route, no_header)
        elif no_header and form == "jsonl":
            raise UsageError(f"{name} is jsonl, which has no header; leave out --no-header")
        else:
            yield from _READERS[form](chain([first], slices), name, route)


def _sniff(lines: list[bytes], name: str, route: Route) -> str:
    begin = next((line for line in lines if line.strip()), b"").lstrip()
    if begin.startswith(b"["):
        raise UsageError(
            f"{name} is one JSON array; convert it to one object per line, as in: jq -c '.[]' FILE | milepost submit ROUTE -"
        )
    if begin.startswith(b"{"):
        return "jsonl"
    text = begin.decode(errors="replace")
    return "csv" if "," in text or (key_fields(route.key) and _header(text, route)) else "txt"


def bad_line(number: int, reason: str, line: bytes) -> BadLine:
    return BadLine(number, reason, line[: 4 * SHOWN].decode(errors="replace").rstrip("\r")[:SHOWN])


def _text(line: bytes, errors: str = "strict") -> str:
    if len(line) > LONGEST_LINE:
        raise MalformedInput("it is longer than 1 MiB")
    try:
        return line.decode(errors=errors)
    except UnicodeDecodeError as error:
        raise MalformedInput(
            f"it is not UTF-8: byte 0x{line[error.start]:02x} at position {error.start + 1}; {AS_UTF8}"
        ) from None


def _singly(first: int, lines: list[bytes], parse: Callable[[str], Any]) -> LineBatch:
    """Parse line by line; `parse` returns None for an empty line."""
    found: list[tuple[int, Any, bytes]] = []
    bad: list[BadLine] = []
    for number, line in enumerate(lines, first):
        try:
            content = parse(_text(line))
        except MalformedInput as error:
            bad.append(bad_line(number, str(error), line))
        else:
            if content is not None:
                found.append((number, content, line))
    return LineBatch.of(found, bad)


def _portions(first: int, lines: list[bytes]) -> Slices:
    """Smaller slices of one that cannot be parsed at once, so that an unusual line slows down few
    others."""
    for start in range(0, len(lines), PORTION):
        yield first + start, lines[start : start + PORTION]


# txt ----------------------------------------------------------------------------------------------


def _read_txt(slices: Slices, name: str, route: Route) -> Iterator[LineBatch]:
    """One key per line; blank lines and lines that begin with '#' are skipped. A key function
    receives {"value": line}."""
    fields = list(key_fields(route.key))
    if len(fields) > 1:
        raise UsageError(
            f"{name} has one key per line, but the key of route {route.name!r} is {' + '.join(fields)}; use csv or jsonl"
        )
    field = fields[0] if fields else "value"

    def parse(text: str) -> Any:
        key = text.strip()
        return {field: key} if key and key[0] != "#" else None

    for first, lines in slices:
        yield _keys_at_once(field, first, lines) or LineBatch.joined(
            [
                _keys_at_once(field, start, some) or _singly(start, some, parse)
                for start, some in _portions(first, lines)
            ]
        )


def _keys_at_once(field: str, first: int, lines: list[bytes]) -> LineBatch | None:
    """Parse the usual case, a key on each line. None: a line is blank, a comment or malformed."""
    try:
        whole = b"\n".join(lines).decode()
    except UnicodeDecodeError:
        return None
    keys = list(map(str.strip, whole.split("\n")))
    if not all(keys) or ("#" in whole and any(key[0] == "#" for key in keys)):
        return None
    return LineBatch(range(first, first + len(lines)), OneField(field, keys), lines, [])


# jsonl --------------------------------------------------------------------------------------------

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def _read_jsonl(slices: Slices, name: str, route: Route) -> Iterator[LineBatch]:
    """One object per line; blank lines are skipped."""
    for first, lines in slices:
        try:
            inputs = list(map(_decode, lines))
        except (ValueError, RecursionError):
            yield _singly(first, lines, _object)
            continue
        if each_name_once(lines, inputs) or not any(map(name_given_twice, lines)):
            yield LineBatch(range(first, first + len(lines)), inputs, lines, [])
        else:
            yield _singly(first, lines, _object)


def _object(text: str) -> Any:
    if not text.strip():
        return None
    try:
        content = _decode(text)
    except RecursionError:
        raise MalformedInput("it is nested too deeply") from None
    except ValueError as error:
        if isinstance(error, msgspec.ValidationError) and not text.lstrip().startswith("{"):
            raise MalformedInput(
                'it is JSON, but not an object; write one object per line, such as {"id": "…"}'
            ) from None
        raise MalformedInput(f"it is not JSON: {json_fault(text, error)}") from None
    twice = name_given_twice(text)
    if twice is not None:
        raise MalformedInput(f"it gives {twice!r} twice; give each name once")
    return content


# csv ----------------------------------------------------------------------------------------------


class _Table(Struct, frozen=True):
    """Columns of a CSV; `header` is the line number of the header, 0 if there is none. `place`: the
    only column that is read, where the route finds its keys itself; the other columns may differ in
    number, and in their encoding."""

    names: list[str]
    delimiter: str
    header: int = 0
    note: str = ""
    place: int | None = None

    def contents(self, lines: list[str], whole: str) -> Sequence[dict[str, str]] | None:
        """The contents of lines that are one valid row each; None: some line is not. `whole` is the
        text with these lines."""
        names, place = self.names, self.place
        if place is not None and '"' not in whole:
            # Without quotes the delimiter alone separates columns, and only one of them is wanted.
            delimiter, cuts = self.delimiter, place + 1
            if "\r" in whole:
                lines = [line.rstrip("\r") for line in lines]
            if not all(map(str.strip, lines)):
                return None
            try:
                return OneField(names[0], [line.split(delimiter, cuts)[place] for line in lines])
            except IndexError:
                return None
        rows = list(csv.reader(lines, delimiter=self.delimiter, strict=True))
        width = len(names) if place is None else place + 1
        # As many rows as lines means one row per line, because no row takes less than a line.
        if len(rows) != len(lines) or any(
            len(row) != width if place is None else len(row) < width for row in rows
        ):
            return None
        return (
            [dict(zip(names, row, strict=True)) for row in rows]
            if place is None
            else OneField(names[0], [row[place] for row in rows])
        )

    def text(self, line: bytes) -> str:
        """A line as text. Where one column is read, bytes that are not UTF-8 count in that column
        alone: spreadsheets write titles in other encodings."""
        return _text(line, "strict" if self.place is None else "surrogateescape")

    def content(self, row: list[str]) -> dict[str, str]:
        if self.place is not None:
            if len(row) <= self.place:
                raise MalformedInput(
                    f"it has {len(row)} columns; {self.names[0]!r} is in column {self.place + 1}"
                )
            cell = row[self.place]
            try:
                cell.encode()
            except UnicodeEncodeError:
                raise MalformedInput(f"{self.names[0]!r} is not UTF-8; {AS_UTF8}") from None
            return {self.names[0]: cell}
        if len(row) != len(self.names):
            raise MalformedInput(
                f"it has {len(row)} columns, expected {len(self.names)}: {', '.join(self.names)}"
            )
        return dict(zip(self.names, row, strict=True))


def _read_csv(
    slices: Slices, name: str, route: Route, no_header: bool = False
) -> Iterator[LineBatch]:
    """One row per line, or several lines if quotes contain line breaks.

    The first line is a header with the route's key fields (any header if the key is a function);
    only then may the delimiter be ';' or a tab. With `no_header` the columns are the key fields in
    order, then column2, column3, … Where the route has a `key_column` function, that finds header,
    delimiter and the one column that is read.
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
        end = first + len(lines)
        whole = None if opened else _rows_at_once(table, first, lines)
        if whole is not None:
            yield whole
            continue
        parts: list[LineBatch] = []
        for start, some in _portions(first, lines):
            start, some = start - len(opened), opened + some
            batch, opened = _rows_at_once(table, start, some), []
            if batch is None:
                batch, opened = _rows_singly(table, start, some, at_end=False)
            parts.append(batch)
        yield LineBatch.joined(parts)
    if table is not None and opened:
        yield _rows_singly(table, end - len(opened), opened, at_end=True)[0]


def _rows_at_once(table: _Table, first: int, lines: list[bytes]) -> LineBatch | None:
    """Parse the usual case, one valid row per line. None: some line is not, or is the header."""
    if first <= table.header:
        return None
    try:
        whole = b"\n".join(lines).decode()
        inputs = table.contents(whole.split("\n"), whole)
    except (UnicodeDecodeError, csv.Error):
        return None
    return (
        None if inputs is None else LineBatch(range(first, first + len(lines)), inputs, lines, [])
    )


def _rows_singly(
    table: _Table, first: int, lines: list[bytes], at_end: bool
) -> tuple[LineBatch, list[bytes]]:
    """Parse row by row; returns also the lines of a last row that continues in later lines.

    If a row of several lines is invalid, only its first line is malformed: a stray quote does not
    affect the others.
    """
    found: list[tuple[int, Any, bytes]] = []
    bad: list[BadLine] = []
    place = 0
    while place < len(lines):
        line, number = lines[place], first + place
        window = (table.text(each) + "\n" for each in lines[place : place + LONGEST_RECORD])
        reader = csv.reader(window, delimiter=table.delimiter, strict=True)
        try:
            row = next(reader)
            if line.strip() and number != table.header:
                found.append((number, table.content(row), line))
            place += reader.line_num
            continue
        except MalformedInput as error:
            reason = str(error)
        except csv.Error as error:
            reason = f"it is not CSV: {str(error).partition(' - ')[0]}"
            if "unexpected end of data" in reason:
                if not at_end and reader.line_num < LONGEST_RECORD:
                    return LineBatch.of(found, bad), lines[place:]
                reason = "it is not CSV: a quote is not closed"
        bad.append(bad_line(number, reason, line))
        place += 1
    return LineBatch.of(found, bad), []


def _table(
    first: int, lines: list[bytes], name: str, route: Route, no_header: bool
) -> _Table | None:
    """Columns of the CSV, judged by its first lines; None if they are all blank."""
    filled = [
        (number, line.decode(errors="replace"))
        for number, line in enumerate(lines, first)
        if line.strip()
    ]
    if not filled:
        return None
    number, text = filled[0]
    if route.key_column is not None:
        return _key_table(name, number, [text for _, text in filled], route)
    header, fields = _header(text, route), list(key_fields(route.key))
    if no_header and fields and header is not None:
        raise UsageError(
            f"{name}, line {number} is a header with {' and '.join(map(repr, fields))}; leave out --no-header"
        )
    if header is None and not no_header:
        raise UsageError(_wrong_header(name, number, text, fields, route))
    if header is not None and not no_header:
        names, delimiter = header
        twice = [column for column, times in Counter(names).items() if times > 1]
        if twice or "\ufffd" in text:
            wrong = (
                f"names the column {twice[0]!r} twice; column names must be unique"
                if twice
                else "is not UTF-8; save it as UTF-8"
            )
            raise UsageError(f"{name}, line {number}: the header {wrong}")
        return _Table(names, delimiter, number)
    # Use the most frequent width, so that a broken first row does not invalidate the others.
    width = Counter(len(_cells(text, ",")) for _, text in filled).most_common(1)[0][0]
    if width < len(fields):
        raise UsageError(
            f"{name} has {width} columns and no header, but the key of route {route.name!r} is {' + '.join(fields)}; add them"
        )
    return _Table(
        [*fields, *(f"column{place}" for place in range(len(fields) + 1, width + 1))],
        ",",
        note=_headless(fields, text),
    )


def _key_table(name: str, number: int, lines: list[str], route: Route) -> _Table:
    """The table of which only the column with the keys is read, as the route finds it in the first
    lines."""
    assert route.key_column is not None
    found = route.key_column(lines)
    fields = list(key_fields(route.key))
    if found is None:
        begins = repr(lines[0][:SHOWN])
        seen = (
            f"its only line is {begins}"
            if len(lines) == 1
            else f"its first {len(lines):,} lines have none; line {number} is {begins}"
        )
        raise UsageError(
            f"{name}: no column holds {fields[0]!r}, the key of route {route.name!r}: {seen}. Add a column {fields[0]!r} with one value on each"
            " line, and deliver the file again"
        )
    column = f"{fields[0]!r} is in column {found.place + 1}"
    note = f"the list has no header: {column}" if not found.header else column
    return _Table(
        fields,
        found.delimiter,
        number if found.header else 0,
        note if found.place or not found.header else "",
        found.place,
    )


def _headless(fields: list[str], text: str) -> str:
    """Note on how the columns were interpreted."""
    if not fields:
        return "the list has no header: its columns are named column1, column2, …"
    taken = "the first column was" if len(fields) == 1 else f"the first {len(fields)} columns were"
    begins = ", ".join(repr(cell[:SHOWN]) for cell in _cells(text, ",")[: len(fields)])
    return f"the list has no header: {taken} used as the key, {begins} in the first line"


def _wrong_header(name: str, number: int, text: str, fields: list[str], route: Route) -> str:
    """Why a CSV without all key fields in its first line is refused."""
    cells = _cells(text, ",")
    missing = [field for field in fields if field not in cells]
    columns = (
        "the column " + repr(missing[0])
        if len(missing) == 1
        else "the columns " + ", ".join(map(repr, missing))
    )
    found = ", ".join(repr(cell[:SHOWN]) for cell in cells[:10]) or "nothing"
    return (
        f"{name}, line {number}: the header lacks {columns} of the key of route {route.name!r}; it has {found}."
        " Add a header; if that line is an item, give --no-header (no_header=true over HTTP)"
    )


def _header(text: str, route: Route) -> tuple[list[str], str] | None:
    """Column names and delimiter if the line is a header. Case and surrounding spaces of key fields
    do not matter."""
    fields = list(key_fields(route.key))
    for delimiter in sorted(",;\t", key=lambda mark: -len(_cells(text, mark))):
        cells = _cells(text, delimiter)
        spelled = {field.lower(): field for field in fields if field not in cells}
        names = [
            spelled.get(cell.lower(), cell) or f"column{place}"
            for place, cell in enumerate(cells, 1)
        ]
        if all(field in names for field in fields):
            return names, delimiter
    return None


def _cells(text: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter), [])]
    except csv.Error:
        return []


_READERS: dict[str, Callable[[Slices, str, Route], Iterator[LineBatch]]] = {
    "txt": _read_txt,
    "csv": _read_csv,
    "jsonl": _read_jsonl,
}
