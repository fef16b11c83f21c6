"""Search for rows by key, error, failure, age, due time, overdue mark or list, else by a table scan; every page is a short read."""

from __future__ import annotations

import sqlite3
from typing import Any, NamedTuple, cast

from milepost.core.item import Content, Item, KeyPart, Row
from milepost.core.status import LIVE, Status
from milepost.core.values.key_text import SEPARATOR
from milepost.ledgers.sqlite.rows.codec import CODES, COLUMNS, HANDED_OVER, items_of, rows_of
from milepost.ledgers.sqlite.rows.due_rows import FREE, HELD
from milepost.ledgers.sqlite.rows.names import NameNumbers
from milepost.ports.items import Query, QueryPage, Refused

WINDOW = 200_000
"""Maximum rows of the table that one page may skip: keeps every read transaction short."""
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
BY_VALUE = {"error_group": "item_error", "list_id": "item_list"}
SECOND = "substr(key, instr(key, '#') + 1)"
"""SQL for the part of a key after its first part, as in the index."""
FAILED = frozenset({Status.MAX_RETRIES_EXCEEDED, Status.REJECTED, Status.CANCELLED})


def find(connection: sqlite3.Connection, names: NameNumbers, query: Query) -> QueryPage:
    route = names.routes.get(query.route)
    if route is None or not _places(names, query):
        return QueryPage([])  # no item was ever there
    where, values = _conditions(query)
    live = query.statuses is not None and query.statuses <= LIVE
    if query.prefix is not None:
        rows, after = _by_key(connection, names, query, query.prefix, route, where, values)
    elif (second := next((part for part in query.parts if part.position == 1), None)) is not None:
        rows, after = _by_second_part(connection, names, query, second, route, where, values)
    elif query.group is not None:
        rows, after = _by_value(connection, names, query, "error_group", [query.group], route, where, values)
    elif query.statuses is not None and query.statuses <= FAILED:
        rows, after = _by_failure(connection, names, query, where, values)
    elif query.handed_over:
        rows, after = _by_time(connection, names, query, [HANDED], where, values)
    elif query.overdue_before is not None:
        rows, after = _by_time(connection, names, query, [OVERDUE], where, values)
    elif live and query.entered_before is not None and query.due_before is None:
        rows, after = _by_time(connection, names, query, [AGE], where, values)
    elif query.lists is not None:
        rows, after = _by_value(connection, names, query, "list_id", sorted(query.lists), route, where, values)
    elif live or query.due_before is not None:
        rows, after = _by_time(connection, names, query, _clocks(query), where, values)
    else:
        rows, after = _along(connection, names, query, route, where, values)
    found = rows_of(rows, names)
    refused = [row for row in found if isinstance(row, Refused)]
    sound = [row for row in found if isinstance(row, Row)] if refused else cast(list[Row], found)
    if not query.with_content:
        return QueryPage([Item(row, Content()) for row in sound], after, refused)
    items = items_of(connection, sound, names)
    refused += [item for item in items if isinstance(item, Refused)]
    return QueryPage([item for item in items if isinstance(item, Item)], after, refused)


