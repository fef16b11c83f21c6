"""Opening the file: is it ours, is it of our time, and bringing it up to date by numbered migrations."""

from __future__ import annotations

import sqlite3
from importlib import resources

from milepost.core.errors import LedgerForeign, LedgerTooNew

APPLICATION_ID = 0x4D50_4F53  # "MPOS"
PAGE_SIZE = 8192


def migrations() -> list[tuple[int, str]]:
    """All migrations in order, as (number, SQL)."""
    folder = resources.files(__package__) / "migrations"
    scripts = sorted((int(entry.name[:4]), entry.read_text()) for entry in folder.iterdir() if entry.name.endswith(".sql"))
    assert [number for number, _ in scripts] == list(range(1, len(scripts) + 1)), "migrations are numbered without gaps"
    return scripts


def check(connection: sqlite3.Connection, path: str) -> int:
    """The file's schema version; 0 for an empty file. Raises if it is somebody else's or too new; changes nothing."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION_ID and (tables or application or version):
        raise LedgerForeign(f"{path}: this file belongs to another program; give another path with --ledger sqlite:///PATH")
    newest = len(migrations())
    if version > newest:
        raise LedgerTooNew(
            f"{path}: made by a later Milepost (schema {version}, this one knows {newest}); upgrade with pip install -U milepost"
        )
    return version


def migrate(connection: sqlite3.Connection, path: str, up_to: int | None = None) -> None:
    """Bring the file up to date. Each migration is one transaction: it happens whole or not at all."""
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
