"""Search for rows: by the index of due or failed rows where the query allows it, else by a scan.

The index is updated shortly after its table, so a row that has just changed may be missed. Each row
in it is read from the table, consistently, before it is returned. A scan, and a query of one
partition, read consistently and miss nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from milepost.core.errors import LedgerMissing, UsageError
from milepost.core.item import Content, Item, Row
from milepost.core.status import FAILED, Status
from milepost.ports.documents import ROUTE
from milepost.ports.items import Query, QueryPage, Refused
from milepost.ports.upkeep import ScanCost
from milepost_aws.ledger.names import FAILED_SHARD, MARKED_SHARD, QUEUED_SHARD, SHARDS, iso
from milepost_aws.ledger.refused_rows import item_or_refused, row_or_refused
from milepost_aws.ledger.requests.client import expressions
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.tables.keys import Image, Layout, due_query

PAGE = 1000
MOST_ORDERED = 1_000
"""Up to so many matching rows are sorted by their time of acceptance."""
ORDERED = "ordered"
"""Marks a position in the order of acceptance."""


def find(store: AwsStore, query: Query) -> QueryPage:
    """A page of matching rows. `after` is a position in the index, the table or the order of
    acceptance, as plain JSON values."""
    layout = store.layout(query.route)
    if layout is None:
        return QueryPage([])
    if query.order is not None and (
        query.after is None or (isinstance(query.after, list) and query.after[:1] == [ORDERED])
    ):
        found = _in_order(store, layout, query)
        if found is not None:
            return found
    page = _page(store, layout, query)
    return page if query.order is None else replace(page, ordered=False)


def _page(store: AwsStore, layout: Layout, query: Query) -> QueryPage:
    """A page in the order of the index or the table."""
    if query.prefix is not None and (start := layout.partition(query.prefix)) is not None:
        walk = _by_partition(store, layout, query, start)
    else:
        walk = (
            _by_index(store, layout, query) if by_index(query) else _by_scan(store, layout, query)
        )
    items: list[Item] = []
    refused: list[Refused] = []
    last: Any = None
    try:
        for image, place in walk:
            item = _matching(store, layout, image, query)
            if item is None:
                continue
            if len(items) + len(refused) == query.limit:
                return QueryPage(items, last, refused)
            if isinstance(item, Refused):
                refused.append(item)
            else:
                items.append(item)
            last = place
    except LedgerMissing:
        return QueryPage([])
    return QueryPage(items, refused=refused)


def _in_order(store: AwsStore, layout: Layout, query: Query) -> QueryPage | None:
    """A page in the order of acceptance; None: no index serves that order, and more rows match than
    are read and sorted for a page."""
    # More rows may match by now than for the first page: a later page reads more, but only those
    # that can be on it.
    most = MOST_ORDERED if query.after is None else 10 * MOST_ORDERED
    whole = _page(store, layout, replace(_from_place(query), after=None, limit=most))
    if whole.next is not None:
        if query.after is None:
            return None
        raise UsageError(
            f"more than {most:,} items match by now, which cannot be put in order of time; repeat the search, or narrow it down"
        )
    step = -1 if query.order == "newest" else 1
    start = None if query.after is None else (step * query.after[1], query.after[2])
    ordered = sorted(
        (((step * item.row.created_at, item.key), item) for item in whole.items),
        key=lambda pair: pair[0],
    )
    left = [(place, item) for place, item in ordered if start is None or place > start]
    page = left[: query.limit]
    following = [ORDERED, step * page[-1][0][0], page[-1][0][1]] if len(left) > len(page) else None
    return QueryPage(
        [item for _, item in page], following, whole.refused if query.after is None else []
    )


def _from_place(query: Query) -> Query:
    """The query without the rows that were accepted before its place in the order of acceptance."""
    if query.after is None:
        return query
    at = query.after[1]
    if query.order == "newest":
        return replace(
            query,
            created_before=at + 1
            if query.created_before is None
            else min(query.created_before, at + 1),
        )
    return replace(
        query, created_from=at if query.created_from is None else max(query.created_from, at)
    )


def by_index(query: Query) -> bool:
    """Whether an index serves this query; otherwise the whole table is read."""
    return not query.exact and (
        query.due_before is not None or (query.statuses is not None and query.statuses <= FAILED)
    )


def cost_of(store: AwsStore, query: Query) -> ScanCost | None:
    """A scan reads every row of the route: about one unit each, since values of more than 4 KB are
    in blobs."""
    layout = store.layout(query.route)
    served = (
        query.prefix is not None
        and layout is not None
        and layout.partition(query.prefix) is not None
    )
    if served or by_index(query):
        return None
    from milepost_aws.ledger.cost.prices import REGIONS

    rows = sum(count.n for count in store.counters.counts(query.route))
    prices = REGIONS.get(store.requests.region)
    return ScanCost(rows, rows, None if prices is None else prices.reads * rows)


def _matching(store: AwsStore, layout: Layout, image: Image, query: Query) -> Item | Refused | None:
    row = row_or_refused(store, layout, image)
    if not isinstance(row, Row):
        return row
    if not query.matches(row):
        return None
    return item_or_refused(store, layout, image) if query.with_content else Item(row, Content())


def _by_index(store: AwsStore, layout: Layout, query: Query) -> Iterator[tuple[Image, Any]]:
    """Partition by partition; rows are read in batches of a hundred."""
    if query.due_before is None:
        partitions = [(f"{FAILED_SHARD}#{shard}", iso(2**62)) for shard in range(SHARDS)]
    else:
        stages = sorted(
            query.stages if query.stages is not None else stages_of(store, layout.route)
        )
        partitions = _due_partitions(layout, query, stages, iso(query.due_before))
    at, start = query.after if query.after is not None else (0, None)
    for number in range(at, len(partitions)):
        entries = store.requests.query(layout.table, start, **due_query(*partitions[number]))
        while page := list(islice(entries, 100)):
            yield from _rows(store, layout, page, number)
        start = None


def _due_partitions(
    layout: Layout, query: Query, stages: Sequence[str], before: str
) -> list[tuple[str, str]]:
    """The partitions with due rows, and the time up to which each is read. A row with an overdue
    mark that waits for a worker is indexed by that mark; its offer life may end before."""
    partitions: list[tuple[str, str]] = []
    for stage in stages:
        kinds = [("", before)]
        if query.statuses is None or Status.QUEUED in query.statuses:
            if query.in_queue:
                kinds += [(f"{QUEUED_SHARD}#", before), (f"{MARKED_SHARD}#", iso(2**62))]
            elif stage not in layout.stages or layout.stages[stage].overdue_ms is not None:
                kinds.append((f"{MARKED_SHARD}#", before))
        partitions += [
            (f"{kind}{stage}#{shard}", until) for kind, until in kinds for shard in range(SHARDS)
        ]
    return partitions


def _rows(
    store: AwsStore, layout: Layout, entries: list[Image], number: int
) -> Iterator[tuple[Image, Any]]:
    images = store.images(layout.route, [layout.key_of(entry) for entry in entries])
    for entry in entries:
        image = images.get(layout.key_of(entry))
        # A row that has moved since the index was read is found again in its new partition, or is
        # no longer due.
        if image is not None and image.get("dueShard") == entry["dueShard"]:
            yield image, (number, entry)


def _by_partition(
    store: AwsStore, layout: Layout, query: Query, start: tuple[str, str]
) -> Iterator[tuple[Image, Any]]:
    """The rows that share the key's first part: they are in one partition."""
    (first, second), (whole, begin) = layout.key, start
    condition, values = "#first = :first", {"first": {"S": whole}}
    if begin:
        condition += " AND begins_with(#second, :begin)"
        values["begin"] = {"S": begin}
    there = expressions(
        values, {"first": first, "second": second}, KeyConditionExpression=condition
    )
    for image in store.requests.query(layout.table, query.after, **there, ConsistentRead=True):
        yield image, {name: image[name] for name in layout.key}


