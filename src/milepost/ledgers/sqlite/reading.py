"""Reading: what is known of keys, items with their content, histories, the feed and the counters."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from milepost.core.history import decode_line
from milepost.core.item import Content, Item, Row
from milepost.core.status import Status
from milepost.ledgers.sqlite.codec import COLUMNS, STATUSES, UNREADABLE, chunks, contents_of, decode_rest, items_of, rows_of
from milepost.ledgers.sqlite.names import Names
from milepost.ports.ledger import Count, Group, Known, Refused, Written

AS_WRITTEN = "CAST(h.previous AS BLOB), CAST(h.body AS BLOB)"
"""Bytes, even where somebody has changed a line by hand and left text."""


def known(connection: sqlite3.Connection, names: Names, route: str, keys: Sequence[str]) -> list[Known | None]:
    """Rows first; seals only for keys that have none."""
    number = names.routes.get(route)
    found: dict[str, Known] = {}
    for chunk in chunks(keys, 500) if number is not None else ():
        marks = ",".join("?" * len(chunk))
        for key, status, digest, place, list_id, rest in connection.execute(
            f"SELECT key, status, input_digest, place, list_id, rest FROM item WHERE route = ? AND key IN ({marks})", (number, *chunk)
        ):
            try:
                replaced = None if rest is None else decode_rest(rest).content_digest
                found[key] = Known(key, STATUSES[status], digest, names.by_id[place].stage, list_id, content_digest=replaced)
            except UNREADABLE:
                found[key] = Known(key, Status.PENDING, digest)  # it is there, and its row is damaged
        missing = [key for key in chunk if key not in found]
        if missing:
            marks = ",".join("?" * len(missing))
            for seal in connection.execute(f"SELECT {SEAL} FROM seal WHERE route = ? AND key IN ({marks})", (number, *missing)):
                found[seal[0]] = _seal(seal, names)
    return [found.get(key) for key in keys]


SEAL = "key, status, input_digest, stage, list_id, ended_at, head, content_digest"


def _seal(columns: Sequence[Any], names: Names) -> Known:
    key, status, digest, stage, list_id, ended_at, head, replaced = columns
    return Known(key, STATUSES[status], digest, names.stage_names[stage][1], list_id, True, ended_at, head, replaced)


def sealed(connection: sqlite3.Connection, names: Names, route: str, after: str | None, limit: int) -> tuple[list[Known], str | None]:
    """In the order of their keys. A row that has come since it was sealed counts, not its seal."""
    found = connection.execute(
        f"SELECT {SEAL} FROM seal s WHERE route = ? AND key > ?"
        " AND NOT EXISTS (SELECT 1 FROM item i WHERE i.route = s.route AND i.key = s.key) ORDER BY key LIMIT ?",
        (names.routes.get(route), after or "", limit),
    ).fetchall()
    seals = [_seal(seal, names) for seal in found]
    return seals, seals[-1].key if len(seals) == limit else None


def get(connection: sqlite3.Connection, names: Names, refs: Sequence[tuple[str, str]]) -> list[Item | Refused | None]:
    found: list[Row | Refused | None] = []
    for route, key in refs:
        columns = connection.execute(f"SELECT {COLUMNS} FROM item WHERE route = ? AND key = ?", (names.routes.get(route), key)).fetchone()
        found.append(None if columns is None else rows_of([columns], names)[0])
    items = iter(items_of(connection, [row for row in found if isinstance(row, Row)], names))
    return [next(items) if isinstance(row, Row) else row for row in found]


def history(connection: sqlite3.Connection, names: Names, route: str, key: str) -> list[Written]:
    """Of the item that has a row; else of the one whose row left last, as far as its lines are still there."""
    of = (names.routes.get(route), key)
    owner = connection.execute("SELECT id, correlation_id FROM item WHERE route = ? AND key = ?", of).fetchone()
    if owner is None:
        departed = "SELECT item, correlation_id FROM departed WHERE route = ? AND key = ? ORDER BY item DESC LIMIT 1"
        owner = connection.execute(departed, of).fetchone()
    if owner is None:
        return []
    number, correlation_id = owner
    lines = connection.execute(f"SELECT h.seq, {AS_WRITTEN} FROM history h WHERE h.item = ? ORDER BY h.seq", (number,))
    return [Written(seq, route, key, correlation_id, previous, body) for seq, previous, body in lines]


def feed(connection: sqlite3.Connection, names: Names, after: int, limit: int) -> list[Written]:
    """Lines in the order written. Only those that offered an external stage have their item's payload looked up."""
    lines = connection.execute(
        f"SELECT h.seq, h.item, coalesce(i.route, d.route), coalesce(i.key, d.key), coalesce(i.correlation_id, d.correlation_id),"
        f" {AS_WRITTEN} FROM history h LEFT JOIN item i ON i.id = h.item LEFT JOIN departed d ON d.item = h.item"
        " WHERE h.seq > ? AND (i.id IS NOT NULL OR d.item IS NOT NULL) ORDER BY h.seq LIMIT ?",
        (after, limit),
    ).fetchall()
    offering = [line[1] for line in lines if b'"offered":"' in line[6]]
    contents = contents_of(connection, offering, names)
    routes = {number: name for name, number in names.routes.items()}
    found = []
    for seq, item, route, key, correlation_id, previous, body in lines:
        payload = None
        content = contents.get(item)
        if isinstance(content, Content) and b'"offered":"' in body:
            payload = content.payloads.get(decode_line(body).after_stage, content.input)
        if route not in routes:
            continue  # its row is damaged, so that nobody knows of which route it is
        found.append(Written(seq, routes[route], key, correlation_id, previous, body, payload))
    return found


def counts(connection: sqlite3.Connection, names: Names, route: str | None) -> list[Count]:
    found = []
    for stage, status, hour, n in connection.execute("SELECT stage, status, hour, n FROM counter WHERE n <> 0"):
        owner, name = names.stage_names[stage]
        if route is None or owner == route:
            found.append(Count(owner, name, STATUSES[status], hour, n))
    return found


def groups(connection: sqlite3.Connection, names: Names, route: str | None) -> list[Group]:
    found = []
    for stage, *facts in connection.execute(
        "SELECT stage, name, category, sample, present, total, first_at, last_at FROM error_group ORDER BY present DESC, last_at DESC"
    ):
        owner, name = names.stage_names[stage]
        if route is None or owner == route:
            found.append(Group(owner, name, *facts))
    return found
