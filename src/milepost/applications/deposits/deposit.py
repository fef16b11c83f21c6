"""Deposit: the DOI, metadata file and PDF that the submit stage is given."""

from __future__ import annotations

from typing import Any

import msgspec

import milepost as mp
from milepost.applications.deposits.files import StoredFile


class Deposit(msgspec.Struct, frozen=True):
    """A DOI whose metadata and PDF are in the file store."""

    doi: str
    """Normalised: lower case, without a prefix such as https://doi.org/."""
    title: str
    metadata: StoredFile
    """JSON in the form that the settings ask for (`metadata_form`)."""
    content: StoredFile
    """The PDF; `md5` is what DSpace answers after an upload."""


def deposit_of(item: mp.Item) -> Deposit:
    """The deposit of an item at the submit stage, from the results of the stages before."""
    metadata, content = item.results["metadata"], item.results["content"]
    files = (msgspec.convert(result["file"], StoredFile) for result in (metadata, content))
    return Deposit(item.key, metadata.get("title", ""), *files)


def accepts_deposit(value: Any, payload: Any) -> bool:
    """Does this answer from outside say that the deposit is in DSpace? It names the handle, which is None where DSpace still reviews the
    item. A file's checksum must be that of the PDF in `payload`, the output of the content stage; raises ValueError where it is not."""
    if not isinstance(value, dict) or "handle" not in value:
        raise ValueError('give the handle of the item: {"handle": "1721.1/400778"}')
    sent = payload.get("file") if isinstance(payload, dict) else None
    if isinstance(sent, dict):
        for file in value.get("files") or ():
            named = file.get("name") in (None, sent.get("bitstream"))
            checksum = file.get("checksum")
            if named and checksum and str(file.get("algorithm")).upper() == "MD5" and checksum.lower() != sent.get("md5"):
                raise ValueError(f"the checksum of {file.get('name')} in DSpace is {checksum}; the PDF that was sent has {sent.get('md5')}")
    return True
