"""Read connections to one SQLite file: a small pool that lends one to each read, so that no thread
keeps one."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable

from milepost.ledgers.sqlite.rows.names import NameNumbers, Transaction

KEPT = 16
"""Connections that stay open between two reads. More are open only while more threads read at the
same moment."""


class ReaderPool:
    """Lends read connections, the one used last first: its caches are warm. A `deque` gives each to
    one taker, without a lock."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._free: deque[Transaction] = deque()
        self._closed = False

    def take(self) -> Transaction:
        """A connection for one read, with the numbers of names as it has seen them. The caller
        gives it back, whatever happens."""
        try:
            return self._free.pop()
        except IndexError:
            return self._open()

    def give_back(self, reader: Transaction) -> None:
        if self._closed or len(self._free) >= KEPT:
            reader.connection.close()
        else:
            self._free.append(reader)

    def _open(self) -> Transaction:
        connection = self._connect()
        try:
            connection.execute("PRAGMA query_only = 1")
            connection.execute("PRAGMA cache_size = -8192")
        except BaseException:
            connection.close()
            raise
        return Transaction(connection, NameNumbers())

    def close(self) -> None:
        """Close all connections; one that is lent is closed when it comes back."""
        self._closed = True
        while self._free:
            self._free.pop().connection.close()
