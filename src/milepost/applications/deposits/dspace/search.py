"""Search for a DOI in DSpace: the query, and the exact comparison that DSpace's index cannot make."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from milepost.applications.deposits.doi import doi_or_none, doi_url

FIELDS = ("dc.identifier.doi", "dc.relation.isversionof", "dc.identifier.uri")
"""Metadata fields that may hold an article's DOI."""
DOI_FIELD = "dc.relation.isversionof"
"""Where a DOI is put if the metadata does not name it: a deposit that cannot be found again could be made twice."""
FORMS = ("{}", "https://doi.org/{}", "http://dx.doi.org/{}")
Metadata = Mapping[str, Sequence[Mapping[str, Any]]]
"""Values by metadata field, as DSpace 7 and later writes them: {"dc.title": [{"value": "…"}]}."""
_RESOLVER = re.compile(r"(?:https?://)?(?:dx\.|www\.)?doi\.org/", re.IGNORECASE)


def query_for(doi: str, spellings: Iterable[str] = ()) -> str:
    """The Solr query for a DOI in all of its usual forms, also percent-encoded: to the index an encoded character is part of a word.
    `spellings` are other cases of it, as they came: the index splits words at a change of case, so that one case may miss another."""
    texts = [form.format(spelling) for spelling in dict.fromkeys((doi, *spellings)) for form in FORMS]
    texts += [text for text in dict.fromkeys((doi_url(doi), quote(doi, safe="/"))) if text not in texts and "%" in text]
    return " OR ".join(f"{field}:{quoted(text)}" for field in FIELDS for text in texts)


def quoted(text: str) -> str:
    """A phrase of Solr's query syntax. Without the quotes ':', '/', '(' and others would change the query."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def has_doi(metadata: Any, doi: str) -> bool:
    """Is this the metadata of an item with exactly this DOI? The index is tokenised: a search for 10.1/abc also finds 10.1/abc.1."""
    if not isinstance(metadata, dict):
        return False
    for field in FIELDS:
        entries = metadata.get(field)
        for entry in entries if isinstance(entries, list) else ():
            value = entry.get("value") if isinstance(entry, dict) else None
            if isinstance(value, str) and doi in _readings(value):
                return True
    return False


def findable(metadata: Metadata, doi: str) -> Metadata:
    """The metadata with the DOI in one of the fields that a search looks at."""
    if has_doi(metadata, doi):
        return metadata
    return {**metadata, DOI_FIELD: [*metadata.get(DOI_FIELD, ()), {"value": doi_url(doi)}]}


def _readings(value: str) -> tuple[str | None, str | None]:
    """The DOI that a metadata value names. Some programs write '#', '?' and '%' of a DOI into a URL as they are: both readings count, since
    an item that is overlooked would be made again."""
    return doi_or_none(value), doi_or_none(_RESOLVER.sub("", value.strip(), count=1))
