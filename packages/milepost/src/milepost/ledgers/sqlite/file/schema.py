"""Schema of the file: checks that it is a ledger of a known version, and applies numbered
migrations."""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path

from milepost.core.errors import LedgerForeign, LedgerTooNew

APPLICATION_ID = 0x4D50_4F53  # "MPOS"
PAGE_SIZE = 8192
MIGRATIONS = Path(__file__).with_name("migrations")


def migrations() -> list[tuple[int, str]]:
    """All migrations in order, as (number, SQL)."""
    return [
        (number, path.read_text(encoding="utf-8"))
        for number, path in enumerate(_scripts(MIGRATIONS), 1)
    ]


def newest() -> int:
    """The schema version of a file that is up to date."""
    return len(_scripts(MIGRATIONS))


@cache
def _scripts(folder: Path) -> list[Path]:
    """The files of the migrations. They are looked for once: a process may later become a user who
    cannot read the folder of this package."""
    scripts = sorted(folder.glob("*.sql"))
    assert [script.stem for script in scripts] == [
        f"{number:04}" for number in range(1, len(scripts) + 1)
    ], "numbered without gaps"
    return scripts


def check(connection: sqlite3.Connection, path: str) -> int:
    """The file's schema version; 0 for an empty file. Raises if it belongs to another program or is
    too new; changes nothing."""
    application, version, tables = _marks(connection)
    if application != APPLICATION_ID and (tables or application or version):
        raise LedgerForeign(
            f"{path}: this file belongs to another program; give another path with --ledger sqlite:///PATH"
        )
    if version > newest():
        raise LedgerTooNew(
            f"{path}: made by a later Milepost (schema {version}, this one knows {newest()}); open it with that version or a later one"
        )
    return version


def _marks(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """The file's application id, schema version and number of tables, as of one moment: another
    process may be making the file now."""
    if connection.in_transaction:
        return _read_marks(connection)
    connection.execute("BEGIN")
    try:
        return _read_marks(connection)
    finally:
        connection.execute("ROLLBACK")


def _read_marks(connection: sqlite3.Connection) -> tuple[int, int, int]:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return application, version, tables


def migrate(connection: sqlite3.Connection, path: str, up_to: int | None = None) -> None:
    """Bring the file up to date. Each migration is one transaction."""
    for number, script in migrations()[:up_to]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            if check(connection, path) < number:
                for statement in statements(script):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # SQLite itself has rolled back where the disk is full
                connection.execute("ROLLBACK")
            raise


def statements(script: str) -> list[str]:
    """A script's statements one by one, since running a whole script would commit on its own."""
    found: list[str] = []
    current = ""
    for line in script.splitlines():
        if line.strip().startswith("--") and not current.strip():
            continue
        current += line + "\n"
        if sqlite3.complete_statement(current):
            found.append(current.strip())
            current = ""
    return found
