"""SQLite's errors, said in ours: what happened to which file, and what to do about it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from milepost.core.errors import (
    LedgerBusy,
    LedgerDamaged,
    LedgerError,
    LedgerForeign,
    LedgerFull,
    LedgerReadOnly,
)

BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def primary_code(error: sqlite3.Error) -> int:
    """The error's code without its extension."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def translated(error: sqlite3.Error, path: str) -> LedgerError:
    code = primary_code(error)
    if code in BUSY:
        return LedgerBusy(f"{path}: other processes have held the ledger for too long; look for one that hangs with 'milepost doctor'")
    if code == sqlite3.SQLITE_FULL:
        return LedgerFull(f"{path}: the disk is full; nothing was written. Free some space and start again: every item is as it was")
    if code == sqlite3.SQLITE_READONLY:
        return LedgerReadOnly(f"{path}: the ledger or its folder may not be written by this user; check the permissions")
    if code == sqlite3.SQLITE_CORRUPT:
        return LedgerDamaged(f"{path}: the file is damaged ({error}); stop all processes, keep a copy, and restore it from a backup")
    if code == sqlite3.SQLITE_NOTADB:
        return LedgerForeign(f"{path}: this is not a SQLite file; give another path with --ledger sqlite:///PATH")
    if code == sqlite3.SQLITE_CANTOPEN:
        return LedgerError(f"{path}: cannot be opened; does its folder exist, and may this user read and write there?")
    return LedgerError(f"{path}: {error}")


@contextmanager
def said_in_ours(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise translated(error, path) from error
