"""Translation of SQLite errors: what happened to which file, and what to do about it."""

from __future__ import annotations

import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from milepost.core.errors import (
    NO_DESCRIPTOR,
    RESTORE,
    LedgerBusy,
    LedgerDamaged,
    LedgerError,
    LedgerForeign,
    LedgerFull,
    LedgerReadOnly,
    TooManyOpenFiles,
)

ROW = {sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH}
"""Codes caused by the values of a write, not by the file."""
BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
NOT_OPENED = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR}
"""Codes with which SQLite reports, among other things, that the system gives it no file
descriptor."""
FILES_OF_A_CONNECTION = 3
"""The ledger file, its -wal and its -shm."""


_NO_TEXT = "Could not decode to UTF-8"
"""Python's message about a column whose text is damaged."""


class ValueRefused(LedgerError):
    """SQLite refuses a value: it is too large or of an unsupported type."""


ROW_REFUSED = (
    ValueRefused,
    msgspec.MsgspecError,
    OverflowError,
    ValueError,
    TypeError,
    RecursionError,
)
"""Exceptions that mean one row cannot be written. Any other is a problem with the whole file."""


class RowRefused(Exception):
    """One row cannot be written; what the savepoint around it has written is rolled back."""


def primary_code(error: sqlite3.Error) -> int:
    """The error's code without its extension."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def translated(error: sqlite3.Error | UnicodeDecodeError, path: str) -> LedgerError:
    """The error of SQLite, or of a text that it has read, as one of a ledger."""
    if isinstance(error, UnicodeDecodeError) or _NO_TEXT in str(error):
        return LedgerDamaged(f"{path}: the file is damaged (a text in it is not UTF-8); {RESTORE}")
    code = primary_code(error)
    if code in BUSY:
        return LedgerBusy(
            f"{path}: other processes have locked the ledger for too long; find one that hangs with 'milepost doctor'"
        )
    if code in ROW or (
        not isinstance(error, sqlite3.OperationalError) and not hasattr(error, "sqlite_errorcode")
    ):
        return ValueRefused(f"{path}: {error}")
    if code in NOT_OPENED and no_descriptors():
        return TooManyOpenFiles(too_many_open_files(path))
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and no_room(path)):
        return LedgerFull(
            f"{path}: the disk is full, so this was not written and no item has changed; free some space"
        )
    if code == sqlite3.SQLITE_READONLY:
        return LedgerReadOnly(
            f"{path}: this user may not write the ledger or its folder; check the permissions"
        )
    if code == sqlite3.SQLITE_CORRUPT:
        return LedgerDamaged(f"{path}: the file is damaged ({error}); {RESTORE}")
    if code == sqlite3.SQLITE_NOTADB:
        return LedgerForeign(
            f"{path}: this is not a SQLite file; give another path with --ledger sqlite:///PATH"
        )
    if code == sqlite3.SQLITE_CANTOPEN:
        return LedgerError(
            f"{path}: cannot be opened; does its folder exist, and may this user read and write there?"
        )
    return LedgerError(f"{path}: {error}")


@contextmanager
def translated_errors(path: str) -> Iterator[None]:
    """Raise SQLite's errors as those of a ledger; also that of a text in the file that is not
    UTF-8, be it only a name in SQLite's message."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise translated(error, path) from error


NO_ROOM = 1_048_576
"""A disk with fewer free bytes counts as full: the log grows by whole pages."""


def free_bytes(path: str) -> int | None:
    """Free bytes on the disk of this file; None: the system does not say."""
    try:
        disk = os.statvfs(os.path.dirname(os.path.abspath(path)))
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize


def no_room(path: str) -> bool:
    """Whether the disk of the file is full."""
    free = free_bytes(path)
    return free is not None and free < NO_ROOM


def no_descriptors() -> bool:
    """Whether the system gives this process too few file descriptors for a connection. SQLite does
    not report the system's error."""
    opened: list[int] = []
    try:
        while len(opened) < FILES_OF_A_CONNECTION:
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in NO_DESCRIPTOR
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return False


def too_many_open_files(path: object) -> str:
    """The message for a file that cannot be opened because there is no file descriptor."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"{path}: cannot be opened, because too many files are open (limit of this process: {limit:,}); nothing was changed. Raise the"
        " limit (ulimit -n, or LimitNOFILE= of systemd), or find out what this process keeps open: ls -l /proc/PID/fd"
    )
