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
    return Deposit(item.key, metadata.get("title", ""), _stored(metadata["file"]), _stored(content["file"]))


def _stored(value: Any) -> StoredFile:
    return msgspec.convert(value, StoredFile)
