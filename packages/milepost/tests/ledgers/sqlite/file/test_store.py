"""A Ctrl-C during a read or a write: whoever catches it can continue, and other threads and
processes do not notice."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from milepost.core.errors import LedgerBusy
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ledgers.sqlite.file.store import GROUP, CommitPart, SqliteFile
from milepost.ledgers.sqlite.rows.names import NameNumbers, Place, Transaction


class InterruptedConnection:
    """A connection; a Ctrl-C comes just after it has executed this statement for the first time."""

    def __init__(self, connection: sqlite3.Connection, statement: str) -> None:
        self._connection, self._statement = connection, statement

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        cursor = self._connection.execute(statement, *values)
        if statement == self._statement:
            self._statement = ""
            raise KeyboardInterrupt
        return cursor


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger.open(str(tmp_path / "m.db"))
    yield ledger
    ledger.close()


def interrupt_after(store: SqliteFile, statement: str) -> None:
    store._writer = cast(sqlite3.Connection, InterruptedConnection(store._writer, statement))


def add(name: str) -> Callable[[sqlite3.Connection], str]:
    def run(connection: sqlite3.Connection) -> str:
        connection.execute(
            f"INSERT INTO document (kind, name, version, value) VALUES ('t', '{name}', 1, '1')"
        )
        return name

    return run


@pytest.mark.parametrize(("statement", "written"), [("BEGIN IMMEDIATE", False), ("COMMIT", True)])
def test_a_write_that_is_interrupted_leaves_no_transaction_open(
    ledger: SqliteLedger, statement: str, written: bool
) -> None:
    interrupt_after(ledger._store, statement)
    with pytest.raises(KeyboardInterrupt):
        ledger._store.write(add("a"))
    other = sqlite3.connect(ledger.path, timeout=0)
    other.execute("BEGIN IMMEDIATE").connection.close()
    assert ledger._store.write(add("b")) == "b"
    assert set(ledger.read("t")) == ({"a", "b"} if written else {"b"})


@pytest.mark.parametrize(
    "statement", ["BEGIN IMMEDIATE", "SAVEPOINT part", "RELEASE part", "COMMIT"]
)
def test_an_interrupt_does_not_reach_the_other_writers_of_a_commit(
    ledger: SqliteLedger, statement: str
) -> None:
    store = ledger._store
    others: list[CommitPart[str]] = [CommitPart(add("first")), CommitPart(add("last"))]
    store._queue += others
    interrupt_after(store, statement)
    with pytest.raises(KeyboardInterrupt):
        store.write(add("own"))
    # The next writer takes along what the interrupted one has left.
    store.write(add("next"))
    assert [(part.done, part.result, part.error) for part in others] == [
        (True, "first", None),
        (True, "last", None),
    ]
    assert set(ledger.read("t")) == {"first", "last", "next"} | (
        {"own"} if statement == "COMMIT" else set()
    )
    assert not store._queue


def test_an_interrupt_in_the_work_of_another_writer_is_not_its_error(ledger: SqliteLedger) -> None:
    interrupts = [KeyboardInterrupt()]

    def run(connection: sqlite3.Connection) -> str:
        if interrupts:
            raise interrupts.pop()
        return add("other")(connection)

    other = CommitPart(run)
    ledger._store._queue.append(other)
    with pytest.raises(KeyboardInterrupt):
        ledger._store.write(add("own"))
    ledger._store.write(add("next"))
    assert (other.done, other.error) == (True, None)
    assert set(ledger.read("t")) == {"other", "next"}


def test_a_read_that_is_interrupted_leaves_no_transaction_open(ledger: SqliteLedger) -> None:
    assert ledger.last_seq() == 0
    readers = ledger._store._readers
    reader = readers.take()
    connection = reader.connection
    readers.give_back(
        Transaction(
            cast(sqlite3.Connection, InterruptedConnection(connection, "BEGIN")), reader.names
        )
    )
    with pytest.raises(KeyboardInterrupt):
        ledger.last_seq()
    assert not connection.in_transaction
    assert ledger.last_seq() == 0


def test_names_that_an_interrupted_read_has_seen_in_part_are_read_again(
    ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger._store.write(lambda tx: tx.names.place(tx.connection, "parcels", "weigh", ""))
    ledger.last_seq()
    ledger._store.write(lambda tx: tx.names.place(tx.connection, "parcels", "weigh", "express"))

    def interrupted(names: NameNumbers, number: int, place: Place) -> None:
        names.by_id[number] = place
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("milepost.ledgers.sqlite.rows.names.NameNumbers._remember", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ledger.last_seq()
    assert ledger._store.read(lambda tx: tx.names.lanes) == {
        ("parcels", "weigh"): [(1, ""), (2, "express")]
    }


@pytest.mark.parametrize("waiting", [7, 2 * GROUP])
def test_while_another_process_writes_all_waiting_parts_get_their_error_after_one_wait(
    ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch, waiting: int
) -> None:
    store, waits = ledger._store, list[object]()

    def wait(_: SqliteFile, attempt: Callable[[], object], *limits: float) -> object:
        waits.append(attempt)
        return attempt()

    monkeypatch.setattr(SqliteFile, "_retry_while_locked", wait)
    others: list[CommitPart[str]] = [
        CommitPart(add(f"other {number}")) for number in range(waiting)
    ]
    store._queue += others
    writer = sqlite3.connect(ledger.path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerBusy, match="other processes have locked the ledger for too long"):
        store.write(add("own"))
    writer.execute("ROLLBACK")
    writer.close()
    assert len(waits) == 1
    assert all(part.done and isinstance(part.error, LedgerBusy) for part in others)
    assert len({id(part.error) for part in others}) == waiting, (
        "each thread raises an error of its own"
    )
    assert store.write(add("next")) == "next"
    assert set(ledger.read("t")) == {"next"}


def test_a_log_that_a_reader_has_made_grow_shrinks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.ledgers.sqlite.file.store.LOG_LIMIT", 200_000)
    ledger = SqliteLedger.open(str(tmp_path / "m.db"))
    reader = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM document").fetchone()
    for number in range(20):
        ledger.write("t", f"{number}", "x" * 100_000)
    log = tmp_path / "m.db-wal"
    assert log.stat().st_size > 2_000_000
    reader.close()
    ledger.idle_upkeep()
    ledger.write("t", "next", 1)
    assert log.stat().st_size <= 200_000
    ledger.close()
