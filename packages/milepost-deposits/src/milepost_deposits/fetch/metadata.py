"""The metadata stage: the record of a DOI from Crossref's REST API, mapped for DSpace and stored as
a metadata file."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from html import unescape
from typing import Any, Literal
from urllib.parse import quote, urlencode

import msgspec

import milepost as mp
import milepost_net as net
from milepost_deposits.doi import doi_or_none, doi_url
from milepost_deposits.dspace.api import field_for_doi, has_doi
from milepost_deposits.files import FileStore, waits_for_store
from milepost_deposits.settings import DepositsSettings, check_settings

GAP_S = 0.2
"""Seconds between requests until Crossref states its limit: 5 a second."""
TRIES = 3
"""Requests of one try: an answer of 429 asks to come later, and says nothing about the DOI."""
LONGEST_WAIT_S = 30.0
"""Most seconds that a try waits between its requests; a longer pause is for the whole stage."""
LARGEST = 16 << 20
TIMEOUTS = net.Timeouts(connect=10, read=30, total=60)


class MetadataStage:
    """Handler of the metadata stage. Every failure is a Retry: Crossref may get the record
    later."""

    def __init__(
        self, settings: DepositsSettings, files: FileStore, pace: RequestPace | None = None
    ) -> None:
        self._settings, self._files = settings, files
        self._table = table_of(settings.mapping)
        self._pace = pace or RequestPace(GAP_S)

    @cached_property
    def _client(self) -> net.Client:
        return net.Client(
            allow_cidrs=self._settings.allow_cidrs, timeouts=TIMEOUTS, largest=LARGEST
        )

    def ready(self) -> None:
        """Raises mp.ConfigMistake before any item is claimed, if a setting is missing."""
        check_settings(self._settings)

    def __call__(self, item: mp.Item) -> mp.Outcome:
        return waits_for_store(self._files, lambda: self._fetched(item))

    def _fetched(self, item: mp.Item) -> mp.Outcome:
        record = self._record(item.key)
        if isinstance(record, mp.Retry):
            return record
        missing = missing_parts(record)
        if missing:
            return mp.Retry(
                f"insufficient metadata for {item.key}: Crossref's record has no {' and no '.join(missing)}",
                category="METADATA",
            )
        # Every program that makes an item of this file names the DOI in it: a deposit that cannot
        # be found again could be made twice.
        record = plain_record(record) if self._settings.markup == "strip" else record
        fields = with_doi(
            map_record(record, self._table), item.key, self._settings.submit.doi_fields
        )
        file = self._files.write(
            item.key, ".json", [msgspec.json.encode(to_json(fields, self._settings.metadata_form))]
        )
        return mp.Done({"file": msgspec.to_builtins(file), "title": title_of(record)})

    def _record(self, doi: str) -> dict[str, Any] | mp.Retry:
        """Crossref's record of a DOI, or why there is none."""
        response: net.Response | None = None
        for turn in range(TRIES):
            self._pace.wait()
            try:
                response = self._client.request(
                    "GET", work_url(self._settings, doi), headers=self._headers
                )
            except net.NetError as error:
                return mp.Retry(
                    f"Crossref: {error}",
                    category=error.kind.upper().replace("-", "_"),
                    http_status=error.http_status,
                )
            self._pace.heard(response.headers)
            asked = response.retry_after
            if response.status != 429 or (asked is not None and asked > LONGEST_WAIT_S):
                break
            self._pace.slow_down(asked or 2.0**turn)
        assert response is not None
        return record_in(response, doi)

    @cached_property
    def _headers(self) -> dict[str, str]:
        return {
            "Accept": "application/json",
            "User-Agent": f"milepost/{mp.__version__} (mailto:{self._settings.mailto})",
        }


def work_url(settings: DepositsSettings, doi: str) -> str:
    """The address of a DOI's record; `mailto` asks for the polite pool."""
    return f"{settings.crossref.rstrip('/')}/works/{quote(doi, safe='')}?{urlencode({'mailto': settings.mailto})}"


def with_doi(
    fields: list[MetadataField], doi: str, doi_fields: Sequence[str]
) -> list[MetadataField]:
    """The fields; with one more for the DOI, where none of those that a search looks at names
    it."""
    named = has_doi(to_json(fields, "dspace8"), doi, doi_fields)
    return fields if named else [*fields, MetadataField(field_for_doi(doi_fields), doi_url(doi))]


def record_in(response: net.Response, doi: str) -> dict[str, Any] | mp.Retry:
    """The record in an answer of Crossref; else the failed try, with a reason for people."""
    status = response.status
    if status == 404:
        return mp.Retry(f"Crossref has no record of {doi}", category="NO_RECORD", http_status=404)
    if status != 200:
        said = {
            429: "its rate limit is reached",
            403: "it refuses this client; look at mailto",
        }.get(status, "see its status page")
        return mp.Retry(
            f"Crossref answered {status}: {said}",
            category="CROSSREF",
            http_status=status,
            after=response.retry_after,
        )
    try:
        record = msgspec.json.decode(response.body)["message"]
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, KeyError, RecursionError):
        record = None
    if not isinstance(record, dict):
        return mp.Retry(
            f"Crossref's answer for {doi} is not a record in JSON",
            category="NOT_JSON",
            http_status=status,
        )
    named = record.get("DOI")
    if isinstance(named, str) and doi_or_none(named) != doi:
        return mp.Retry(
            f"Crossref answered with the record of {named[:200]}, not of {doi}",
            category="WRONG_RECORD",
            http_status=status,
        )
    return record


# Mapping ------------------------------------------------------------------------------------------
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

