"""Forget in SQLite: an ended item's content is overwritten in the file, and its key replaced by a
keyed digest, in one transaction."""

from __future__ import annotations

from milepost.core.forgetting import REMOVED_TEXT
from milepost.core.status import TERMINAL
from milepost.ledgers.sqlite.read import AS_WRITTEN
from milepost.ledgers.sqlite.retention import remove_rows
from milepost.ledgers.sqlite.rows.codec import CODES, EVERY_KIND, STATUSES
from milepost.ledgers.sqlite.rows.names import Transaction
from milepost.ports.feed import HistoryEntry
from milepost.ports.retention import (
    DeliveredLines,
    ForgetRequest,
    Forgotten,
    PruneCriteria,
    emptied,
    not_ended,
)

LATEST = 2**48
SAMPLE = 300
"""Characters of an error that are kept as the example of its group."""
LIVE = frozenset(code for status, code in CODES.items() if status not in TERMINAL)


def forget(tx: Transaction, asked: ForgetRequest) -> Forgotten:
    """Everything in one transaction; `SqliteFile.overwriting` sees to it that the file keeps
    nothing of what is removed."""
    found = tx.execute(
        "SELECT id, head, status FROM item WHERE route = ? AND key = ?",
        (_route(tx, asked), asked.key),
    ).fetchone()
    if found is not None:
        number, head, code = found
        if code in LIVE:
            return Forgotten(refused=not_ended(STATUSES[code]))
    if asked.dry_run:
        return Forgotten()
    if found is not None:
        criteria = PruneCriteria(asked.route, TERMINAL, LATEST, None, DeliveredLines(0), 1)
        if not remove_rows(tx, criteria, {number: head}):
            return Forgotten(
                refused="its row is damaged: it has ended and is due at the same time; restore it from a backup"
            )
    lines = _empty_lines(tx, asked)
    _rename_seal(tx, asked)
    return Forgotten(lines=lines)


def _route(tx: Transaction, asked: ForgetRequest) -> int | None:
    return tx.names.routes.get(asked.route)


def _empty_lines(tx: Transaction, asked: ForgetRequest) -> int:
    """Replace the lines of all lives of the key by what stays of them; returns how many."""
    numbers = [
        row[0]
        for row in tx.execute(
            "SELECT item FROM departed WHERE route = ? AND key = ?", (_route(tx, asked), asked.key)
        )
    ]
    emptied_lines = 0
    for number in numbers:
        stored = tx.execute(
            f"SELECT h.seq, {AS_WRITTEN} FROM history h WHERE h.item = ? ORDER BY h.seq", (number,)
        ).fetchall()
        entries = [
            HistoryEntry(seq, asked.route, asked.key, "", previous, body)
            for seq, previous, body in stored
        ]
        _remove_samples(tx, entries)
        rest = emptied(entries, asked.name)
        tx.executemany(
            "UPDATE history SET previous = ?, body = ? WHERE seq = ?",
            [(line.previous, line.body, line.seq) for line in rest],
        )
        tx.execute(
            "DELETE FROM offer WHERE seq IN (SELECT seq FROM history WHERE item = ?)", (number,)
        )
        tx.execute(f"DELETE FROM content WHERE {EVERY_KIND} AND item = ?", (number,))
        tx.execute(
            "UPDATE departed SET key = ?, correlation_id = '' WHERE item = ?", (asked.name, number)
        )
        emptied_lines += len(rest)
    return emptied_lines


def _remove_samples(tx: Transaction, entries: list[HistoryEntry]) -> None:
    """Remove the examples of error groups that are this item's own errors."""
    attempts = [entry.line.attempt for entry in entries]
    samples = {attempt.message[:SAMPLE] for attempt in attempts if attempt is not None}
    tx.executemany(
        "UPDATE error_group SET sample = ? WHERE sample = ?",
        [(REMOVED_TEXT, sample) for sample in samples],
    )


def _rename_seal(tx: Transaction, asked: ForgetRequest) -> None:
    of = (_route(tx, asked), asked.key)
    if tx.execute("SELECT 1 FROM seal WHERE route = ? AND key = ?", of).fetchone() is None:
        return
    tx.execute(
        "INSERT OR REPLACE INTO seal (route, key, status, input_digest, ended_at, head, list_id, stage, life)"
        " SELECT route, ?, status, x'', ended_at, head, NULL, stage, life FROM seal WHERE route = ? AND key = ?",
        (asked.name, *of),
    )
    tx.execute("DELETE FROM seal WHERE route = ? AND key = ?", of)
