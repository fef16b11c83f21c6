"""Upkeep of a ledger: its services, its cost, its backup, renamed stages and records of another
ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from milepost.core.item import Item
from milepost.core.routes.plan import Plan
from milepost.ports.feed import HistoryEntry
from milepost.ports.items import KnownKey, Query
from milepost.ports.runner import Chance, Clock
from milepost.ports.service import Service


class TransferResult(Struct, frozen=True):
    """Result of transferring a record: the places of its lines here, and (key, why) for rows that
    were not written because another row exists."""

    places: list[int]
    refused: list[tuple[str, str]]


class ScanCost(Struct, frozen=True):
    """Maximum cost of a query without an index: all rows of the route are read."""

    rows: int
    units: int
    dollars: float | None
    """None: the prices of the ledger's region are not known."""


class FutureCount(Struct, frozen=True):
    """The items of a route that are not completed and are dated in the future, as of a time."""

    n: int
    as_of: int


class TablesFormat(Struct, frozen=True):
    """The format of the ledger's tables. `old_documents`: so many documents have the form of an
    earlier one than the newest; they are read all the same."""

    number: int
    known: int
    """The newest format that this version of Milepost knows."""
    old_documents: int = 0


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
    """Keys of items whose history does not end at the head in their row: another program has
    changed them."""


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


class LedgerUpkeep(Protocol):
    """Rare operations. None changes the status of an item."""

    def clock(self) -> Clock | None:
        """The clock by which this ledger's leases and due times are judged; None: that of this
        machine."""

    def services(
        self, plans: Mapping[str, Plan], clock: Clock, chance: Chance, holder: str
    ) -> list[tuple[str, Service]]:
        """Services that must run beside the engine for this ledger, each with its role."""

    def idle_upkeep(self) -> None:
        """Called while the process is idle: the ledger does its own upkeep."""

    def cost_of(self, query: Query) -> ScanCost | None:
        """Cost of this search; None: an index answers it, or reading is free here."""

    def rename_stage(self, route: str, old: str, new: str) -> None:
        """Move every item at stage `old` to `new`, with its counters. Nothing else changes."""

    def take_over(
        self,
        plan: Plan,
        items: Sequence[Item],
        lines: Sequence[HistoryEntry],
        seals: Sequence[KnownKey],
        now: int,
    ) -> TransferResult:
        """Write the record of another ledger: lines byte for byte and in this order, rows with
        their content, and seals. Lines come before the rows that they belong to. A repeat changes
        nothing. Items that wait for a worker are due at once."""

    def counted_future(self, route: str) -> FutureCount | None:
        """The items dated in the future by the ledger's own last count, where no search finds them
        cheaply (`work_queues`); None: it has not counted them yet."""

    def format(self) -> TablesFormat | None:
        """The format of the tables, which an operator raises; None: the ledger brings its form up
        to date by itself when it is opened."""

    def raise_format(self) -> int:
        """Raise the format to the newest one, and give documents of earlier ones its form; returns
        how many. A repeat continues. Processes may be at work, but none that does not know the
        newest format."""

    def backup(self, target: Path, overwrite: bool, on_progress: Progress) -> BackupReport:
        """Copy the ledger as of now, with its blobs, to a file, while other processes write; a
        ledger may lack "backup"."""

    def describe(self) -> dict[str, Any]:
        """Facts for `milepost doctor`: address, size and problems of the ledger."""

    def close(self) -> None: ...
