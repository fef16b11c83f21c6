"""The SQLite file when it is foreign, newer, damaged, read-only, full or busy: Milepost never
damages it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from milepost.core.decide import accept
from milepost.core.errors import (
    LedgerDamaged,
    LedgerError,
    LedgerForeign,
    LedgerFull,
    LedgerReadOnly,
    LedgerTooNew,
)
from milepost.core.item import digest_of
from milepost.core.outcome import Done, Reject
from milepost.core.routes.one_field import KeyDigests
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import LIVE, TERMINAL, Status
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ledgers.sqlite.file import schema
from milepost.ledgers.sqlite.file.store import LONGEST_PAUSE_S
from milepost.ports.items import NewItem, Query, Same
from milepost.ports.retention import DeliveredLines, PruneCriteria
from milepost_testing.audit import audit
from milepost_testing.contract.world import World

NOW = 1_700_000_000_000


def plan() -> Plan:
    route = Route("parcels", key="id")
    route.stage("weigh")(lambda item: Done())
    return Plan(route)


def new_item(key: str, size: int = 10) -> NewItem:
    content = {"id": key, "text": "x" * size}
    return NewItem(
        accept(plan(), key, content, NOW, correlation_id=key, digest=digest_of(content)), content
    )


def filled(path: Path, items: int = 50) -> Path:
    ledger = SqliteLedger.open(str(path))
    ledger.add(plan(), [new_item(f"p{n}") for n in range(items)], NOW)
    ledger.close()
    return path


def test_another_programs_database_is_refused_and_left_to_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (a)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LedgerForeign, match=r"other\.db.*another program.*--ledger"):
        SqliteLedger.open(str(path))
    assert path.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["other.db"]


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary, " * 1000)
    with pytest.raises(LedgerForeign, match="not a SQLite file"):
        SqliteLedger.open(str(path))
    assert path.read_text().startswith("dear diary")


def test_a_newer_schema_is_refused_and_names_the_cure(tmp_path: Path) -> None:
    path = filled(tmp_path / "m.db")
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {schema.newest() + 1}")
    connection.close()
    with pytest.raises(LedgerTooNew, match=r"later Milepost.*open it with that version"):
        SqliteLedger.open(str(path))


class InterruptedReader:
    """A connection between whose reads another thread has time to make the ledger."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self.other = threading.Thread(target=lambda: SqliteLedger.open(str(path)).close())

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, statement: str) -> SimpleNamespace:
        rows = iter(self._connection.execute(statement).fetchall())
        if statement == "PRAGMA application_id":
            self.other.start()
            self.other.join(0.5)
        return SimpleNamespace(fetchone=lambda: next(rows, None))


def test_a_file_that_another_process_makes_meanwhile_is_not_foreign(tmp_path: Path) -> None:
    reader = InterruptedReader(tmp_path / "m.db")
    assert schema.check(reader, "m.db") == 0  # type: ignore[arg-type]
    reader.other.join()
    assert schema.check(sqlite3.connect(tmp_path / "m.db"), "m.db") == schema.newest()


def test_a_missing_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"folder .*nowhere does not exist"):
        SqliteLedger.open(str(tmp_path / "nowhere" / "m.db"))


