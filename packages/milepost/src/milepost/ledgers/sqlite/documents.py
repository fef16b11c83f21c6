"""Control documents: small named values with versions that are never reused."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from milepost.core.errors import RESTORE, LedgerDamaged
from milepost.ledgers.sqlite.rows.codec import decode, encode
from milepost.ports.documents import DamagedValue, Document

REMOVED = "removed"
"""Internal kind: one row per kind of document with the highest version of a removed document. A new
document begins above it, so no row has to stay for each removed one."""


def read(connection: sqlite3.Connection, kind: str) -> dict[str, Document]:
    found = connection.execute(
        "SELECT name, version, value FROM document WHERE kind = ? ORDER BY name", (kind,)
    )
    return {name: Document(_readable(kind, name, value), version) for name, version, value in found}


def read_one(connection: sqlite3.Connection, kind: str, name: str) -> Document | None:
    row = connection.execute(
        "SELECT value, version FROM document WHERE kind = ? AND name = ?", (kind, name)
    ).fetchone()
    return None if row is None else Document(_readable(kind, name, row[0]), row[1])


def _readable(kind: str, name: str, value: bytes) -> Any:
    try:
        return decoded(kind, name, value)
    except LedgerDamaged as error:
        return DamagedValue(str(error))


def decoded(kind: str, name: str, value: bytes) -> Any:
    """The value of a document; LedgerDamaged names one that is not JSON."""
    try:
        return decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
        raise LedgerDamaged(
            f"the control document {kind} {name!r} of the ledger is damaged: {error}; {RESTORE}"
        ) from error


def write(
    connection: sqlite3.Connection, kind: str, name: str, value: Any, expect: int | None
) -> bool:
    """Write or remove (None) one document, if its version is `expect`."""
    version = _version(connection, kind, name)
    if expect is not None and expect != version:
        return False
    if value is not None:
        version = version or _version(connection, REMOVED, kind)
        _put(connection, kind, name, version + 1, encode(value))
    elif version:
        _remove(connection, kind, name, version)
    return True


def rename(connection: sqlite3.Connection, kind: str, old: str, new: str) -> None:
    """Rename documents `old` and `old/…` to `new` and `new/…`; existing ones of that name are
    replaced."""
    inside = (kind, old, len(old) + 1, old + "/")
    found = connection.execute(
        "SELECT name, version, value FROM document WHERE kind = ? AND (name = ? OR substr(name, 1, ?) = ?)",
        inside,
    ).fetchall()
    for name, version, value in found:
        _remove(connection, kind, name, version)
        there = new + name.removeprefix(old)
        _put(
            connection,
            kind,
            there,
            (_version(connection, kind, there) or _version(connection, REMOVED, kind)) + 1,
            value,
        )


def _version(connection: sqlite3.Connection, kind: str, name: str) -> int:
    row = connection.execute(
        "SELECT version FROM document WHERE kind = ? AND name = ?", (kind, name)
    ).fetchone()
    return row[0] if row else 0


def _put(connection: sqlite3.Connection, kind: str, name: str, version: int, value: bytes) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO document (kind, name, version, value) VALUES (?, ?, ?, ?)",
        (kind, name, version, value),
    )


def _remove(connection: sqlite3.Connection, kind: str, name: str, version: int) -> None:
    connection.execute("DELETE FROM document WHERE kind = ? AND name = ?", (kind, name))
    connection.execute(
        "INSERT INTO document (kind, name, version, value) VALUES (?, ?, ?, '{}')"
        " ON CONFLICT DO UPDATE SET version = max(version, excluded.version)",
        (REMOVED, kind, version),
    )
