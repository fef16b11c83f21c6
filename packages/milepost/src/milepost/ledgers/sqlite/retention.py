"""Prune in SQLite: ended rows become seals; their lines leave once they are delivered."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence

from milepost.core.item import Item, Row
from milepost.core.status import Status
from milepost.ledgers.sqlite.file.store import TransactionRunner
from milepost.ledgers.sqlite.read import history
from milepost.ledgers.sqlite.rows.codec import (
    CODES,
    COLUMNS,
    EVERY_KIND,
    STATUSES,
    UNREADABLE,
    decode_rest,
    items_of,
    json_text,
    rows_of,
)
from milepost.ledgers.sqlite.rows.names import Transaction
from milepost.ports.retention import Leaving, PruneCriteria, Pruned

Numbers = list[tuple[int]]
REPLACED = "SELECT id, rest FROM item WHERE id IN (SELECT value FROM json_each(?)) AND instr(rest, CAST('\"content_digest\"' AS BLOB))"


def prune(read: TransactionRunner, write: TransactionRunner, asked: PruneCriteria) -> Pruned:
    """Find removable rows, keep their evidence with `keep`, remove those still unchanged; then
    lines, then seals. The search is a read transaction, so that writers do not wait for it."""
    heads = read(lambda tx: _ended(tx, asked))
    more = len(heads) == asked.limit
    if asked.keep is not None and heads:
        going = read(lambda tx: _leaving(tx, list(heads)))
        asked.keep(going)
        # An unreadable item cannot be kept as evidence: it stays.
        heads = {one.item.row.handle: heads[one.item.row.handle] for one in going}
    left = write(lambda tx: remove_rows(tx, asked, heads)) if heads else {}
    spent = read(lambda tx: _delivered_lines(tx, asked))
    if spent:
        write(lambda tx: _remove_lines(tx.connection, spent))
    before = asked.forget_before
    forgotten = 0 if before is None else write(lambda tx: _forget(tx, asked.route, before))
    return Pruned(
        sum(left.values()),
        forgotten,
        (more and bool(left)) or len(spent) == asked.limit,
        len(spent),
        left,
    )


def _search(statuses: frozenset[Status], columns: str = "i.id, i.head") -> str:
    codes = ",".join(str(CODES[status]) for status in sorted(statuses))
    return f"SELECT {columns} FROM item i WHERE i.route = ? AND i.due_at IS NULL AND i.status IN ({codes}) AND i.entered_at < ?"


def _ended(tx: Transaction, asked: PruneCriteria) -> dict[int, bytes]:
    """The numbers and heads of rows that may leave."""
    if not asked.statuses:
        return {}
    # "+route" makes SQLite read the table itself: in the order of numbers the oldest come first.
    search = _search(asked.statuses).replace("i.route", "+i.route") + " ORDER BY i.id LIMIT ?"
    return dict(
        tx.execute(
            search, (tx.names.routes.get(asked.route), asked.ended_before, asked.limit)
        ).fetchall()
    )


def _leaving(tx: Transaction, numbers: Sequence[int]) -> list[Leaving]:
    """The readable ones of these items, with their content and lines, in one snapshot."""
    found = rows_of(
        tx.execute(
            f"SELECT {COLUMNS} FROM item WHERE id IN (SELECT value FROM json_each(?))",
            (json_text(numbers),),
        ),
        tx.names,
    )
    items = [
        item
        for item in items_of(tx, [row for row in found if isinstance(row, Row)])
        if isinstance(item, Item)
    ]
    return [Leaving(item, history(tx, item.route, item.key)) for item in items]


def remove_rows(
    tx: Transaction, asked: PruneCriteria, heads: Mapping[int, bytes]
) -> dict[Status, int]:
    """Turn these rows into seals if they are unchanged; returns how many, by status."""
    search = _search(asked.statuses, "i.status") + " AND i.id = ? AND i.head = ?"
    route_id = tx.names.routes.get(asked.route)
    found = {
        number: tx.execute(search, (route_id, asked.ended_before, number, head)).fetchone()
        for number, head in heads.items()
    }
    each: Numbers = [(number,) for number, row in found.items() if row is not None]
    left = Counter(STATUSES[row[0]] for row in found.values() if row is not None)
    tx.executemany(
        "INSERT OR REPLACE INTO seal (route, key, status, input_digest, ended_at, head, list_id, stage, life)"
        " SELECT i.route, i.key, i.status, i.input_digest, i.entered_at, i.head, i.list_id, p.stage, i.life"
        " FROM item i JOIN place p ON p.id = i.place WHERE i.id = ?",
        each,
    )
    tx.executemany(
        "UPDATE seal SET content_digest = ? WHERE (route, key) = (SELECT route, key FROM item WHERE id = ?)",
        _replaced(tx.connection, [number for (number,) in each]),
    )
    tx.executemany(
        "UPDATE counter SET n = n - 1 WHERE (stage, status, hour) ="
        " (SELECT p.stage, i.status, i.entered_at / 3600000 FROM item i JOIN place p ON p.id = i.place WHERE i.id = ?)",
        each,
    )
    tx.executemany(
        "UPDATE error_group SET present = present - 1 WHERE (stage, name) ="
        " (SELECT p.stage, i.error_group FROM item i JOIN place p ON p.id = i.place WHERE i.id = ?)",
        each,
    )
    tx.executemany(
        "INSERT INTO departed (item, route, key, correlation_id, ended_at, last_seq) SELECT i.id, i.route, i.key, i.correlation_id,"
        " i.entered_at, (SELECT coalesce(max(h.seq), 0) FROM history h WHERE h.item = i.id) FROM item i WHERE i.id = ?",
        each,
    )
    tx.executemany("DELETE FROM set_aside WHERE item = ?", each)
    tx.executemany("DELETE FROM item WHERE id = ?", each)
    tx.execute("DELETE FROM counter WHERE n = 0")
    return dict(left)


def _delivered_lines(tx: Transaction, asked: PruneCriteria) -> Numbers:
    """The numbers of items without a row whose lines are all delivered."""
    route, limit, parked = asked.route, asked.limit, asked.delivered.parked
    newest = tx.execute("SELECT coalesce(max(seq), 0) FROM history").fetchone()[0]
    # The newest line always stays: its number must never be reused, or a cursor would skip the next
    # line.
    up_to = min(asked.delivered.up_to, newest - 1)
    found = tx.execute(
        "SELECT item, key FROM departed WHERE route = ? AND last_seq <= ? AND ended_at < ? ORDER BY last_seq LIMIT ?",
        (
            tx.names.routes.get(route),
            up_to,
            asked.ended_before,
            limit + sum(of == route for of, _ in parked),
        ),
    )
    return [(number,) for number, key in found if (route, key) not in parked][:limit]


def _remove_lines(connection: sqlite3.Connection, numbers: Numbers) -> None:
    connection.executemany(
        "DELETE FROM offer WHERE seq IN (SELECT seq FROM history WHERE item = ?)", numbers
    )
    connection.executemany("DELETE FROM history WHERE item = ?", numbers)
    connection.executemany(f"DELETE FROM content WHERE {EVERY_KIND} AND item = ?", numbers)
    connection.executemany("DELETE FROM departed WHERE item = ?", numbers)


def _forget(tx: Transaction, route: str, before: int) -> int:
    """Remove old seals whose lines have left; returns how many."""
    return tx.execute(
        "DELETE FROM seal WHERE route = ? AND ended_at < ?"
        " AND NOT EXISTS (SELECT 1 FROM departed d WHERE d.route = seal.route AND d.key = seal.key)",
        (tx.names.routes.get(route), before),
    ).rowcount


def _replaced(connection: sqlite3.Connection, numbers: Sequence[int]) -> list[tuple[bytes, int]]:
    """The digest of the present input of each item whose first input was replaced, with the item's
    number."""
    found = []
    for number, rest in connection.execute(REPLACED, (json_text(numbers),)):
        try:
            digest = decode_rest(rest).content_digest
        except UNREADABLE:
            continue
        if digest is not None:
            found.append((digest, number))
    return found
