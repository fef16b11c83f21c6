"""DOIs: normalisation of the forms in which people and programs write them, and lists of them as
publishers deliver them."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import milepost as mp

LONGEST = 1_000
"""Most characters of a DOI here: it is the key of an item."""

LONGEST_TEXT = 4 * LONGEST
"""Most characters of a text that is looked at: it may be an encoded URL. The time to find a DOI in
it grows with the square."""
_PLAIN = re.compile(r"10\.[0-9]{1,9}(?:\.[0-9]+)*/[!-%'-~]*[0-9A-Za-z]")
"""The usual case, which needs nothing but lower case."""
_PREFIX = re.compile(r"info:doi/|urn:doi:|doi(?:\s*:\s*|\s+)", re.IGNORECASE)
_URL = re.compile(r"(?:https?://)?(?:dx\.|www\.)?doi\.org/", re.IGNORECASE)
_PUBLISHER = re.compile(
    r"https?://[^/\s]+/(?:[^\s?#]*/)?doi/(?:[a-z]+/)?(?=10\.[0-9])", re.IGNORECASE
)
"""The beginning of a publisher's address of an article, such as
https://onlinelibrary.wiley.com/doi/full/10.1002/abc."""
_VALID = re.compile(r"10\.[0-9]{1,9}(?:\.[0-9]+)*/\S+")
_ENTITY = re.compile(r"&(lt|gt|amp|quot);", re.IGNORECASE)
_ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
_INVISIBLE = dict.fromkeys(map(ord, "\ufeff\u200b\u200c\u200d\u2060\u00ad"))
_QUOTES = "\"'“”‘’«»"
_OPEN, _CLOSE = "(<[{", ")>]}"
_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_SAFE_IN_URL = "/:;()@!$*,=+~"
_PLAIN_LINES = re.compile(rf"(?:{_PLAIN.pattern}\n)+")
_USUAL_BEGINNING = re.compile(
    r"^(?:https?://(?:dx\.)?doi\.org/|doi: ?)(?=10\.[^%?#\n]+$)", re.IGNORECASE | re.MULTILINE
)
"""Beginnings that can be cut off, since what follows has no character with a meaning in URLs."""


class DoiMistake(ValueError):
    """The text is no DOI; the message says why."""


def normalise(text: str) -> str:
    """The one form of a DOI: without prefix, ASCII letters in lower case (a DOI ignores the case of
    those alone). Raises DoiMistake."""
    if _PLAIN.fullmatch(text) is not None and len(text) <= LONGEST:
        return text.lower()
    if len(text.strip()) > LONGEST_TEXT:
        raise DoiMistake(f"it has more than {LONGEST_TEXT:,} characters")
    doi = _bare(text.translate(_INVISIBLE)).translate(_LOWER)
    if not doi:
        raise DoiMistake("it is empty")
    if len(doi) > LONGEST:
        raise DoiMistake(f"it has more than {LONGEST:,} characters")
    if _VALID.fullmatch(doi) is None or not doi.isprintable():
        raise DoiMistake(f"{text.strip()[:100]!r} is not a DOI, such as 10.1002/abcd.20417")
    return doi


def normalise_all(texts: list[str]) -> list[str] | None:
    """The normalised forms of many DOIs that are all written in one of the usual ways, at the speed
    of a few expressions over the whole; None: `normalise` must look at each."""
    lines = "\n".join([*texts, ""])
    begun = ":" in lines and ("doi" in lines or "DOI" in lines)
    plain = _USUAL_BEGINNING.sub("", lines) if begun else lines
    if _PLAIN_LINES.fullmatch(plain) is None or plain.count("\n") != len(texts):
        return None
    lower = plain.lower()
    # Usually a list has the normalised forms already.
    found = texts if lower == lines else lower.splitlines()
    return found if max(map(len, found)) <= LONGEST else None


def doi_url(doi: str) -> str:
    """The address of a normalised DOI at the resolver. Characters that begin another part of a URL
    are encoded."""
    return f"https://doi.org/{quote(doi, safe=_SAFE_IN_URL)}"


def doi_or_none(text: str) -> str | None:
    """The DOI in a text; None if it is none."""
    try:
        return normalise(text)
    except DoiMistake:
        return None


def is_doi(text: str) -> bool:
    """Can this text be normalised?"""
    return doi_or_none(text) is not None


def _bare(text: str) -> str:
    """The text without what surrounds a DOI: spaces, quotes, prefixes, the resolver's address, and
    a sentence's punctuation."""
    before = None
    while text != before:
        before = text
        text = _trimmed(_ENTITY.sub(lambda found: _ENTITIES[found[1].lower()], text))
        if prefix := _PREFIX.match(text):
            text = text[prefix.end() :]
        elif url := _URL.match(text) or _PUBLISHER.match(text):
            # In a URL '?' and '#' begin other parts, and '%' an encoded character. A bare DOI may
            # hold all three.
            text = unquote(re.split(r"[?#]", text[url.end() :], maxsplit=1)[0]).translate(
                _INVISIBLE
            )
    return text


