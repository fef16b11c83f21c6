"""Lists of DOIs as publishers deliver them: the column that holds the DOIs, and the input that a line makes."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import milepost as mp
from milepost.applications.deposits.doi import DoiMistake, is_doi, normalise

FIELD = "doi"
DELIMITERS = (",", ";", "\t", "|")
SAMPLE = 200
"""Lines by which the column is found."""


def parse_input(given: Any) -> dict[str, str]:
    """The recorded input of a DOI: its normalised form, and nothing else, so that a changed title makes no other item."""
    text = given.get(FIELD) if isinstance(given, dict) else None
    if not isinstance(text, str):
        raise mp.MalformedInput(f"the field {FIELD!r} is missing", field=FIELD, expected="a DOI")
    try:
        return {FIELD: normalise(text)}
    except DoiMistake as mistake:
        raise mp.MalformedInput(f"no DOI: {mistake}", field=FIELD, expected="a DOI such as 10.1002/abcd.20417") from None


def doi_column(lines: list[str]) -> mp.KeyColumn | None:
    """The column with the DOIs, by the names in the first line and by the content of the first lines; None if no column has any.

    A comma always separates columns. Other delimiters count only where they show more, since a DOI may hold a semicolon."""
    found = max((_reading(lines[:SAMPLE], delimiter) for delimiter in DELIMITERS), key=lambda reading: reading[:3])
    if not (found.named or found.dois or found.mentioned):
        return None
    return mp.KeyColumn(found.place, _is_header(found.first), found.delimiter)


class _Reading(NamedTuple):
    """The lines as one delimiter separates them; the best reading is the greatest by its first three fields."""

    named: bool
    """A column of the first line is called DOI."""
    dois: int
    """Lines that have a DOI in the column."""
    mentioned: bool
    """The name of the column has the word DOI in it."""
    delimiter: str
    place: int
    first: str
    """The column's cell in the first line."""


def _reading(lines: list[str], delimiter: str) -> _Reading:
    rows = list(_rows(lines, delimiter))
    head = [] if not rows or any(map(is_doi, rows[0])) else [cell.strip().strip("\ufeff").lower() for cell in rows[0]]
    held = Counter(place for row in rows for place, cell in enumerate(row) if is_doi(cell))
    named = [place for place, cell in enumerate(head) if cell == FIELD]
    mentioned = [place for place, cell in enumerate(head) if FIELD in cell]
    best = max(held, key=lambda place: (held[place], place in named, place in mentioned, -place), default=0)
    place = next((place for place in (*named, *mentioned) if held[place] or not held), best)
    first = rows[0][place] if rows and place < len(rows[0]) else ""
    return _Reading(place in named, held[place], place in mentioned, delimiter, place, first)


def _rows(lines: list[str], delimiter: str) -> Iterator[list[str]]:
    for line in lines:
        try:
            yield next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error:
            yield []


def _is_header(cell: str) -> bool:
    """Is this cell of the first line a name? A cell that was meant as a DOI is an item, if a malformed one."""
    return not is_doi(cell) and "10." not in cell
