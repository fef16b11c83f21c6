"""What the SQLite file holds: its schema, and every row of the golden history."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.golden.history import History
from tests.golden.masks import masked, steady
from tests.golden.recording import Recorder


@pytest.fixture
def file(copy: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(copy / "ledger.db")) as connection:
        yield connection


def tables(file: sqlite3.Connection) -> list[str]:
    return [
        name
        for (name,) in file.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
        )
    ]


def cell(value: Any) -> Any:
    """A stored value as JSON: JSON text as what it says, other bytes in hex."""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return {"hex": value.hex()}
    if isinstance(value, str) and value[:1] in ("{", "["):
        return {"json": json.loads(value)}
    return value


def test_the_schema_is_as_recorded(file: sqlite3.Connection, golden: Recorder) -> None:
    made = [
        sql
        for (sql,) in file.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type DESC, name"
        )
    ]
    settings = [
        f"PRAGMA {name} = {file.execute(f'PRAGMA {name}').fetchone()[0]};"
        for name in ("application_id", "user_version", "page_size")
    ]
    golden.text("sqlite/schema.sql", "\n".join([*settings, *(f"{sql};" for sql in made)]))


def test_the_columns_are_as_recorded(file: sqlite3.Connection, golden: Recorder) -> None:
    found = {
        table: [
            f"{name} {kind}{' NOT NULL' if not_null else ''}{'' if default is None else f' DEFAULT {default}'}{f' KEY {key}' if key else ''}"
            for _, name, kind, not_null, default, key in file.execute(f"PRAGMA table_info({table})")
        ]
        for table in tables(file)
    }
    golden.json("sqlite/columns.json", found)


def test_the_rows_are_as_recorded(file: sqlite3.Connection, golden: Recorder) -> None:
    for table in tables(file):
        cursor = file.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, map(cell, row), strict=True)) for row in cursor]
        golden.json(f"sqlite/rows/{table}.json", sorted(map(_stored, rows), key=_in_order))


def _stored(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what only says how often, or in which order, something was written."""
    for name in ("seq", "same"):
        if row.get(name) is not None:
            row[name] = "SEQ"
    if row.get("kind") in ("cursor", "head", "process"):
        row["version"] = "VERSION"
    return dict(masked(row))


def _in_order(row: dict[str, Any]) -> tuple[int, int, str]:
    """By item and version where a row has them."""
    number, line = row.get("item", row.get("id")), row.get("body")
    version = (
        line["json"].get("version", 0)
        if isinstance(line, dict) and isinstance(line.get("json"), dict)
        else 0
    )
    return (
        number if isinstance(number, int) else 0,
        version if isinstance(version, int) else 0,
        json.dumps(row, sort_keys=True),
    )


def test_history_lines_are_written_as_recorded(file: sqlite3.Connection, golden: Recorder) -> None:
    """To the byte but for what is masked: each line is hashed as it is written."""
    lines = file.execute(
        "SELECT CAST(body AS TEXT) FROM history ORDER BY item, CAST(body AS TEXT) ->> 'version'"
    )
    golden.text("sqlite/lines.jsonl", steady("\n".join(body for (body,) in lines)))


def test_blobs_are_named_as_recorded(copy: Path, golden: Recorder) -> None:
    """Blobs and the other files beside the ledger."""
    found = sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file())
    kept = [
        steady(name)
        for name in found
        if "__pycache__" not in name and not name.endswith(("-wal", "-shm"))
    ]
    golden.text("sqlite/files.txt", "\n".join(sorted(kept)))


def test_the_history_has_every_status(history: History, file: sqlite3.Connection) -> None:
    """The golden ledger is of use only while it has a row in every status."""
    import milepost as mp

    stored = {
        status
        for (status,) in file.execute(
            "SELECT DISTINCT s.name FROM item i JOIN status s ON s.id = i.status"
        )
    }
    assert stored == {status.value for status in mp.Status}
