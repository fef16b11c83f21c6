"""SQL for rows by due time. A live row is in one of two indexes: `item_held` while a worker has
claimed it, else `item_due`."""

from __future__ import annotations

from milepost.core.status import Status
from milepost.ledgers.sqlite.rows.codec import CODES

HELD = f"status = {CODES[Status.PROCESSING]}"
FREE = f"status <> {CODES[Status.PROCESSING]}"
"""The condition of each index as in the schema: SQLite uses a partial index only if the query
repeats its condition."""


def live_rows(columns: str, condition: str) -> str:
    """A SELECT of the live rows at `:place` that meet a condition on `due_at`, over both indexes.
    With ORDER BY due_at SQLite merges the two and reads no row beyond the LIMIT."""
    return " UNION ALL ".join(
        f"SELECT {columns} FROM item WHERE place = :place AND {condition} AND {part}"
        for part in (FREE, HELD)
    )
