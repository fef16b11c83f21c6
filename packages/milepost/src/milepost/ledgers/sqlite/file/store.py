"""Connections to one SQLite file: readers that never wait, and one writer with group commit."""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from milepost.core.errors import LedgerReadOnly, UsageError
from milepost.core.values.file_modes import PRIVATE
from milepost.core.values.key_text import SEPARATOR
from milepost.ledgers.sqlite.errors import BUSY, primary_code, translated, translated_errors
from milepost.ledgers.sqlite.file import schema
from milepost.ledgers.sqlite.file.permissions import make_ledger_file
from milepost.ledgers.sqlite.file.readers import ReaderPool
from milepost.ledgers.sqlite.rows.names import NameNumbers, Transaction

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

LOCK_TIMEOUT_S = 60.0
MIGRATION_TIMEOUT_S, MIGRATION_PAUSE_S = 3600.0, 0.05
"""A migration may write every page of a large file: processes that are started meanwhile wait
longer for it."""
LONGEST_PAUSE_S = 0.0005
"""Pause between two tries to begin a write while another process writes. A worker leaves about a
millisecond between two writes; a process with longer pauses would miss many of these gaps, and stay
idle after each."""
GROUP = 64
LOG_LIMIT = 64 << 20
"""Bytes of the log file beyond which it is cut once it is empty: a reader that stands still may
have made it grow."""


def blobs_folder(path: str | Path) -> Path:
    """The folder of the blobs of the ledger in this file."""
    return Path(f"{path}-blobs")


class TransactionRunner(Protocol):
    """Runs a function in a read or write transaction of its own, with these arguments."""

    def __call__(
        self, run: Callable[Concatenate[Transaction, P], T], /, *args: P.args, **options: P.kwargs
    ) -> T: ...


class CommitPart(Generic[T]):
    """One caller's part of a group commit: a function and its arguments. It is no block of code of
    the caller, because any thread may run it, and may run it twice."""

    __slots__ = ("args", "done", "error", "options", "result", "run")

    def __init__(
        self, run: Callable[Concatenate[Transaction, P], T], *args: P.args, **options: P.kwargs
    ) -> None:
        self.run: Callable[..., T] = run
        self.args = args
        self.options = options
        self.done = False
        self.result: T | None = None
        self.error: BaseException | None = None


def _key_part(key: str, position: int) -> str | None:
    """SQL function: one part of a key of several fields, escaped as in the key; NULL: the key has
    no such part, or is damaged."""
    parts = key.split(SEPARATOR) if isinstance(key, str) else ()
    return parts[position] if position < len(parts) else None


