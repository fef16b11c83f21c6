"""Permissions of the files of a ledger: how new ones are made, who may read them, and what this
user may not write."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from pwd import getpwuid
from typing import BinaryIO

from milepost.core.errors import NO_DESCRIPTOR, TooManyOpenFiles
from milepost.core.values.file_modes import PRIVATE, READ_AND_WRITE, READ_BY_ALL, folder_mode
from milepost.ledgers.sqlite.errors import too_many_open_files

ENTERED_BY_ALL = 0o001
OF_THE_LEDGER = ("", "-wal", "-shm")
"""The files of a ledger by their endings. SQLite gives the log files the mode of the ledger
file."""


def make_ledger_file(path: str, mode: int) -> None:
    """Create the file, empty, if it is missing: SQLite would make it with the mode that the umask
    allows."""
    try:
        new_file(Path(os.path.realpath(path)), mode).close()
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno in NO_DESCRIPTOR:
            raise TooManyOpenFiles(too_many_open_files(path)) from error
        if error.errno not in (
            errno.EACCES,
            errno.EPERM,
            errno.EROFS,
            errno.ENOSPC,
            errno.EDQUOT,
            errno.ENOENT,
            errno.EISDIR,
        ):
            raise
        # SQLite fails for the same reason, and its error is translated.


def new_file(path: Path, mode: int) -> BinaryIO:
    """A new file with this mode, whatever the umask is."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    os.fchmod(descriptor, mode)
    return os.fdopen(descriptor, "wb")


def make_folder(folder: Path, mode: int) -> None:
    """Create the folder for files of this mode, with the folders above it; an existing one keeps
    its mode."""
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    with suppress(FileExistsError):
        folder.mkdir(folder_mode(PRIVATE))
        folder.chmod(folder_mode(mode))


def mode_of(path: str | Path) -> int | None:
    """Who may read and write the file; None if it does not exist."""
    try:
        return os.stat(path).st_mode & READ_AND_WRITE
    except FileNotFoundError:
        return None


def is_readable_by_all(path: str) -> bool:
    """Whether every user of this machine may read the file: its mode and those of the folders above
    allow it."""
    place = Path(os.path.realpath(path))
    with suppress(OSError):
        if place.stat().st_mode & READ_BY_ALL:
            return all(folder.stat().st_mode & ENTERED_BY_ALL for folder in place.parents)
    return False


def user_name(user_id: int) -> str:
    try:
        return getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)


def unwritable(path: str) -> str | None:
    """Which files and folder of the ledger this user may not write, and whose they are; None: it
    may write all. SQLite makes its log files in the folder, and each process a lock file in the
    folder of processes."""
    files = [path + ending for ending in (*OF_THE_LEDGER, "-workers")]
    kept_from = [file for file in files if os.path.exists(file) and not _may(file, os.W_OK)]
    folder = os.path.dirname(os.path.abspath(path))
    if not _may(folder, os.W_OK | os.X_OK):
        kept_from.append(folder)
    if not kept_from:
        return None
    owner = user_name(os.stat(path).st_uid)
    return f"this user ({user_name(os.geteuid())}) may not write {', '.join(kept_from)}; the ledger belongs to {owner}"


def _may(path: str, access: int) -> bool:
    """Whether the present user may do this with the file."""
    return os.access(path, access, effective_ids=os.access in os.supports_effective_ids)
