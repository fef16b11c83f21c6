"""Files of lists as people make them: UTF-8, UTF-16 with a byte order mark, line ends of an old
Mac, and .xlsx, each as lines of UTF-8."""

from __future__ import annotations

import codecs
import csv
import io
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from tempfile import SpooledTemporaryFile
from typing import IO, BinaryIO
from xml.parsers import expat

import milepost as mp
from milepost_deposits.doi import DELIMITERS, is_doi

CHUNK = 1 << 16
IN_MEMORY = 4 << 20
"""Bytes of a converted list that are held in memory; a longer one is in a temporary file."""
LARGEST_WORKBOOK = 64 << 20
LARGEST_CONTENT = 512 << 20
"""Most bytes of a workbook's parts, unpacked: a small archive can unpack to any size."""
MOST_COLUMNS, MOST_ROWS = 16_384, 1_048_576
LONGEST_CELL = 32_767
LONGEST_LINE = 1 << 20
ZIP = b"PK\x03\x04"
UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_SEPARATOR = re.compile(rb"\A(\xef\xbb\xbf)?sep=.(\r?\n)")
_SHEET = re.compile(r"xl/worksheets/[^/]+\.xml")
_NUMBER = re.compile(r"(\d+)")
_BLANK = re.compile(r"\s+")
STRINGS = "xl/sharedStrings.xml"


