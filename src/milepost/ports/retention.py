"""Retention in a ledger: rows of ended items leave, their seals stay, and lines leave once they are delivered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from milepost.core.item import Item
from milepost.core.status import Status
from milepost.ports.feed import HistoryEntry
from milepost.ports.items import KnownKey


class DeliveredLines(Struct, frozen=True):
    """Lines that all subscribers have: those up to a place, except the lines of items parked for a subscriber."""

    up_to: int
    """Every subscriber's cursor has passed this place, and daily heads, if there are any, cover it."""
    parked: frozenset[tuple[str, str]] = frozenset()
    """(route, key) of each item with an undelivered event that a subscriber's cursor has passed."""

    def covers(self, route: str, key: str, last: int) -> bool:
        """Whether all lines of this item, the last of which has this place, are delivered."""
        return last <= self.up_to and (route, key) not in self.parked


class Leaving(Struct, frozen=True):
    """An item whose row is about to leave: all of it, with its lines."""

    item: Item
    lines: list[HistoryEntry]


Keep = Callable[[Sequence[Leaving]], None]
"""Keeps what must outlive rows; may be called again with the same items."""


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


class LedgerRetention(Protocol):
    """A key stays known by its seal after its row has left, and no line leaves that a subscriber has not received."""

    row_expiry: bool
    """Ended rows leave by themselves when their route's `keep` is over. False: the retention role of a station removes them."""

    def prune(
        self,
        route: str,
        statuses: frozenset[Status],
        ended_before: int,
        forget_before: int | None,
        delivered: DeliveredLines,
        limit: int,
        keep: Keep | None = None,
    ) -> Pruned:
        """Remove rows that ended before then with one of these statuses; their seals stay. `keep` gets each row just before it leaves;
        a row that it cannot keep stays. The lines of removed rows that ended before then leave once `delivered` covers them; until then `feed`
        and `history` return them. Seals older than `forget_before` are removed if their lines have left. A place in the feed is never
        reused."""

    def sealed(self, route: str, after: str | None, limit: int) -> tuple[list[KnownKey], str | None]:
        """Seals of keys without a row, page by page: pass the returned position as `after` to continue (None: no more)."""