def test_a_damaged_file_is_told_and_not_made_worse(tmp_path: Path) -> None:
    path = filled(tmp_path / "m.db", 2000)
    body = bytearray(path.read_bytes())
    for page in range(3, len(body) // schema.PAGE_SIZE):
        body[page * schema.PAGE_SIZE : page * schema.PAGE_SIZE + 64] = b"\xff" * 64
    path.write_bytes(bytes(body))
    ledger = SqliteLedger.open(str(path))
    with pytest.raises(LedgerDamaged, match=r"damaged.*backup"):
        ledger.peek("parcels", [f"p{n}" for n in range(2000)])
    ledger.close()


def test_a_read_only_ledger_says_so_and_is_left_as_it_is(tmp_path: Path) -> None:
    ledger = SqliteLedger.open(str(filled(tmp_path / "m.db")))
    # SQLite's own switch gives the very error that a file without write permission does (root may
    # write those).
    ledger._store._writer.execute("PRAGMA query_only = 1")
    with pytest.raises(
        LedgerReadOnly,
        match="this user may not write the ledger or its folder; check the permissions",
    ):
        ledger.add(plan(), [new_item("late")], NOW)
    assert audit(ledger, "parcels", plan()) == 50
    ledger.close()


def test_a_full_disk_undoes_the_write_whole_and_the_ledger_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    path = filled(tmp_path / "m.db")
    ledger = SqliteLedger.open(str(path))
    pages = ledger._store._writer.execute("PRAGMA page_count").fetchone()[0]
    # SQLite's own limit gives the very error that a full disk does.
    ledger._store._writer.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(LedgerFull, match="disk is full, so this was not written"):
        ledger.add(plan(), [new_item(f"big{n}", 5_000) for n in range(100)], NOW)
    assert ledger.peek("parcels", ["big0", "p0"])[0] is None
    assert audit(ledger, "parcels", plan()) == 50
    ledger._store._writer.execute("PRAGMA max_page_count = 1000000")
    assert ledger.add(plan(), [new_item("big0", 5_000)], NOW) == [None]
    assert audit(ledger, "parcels", plan()) == 51
    ledger.close()


def test_a_reader_never_waits_for_a_writer(tmp_path: Path) -> None:
    ledger = SqliteLedger.open(str(filled(tmp_path / "m.db")))
    inside, go_on = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM counter")
        inside.set()
        assert go_on.wait(30)

    writer = threading.Thread(target=ledger._store.write, args=(slow,))
    writer.start()
    assert inside.wait(30)
    # The writer is in the middle of its transaction; reading answers at once, and with what was
    # committed.
    assert sum(count.n for count in ledger.counts("parcels")) == 50
    assert ledger.peek("parcels", ["p1"])[0] is not None
    go_on.set()
    writer.join()
    assert ledger.counts("parcels") == []
    ledger.close()


def test_writes_that_come_together_share_one_commit_and_one_that_fails_is_undone_alone(
    tmp_path: Path,
) -> None:
    ledger = SqliteLedger.open(str(filled(tmp_path / "m.db")))
    store = ledger._store
    commits = []
    store._writer.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
    inside, go_on = threading.Event(), threading.Event()

    def first(connection: sqlite3.Connection) -> None:
        inside.set()
        assert go_on.wait(30)

    errors: list[BaseException] = []

    def add(name: str, fails: bool) -> None:
        def run(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO document (kind, name, version, value) VALUES ('t', ?, 1, '1')", (name,)
            )
            if fails:
                raise ValueError(name)

        try:
            store.write(run)
        except ValueError as error:
            errors.append(error)

    threads = [threading.Thread(target=store.write, args=(first,))]
    threads[0].start()
    assert inside.wait(30)
    threads += [threading.Thread(target=add, args=(f"d{n}", n == 3)) for n in range(10)]
    for thread in threads[1:]:
        thread.start()
    while len(store._queue) < 11:
        threading.Event().wait(0.001)
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(commits) == 2
    assert [str(error) for error in errors] == ["d3"]
    assert sorted(ledger.read("t")) == sorted(f"d{n}" for n in range(10) if n != 3)
    ledger.close()


def shape(path: Path) -> list[tuple[str, str, str]]:
    connection = sqlite3.connect(path)
    found = connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY type, name"
    ).fetchall()
    connection.close()
    return found


def test_a_migrated_file_is_like_one_made_new(tmp_path: Path) -> None:
    SqliteLedger.open(str(tmp_path / "new.db")).close()
    for start in range(schema.newest() + 1):
        path = tmp_path / f"from{start}.db"
        connection = sqlite3.connect(path, isolation_level=None)
        schema.migrate(connection, str(path), up_to=start)
        connection.close()
        SqliteLedger.open(str(path)).close()
        assert shape(path) == shape(tmp_path / "new.db")


