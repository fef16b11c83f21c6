"""Page by page through a ledger: rows that match a query, seals, and history lines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

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


def matching_seals(
    ledger: Ledger, query: Query, size: int, *, forgotten: bool = False
) -> Iterator[KnownKey]:
    """The seals that match a query. Those of forgotten items come only if they are asked for, and
    only where the query does not ask for keys."""
    wanted = forgotten and not query.prefix and not query.parts
    for known in chain.from_iterable(seal_pages(ledger, query.route, size)):
        if (wanted or not known.forgotten) and _matches(known, query):
            yield known


def left_failures(ledger: Ledger, query: Query, size: int) -> Iterator[KnownKey]:
    """The seals of failed items whose rows have left that match a query. Forgotten items cannot be
    retried, so they are left out."""
    after: str | None = None
    while True:
        page = ledger.left_failures(query.route, query.prefix or "", after, size)
        yield from (seal for seal in page.seals if not seal.forgotten and _matches(seal, query))
        after = page.next
        if after is None:
            return


def _matches(seal: KnownKey, query: Query) -> bool:
    """Whether a seal matches a query. It has no lane and no error, so queries for these match rows
    only."""
    return (
        query.lane is None
        and query.group is None
        and seal.key.startswith(query.prefix or "")
        and all(part.matches(seal.key) for part in query.parts)
        and (query.statuses is None or seal.status in query.statuses)
        and (query.stages is None or seal.stage in query.stages)
        and (query.lists is None or seal.list_id in query.lists)
        and (query.entered_before is None or (seal.ended_at or 0) < query.entered_before)
    )


def line_pages(ledger: Ledger, after: int, size: int) -> Iterator[list[HistoryEntry]]:
    """The feed after a position."""
    while lines := ledger.feed(after, size):
        yield lines
        after = lines[-1].seq
