"""Quarantine of damaged rows: an unreadable row stays as it is, is no longer due, and is listed
with the reason."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from milepost.core.item import Item, Row
from milepost.core.routes.plan import Plan
from milepost.ledgers.sqlite.file.store import TransactionRunner
from milepost.ledgers.sqlite.rows.codec import COLUMNS, EVERY_KIND, LOOK_AT, items_of, rows_of
from milepost.ledgers.sqlite.rows.names import Transaction
from milepost.ports.foreign_rows import Adopted, QuarantineEntry
from milepost.ports.items import Refused

NEVER = 253_402_300_799_000
"""Due time of a quarantined row: the end of the year 9999. So it stays in the index, and `find`
finds it."""
LONGEST = 10_000
"""Characters shown of one damaged value."""


def quarantine_rows(
    connection: sqlite3.Connection, rows: Sequence[tuple[int, str]], now: int
) -> None:
    """Quarantine these rows, each given by its number, with the reason."""
    connection.executemany(
        "INSERT OR REPLACE INTO set_aside (item, at, reason) VALUES (?, ?, ?)",
        [(n, now, why) for n, why in rows],
    )
    connection.executemany(
        "UPDATE item SET due_at = ?, look_at = NULL WHERE id = ?",
        [(NEVER, number) for number, _ in rows],
    )


def count_quarantined(connection: sqlite3.Connection) -> int:
    """Number of rows in quarantine."""
    found: int = connection.execute(
        "SELECT count(*) FROM set_aside a CROSS JOIN item i ON i.id = a.item WHERE i.due_at = ?",
        (NEVER,),
    ).fetchone()[0]
    return found


class SqliteQuarantine:
    """See `ports.foreign_rows.QuarantineStore`."""

    def __init__(self, read: TransactionRunner, write: TransactionRunner) -> None:
        self._read, self._write = read, write

    def put(self, refs: Sequence[tuple[str, str]], reason: str, now: int) -> None:
        def run(tx: Transaction) -> None:
            found = [
                tx.execute(
                    "SELECT id FROM item WHERE route = ? AND key = ?",
                    (tx.names.routes.get(route), key),
                ).fetchone()
                for route, key in refs
            ]
            quarantine_rows(
                tx.connection, [(row[0], reason) for row in found if row is not None], now
            )

        self._write(run)

    def entries(self, most: int) -> tuple[list[QuarantineEntry], bool]:
        def run(tx: Transaction) -> tuple[list[QuarantineEntry], bool]:
            found = tx.execute(
                "SELECT a.item, a.at, a.reason FROM set_aside a CROSS JOIN item i ON i.id = a.item WHERE i.due_at = ?"
                " ORDER BY a.at, a.item LIMIT ?",
                (NEVER, most + 1),
            ).fetchall()
            return [
                QuarantineEntry(str(n), "row", why, _content(tx, n), at)
                for n, at, why in found[:most]
            ], len(found) > most

        return self._read(run)

    def replay(
        self, plans: dict[str, Plan], ids: Sequence[str], now: int, *, by: str, why: str
    ) -> list[Adopted]:
        return self._write(lambda tx: [_release(tx, id, now) for id in ids])

    def drop(self, ids: Sequence[str]) -> list[str]:
        def run(tx: Transaction) -> list[str]:
            return [
                id
                for id in ids
                if tx.execute("DELETE FROM set_aside WHERE item = ?", (_number(id),)).rowcount
            ]

        return self._write(run)


def _release(tx: Transaction, id: str, now: int) -> Adopted:
    """Make it due at once, if it is readable now."""
    number = _number(id)
    there = tx.execute("SELECT 1 FROM set_aside WHERE item = ?", (number,)).fetchone()
    columns = tx.execute(f"SELECT {COLUMNS} FROM item WHERE id = ?", (number,)).fetchone()
    if there is None or columns is None:
        return Adopted(
            id,
            False,
            why="there is no quarantine entry with this id; 'milepost quarantine list' shows them",
        )
    [row] = rows_of([columns], tx.names)
    item: Item | Refused = items_of(tx, [row])[0] if isinstance(row, Row) else row
    if isinstance(item, Refused):
        return Adopted(id, False, why=f"{item.reason}; correct it in the file, or cancel the item")
    tx.execute(
        f"UPDATE item SET {LOOK_AT} WHERE id = :id AND due_at = {NEVER}", {"at": now, "id": number}
    )
    tx.execute("DELETE FROM set_aside WHERE item = ?", (number,))
    return Adopted(id, True, item.stage)


def _content(tx: Transaction, number: int) -> dict[str, Any]:
    """Everything stored of a row, undecoded."""
    cursor = tx.execute("SELECT * FROM item WHERE id = ?", (number,))
    row = dict(
        zip(
            [column[0] for column in cursor.description],
            map(_shown, cursor.fetchone()),
            strict=True,
        )
    )
    contents = tx.execute(
        f"SELECT kind, stage, body FROM content WHERE {EVERY_KIND} AND item = ? ORDER BY kind, stage",
        (number,),
    ).fetchall()
    route = next((name for name, at in tx.names.routes.items() if at == row["route"]), "")
    carried = [
        {"kind": kind, "stage": stage, "body": _shown(body)} for kind, stage, body in contents
    ]
    return {"route": route, "key": row["key"], "row": row, "content": carried}


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            value = value.hex()
    return value[:LONGEST] if isinstance(value, str) else value


def _number(id: str) -> int:
    return int(id) if id.isascii() and id.isdigit() and len(id) < 19 else -1
