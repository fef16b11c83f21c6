"""Forget in a SQLite file: what is removed is overwritten, also where SQLite would not do it by
itself, and in the log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost.core.operators import cancel
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ports.retention import ForgetRequest
from milepost_testing.contract import World
from milepost_testing.contract.forget import PRIVATE, give_secret, name_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def world(path: Path) -> Iterator[World]:
    """On a SQLite that overwrites nothing by itself; some are built so that they do."""
    ledger = SqliteLedger.open(str(path))
    ledger._store._writer.execute("PRAGMA secure_delete = OFF")
    world = World(ledger)
    give_secret(world)
    yield world
    ledger.close()


def cancelled(world: World, *keys: str) -> None:
    for key in keys:
        world.add(key, text=f"born in {PRIVATE}", large=PRIVATE * 2_000)
        world.apply(cancel(world.item(key), world.plan, world.now, by="ops"))


def files_with(path: Path, text: str) -> list[str]:
    return [
        file.name
        for file in sorted(path.parent.iterdir())
        if file.is_file() and text.encode() in file.read_bytes()
    ]


def test_content_is_overwritten_in_file_and_log(world: World, path: Path) -> None:
    cancelled(world, "a")
    assert files_with(path, PRIVATE)
    done = world.ledger.forget(ForgetRequest("parcels", "a", name_of("a"), world.now))
    assert files_with(path, PRIVATE) == []
    assert [phrase.split(",")[0] for phrase in done.remains] == [
        f"backups of {path}",
        f"space in {path} that was freed before",
    ]
    writer = world.ledger._store._writer  # type: ignore[attr-defined]
    assert writer.execute("PRAGMA secure_delete").fetchone() == (0,), (
        "for this act only: it costs writes"
    )


def test_a_log_that_another_reader_needs_is_named(world: World, path: Path) -> None:
    cancelled(world, "a", "b")
    reader = sqlite3.connect(path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM item").fetchone()
    done = world.ledger.forget(ForgetRequest("parcels", "a", name_of("a"), world.now))
    assert done.remains[-1] == f"{path}-wal, until no other process reads an older state"
    reader.close()
    assert (
        len(world.ledger.forget(ForgetRequest("parcels", "b", name_of("b"), world.now)).remains)
        == 2
    )
    assert files_with(path, PRIVATE) == []
