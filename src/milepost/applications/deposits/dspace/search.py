"""Search for a DOI in DSpace: the query, and the exact comparison that DSpace's index cannot make."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

FIELDS = ("dc.identifier.doi", "dc.relation.isversionof", "dc.identifier.uri")
"""Metadata fields that may hold an article's DOI."""
FORMS = ("{}", "https://doi.org/{}", "http://dx.doi.org/{}")
Normalise = Callable[[str], str | None]
"""The normalised DOI of a text; None if the text is no DOI."""


def query_for(doi: str, spellings: Iterable[str] = ()) -> str:
    """The Solr query for a DOI in all of its usual forms. `spellings` are other cases of it, as they came: the index splits words at a
    change of case, so that one case may miss another."""
    texts = [form.format(spelling) for spelling in dict.fromkeys((doi, *spellings)) for form in FORMS]
    return " OR ".join(f"{field}:{quoted(text)}" for field in FIELDS for text in texts)


def quoted(text: str) -> str:
    """A phrase of Solr's query syntax. Without the quotes ':', '/', '(' and others would change the query."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def has_doi(metadata: Any, doi: str, normalise: Normalise) -> bool:
    """Is this the metadata of an item with exactly this DOI? The index is tokenised: a search for 10.1/abc also finds 10.1/abc.1."""
    if not isinstance(metadata, dict):
        return False
    for field in FIELDS:
        entries = metadata.get(field)
        for entry in entries if isinstance(entries, list) else ():
            value = entry.get("value") if isinstance(entry, dict) else None
            if isinstance(value, str) and normalise(value) == doi:
                return True
    return False
