"""The metadata stage: the record of a DOI from Crossref's REST API, mapped and stored as a metadata file."""

from __future__ import annotations

from functools import cached_property
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

import milepost as mp
from milepost import net
from milepost.applications.deposits.doi import doi_or_none, doi_url
from milepost.applications.deposits.dspace.search import DOI_FIELD, has_doi
from milepost.applications.deposits.fetch.metadata_map import MetadataField, map_record, missing_parts, table_of, title_of, to_json
from milepost.applications.deposits.fetch.pace import RequestPace
from milepost.applications.deposits.fetch.stored import waits_for_store
from milepost.applications.deposits.files import FileStore
from milepost.applications.deposits.settings import DepositsSettings, check_settings

GAP_S = 0.2
"""Seconds between requests until Crossref states its limit: 5 a second."""
TRIES = 3
"""Requests of one try: an answer of 429 asks to come later, and says nothing about the DOI."""
LONGEST_WAIT_S = 30.0
"""Most seconds that a try waits between its requests; a longer pause is for the whole stage."""
LARGEST = 16 << 20
TIMEOUTS = net.Timeouts(connect=10, read=30, total=60)


class MetadataStage:
    """Handler of the metadata stage. Every failure is a Retry: Crossref may get the record later."""

    def __init__(self, settings: DepositsSettings, files: FileStore, pace: RequestPace | None = None) -> None:
        self._settings, self._files = settings, files
        self._table = table_of(settings.mapping)
        self._pace = pace or RequestPace(GAP_S)

    @cached_property
    def _client(self) -> net.Client:
        return net.Client(allow_cidrs=self._settings.allow_cidrs, timeouts=TIMEOUTS, largest=LARGEST)

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
                f"insufficient metadata for {item.key}: Crossref's record has no {' and no '.join(missing)}", category="METADATA"
            )
        # Every program that makes an item of this file names the DOI in it: a deposit that cannot be found again could be made twice.
        fields = with_doi(map_record(record, self._table), item.key)
        file = self._files.write(item.key, ".json", [msgspec.json.encode(to_json(fields, self._settings.metadata_form))])
        return mp.Done({"file": msgspec.to_builtins(file), "title": title_of(record)})

    def _record(self, doi: str) -> dict[str, Any] | mp.Retry:
        """Crossref's record of a DOI, or why there is none."""
        response: net.Response | None = None
        for turn in range(TRIES):
            self._pace.wait()
            try:
                response = self._client.request("GET", work_url(self._settings, doi), headers=self._headers)
            except net.NetError as error:
                return mp.Retry(f"Crossref: {error}", category=error.kind.upper().replace("-", "_"), http_status=error.http_status)
            self._pace.heard(response.headers)
            asked = response.retry_after
            if response.status != 429 or (asked is not None and asked > LONGEST_WAIT_S):
                break
            self._pace.slow_down(asked or 2.0**turn)
        assert response is not None
        return record_in(response, doi)

    @cached_property
    def _headers(self) -> dict[str, str]:
        return {"Accept": "application/json", "User-Agent": f"milepost/{mp.__version__} (mailto:{self._settings.mailto})"}


def work_url(settings: DepositsSettings, doi: str) -> str:
    """The address of a DOI's record; `mailto` asks for the polite pool."""
    return f"{settings.crossref.rstrip('/')}/works/{quote(doi, safe='')}?{urlencode({'mailto': settings.mailto})}"


def with_doi(fields: list[MetadataField], doi: str) -> list[MetadataField]:
    """The fields; with one more for the DOI, where none of those that a search looks at names it."""
    named = has_doi(to_json(fields, "dspace8"), doi)
    return fields if named else [*fields, MetadataField(DOI_FIELD, doi_url(doi))]


def record_in(response: net.Response, doi: str) -> dict[str, Any] | mp.Retry:
    """The record in an answer of Crossref; else the failed try, with a reason for people."""
    status = response.status
    if status == 404:
        return mp.Retry(f"Crossref has no record of {doi}", category="NO_RECORD", http_status=404)
    if status != 200:
        said = {429: "its rate limit is reached", 403: "it refuses this client; look at mailto"}.get(status, "see its status page")
        return mp.Retry(f"Crossref answered {status}: {said}", category="CROSSREF", http_status=status, after=response.retry_after)
    try:
        record = msgspec.json.decode(response.body)["message"]
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, KeyError, RecursionError):
        record = None
    if not isinstance(record, dict):
        return mp.Retry(f"Crossref's answer for {doi} is not a record in JSON", category="NOT_JSON", http_status=status)
    named = record.get("DOI")
    if isinstance(named, str) and doi_or_none(named) != doi:
        return mp.Retry(f"Crossref answered with the record of {named[:200]}, not of {doi}", category="WRONG_RECORD", http_status=status)
    return record