def _conditions(query: Query) -> tuple[str, list[Any]]:
    where, values = "", []
    for condition, value in (
        ("due_at <= ?", query.due_before),
        ("overdue_at <= ?", query.overdue_before),
        ("entered_at < ?", query.entered_before),
        ("updated_at < ?", query.changed_before),
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
        where += f" AND status IN ({','.join(str(CODES[status]) for status in sorted(query.statuses))})"
    return where, values


def _places(names: NameNumbers, query: Query) -> list[int]:
    return sorted(
        number
        for number, place in names.by_id.items()
        if place.route == query.route
        and (query.stages is None or place.stage in query.stages)
        and (query.lane is None or place.lane == query.lane)
    )


def _only_places(names: NameNumbers, query: Query) -> str:
    """A condition for searches that use another index than the one by place."""
    if query.stages is None and query.lane is None:
        return ""
    return f" AND place IN ({','.join(map(str, _places(names, query)))})"


def _by_value(
    connection: sqlite3.Connection,
    names: NameNumbers,
    query: Query,
    column: str,
    wanted: list[str],
    route: int,
    where: str,
    values: list[Any],
) -> tuple[list[Any], Any]:
    """All items with this error, or from these lists (list by list), in order of arrival."""
    where += _only_places(names, query)
    start_value, start_id = query.after or ("", 0)
    rows: list[Any] = []
    for value in wanted:
        if value < start_value:
            continue
        room = query.limit - len(rows)
        found = connection.execute(
            f"SELECT {COLUMNS} FROM item INDEXED BY {BY_VALUE[column]} WHERE {column} = ? AND id > ? AND route = ?{where}"
            " ORDER BY id LIMIT ?",
            (value, start_id if value == start_value else 0, route, *values, room),
        ).fetchall()
        rows += found
        if len(found) == room:
            return rows, (value, found[-1][0])
    return rows, None


def _clocks(query: Query) -> list[Times]:
    """The indexes, by due time, of live rows of these statuses."""
    if query.statuses is None:
        return [DUE, IN_HAND]
    return [*([DUE] if query.statuses - PROCESSING else []), *([IN_HAND] if query.statuses & PROCESSING else [])]


def _by_time(
    connection: sqlite3.Connection, names: NameNumbers, query: Query, clocks: list[Times], where: str, values: list[Any]
) -> tuple[list[Any], Any]:
    """Live items, place by place and index by index, each in order of its time."""
    start_place, start_clock, start_time, start_id = query.after or (0, 0, -1, 0)
    rows: list[Any] = []
    for place in _places(names, query):
        for clock, (name, column, condition) in enumerate(clocks):
            if (place, clock) < (start_place, start_clock):
                continue
            time, number = (start_time, start_id) if (place, clock) == (start_place, start_clock) else (-1, 0)
            room = query.limit - len(rows)
            found = connection.execute(
                f"SELECT {COLUMNS} FROM item INDEXED BY {name} WHERE place = ? AND {condition} AND ({column}, id) > (?, ?)"
                f" AND {column} >= ?{where} ORDER BY {column}, id LIMIT ?",
                (place, time, number, time, *values, room),
            ).fetchall()
            rows += found
            if len(found) == room:
                return rows, (place, clock, found[-1][_PLACE_OF[column]], found[-1][0])
    return rows, None


def _by_failure(connection: sqlite3.Connection, names: NameNumbers, query: Query, where: str, values: list[Any]) -> tuple[list[Any], Any]:
    assert query.statuses is not None
    start_place, start_status, start_id = query.after or (0, 0, 0)
    rows: list[Any] = []
    for place in _places(names, query):
        for status in sorted(CODES[status] for status in query.statuses):
            if (place, status) < (start_place, start_status):
                continue
            number = start_id if (place, status) == (start_place, start_status) else 0
            room = query.limit - len(rows)
            found = connection.execute(
                f"SELECT {COLUMNS} FROM item WHERE place = ? AND status = {status} AND status > 5 AND id > ?{where} ORDER BY id LIMIT ?",
                (place, number, *values, room),
            ).fetchall()
            rows += found
            if len(found) == room:
                return rows, (place, status, found[-1][0])
    return rows, None


def _by_key(
    connection: sqlite3.Connection, names: NameNumbers, query: Query, prefix: str, route: int, where: str, values: list[Any]
) -> tuple[list[Any], Any]:
    """Items whose key begins so, in key order."""
    where += _only_places(names, query)
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM item WHERE route = ? AND key >= ? AND key < ? AND key > ?{where} ORDER BY key LIMIT ?",
        (route, prefix, prefix + LAST, query.after or "", *values, query.limit),
    ).fetchall()
    return rows, rows[-1][2] if len(rows) == query.limit else None


def _by_second_part(
    connection: sqlite3.Connection, names: NameNumbers, query: Query, second: KeyPart, route: int, where: str, values: list[Any]
) -> tuple[list[Any], Any]:
    """All items whose key has this second part (a batch, for example), ordered by the key without its first part. The index has only
    keys of several parts; in a key with more than two parts the second is followed by the separator."""
    where += _only_places(names, query)
    rows: list[Any] = []
    rest, number = query.after or ("", 0)
    for first, last in ((second.text, second.text), (second.text + SEPARATOR, second.text + SEPARATOR + LAST)):
        if last < rest:
            continue
        room = query.limit - len(rows)
        rows += connection.execute(
            f"SELECT {COLUMNS} FROM item INDEXED BY item_second_part WHERE route = ? AND instr(key, '#') > 0 AND {SECOND} BETWEEN ? AND ?"
            f" AND ({SECOND}, id) > (?, ?){where} ORDER BY {SECOND}, id LIMIT ?",
            (route, first, last, rest, number, *values, room),
        ).fetchall()
    after = None if len(rows) < query.limit else (rows[-1][_PLACE_OF["key"]].partition(SEPARATOR)[2], rows[-1][0])
    return rows, after


def _along(
    connection: sqlite3.Connection, names: NameNumbers, query: Query, route: int, where: str, values: list[Any]
) -> tuple[list[Any], Any]:
    last = query.after or 0
    newest = connection.execute("SELECT coalesce(max(id), 0) FROM item").fetchone()[0]
    where += _only_places(names, query)
    # "+route" prevents SQLite from using the index on the key, which would sort the whole route for every page.
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM item WHERE id > ? AND id <= ? AND +route = ?{where} ORDER BY id LIMIT ?",
        (last, last + WINDOW, route, *values, query.limit),
    ).fetchall()
    after = rows[-1][0] if len(rows) == query.limit else last + WINDOW
    return rows, after if after < newest else None