@contextmanager
def readable_list(opened: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """A list's bytes as UTF-8 text in lines. Raises mp.UsageError where the file cannot be read as
    a list."""
    head = opened.read(CHUNK)
    # Excel writes the delimiter into a line before the first one. A blank line keeps the numbers of
    # the others.
    head = _SEPARATOR.sub(rb"\1\2", head, count=1)
    rest = _Rest(head, opened)
    encoding = next((encoding for mark, encoding in UTF_16.items() if head.startswith(mark)), None)
    with SpooledTemporaryFile(IN_MEMORY) as file:
        if head.startswith(ZIP) and PurePosixPath(name.lower()).suffix == ".xlsx":
            _write_workbook(rest, file, name)
        elif encoding is not None:
            _write_decoded(rest, file, encoding, name)
        elif b"\r" in head and b"\n" not in head:
            for chunk in rest.chunks():
                file.write(chunk.replace(b"\r", b"\n"))
        else:
            yield io.BufferedReader(rest)
            return
        file.seek(0)
        yield file  # type: ignore[misc]


class _Rest(io.RawIOBase):
    """A stream whose beginning was read already."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head, self._stream = head, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._head[: len(buffer)] or self._stream.read(len(buffer))
        self._head = self._head[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)

    def chunks(self) -> Iterator[bytes]:
        while chunk := self.read(CHUNK):
            yield chunk


def names_a_doi(stream: BinaryIO) -> bool:
    """Has any line of a list a DOI in a column? A list without one says nothing, and would report
    all DOIs as vanished."""
    while line := stream.readline(LONGEST_LINE):
        text = line.decode(errors="replace")
        if "10." in text and any(
            is_doi(cell) for delimiter in DELIMITERS for cell in _cells(text, delimiter)
        ):
            return True
    return False


def _cells(text: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error:
        return []


def _write_decoded(rest: _Rest, file: IO[bytes], encoding: str, name: str) -> None:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for chunk in rest.chunks():
            file.write(decoder.decode(chunk).removeprefix("\ufeff").encode())
        file.write(decoder.decode(b"", final=True).encode())
    except UnicodeError as error:
        raise mp.UsageError(
            f"{name} is no whole UTF-16 text ({error}); save it as CSV UTF-8"
        ) from None


# Workbooks ----------------------------------------------------------------------------------------
def _write_workbook(rest: _Rest, file: IO[bytes], name: str) -> None:
    """Write the first sheet that has a DOI, or the first one, as CSV: one line for each row, so
    that the numbers of lines are those of rows."""
    with SpooledTemporaryFile(IN_MEMORY) as packed:
        size = 0
        for chunk in rest.chunks():
            size += len(chunk)
            if size > LARGEST_WORKBOOK:
                raise mp.UsageError(
                    f"{name} has more than {LARGEST_WORKBOOK >> 20} MB; save its sheet with the DOIs as CSV UTF-8"
                )
            packed.write(chunk)
        try:
            _write_sheet(Workbook(packed), file)
        except (
            zipfile.BadZipFile,
            expat.ExpatError,
            NotImplementedError,
            RuntimeError,
            OSError,
            EOFError,
            ValueError,
            IndexError,
        ) as error:
            raise mp.UsageError(
                f"{name} is a spreadsheet that cannot be read ({error}); save its sheet with the DOIs as CSV UTF-8"
            ) from None


def _write_sheet(workbook: Workbook, file: IO[bytes]) -> None:
    first: str | None = None
    for sheet in workbook.sheets:
        if any(is_doi(cell) for row in workbook.rows(sheet) for cell in row):
            first = sheet
            break
    text = io.TextIOWrapper(
        file, encoding="utf-8", errors="replace", newline="", write_through=True
    )
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    for row in workbook.rows(first or workbook.sheets[0]):
        if any(row):
            writer.writerow(row)
        else:
            text.write("\n")
    text.detach()


class Workbook:
    """The sheets of an .xlsx file, which is a zip archive of XML. Texts and cells only; no formula,
    link or entity is followed."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._archive = zipfile.ZipFile(packed)
        self._left = LARGEST_CONTENT
        names = self._archive.namelist()
        self.sheets = sorted(filter(_SHEET.fullmatch, names), key=_natural)
        if not self.sheets:
            raise ValueError("it has no sheet")
        self._texts = self._read_texts() if STRINGS in names else []

    def rows(self, sheet: str) -> Iterator[list[str]]:
        """The cells of each row, also of rows that are empty."""
        reader = _SheetReader(self._texts)
        for chunk in self._chunks(sheet):
            reader.parser.Parse(chunk)
            yield from reader.taken()
        reader.parser.Parse(b"", True)
        yield from reader.taken()

    def _read_texts(self) -> list[str]:
        reader = _TextsReader()
        for chunk in self._chunks(STRINGS):
            reader.parser.Parse(chunk)
        reader.parser.Parse(b"", True)
        return reader.texts

    def _chunks(self, part: str) -> Iterator[bytes]:
        with self._archive.open(part) as stream:
            while chunk := stream.read(CHUNK):
                self._left -= len(chunk)
                if self._left < 0:
                    raise ValueError(f"unpacked it has more than {LARGEST_CONTENT >> 20} MB")
                yield chunk


def _natural(name: str) -> list[int | str]:
    """sheet2 comes before sheet10."""
    return [int(part) if part.isdigit() else part for part in _NUMBER.split(name)]


def _parser(
    start: Callable[[str, dict[str, str]], None],
    end: Callable[[str], None],
    data: Callable[[str], None],
) -> expat.XMLParserType:
    """A parser that refuses document types, and so every entity of a file's own."""
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True

    def refuse(*_: object) -> None:
        raise ValueError("it declares a document type")

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = lambda tag, attributes: start(tag.rpartition(" ")[2], attributes)
    parser.EndElementHandler = lambda tag: end(tag.rpartition(" ")[2])
    parser.CharacterDataHandler = data
    return parser


class _TextsReader:
    """The texts that cells refer to by number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._parts: list[str] = []
        self._within: list[str] = []
        self.parser = _parser(self._start, self._end, self._data)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._within.append(tag)
        if tag == "si":
            self._parts = []

    def _end(self, tag: str) -> None:
        self._within.pop()
        if tag == "si":
            self.texts.append(_one_line("".join(self._parts)))

    def _data(self, text: str) -> None:
        # A phonetic guide (rPh) is no part of the text.
        if self._within and self._within[-1] == "t" and "rPh" not in self._within:
            self._parts.append(text)


class _SheetReader:
    """The rows of a sheet as they are parsed."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts
        self._rows: list[list[str]] = []
        self._number = 0
        self._row: list[str] = []
        self._column = 0
        self._kind = ""
        self._value: list[str] | None = None
        self._parts: list[str] = []
        self.parser = _parser(self._start, self._end, self._data)

    def taken(self) -> list[list[str]]:
        """The rows since the last call."""
        rows, self._rows = self._rows, []
        return rows

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "row":
            number = int(attributes.get("r") or self._number + 1)
            if not self._number < number <= MOST_ROWS:
                raise ValueError(f"its row {number} is out of order")
            self._rows += [[] for _ in range(number - self._number - 1)]
            self._number, self._row = number, []
        elif tag == "c":
            self._column = _column_of(attributes.get("r", "")) or len(self._row) + 1
            self._kind, self._parts = attributes.get("t", "n"), []
        elif tag in ("v", "t"):
            self._value = self._parts

    def _end(self, tag: str) -> None:
        if tag in ("v", "t"):
            self._value = None
        elif tag == "c":
            text = "".join(self._parts)
            text = self._texts[int(text)] if self._kind == "s" and text else _one_line(text)
            self._row += [""] * (self._column - 1 - len(self._row))
            self._row.append(text)
        elif tag == "row":
            self._rows.append(self._row)

    def _data(self, text: str) -> None:
        if self._value is not None:
            self._value.append(text)


def _column_of(reference: str) -> int:
    """The number of a cell's column, from its reference such as AB12; 0: it has none."""
    column = 0
    for letter in reference:
        if not "A" <= letter <= "Z":
            break
        column = column * 26 + ord(letter) - 64
        if column > MOST_COLUMNS:
            raise ValueError(f"its cell {reference[:20]} is beyond the last column")
    return column


def _one_line(text: str) -> str:
    return _BLANK.sub(" ", text[:LONGEST_CELL]).strip()
