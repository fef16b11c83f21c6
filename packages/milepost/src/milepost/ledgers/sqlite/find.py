"""Search for rows by key, error, failure, age, due time, overdue mark or list, else by a table
scan; every page is a short read."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from msgspec.structs import replace

from milepost.core.admission.controls import lanes_above
from milepost.core.item import Content, Item, Row
from milepost.core.status import LIVE, Status
from milepost.core.values.key_text import SEPARATOR
from milepost.ledgers.sqlite.rows.codec import CODES, COLUMNS, HANDED_OVER, items_of, rows_of
from milepost.ledgers.sqlite.rows.due_rows import FREE, HELD
from milepost.ledgers.sqlite.rows.names import NameNumbers, Transaction
from milepost.ports.items import Query, QueryPage, Refused

WINDOW = 200_000
"""Maximum rows of the table that one page may skip: keeps every read transaction short."""
MOST_SORTED = 1_000
"""Up to so many matches of an index with another order are sorted for a page."""
NO_ID = 2**63 - 1
"""Larger than every id."""
LAST = "\U0010ffff"
"""Sorts after every character of a key."""
_PLACE_OF = {name.strip(): place for place, name in enumerate(COLUMNS.split(","))}
PROCESSING = frozenset({Status.PROCESSING})


class Times(NamedTuple):
    """An index of rows by place and a time, over the rows that meet a condition."""

    name: str
    column: str
    condition: str


DUE = Times("item_due", "due_at", f"due_at IS NOT NULL AND {FREE}")
IN_HAND = Times("item_held", "due_at", HELD)
HANDED = Times("item_handed_over", "due_at", f"flags & {HANDED_OVER}")
OVERDUE = Times("item_overdue", "overdue_at", "overdue_at IS NOT NULL")
AGE = Times("item_age", "entered_at", "due_at IS NOT NULL")
SECOND = "substr(key, instr(key, '#') + 1)"
"""SQL for the part of a key after its first part, as in the index."""
FAILED = frozenset({Status.MAX_RETRIES_EXCEEDED, Status.REJECTED, Status.CANCELLED})


class IndexRange(NamedTuple):
    """Rows that lie together in an index, sorted by `order`. A search reads its ranges one after
    the other, sorted by `place`."""

    place: tuple[Any, ...]
    source: str
    condition: str
    values: tuple[Any, ...]
    order: tuple[str, ...] = ("id",)
    before: tuple[Any, ...] = (0,)
    """Values of `order` that are lower than those of any row."""

    @property
    def select(self) -> str:
        return f"SELECT {COLUMNS} FROM item INDEXED BY {self.source} WHERE {self.condition}"


def find(tx: Transaction, query: Query) -> QueryPage:
    route = tx.names.routes.get(query.route)
    if route is None or not _places(tx.names, query):
        return QueryPage([])  # no item was ever there
    where, values = _conditions(query)
    if query.order is not None:
        rows, after = _in_order(tx, query, route, where, values)
    else:
        by_index = _by_index(tx, query, route, where, values)
        rows, after = _along(tx, query, route, where, values) if by_index is None else by_index
    found = rows_of(rows, tx.names)
    refused = [row for row in found if isinstance(row, Refused)]
    sound = [row for row in found if isinstance(row, Row)] if refused else cast(list[Row], found)
    if not query.with_content:
        return QueryPage([Item(row, Content()) for row in sound], after, refused)
    items = items_of(tx, sound)
    refused += [item for item in items if isinstance(item, Refused)]
    return QueryPage([item for item in items if isinstance(item, Item)], after, refused)


def _by_index(
    tx: Transaction, query: Query, route: int, where: str, values: list[Any]
) -> tuple[list[Any], Any] | None:
    """A page in the order of the index that serves the search; None: there is none."""
    if query.prefix is not None:
        return _by_key(tx, query, query.prefix, route, where, values)
    ranges = _ranges(tx.names, query, route)
    return None if ranges is None else _page(tx, query, ranges, where, values)


def _ranges(names: NameNumbers, query: Query, route: int) -> list[IndexRange] | None:
    """The ranges of the index that serves a search without a prefix; None: there is none."""
    live = query.statuses is not None and query.statuses <= LIVE
    if (second := next((part for part in query.parts if part.position == 1), None)) is not None:
        return _second_ranges(names, query, second.text, route)
    if query.group is not None or (query.statuses is not None and query.statuses <= FAILED):
        return _ordered_ranges(names, query, route)
    if query.handed_over:
        return _time_ranges(names, query, HANDED)
    if query.overdue_before is not None:
        return _time_ranges(names, query, OVERDUE)
    if live and query.entered_before is not None and query.due_before is None:
        return _time_ranges(names, query, AGE)
    if query.lists is not None:
        return _ordered_ranges(names, query, route)
    if live or query.due_before is not None:
        return _time_ranges(names, query, *_clocks(query))
    return None


def _in_order(
    tx: Transaction, query: Query, route: int, where: str, values: list[Any]
) -> tuple[list[Any], Any]:
    """A page in the order in which the items were recorded, or from the last back. Rows with an
    error, of a list or of a failed status are in this order in their indexes, which are merged. By
    another index up to `MOST_SORTED` matches are read and sorted; if there are more, a walk along
    the table soon finds a page of them."""
    backwards = query.order == "newest"
    side, way = ("<", "DESC") if backwards else (">", "ASC")
    start = (NO_ID if backwards else 0) if query.after is None else query.after
    if query.prefix is not None:
        where, values = (
            f"{where} AND key >= ? AND key < ?",
            [*values, query.prefix, query.prefix + LAST],
        )
    ranges = _ordered_ranges(tx.names, query, route)
    if ranges is not None:
        rows = [
            row
            for one in ranges
            for row in tx.execute(
                f"{one.select} AND id {side} ?{where} ORDER BY id {way} LIMIT ?",
                (*one.values, start, *values, query.limit + 1),
            ).fetchall()
        ]
        return _first(rows, query.limit, backwards)
    some = replace(query, after=None, limit=MOST_SORTED + 1)
    found = _by_index(tx, some, route, f"{where} AND id {side} ?", [*values, start])
    if found is not None and len(found[0]) <= MOST_SORTED:
        return _first(found[0], query.limit, backwards)
    return _along(tx, query, route, where, values)


def _ordered_ranges(names: NameNumbers, query: Query, route: int) -> list[IndexRange] | None:
    """Ranges of indexes in which the wanted rows are in the order of their ids; None: there are
    none."""
    if query.group is None and query.statuses is not None and query.statuses <= FAILED:
        codes = sorted(CODES[status] for status in query.statuses)
        return [
            IndexRange(
                (place, code),
                "item_failed",
                f"place = ? AND status = {code} AND status > 5",
                (place,),
            )
            for place in _places(names, query)
            for code in codes
        ]
    index, column, wanted = (
        ("item_list", "list_id", query.lists)
        if query.group is None
        else ("item_error", "error_group", {query.group})
    )
    condition = f"{column} = ? AND route = ?{_only_places(names, query)}"
    return (
        None
        if wanted is None
        else [IndexRange((one,), index, condition, (one, route)) for one in sorted(wanted)]
    )


def _second_ranges(names: NameNumbers, query: Query, second: str, route: int) -> list[IndexRange]:
    """All items whose key has this second part (a batch, for example), ordered by the key without
    its first part. The index has only keys of several parts; in a key with more than two parts the
    second is followed by the separator."""
    condition = f"route = ? AND instr(key, '#') > 0 AND {SECOND} BETWEEN ? AND ?{_only_places(names, query)}"
    bounds = ((second, second), (second + SEPARATOR, second + SEPARATOR + LAST))
    return [
        IndexRange((), "item_second_part", condition, (route, *some), (SECOND, "id"), ("", 0))
        for some in bounds
    ]


def _time_ranges(names: NameNumbers, query: Query, *indexes: Times) -> list[IndexRange]:
    """Live items, place by place and index by index, each in order of its time."""
    ranges = []
    for place in _places(names, query):
        for number, index in enumerate(indexes):
            first = -1 if query.due_after is None or index.column != "due_at" else query.due_after
            ranges.append(
                IndexRange(
                    (place, number),
                    index.name,
                    f"place = ? AND {index.condition}",
                    (place,),
                    (index.column, "id"),
                    (first, 0),
                )
            )
    return ranges


def _clocks(query: Query) -> list[Times]:
    """The indexes, by due time, of live rows of these statuses."""
    if query.statuses is None:
        return [DUE, IN_HAND]
    return [
        *([DUE] if query.statuses - PROCESSING else []),
        *([IN_HAND] if query.statuses & PROCESSING else []),
    ]


def _page(
    tx: Transaction, query: Query, ranges: list[IndexRange], where: str, values: list[Any]
) -> tuple[list[Any], Any]:
    """A page of these ranges. Its end is the place of the range of its last row, and that row's
    values of its `order`."""
    after = tuple(query.after or ())
    rows: list[Any] = []
    for one in ranges:
        place, start = after[: len(one.place)], after[len(one.place) :]
        if one.place < place:
            continue
        if one.place > place or not after:
            start = one.before
        room, order = query.limit - len(rows), ", ".join(one.order)
        # SQLite finds the first row by the first column; of the rows with the same value it then
        # skips those of earlier pages.
        found = tx.execute(
            f"{one.select} AND ({order}) > ({', '.join('?' * len(start))}) AND {one.order[0]} >= ?{where} ORDER BY {order} LIMIT ?",
            (*one.values, *start, start[0], *values, room),
        ).fetchall()
        rows += found
        if len(found) == room:
            return rows, (*one.place, *(_sort_value(found[-1], column) for column in one.order))
    return rows, None


def _sort_value(row: Any, column: str) -> Any:
    return (
        row[_PLACE_OF["key"]].partition(SEPARATOR)[2]
        if column == SECOND
        else row[_PLACE_OF[column]]
    )


def _first(rows: list[Any], limit: int, backwards: bool) -> tuple[list[Any], int | None]:
    """The first of these rows in the order of their ids, and the place after them if there are
    more."""
    page = sorted(rows, key=lambda row: row[0], reverse=backwards)[:limit]
    return page, page[-1][0] if len(rows) > limit else None


def _conditions(query: Query) -> tuple[str, list[Any]]:
    where, values = "", []
    for condition, value in (
        ("due_at <= ?", query.due_before),
        ("due_at > ?", query.due_after),
        ("max(updated_at, ifnull(claimed_at, 0)) >= ?", query.dated_from),
        ("overdue_at <= ?", query.overdue_before),
        ("entered_at < ?", query.entered_before),
        ("updated_at < ?", query.changed_before),
        ("created_at >= ?", query.created_from),
        ("created_at < ?", query.created_before),
        ("error_group = ?", query.group),
    ):
        if value is not None:
            where += f" AND {condition}"
            values.append(value)
    if query.lists is not None:
        where += f" AND list_id IN ({','.join('?' * len(query.lists))})"
        values += sorted(query.lists)
    if query.handed_over:
        where += f" AND flags & {HANDED_OVER}"
    for part in query.parts:
        where += " AND key_part(key, ?) = ?"
        values += [part.position, part.text]
    if query.statuses is not None:
        where += (
            f" AND status IN ({','.join(str(CODES[status]) for status in sorted(query.statuses))})"
        )
    return where, values


def _places(names: NameNumbers, query: Query) -> list[int]:
    return sorted(
        number
        for number, place in names.by_id.items()
        if place.route == query.route
        and (query.stages is None or place.stage in query.stages)
        and (query.lane is None or place.lane == query.lane)
        and (query.within is None or query.within in lanes_above(place.lane))
    )


def _only_places(names: NameNumbers, query: Query) -> str:
    """A condition for searches that use another index than the one by place."""
    if query.stages is None and query.lane is None and query.within is None:
        return ""
    return f" AND place IN ({','.join(map(str, _places(names, query)))})"


def _by_key(
    tx: Transaction, query: Query, prefix: str, route: int, where: str, values: list[Any]
) -> tuple[list[Any], Any]:
    """Items whose key begins so, in key order."""
    where += _only_places(tx.names, query)
    rows = tx.execute(
        f"SELECT {COLUMNS} FROM item WHERE route = ? AND key >= ? AND key < ? AND key > ?{where} ORDER BY key LIMIT ?",
        (route, prefix, prefix + LAST, query.after or "", *values, query.limit),
    ).fetchall()
    return rows, rows[-1][2] if len(rows) == query.limit else None


def _along(
    tx: Transaction, query: Query, route: int, where: str, values: list[Any]
) -> tuple[list[Any], Any]:
    """A page along the table, from the first row on or from the last one back."""
    where += _only_places(tx.names, query)
    first, newest = tx.execute(
        "SELECT (SELECT min(id) FROM item), (SELECT max(id) FROM item)"
    ).fetchone()
    if newest is None:
        return [], None
    if query.order == "newest":
        start = newest + 1 if query.after is None else query.after
        low = end = start - WINDOW
        high, way = start - 1, "DESC"
    else:
        start = query.after or 0
        high = end = start + WINDOW
        low, way = start + 1, "ASC"
    # "+route" prevents SQLite from using the index on the key, which would sort the whole route for
    # every page.
    rows = tx.execute(
        f"SELECT {COLUMNS} FROM item WHERE id >= ? AND id <= ? AND +route = ?{where} ORDER BY id {way} LIMIT ?",
        (low, high, route, *values, query.limit),
    ).fetchall()
    after = rows[-1][0] if len(rows) == query.limit else end
    more = after > first if query.order == "newest" else after < newest
    return rows, after if more else None