class SqliteFile:
    """A SQLite file in WAL mode. A commit is on disk before `write` returns (`synchronous=FULL`).

    Group commit: when several threads write at once, the first commits the work of all. It needs no
    thread of its own, so a single-threaded caller stays single-threaded.
    """

    def __init__(self, path: str, mode: int = PRIVATE) -> None:
        self.path = path
        self._mode = mode
        self.crowded = False
        """Other processes write here too: leave them a gap between our transactions."""
        self.names = NameNumbers()
        """As the writer has read them."""
        self._queue: deque[CommitPart[Any]] = deque()
        self._turn = threading.Lock()
        self._writing_thread: int | None = None
        """The thread that commits now."""
        self._last_commit = 0.0
        self._writer = self._open()
        self._readers = ReaderPool(self._connect)
        self._watch: sqlite3.Connection | None = None
        """The connection that notices commits: SQLite counts them for each connection apart."""
        self._watching = threading.Lock()

    def _open(self) -> sqlite3.Connection:
        folder = Path(self.path).resolve().parent
        if not folder.is_dir():
            raise LedgerReadOnly(
                f"{self.path}: its folder {folder} does not exist; create it with mkdir -p, or give another --ledger"
            )
        make_ledger_file(self.path, self._mode)
        with translated_errors(self.path):
            connection = self._connect()
            try:
                # A foreign or newer file must stay exactly as it is, so this comes before anything
                # that writes.
                version = self._retry_while_locked(lambda: schema.check(connection, self.path))
                if version == 0:
                    connection.execute(f"PRAGMA page_size = {schema.PAGE_SIZE}")
                self._retry_while_locked(
                    lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone()
                )
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA cache_size = -32768")
                connection.execute("PRAGMA wal_autocheckpoint = 4000")
                connection.execute(f"PRAGMA journal_size_limit = {LOG_LIMIT}")
                connection.execute("PRAGMA temp_store = MEMORY")
                if version < schema.newest():
                    if version:
                        log.warning(
                            "%s has schema %d: it is migrated to %d, which may take minutes",
                            self.path,
                            version,
                            schema.newest(),
                        )
                    self._retry_while_locked(
                        lambda: schema.migrate(connection, self.path),
                        MIGRATION_TIMEOUT_S,
                        MIGRATION_PAUSE_S,
                    )
                    # The log would stay as large as a migration has made it, until the last process
                    # ends.
                    with suppress(sqlite3.OperationalError):
                        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except BaseException:
                connection.close()
                raise
        return connection

    def _connect(self) -> sqlite3.Connection:
        # Waiting is done here (jittered, see _retry_while_locked), so SQLite itself must not wait.
        connection = sqlite3.connect(
            self.path,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        connection.create_function("key_part", 2, _key_part, deterministic=True)
        return connection

    def _retry_while_locked(
        self,
        attempt: Callable[[], T],
        timeout_s: float = LOCK_TIMEOUT_S,
        longest_s: float = LONGEST_PAUSE_S,
    ) -> T:
        """Retry, with jittered pauses, while another process has locked the file."""
        deadline = time.monotonic() + timeout_s
        pause = 0.0003
        while True:
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                if primary_code(error) not in BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(pause * 1.5, longest_s)

    def write(
        self, run: Callable[Concatenate[Transaction, P], T], /, *args: P.args, **options: P.kwargs
    ) -> T:
        """Run `run` in a transaction and return when it is on disk. If `run` raises, only its own
        part is rolled back. A Ctrl-C in this thread leaves the parts of other threads to them."""
        if self._writing_thread == threading.get_ident():
            raise self._write_inside_write()
        work = CommitPart(run, *args, **options)
        self._queue.append(work)
        try:
            with self._turn:
                self._writing_thread = threading.get_ident()
                # With more than GROUP waiting, our own part may not be in the first group. Parts
                # leave the queue when they are done.
                while not work.done:
                    queued = [self._queue[place] for place in range(len(self._queue))]
                    self._commit([part for part in queued if not part.done])
                    while self._queue and self._queue[0].done:
                        self._queue.popleft()
        finally:
            if self._writing_thread == threading.get_ident():
                self._writing_thread = None
            work.done = True  # its caller does not wait any more
        if isinstance(work.error, UnicodeDecodeError):
            raise translated(work.error, self.path) from work.error
        if work.error is not None:
            raise work.error
        return work.result  # type: ignore[return-value]

    def _write_inside_write(self) -> UsageError:
        """The error of a function of a route that writes while it is called by a write: it would
        wait for itself. The caller may swallow it, so it is logged too."""
        message = (
            f"{self.path}: a function of a route (lane, accepts) has written to the ledger while it was called inside a write; let it only"
            " compute, and let a handler submit, confirm or act"
        )
        log.error(message, stack_info=True)
        return UsageError(message)

    def _commit(self, waiting: list[CommitPart[Any]]) -> None:
        """Commit the first parts, up to GROUP, in one transaction. If it cannot begin, all that
        wait get the error now: each would otherwise wait as long again, one after the other."""
        connection, group = self._writer, waiting[:GROUP]
        begun = False
        try:
            if self.crowded and time.monotonic() - self._last_commit < 0.001:
                time.sleep(random.uniform(0.0002, 0.001))
            try:
                self._retry_while_locked(lambda: connection.execute("BEGIN IMMEDIATE"))
                begun = True
                for work in group:
                    self._run_one(connection, work, alone=len(group) == 1)
                self._retry_while_locked(lambda: connection.execute("COMMIT"))
                self._last_commit = time.monotonic()
                for work in group:
                    work.done = True
            except BaseException as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                elif begun and not isinstance(error, Exception):  # a Ctrl-C after the commit
                    for work in group:
                        work.done = True
                self.names.forget()
                raise
        except sqlite3.Error as error:
            if not begun:
                for work in waiting:
                    work.error, work.done = translated(error, self.path), True
            elif len(group) > 1:
                # One part, or all together, are too large for the file. Commit each alone, so that
                # no other part is rolled back with it.
                for work in group:
                    self._commit([work])
            else:
                group[0].error, group[0].done = translated(error, self.path), True
        except Exception as error:
            for work in group:
                work.error, work.done = work.error or error, True

    def _run_one(
        self, connection: sqlite3.Connection, work: CommitPart[Any], *, alone: bool
    ) -> None:
        work.error = None
        tx = Transaction(connection, self.names)
        if alone:
            self.names.refresh(connection)
            work.result = work.run(tx, *work.args, **work.options)
            return
        connection.execute("SAVEPOINT part")
        try:
            self.names.refresh(connection)
            work.result = work.run(tx, *work.args, **work.options)
        except Exception as error:
            if not connection.in_transaction:
                raise  # SQLite has rolled back the whole group
            connection.execute("ROLLBACK TO part")
            self.names.forget()
            work.error = translated(error, self.path) if isinstance(error, sqlite3.Error) else error
        connection.execute("RELEASE part")

    def read(
        self, run: Callable[Concatenate[Transaction, P], T], /, *args: P.args, **options: P.kwargs
    ) -> T:
        """Run `run` in a read transaction on a connection of the pool; it never waits for a writer
        and never blocks one."""
        with translated_errors(self.path):
            reader = self._readers.take()
            try:
                return self._retry_while_locked(lambda: reader.in_snapshot(run, *args, **options))
            finally:
                self._readers.give_back(reader)

    def change_counter(self) -> int:
        """Changes whenever this or another process has committed."""
        with self._watching, translated_errors(self.path):
            if self._watch is None:
                self._watch = self._connect()
            watch = self._watch
            return int(
                self._retry_while_locked(lambda: watch.execute("PRAGMA data_version").fetchone()[0])
            )

    def checkpoint(self) -> None:
        """Move the log into the file as far as readers allow; called when idle."""
        with self._turn, translated_errors(self.path):
            self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")

    @contextmanager
    def overwriting(self) -> Iterator[None]:
        """Within this context SQLite overwrites with zeros what a write of this process removes."""
        with self._turn, translated_errors(self.path):
            before = self._writer.execute("PRAGMA secure_delete").fetchone()[0]
            self._writer.execute("PRAGMA secure_delete = ON")
        try:
            yield
        finally:
            with self._turn, translated_errors(self.path):
                self._writer.execute(f"PRAGMA secure_delete = {before}")

    def empty_log(self) -> bool:
        """Move the whole log into the file and empty it; False: a reader of another process, or of
        another thread, still needs it."""
        with self._turn, translated_errors(self.path):
            try:
                busy, _, _ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.OperationalError as error:
                if primary_code(error) not in BUSY:
                    raise
                return False
        return not busy

    def size(self) -> dict[str, int]:
        sizes = {}
        for suffix in ("", "-wal"):
            try:
                sizes["file" if not suffix else "log"] = os.stat(self.path + suffix).st_size
            except FileNotFoundError:
                sizes["log"] = 0
        return sizes

    def close(self) -> None:
        with self._turn:
            self._readers.close()
            with self._watching:
                if self._watch is not None:
                    self._watch.close()
                    self._watch = None
            self._writer.close()
