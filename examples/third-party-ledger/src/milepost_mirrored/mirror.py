"""Text file with every history line of a ledger, which several processes write."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from milepost import ports

LINES_AT_ONCE = 1000
FORGOTTEN = "(forgotten)"
"""Stands for the key of a forgotten item."""


class Mirror:
    """The file. Its last whole line says up to which place of the feed it has the lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._copied = 0
        """The newest place of the feed of which this process knows that the file has it."""
        self._lock = threading.Lock()

    def copy_new(self, ledger: ports.Ledger) -> None:
        """Append the lines that the ledger has and the file has not."""
        if ledger.last_seq() <= self._copied:
            return
        with self._opened() as file:
            place = last_place(file)
            while entries := ledger.feed(place, LINES_AT_ONCE):
                file.write("".join(map(text_of, entries)).encode())
                place = entries[-1].seq
            file.flush()
            self._copied = place

    def forget(self, route: str, key: str) -> None:
        """Write the file anew without this key."""
        with self._opened() as file:
            lines = file.read().decode().splitlines(keepends=True)
            kept = "".join(without_key(line, route, key) for line in lines).encode()
            new_path = self._path.with_name(f"{self._path.name}.new")
            with owners_file(new_path) as new_file:
                new_file.truncate()
                new_file.write(kept)
                new_file.flush()
                os.fsync(new_file.fileno())
            new_path.replace(self._path)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        """The file, for one thread of one process at a time. The lock is a file of its own, since
        `forget` replaces the other."""
        lock_path = self._path.with_name(f"{self._path.name}.lock")
        with self._lock, owners_file(lock_path) as lock_file:
            fcntl.flock(lock_file, fcntl.LOCK_EX)  # released when the file is closed
            with owners_file(self._path) as file:
                yield file


def owners_file(path: Path) -> BinaryIO:
    """The file, made if there is none, which only its owner may read."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")


def text_of(entry: ports.HistoryEntry) -> str:
    """The line of the file for a history line. Keys have no control characters."""
    line = entry.line
    key = FORGOTTEN if entry.removed else entry.key
    fields = (entry.seq, line.at, entry.route, key, line.reason, line.status, line.after_stage)
    return "\t".join(map(str, fields)) + "\n"


def without_key(line: str, route: str, key: str) -> str:
    """The line, without the key if it is this one."""
    fields = line.split("\t")
    if fields[2:4] != [route, key]:
        return line
    return "\t".join([*fields[:3], FORGOTTEN, *fields[4:]])


def last_place(file: BinaryIO) -> int:
    """The place in the last whole line; 0 if there is none. What follows it was cut off by a crash
    and is removed; the file is then at its end."""
    size = file.seek(0, os.SEEK_END)
    length = 4096
    while True:
        start = max(0, size - length)
        file.seek(start)
        tail = file.read()
        if start == 0 or tail.count(b"\n") > 1:
            break
        length *= 2
    whole, newline, _ = tail.rpartition(b"\n")
    file.seek(start + len(whole) + len(newline))
    file.truncate()
    last_line = whole.rpartition(b"\n")[2]
    return int(last_line.split(b"\t")[0]) if last_line else 0
