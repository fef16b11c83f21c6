"""Entries of a digest: what has become of each DOI since the last digest, from history lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from milepost.applications.deposits.acts import may_be_deposited
from milepost.applications.deposits.dspace.errors import CollectionUnknown, DSpaceLoginFailed, DSpaceUnavailable
from milepost.applications.deposits.stages import CONTENT, METADATA, SUBMIT
from milepost.applications.deposits.words import FAILED, NOTES, RETRIES, SUCCESS, word_of

_ADVICE = {
    METADATA: "Look the DOI up at Crossref. If its record is right, deposit metadata and PDF by hand.",
    CONTENT: "Fetch the PDF from the publisher by hand, and deposit it with its metadata.",
}
_SUBMIT = "Deposit it by hand."
_MENDED = {
    DSpaceLoginFailed.category: "When the user and password that Milepost has for DSpace are right",
    CollectionUnknown.category: "When the collection in Milepost's settings is right",
    DSpaceUnavailable.category: "When DSpace answers again",
}
"""Errors at the submit stage that are no fault of the DOI, and what has to be mended."""
_SEARCH_INSTEAD = "To deposit it by hand instead, search DSpace for the DOI first: a try may have succeeded."
_SEARCH_FIRST = "Search DSpace for the DOI first: the last try may have succeeded. Deposit it by hand only if it is not there."


class DigestEntry(msgspec.Struct, frozen=True):
    """One DOI in a digest: its word, and what people have to know."""

    doi: str
    word: str
    stage: str = ""
    error: str = ""
    attempts: int = 0
    retry_at: str | None = None
    """When it is tried again; None: in the next round."""
    handle: str | None = None
    title: str = ""
    advice: str = ""


def latest_lines(lines: Iterable[Mapping[str, Any]], route: str) -> dict[str, Mapping[str, Any]]:
    """The last history line of each DOI of the route that says something new to people: deposited, failed, or will be retried."""
    found: dict[str, Mapping[str, Any]] = {}
    for line in lines:
        if line["route"] != route or line["reason"] in NOTES:
            continue
        found.pop(line["key"], None)
        if line.get("status") is not None and word_of(line["status"]) in (SUCCESS, RETRIES, FAILED):
            found[line["key"]] = line
    return found


def entry_of(line: Mapping[str, Any], view: Mapping[str, Any] | None, *, rounds: bool) -> DigestEntry | None:
    """The entry of a DOI whose last line is `line`; `view` is the item as `show` gives it, None if its row has left. None: the DOI has moved
    on since, and a later digest names it."""
    doi, word = line["key"], word_of(line["status"])
    if view is not None and word_of(view["status"]) != word:
        return None
    results = (view or {}).get("results") or {}
    title = (results.get(METADATA) or {}).get("title", "")
    if word == SUCCESS:
        return DigestEntry(doi, word, handle=(results.get("submit") or {}).get("handle"), title=title)
    error = (view or {}).get("error") or {"category": line.get("error_category", ""), "message": _message(line)}
    stage = line["stage"]
    entry = DigestEntry(
        doi, word, stage, error["message"], int((view or line).get("attempts") or line.get("attempt_number") or 0), title=title
    )
    if word == RETRIES:
        return msgspec.structs.replace(entry, retry_at=None if rounds else (view or {}).get("due_at"))
    return msgspec.structs.replace(entry, advice=advice_of(error, stage))


def advice_of(error: dict[str, Any] | None, stage: str) -> str:
    """The advice to a person about a DOI that failed at this stage with this error."""
    search_first = may_be_deposited(error, stage)
    mended = _MENDED.get((error or {}).get("category", "")) if stage == SUBMIT else None
    if mended is not None:
        return f"{mended}, requeue it. {_SEARCH_INSTEAD if search_first else 'Or deposit it by hand.'}"
    return _SEARCH_FIRST if search_first else _ADVICE.get(stage, _SUBMIT)


def _message(line: Mapping[str, Any]) -> str:
    details = line.get("error_details")
    return str(details.get("message", "")) if isinstance(details, Mapping) else ""


class Digest(msgspec.Struct, frozen=True):
    """Content of a mail: the DOIs by their result, and the number of all DOIs by word."""

    id: str
    to: tuple[str, ...]
    owner: str
    """The DOI prefix whose owners get it; empty: everything that has no owner of its own."""
    deposited: tuple[DigestEntry, ...]
    retries: tuple[DigestEntry, ...]
    manual: tuple[DigestEntry, ...]
    counts: dict[str, int]
    notes: tuple[str, ...] = ()
    """Sentences about the digest itself and about all DOIs: where it begins, runs that were interrupted, partners that ask us to slow down."""

    @property
    def empty(self) -> bool:
        """Does it name no DOI?"""
        return not (self.deposited or self.retries or self.manual)


def first_note(since: datetime) -> str:
    """The sentence of the first digest of a ledger that has an older history."""
    return (
        f"This is the first digest. It begins on {since:%Y-%m-%d} at {since:%H:%M} UTC, and does not name what happened earlier; "
        "all manual deposits are on the worklist."
    )


def digests_of(
    entries: Iterable[DigestEntry],
    id: str,
    to: tuple[str, ...],
    owners: Mapping[str, tuple[str, ...]],
    counts: Mapping[str, int],
    notes: Iterable[str] = (),
    *,
    news: bool = False,
) -> list[Digest]:
    """One digest for each owner of a DOI prefix (the longest prefix wins) and one for all other DOIs. None is empty, except with `news`: then
    the notes are a digest by themselves."""
    by_owner: dict[str, list[DigestEntry]] = {"": []} if news else {}
    said = tuple(notes)
    prefixes = sorted(owners, key=len, reverse=True)
    for entry in entries:
        owner = next((prefix for prefix in prefixes if entry.doi.startswith(prefix.lower())), "")
        by_owner.setdefault(owner, []).append(entry)
    found = []
    for owner, own in sorted(by_owner.items()):
        own.sort(key=lambda entry: entry.doi)
        found.append(
            Digest(
                id=f"{id}{'-' if owner else ''}{owner}",
                to=owners.get(owner, to),
                owner=owner,
                deposited=tuple(one for one in own if one.word == SUCCESS),
                retries=tuple(one for one in own if one.word == RETRIES),
                manual=tuple(one for one in own if one.word == FAILED),
                counts=dict(counts),
                notes=said,
            )
        )
    return [digest for digest in found if not digest.empty or (news and not digest.owner)]