def _trimmed(text: str) -> str:
    """The text without spaces, quotes and final punctuation around it, and without a bracket that
    has no partner or encloses it."""
    before = None
    while text != before:
        before = text
        text = text.strip().strip(_QUOTES).rstrip(".,;:")
        if text and text[0] in _OPEN:
            text = text[1:]
        elif (
            text
            and text[-1] in _CLOSE
            and text.count(text[-1]) > text.count(_OPEN[_CLOSE.index(text[-1])])
        ):
            text = text[:-1]
    return text


# Lists --------------------------------------------------------------------------------------------
FIELD = "doi"
DELIMITERS = (",", ";", "\t", "|")
SAMPLE = 200
"""Lines by which the column is found."""


def parse_input(given: Any) -> dict[str, str]:
    """The recorded input of a DOI: its normalised form, and nothing else, so that a changed title
    makes no other item."""
    text = given.get(FIELD) if isinstance(given, dict) else None
    if not isinstance(text, str):
        raise mp.MalformedInput(f"the field {FIELD!r} is missing", field=FIELD, expected="a DOI")
    try:
        return {FIELD: normalise(text)}
    except DoiMistake as mistake:
        raise mp.MalformedInput(
            f"no DOI: {mistake}", field=FIELD, expected="a DOI such as 10.1002/abcd.20417"
        ) from None


def doi_column(lines: list[str], wanted: str = "") -> mp.KeyColumn | None:
    """The column with the DOIs, by the names in the first line and by the content of the first
    lines; None if no column has any. `wanted`: its name by the settings. Raises mp.UsageError where
    a list lacks that name, or where two columns may be meant.

    A comma always separates columns. Other delimiters count only where they show more, since a DOI
    may hold a semicolon."""
    readings = [
        _reading(lines[:SAMPLE], delimiter, wanted.strip().lower()) for delimiter in DELIMITERS
    ]
    best = max(readings, key=lambda reading: reading[:3])
    if wanted and not best.named:
        raise mp.UsageError(
            f"no column of the list is called {wanted!r}, as [deposits] doi_column says; correct its first line or the setting"
        )
    if not (best.named or best.dois or best.mentioned):
        return None
    if len(best.rivals) > 1:
        columns = " and ".join(repr(name) for name in best.rivals)
        raise mp.UsageError(
            f"the columns {columns} of the list have DOIs; name the right one in [deposits] doi_column"
        )
    return mp.KeyColumn(best.place, _is_header(best.first), best.delimiter)


class _Reading(NamedTuple):
    """The lines as one delimiter separates them; the best reading is the greatest by its first
    three fields."""

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
    rivals: tuple[str, ...] = ()
    """Names of the columns that may be meant, where there are several."""


def _reading(lines: list[str], delimiter: str, wanted: str) -> _Reading:
    rows = list(_rows(lines, delimiter))
    head = (
        []
        if not rows or any(map(is_doi, rows[0]))
        else [cell.strip().strip("\ufeff").lower() for cell in rows[0]]
    )
    dois: dict[int, list[str]] = {}
    for row in rows:
        for place, cell in enumerate(row):
            if (doi := doi_or_none(cell)) is not None:
                dois.setdefault(place, []).append(doi)
    different = {place: len(set(column)) for place, column in dois.items()}
    # A column with one DOI on all lines, such as that of the journal, is not that of the articles.
    most = max(different.values(), default=0)
    held = Counter(
        {
            place: len(column)
            for place, column in dois.items()
            if different[place] > 1 or most == 1 or head[place : place + 1] == [wanted]
        }
    )
    named = [place for place, cell in enumerate(head) if cell == (wanted or FIELD)]
    mentioned = [place for place, cell in enumerate(head) if FIELD in cell]
    candidates = (
        named
        if wanted
        else sorted(
            (place for place in {*named, *mentioned} if held[place] or not held),
            key=lambda place: (place not in named, -different.get(place, 0), place),
        )
    )
    best = max(
        held,
        key=lambda place: (
            different[place],
            held[place],
            place in named,
            place in mentioned,
            -place,
        ),
        default=0,
    )
    place = next(iter(candidates), best)
    equal = [
        other
        for other in candidates
        if other not in named and different.get(other) == different.get(place) and held[other]
    ]
    rivals = tuple(head[other] for other in equal) if place not in named and len(equal) > 1 else ()
    first = rows[0][place] if rows and place < len(rows[0]) else ""
    return _Reading(
        place in named, held[place], place in mentioned, delimiter, place, first, rivals
    )


def _rows(lines: list[str], delimiter: str) -> Iterator[list[str]]:
    for line in lines:
        try:
            yield next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error:
            yield []


def _is_header(cell: str) -> bool:
    """Is this cell of the first line a name? A cell that was meant as a DOI is an item, if a
    malformed one."""
    return not is_doi(cell) and "10." not in cell