def _by_scan(store: AwsStore, layout: Layout, query: Query) -> Iterator[tuple[Image, Any]]:
    conditions: list[str] = []
    values: dict[str, dict[str, str]] = {}
    wanted = {
        "status": None if query.statuses is None else {status.value for status in query.statuses},
        "queue": query.stages,
    }
    for attribute, allowed in wanted.items():
        # DynamoDB accepts at most 100 values here; a longer list is filtered by `matches`.
        if allowed is None or len(allowed) > 100:
            continue
        if not allowed:
            return
        marks = {
            f"{attribute}{number}": {"S": value} for number, value in enumerate(sorted(allowed))
        }
        conditions.append(f"#{attribute} IN (:{', :'.join(marks)})")
        values |= marks
    wanted_rows = (
        expressions(values, FilterExpression=" AND ".join(conditions)) if conditions else {}
    )
    for image in store.requests.scan(layout.table, query.after, ConsistentRead=True, **wanted_rows):
        yield image, {name: image[name] for name in layout.key}


def stages_of(store: AwsStore, route: str) -> list[str]:
    """The route's stages: from the route itself if it is loaded, else as recorded in the ledger."""
    if route in store.plans:
        return list(store.plans[route].by_name)
    held = store.control.read_one(ROUTE, route)
    return [] if held is None else [name for name, _ in held.value["shape"]]