def test_rows_of_before_the_migration_are_found_by_its_indexes(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    ledger = SqliteLedger.open(str(path))
    world = World(ledger)
    world.add("p1")
    held = world.take("p1")
    world.add("p2")
    ledger.close()
    new = shape(path)
    connection = sqlite3.connect(path, isolation_level=None)
    for name in ("item_due", "item_held", "item_overdue", "item_handed_over"):
        connection.execute(f"DROP INDEX {name}")
    connection.execute(
        "CREATE INDEX item_due ON item (place, due_at, status) WHERE due_at IS NOT NULL"
    )
    connection.execute("ALTER TABLE item DROP COLUMN key_field")
    connection.execute("PRAGMA user_version = 8")
    connection.close()
    ledger = SqliteLedger.open(str(path))
    assert shape(path) == new
    found = {
        status: ledger.find(Query(route="parcels", statuses=frozenset({status}))).items
        for status in LIVE
    }
    assert {status: [item.key for item in items] for status, items in found.items() if items} == {
        Status.PROCESSING: [held.key],
        Status.QUEUED: ["p2"],
    }
    assert len(ledger.find(Query(route="parcels", statuses=LIVE, limit=1)).items) == 1
    world = World(ledger)
    assert world.take("p2").key == "p2"
    ledger.close()


def test_a_file_of_before_the_index_of_failed_seals_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    ledger = SqliteLedger.open(str(path))
    world = World(ledger)
    world.add("p1")
    world.settle(world.take("p1"), Reject("no"))
    world.clock.advance("1h")
    ledger.prune(PruneCriteria("parcels", TERMINAL, world.now, None, DeliveredLines(0), 10))
    ledger.close()
    new = shape(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("DROP INDEX seal_failed")
    connection.execute("PRAGMA user_version = 12")
    connection.close()
    ledger = SqliteLedger.open(str(path))
    assert shape(path) == new
    assert [seal.key for seal in ledger.left_failures("parcels", "", None, 10).seals] == ["p1"]
    ledger.close()


def test_rows_of_before_the_column_key_field_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    ledger = SqliteLedger.open(str(path))
    World(ledger).add("p1", "p2")
    ledger.close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("ALTER TABLE item DROP COLUMN key_field")
    connection.execute("PRAGMA user_version = 10")
    connection.close()
    ledger = SqliteLedger.open(str(path))
    World(ledger).add("p3")
    keys = ["p1", "p3", "p4", "p2"]
    same = Same(Status.QUEUED, "weigh")
    assert ledger.recognise("parcels", keys, KeyDigests("id", keys)) == [same, same, None, same]
    assert ledger.recognise("parcels", ["p1"], KeyDigests("name", ["p1"])) == ledger.peek(
        "parcels", ["p1"]
    )
    ledger.close()


@pytest.mark.parametrize(
    "damage", ["status = 99", "status = 'x'", "status = 12", "place = 4000", "place = 'x'"]
)
def test_many_keys_are_recognised_beside_damaged_rows(tmp_path: Path, damage: str) -> None:
    ledger = SqliteLedger.open(str(tmp_path / "m.db"))
    keys = [f"p{number:02}" for number in range(61)]
    World(ledger).add(*keys)
    connection = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
    connection.execute(
        f"UPDATE item SET {damage} WHERE key IN (?, ?, ?)", (keys[0], keys[30], keys[-1])
    )
    connection.close()
    for digests in (KeyDigests("id", keys), [digest_of({"id": key}) for key in keys]):
        found = dict(zip(keys, ledger.recognise("parcels", keys, digests), strict=True))
        assert found.pop(keys[0]) is not None
        assert found.pop(keys[30]) is not None
        assert found.pop(keys[-1]) is not None
        assert set(found.values()) == {Same(Status.QUEUED, "weigh")}
    ledger.close()


def test_what_was_offered_before_the_migration_is_kept_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    ledger = SqliteLedger.open(str(path))
    world = World(ledger)
    world.bring("p1", to="delivered")
    world.add("p2")
    world.settle(world.take("p2"), Done())
    world.settle(world.take("p2", "stamp"), Done())
    ledger.close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("DROP TABLE offer")
    for statement in schema.statements(
        next(script for _, script in schema.migrations() if "CREATE TABLE offer" in script)
    ):
        connection.execute(statement)
    connection.close()
    ledger = SqliteLedger.open(str(path))
    assert {line.key: line.payload for line in ledger.feed(0, 100) if line.line.offered} == {
        "p1": {"by": "stamp"},
        "p2": {"id": "p2"},
    }
    ledger.close()


def test_a_payload_that_is_offered_again_is_stored_once(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    ledger = SqliteLedger.open(str(path))
    world = World(ledger)
    world.bring("p1", to="delivered")
    for _ in range(2):
        world.clock.advance("14d")
        world.apply(world.look("p1"))
    assert [line.payload for line in ledger.feed(0, 100) if line.line.offered] == [
        {"by": "stamp"}
    ] * 3
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*), count(body) FROM offer").fetchone() == (3, 1)
    world.confirm("p1", "delivered")
    world.add("p2")
    world.clock.advance("1d")
    assert (
        ledger.prune(
            PruneCriteria(
                "parcels", TERMINAL, world.now, None, DeliveredLines(ledger.last_seq()), 10
            )
        ).items
        == 1
    )
    assert connection.execute("SELECT count(*) FROM offer").fetchone() == (0,)
    connection.close()
    ledger.close()


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("CREATE TABLE item (a);", "item already exists"),
        # SQLite ends the transaction by itself, as where the disk is full.
        ("INSERT OR ROLLBACK INTO fine VALUES (1);", "UNIQUE constraint failed"),
    ],
)
def test_a_migration_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, error: str
) -> None:
    path = filled(tmp_path / "m.db")
    before = shape(path)
    scripts = shutil.copytree(schema.MIGRATIONS, tmp_path / "migrations")
    script = f"CREATE TABLE fine (a UNIQUE);\nINSERT INTO fine VALUES (1);\n{statement}"
    (scripts / f"{schema.newest() + 1:04}.sql").write_text(script)
    monkeypatch.setattr(schema, "MIGRATIONS", scripts)
    with pytest.raises(LedgerError, match=error):
        SqliteLedger.open(str(path))
    assert shape(path) == before


