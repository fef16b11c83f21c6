"""The Ledger port: the durable record of every item. Plain synchronous batches; values in, values
out.

Every operation takes `now` and never reads a clock. Nothing of the storage shows (no SQL, no client
types). Each part states what it promises; the contract suite in `milepost_testing` tests it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from milepost.ports.documents import LedgerDocuments
from milepost.ports.feed import LedgerFeed
from milepost.ports.foreign_rows import LedgerForeignRows
from milepost.ports.items import LedgerItems
from milepost.ports.retention import LedgerRetention
from milepost.ports.upkeep import LedgerUpkeep

MISSING_CAPABILITIES = {
    "change counter": "It has no change counter: it is polled every few seconds, so pages and events come a little later.",
    "proof of death": "It cannot prove that a process is dead: the items it had claimed come back when its leases expire.",
    "fair lanes": "Lanes of a stage share a queue, so a lane may wait behind another lane's backlog.",
    "one step": "It cannot settle and claim in one write: each claim is a separate write.",
    "take over": "It cannot be the target of a move from another ledger.",
    "backup": "It cannot be backed up into a file. On AWS, point-in-time recovery of its tables and versioning of its bucket do that.",
    "lane counts": "It cannot count items by lane, by list or by their time at a stage without reading every row: such figures are left out.",
    "exact counts": "Its counters follow changes with a short delay: they are for display, and no decision uses them.",
}
"""Capabilities that a ledger may lack, and what that means for people."""


class LedgerPresence(Protocol):
    """A holder that signed on is alive until it signs off or is proved dead; only the items of a
    dead one may be reclaimed."""

    def sign_on(self, holder: str) -> None:
        """This process is alive as `holder` until it signs off or dies."""

    def sign_off(self, holder: str) -> None: ...

    def dead_workers(self) -> list[str]:
        """Holders that signed on here and are proved dead."""

    def reclaim(self, holders: Sequence[str], now: int) -> int:
        """Make the items claimed by these dead holders due at once; returns how many."""

    def change_counter(self) -> int:
        """A number that changes whenever a process may have written."""


class Ledger(
    LedgerItems,
    LedgerFeed,
    LedgerDocuments,
    LedgerRetention,
    LedgerPresence,
    LedgerForeignRows,
    LedgerUpkeep,
    Protocol,
):
    """The sum of its parts. What a ledger cannot do is declared; callers infer nothing from its URL
    or its times."""

    url: str
    missing_capabilities: frozenset[str]
    """Capabilities that this ledger lacks, of `MISSING_CAPABILITIES`."""
    known_format: int
    """The newest format of tables that this version knows, if an operator raises it; else 0."""
