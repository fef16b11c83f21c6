"""Page by page through a ledger: rows that match a query, seals, and history lines."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from milepost.ports.feed import HistoryEntry
from milepost.ports.items import KnownKey, Query, QueryPage
from milepost.ports.ledger import Ledger


def query_pages(ledger: Ledger, query: Query) -> Iterator[QueryPage]:
    """All pages of a query, from its own `after` on."""
    while True:
        page = ledger.find(query)
        yield page
        if page.next is None:
            return
        query = replace(query, after=page.next)


def seal_pages(ledger: Ledger, route: str, size: int) -> Iterator[list[KnownKey]]:
    """The seals of all keys of a route whose rows have left."""
    after: str | None = None
    while True:
        seals, after = ledger.sealed(route, after, size)
        yield seals
        if after is None:
            return


def line_pages(ledger: Ledger, after: int, size: int) -> Iterator[list[HistoryEntry]]:
    """The feed after a position."""
    while lines := ledger.feed(after, size):
        yield lines
        after = lines[-1].seq
