"""Mapping of a Crossref record to DSpace metadata: pure functions, with the table as configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

TABLE: Mapping[str, str] = {
    "author": "dc.contributor.author",
    "container-title": "dc.relation.journal",
    "ISSN": "dc.identifier.issn",
    "issue": "mit.journal.issue",
    "issued": "dc.date.issued",
    "language": "dc.language",
    "original-title": "dc.title.alternative",
    "short-title": "dc.title.alternative",
    "subtitle": "dc.title.alternative",
    "publisher": "dc.publisher",
    "title": "dc.title",
    "URL": "dc.relation.isversionof",
    "volume": "mit.journal.volume",
}
"""DSpace field by Crossref key."""
REQUIRED = ("title", "URL")
"""Crossref keys without which a record is not deposited."""

_BLANK = re.compile(r"[\s\x00-\x1f\x7f]+")
_RANGES = ((1, 9999), (1, 12), (1, 31))


class MetadataField(msgspec.Struct, frozen=True):
    """One metadata value and its DSpace field."""

    key: str
    value: str


def table_of(changes: Mapping[str, str]) -> dict[str, str]:
    """The usual table with these changes; an empty field leaves its key out."""
    return {key: field for key, field in {**TABLE, **changes}.items() if field}


def map_record(record: Mapping[str, Any], table: Mapping[str, str] = TABLE) -> list[MetadataField]:
    """The metadata of a record, in the order of its own keys. A value that is missing, null or empty makes no field."""
    return [MetadataField(table[key], value) for key, content in record.items() if key in table for value in values_of(key, content)]


def missing_parts(record: Mapping[str, Any]) -> list[str]:
    """The required keys that have no usable value in the record."""
    return [key for key in REQUIRED if not values_of(key, record.get(key))]


def title_of(record: Mapping[str, Any]) -> str:
    """The record's title; empty if it has none."""
    return next(iter(values_of("title", record.get("title"))), "")


def values_of(key: str, content: Any) -> list[str]:
    """The texts of one value of a record, by its shape: a date, people, a list, or a single text. The parts of a title are one text."""
    if isinstance(content, Mapping):
        found = [_date(content)] if "date-parts" in content else [_name(content)]
    elif isinstance(content, list):
        found = [text for part in content for text in values_of("", part)]
    else:
        found = [_text(content)]
    texts = [text for text in found if text]
    return [". ".join(texts)] if key == "title" and texts else texts


def to_json(fields: Iterable[MetadataField], form: Literal["old", "dspace8"]) -> Any:
    """The content of the metadata file: a list of key and value ("old"), or values by field as DSpace's REST API has them."""
    if form == "old":
        return {"metadata": [{"key": field.key, "value": field.value} for field in fields]}
    found: dict[str, list[dict[str, str]]] = {}
    for field in fields:
        found.setdefault(field.key, []).append({"value": field.value})
    return found


def _text(value: Any) -> str:
    """A text or a number in one line; anything else is no text."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return ""
    return _BLANK.sub(" ", str(value)).strip()


def _name(person: Mapping[str, Any]) -> str:
    """ "Family, Given" of a person, one of the two where the other is missing, or the name of a group."""
    parts = [text for part in ("family", "given") if (text := _text(person.get(part)))]
    return ", ".join(parts) or _text(person.get("name"))


def _date(value: Mapping[str, Any]) -> str:
    """2020-09-30, 2021-03 or 2021: the parts up to the first that is missing or impossible."""
    dates = value["date-parts"]
    first = dates[0] if isinstance(dates, list) and dates else None
    return "-".join(f"{part:02d}" for part in _date_parts(first if isinstance(first, list) else []))


def _date_parts(parts: list[Any]) -> Iterator[int]:
    for part, (least, most) in zip(parts, _RANGES, strict=False):
        number = int(part) if isinstance(part, str) and part.isascii() and part.isdigit() and len(part) < 5 else part
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
            return
        yield number
