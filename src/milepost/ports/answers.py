"""Results of ledger queries and upkeep: counts, groups, documents, reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from milepost.core.status import Status


class Count(Struct, frozen=True):
    route: str
    stage: str
    status: Status
    hour: int
    """Hour, since 1970, in which these items entered their stage, or ended."""
    n: int


class Group(Struct, frozen=True):
    """A group of similar errors. `now` items have it at present; `total` items ever had it."""

    route: str
    stage: str
    group: str
    category: str
    sample: str
    now: int
    total: int
    first_at: int
    last_at: int


class Document(Struct, frozen=True):
    value: Any
    version: int


class Pruned(Struct, frozen=True):
    """Result of one call of `prune`."""

    items: int
    forgotten: int
    """Seals older than the route remembers."""
    more: bool
    lines: int = 0
    """Items without a row whose lines were removed now."""
    statuses: dict[Status, int] = {}
    """Removed rows by status."""


class TransferResult(Struct, frozen=True):
    """Result of transferring a record: the places of its lines here, and (key, why) for rows that were not written because another row
    exists."""

    places: list[int]
    refused: list[tuple[str, str]]


class ScanCost(Struct, frozen=True):
    """Maximum cost of a query without an index: all rows of the route are read."""

    rows: int
    units: int
    dollars: float | None
    """None: the prices of the ledger's region are not known."""


class BackupReport(Struct, frozen=True):
    """Contents of a backup. `last_seq` is the place of its last history line."""

    file: str
    bytes: int
    blobs: int
    blob_bytes: int
    items: int
    seals: int
    last_seq: int
    broken: list[str]
    """Keys of items whose history does not end at the head in their row: another program has changed them."""


class RestoreReport(Struct, frozen=True):
    """Result of a restore; `set_aside` is the new name of the ledger that was there before."""

    ledger: str
    file: str
    blobs: int
    items: int
    seals: int
    last_seq: int
    broken: list[str]
    set_aside: str | None = None


Progress = Callable[[int, int], None]
"""Progress callback: bytes done, bytes in total."""
