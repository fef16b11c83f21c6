"""What a ledger answers when it is asked about itself: counts, groups, documents, and what its upkeep came to."""

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
    """Hours since 1970 at which these items entered their stage, or ended."""
    n: int


class Group(Struct, frozen=True):
    """Like errors, across items. `now` have it at present; `total` have ever had it."""

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
    """What one call of `prune` came to."""

    items: int
    forgotten: int
    """Seals that were older than the route remembers."""
    more: bool
    lines: int = 0
    """Items whose rows had left, and whose lines left now."""
    statuses: dict[Status, int] = {}
    """The rows that left, by status."""


class TransferResult(Struct, frozen=True):
    """What became of a record that was taken over: the places of its lines here, and (key, why) for rows that were not written
    because another row stands there."""

    places: list[int]
    refused: list[tuple[str, str]]


class ScanCost(Struct, frozen=True):
    """What a question costs, at most, that no index answers: all rows of the route are read."""

    rows: int
    units: int
    dollars: float | None
    """None: no prices are known for where the ledger is."""


class BackupReport(Struct, frozen=True):
    """What a backup holds. `last_seq` is the place of its last history line in the order in which the ledger was written."""

    file: str
    bytes: int
    blobs: int
    blob_bytes: int
    items: int
    seals: int
    last_seq: int
    broken: list[str]
    """Keys of items whose history does not end at the head in their row: something else than Milepost has changed them."""


class RestoreReport(Struct, frozen=True):
    """What was restored; `set_aside` is the new name of the ledger that was there before."""

    ledger: str
    file: str
    blobs: int
    items: int
    seals: int
    last_seq: int
    broken: list[str]
    set_aside: str | None = None


Progress = Callable[[int, int], None]
"""Called now and then with the bytes done and the bytes in all."""
