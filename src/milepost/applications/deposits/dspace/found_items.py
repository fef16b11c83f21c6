"""Items that DSpace has already: judged before a deposit is made, so that no DOI gets a second item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import milepost as mp
from milepost.applications.deposits.dspace.api import DSpace, DSpaceBitstream, DSpaceItem, Metadata
from milepost.applications.deposits.files import Deposit, StoredFile

ADDED_BY_DSPACE = frozenset({"dc.date.accessioned", "dc.date.available", "dc.description.provenance", "dc.identifier.uri"})


def judge(dspace: DSpace, deposit: Deposit, items: Sequence[DSpaceItem]) -> mp.Outcome | None:
    """The outcome for the items that have the deposit's DOI. None: there are none, or all of them are hidden from searches."""
    public = [one for one in items if one.discoverable and not one.withdrawn]
    for item in public:
        files = dspace.files(item.uuid)
        if files:
            others = [one.handle or one.uuid for one in public if one is not item]
            same = any(same_file(file, deposit.content) for file in files)
            return mp.Done({**deposited(item, files), "found": True, "same_file": same, "others": others})
    if public:
        return mp.Reject(
            f"DSpace has the item {_name(public[0])} of this DOI without a file; add the PDF there, then mark the DOI as deposited",
            category="INCOMPLETE_ITEM",
            details={"handle": public[0].handle, "uuid": public[0].uuid},
        )
    withdrawn = next((one for one in items if one.withdrawn), None)
    if withdrawn is not None:
        return mp.Reject(
            f"DSpace has withdrawn the item {_name(withdrawn)} of this DOI; reinstate it there and mark the DOI as deposited, or abandon it",
            category="WITHDRAWN",
            details={"handle": withdrawn.handle, "uuid": withdrawn.uuid},
        )
    return None


def hidden(item: DSpaceItem) -> mp.Reject:
    """The outcome for an item that is hidden from searches and that is not ours to change."""
    return mp.Reject(
        f"DSpace has the item {_name(item)} of this DOI, which is hidden from searches; publish it there and mark the DOI as deposited, or"
        " delete it and requeue the DOI",
        category="HIDDEN_ITEM",
        details={"handle": item.handle, "uuid": item.uuid},
    )


def is_half_made(item: DSpaceItem, files: Sequence[DSpaceBitstream], metadata: Metadata, name: str) -> bool:
    """Is this hidden item one that an earlier try of ours left behind? It has just the metadata that we send, and no file but ours
    (`name`). An item that a librarian hides on purpose has more, or other values."""
    if item.discoverable or item.withdrawn or any(file.name != name for file in files):
        return False
    sent = {field: sorted(str(entry["value"]) for entry in entries) for field, entries in metadata.items()}
    found = {field: _values(entries) for field, entries in item.metadata.items() if field in sent or field not in ADDED_BY_DSPACE}
    for field in ADDED_BY_DSPACE & sent.keys():
        found[field] = [value for value in found.get(field, ()) if value in sent[field]]
    return found == sent


def _values(entries: Any) -> list[str]:
    return sorted(str(entry.get("value")) for entry in entries if isinstance(entry, dict)) if isinstance(entries, list) else []


def _name(item: DSpaceItem) -> str:
    return item.handle or item.uuid


def deposited(item: DSpaceItem, files: list[DSpaceBitstream]) -> dict[str, Any]:
    """The output of the submit stage for an item in DSpace."""
    stored = [{"name": one.name, "uuid": one.uuid, "checksum": one.checksum, "algorithm": one.algorithm} for one in files]
    return {"handle": item.handle, "uuid": item.uuid, "last_modified": item.last_modified, "files": stored, "via": "dspace"}


def same_file(stored: DSpaceBitstream, sent: StoredFile) -> bool:
    """Has DSpace stored the bytes that were sent? Its checksum is MD5; where it gives none, the size must do."""
    if stored.checksum is not None and (stored.algorithm or "MD5").upper() == "MD5":
        return stored.checksum.lower() == sent.md5
    return stored.size == sent.size