ENTITIES_DEEP = 2
"""How often a text is unescaped."""
_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9]*(?::[A-Za-z][A-Za-z0-9]*)?(?:\s[^<>]*)?/?>")
_BLANK = re.compile(r"[\s\x00-\x1f\x7f]+")
_RANGES = ((1, 9999), (1, 12), (1, 31))


class MetadataField(msgspec.Struct, frozen=True):
    key: str
    value: str


def table_of(changes: Mapping[str, str]) -> dict[str, str]:
    """The usual table with these changes; an empty field leaves its key out."""
    return {key: field for key, field in {**TABLE, **changes}.items() if field}


def map_record(record: Mapping[str, Any], table: Mapping[str, str] = TABLE) -> list[MetadataField]:
    """The metadata of a record, in the order of its own keys. A value that is missing, null or
    empty makes no field."""
    return [
        MetadataField(table[key], value)
        for key, content in record.items()
        if key in table
        for value in values_of(key, content)
    ]


def plain_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with texts without markup: tags are left out, and entities are the characters that
    they stand for. Addresses stay."""
    return {key: content if key == "URL" else _plain(content) for key, content in record.items()}


def _plain(content: Any) -> Any:
    if isinstance(content, str):
        return plain_text(content)
    if isinstance(content, list):
        return [_plain(part) for part in content]
    return (
        {key: _plain(part) for key, part in content.items()}
        if isinstance(content, Mapping)
        else content
    )


def plain_text(text: str) -> str:
    """A text without tags and entities, which some records have twice: "G3&amp;#58; Genes" is "G3:
    Genes". "a < b" stays."""
    for _ in range(ENTITIES_DEEP):
        text = unescape(_TAG.sub("", text))
    return _TAG.sub("", text)


def missing_parts(record: Mapping[str, Any]) -> list[str]:
    """The required keys that have no usable value in the record."""
    return [key for key in REQUIRED if not values_of(key, record.get(key))]


def title_of(record: Mapping[str, Any]) -> str:
    """The record's title; empty if it has none."""
    return next(iter(values_of("title", record.get("title"))), "")


def values_of(key: str, content: Any) -> list[str]:
    """The texts of one value of a record, by its shape: a date, people, a list, or a single text.
    The parts of a title are one text."""
    if isinstance(content, Mapping):
        found = [_date(content)] if "date-parts" in content else [_name(content)]
    elif isinstance(content, list):
        found = [text for part in content for text in values_of("", part)]
    else:
        found = [_text(content)]
    texts = [text for text in found if text]
    return [". ".join(texts)] if key == "title" and texts else texts


def to_json(fields: Iterable[MetadataField], form: Literal["old", "dspace8"]) -> Any:
    """The content of the metadata file: a list of key and value ("old"), or values by field as
    DSpace's REST API has them."""
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
    """ "Family, Given" of a person, one of the two where the other is missing, or the name of a
    group."""
    parts = [text for part in ("family", "given") if (text := _text(person.get(part)))]
    return ", ".join(parts) or _text(person.get("name"))


def _date(value: Mapping[str, Any]) -> str:
    """2020-09-30, 2021-03 or 2021: the parts up to the first that is missing or impossible."""
    dates = value["date-parts"]
    first = dates[0] if isinstance(dates, list) and dates else None
    return "-".join(f"{part:02d}" for part in _date_parts(first if isinstance(first, list) else []))


def _date_parts(parts: list[Any]) -> Iterator[int]:
    for part, (least, most) in zip(parts, _RANGES, strict=False):
        number = (
            int(part)
            if isinstance(part, str) and part.isascii() and part.isdigit() and len(part) < 5
            else part
        )
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
            return
        yield number


# Pace of requests ---------------------------------------------------------------------------------
_INTERVAL = re.compile(r"\s*(\d+)\s*(s|m|h)?\s*")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
MARGIN = 1.1
"""A tenth slower than allowed: requests do not arrive as evenly as they are sent, and a 429 costs
more than it saves."""
SLOWEST = 60.0
"""Most seconds between two requests, whatever the partner says."""


def gap_s(headers: net.HeaderList) -> float | None:
    """Seconds between two requests by X-Rate-Limit-Limit and X-Rate-Limit-Interval ("1s"); None:
    the headers do not say."""
    limit, interval = (
        headers.get("X-Rate-Limit-Limit") or "",
        _INTERVAL.fullmatch(headers.get("X-Rate-Limit-Interval") or ""),
    )
    if interval is None or not limit.isascii() or not limit.strip().isdecimal() or int(limit) == 0:
        return None
    return min(SLOWEST, MARGIN * int(interval[1]) * _SECONDS[interval[2] or "s"] / int(limit))


class RequestPace:
    """Lets a request start every `gap` seconds. A partner that answers 429 stops all requests for a
    while and halves the pace."""

    def __init__(
        self,
        gap: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.gap = gap
        self._clock, self._sleep = clock, sleep
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Wait until the next request may start."""
        while True:
            with self._lock:
                now = self._clock()
                if self._next <= now:
                    # A thread that has slept a little too long takes nothing away from the next.
                    self._next = max(self._next, now - self.gap) + self.gap
                    return
                left = self._next - now
            self._sleep(left)

    def heard(self, headers: net.HeaderList) -> None:
        """Obey the limits that an answer's headers state."""
        gap = gap_s(headers)
        if gap is not None:
            with self._lock:
                self.gap = gap

    def slow_down(self, seconds: float) -> None:
        """Start no request for so long, and then only half as many."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)
            self.gap = min(SLOWEST, self.gap * 2)