def test_processes_wait_for_one_that_migrates_a_large_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In a group of processes, one that gave up would end the others, and with them the
    migration."""
    path = tmp_path / "m.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA journal_mode = WAL")
    schema.migrate(other, str(path), up_to=schema.newest() - 1)
    other.execute("BEGIN IMMEDIATE")
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += 60
        if now == 600:
            other.execute("COMMIT")

    monkeypatch.setattr(
        "milepost.ledgers.sqlite.file.store.time",
        SimpleNamespace(sleep=sleep, monotonic=lambda: now),
    )
    SqliteLedger.open(str(path)).close()
    assert now == 600
    assert "it is migrated to" in caplog.text
    other.close()


def test_the_log_of_a_migration_does_not_stay(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    connection = sqlite3.connect(path, isolation_level=None)
    schema.migrate(connection, str(path), up_to=11)
    connection.execute(
        "INSERT INTO content (item, kind, stage, body) VALUES (1, 0, 0, zeroblob(5000000))"
    )
    connection.close()
    ledger = SqliteLedger.open(str(path))
    assert ledger._store.size()["log"] == 0
    assert path.stat().st_size > 5_000_000
    ledger.close()


def test_a_migration_holds_no_large_file_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    connection = sqlite3.connect(path, isolation_level=None)
    schema.migrate(connection, str(path), up_to=11)
    for item in range(18):
        connection.execute(
            "INSERT INTO content (item, kind, stage, body) VALUES (?, 0, 0, zeroblob(4000000))",
            (item,),
        )
    connection.close()
    program = (
        "import sqlite3, sys; from milepost.ledgers.sqlite import SqliteLedger;"
        "sqlite3.connect(':memory:').execute('PRAGMA hard_heap_limit = 60000000'); SqliteLedger.open(sys.argv[1]).close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_migration_leaves_views_that_people_have_added(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    connection = sqlite3.connect(path, isolation_level=None)
    schema.migrate(connection, str(path), up_to=11)
    connection.execute(
        "CREATE VIEW inputs AS SELECT item, CAST(body AS TEXT) AS text FROM content WHERE kind = 0"
    )
    connection.execute("INSERT INTO content (item, kind, stage, body) VALUES (7, 0, 0, x'7b7d')")
    connection.close()
    SqliteLedger.open(str(path)).close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT * FROM inputs").fetchall() == [(7, "{}")]
    connection.close()


def test_people_with_a_database_browser_can_read_the_items(tmp_path: Path) -> None:
    path = filled(tmp_path / "m.db", 1)
    connection = sqlite3.connect(path)
    columns = "route, key, stage, status, attempts, due_at"
    assert connection.execute(f"SELECT {columns} FROM items").fetchall() == [
        ("parcels", "p0", "weigh", "QUEUED", 0, "2023-11-14T22:13:20.000Z")
    ]
    connection.close()


def test_one_members_error_does_not_fail_its_commit_group(tmp_path: Path) -> None:
    ledger = SqliteLedger.open(str(filled(tmp_path / "m.db")))
    store = ledger._store

    def missing(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO nowhere VALUES (1)")

    def undone(connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")
        raise sqlite3.OperationalError(
            "the whole transaction is undone, as SQLite does when the disk is full"
        )

    def good(number: int) -> Callable[[sqlite3.Connection], int]:
        def run(connection: sqlite3.Connection) -> int:
            connection.execute(
                "INSERT INTO document (kind, name, version, value) VALUES ('test', ?, 1, '1')",
                (str(number),),
            )
            return number

        return run

    for bad in (missing, undone):
        with ThreadPoolExecutor(7) as pool, store._turn:
            # While somebody else writes they all come together, and one of them carries the others'
            # work along.
            futures = [
                pool.submit(store.write, run) for run in (good(1), good(2), bad, good(3), good(4))
            ]
            while len(store._queue) < len(futures):
                time.sleep(0.001)
        answers = [future.exception() or future.result() for future in futures]
        assert [answers[place] for place in (0, 1, 3, 4)] == [1, 2, 3, 4]
        assert isinstance(answers[2], LedgerError)
        assert set(ledger.read("test")) == {"1", "2", "3", "4"}
        store.write(
            lambda connection: (
                connection.execute("DELETE FROM document WHERE kind = 'test'").rowcount
            )
        )
    ledger.close()


def test_a_process_that_waits_for_another_looks_often_enough_to_meet_the_gap_between_its_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(tmp_path / "m.db")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    ledger = SqliteLedger.open(str(path))
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 50:
            other.execute("COMMIT")

    monkeypatch.setattr("milepost.ledgers.sqlite.file.store.time.sleep", sleep)
    ledger._store.write(lambda connection: None)
    assert len(pauses) == 50, "it began to write as soon as the other had ended"
    assert max(pauses) <= 1.5 * LONGEST_PAUSE_S
    ledger.close()
    other.close()
