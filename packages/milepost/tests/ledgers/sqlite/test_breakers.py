"""Circuit breakers in the SQLite ledger: a breaker's record and the rows that it is about are one
transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from milepost.core.decide import decide
from milepost.core.errors import LedgerError
from milepost.core.outcome import Done, Retry
from milepost.core.routes.breaker import Breaker
from milepost.core.status import Status
from milepost.ledgers.sqlite import SqliteLedger, documents
from milepost.ports.documents import BREAKER
from milepost_testing.contract.world import World, sample_route

NAME = "parcels/weigh/"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    ledger = SqliteLedger.open(str(tmp_path / "m.db"))
    yield World(ledger, sample_route(breaker=Breaker(failures=2)))
    ledger.close()


def refuse_breakers(monkeypatch: pytest.MonkeyPatch) -> None:
    real = documents.write

    def write(connection: sqlite3.Connection, kind: str, *rest: Any) -> bool:
        if kind == BREAKER:
            raise sqlite3.OperationalError("disk I/O error")
        return real(connection, kind, *rest)

    monkeypatch.setattr(documents, "write", write)


def test_an_outcome_whose_breaker_cannot_be_written_is_not_written_either(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add("p1")
    item = world.take("p1")
    with monkeypatch.context() as broken:
        refuse_breakers(broken)
        with pytest.raises(LedgerError):
            world.settle(item, Retry("down"))
    assert (world.row("p1").status, world.row("p1").attempts, world.breaker(NAME)) == (
        Status.PROCESSING,
        0,
        None,
    )
    assert world.settle(item, Retry("down")) is None
    record = world.breaker(NAME)
    assert record is not None
    assert len(record.failures) == 1, "the failure is counted once"
    world.audit()


def test_a_probe_whose_record_cannot_be_written_is_not_claimed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add("f1", "f2")
    for item in world.claim().items:
        world.settle(item, Retry("down"))
    world.clock.advance(60)
    with monkeypatch.context() as broken:
        refuse_breakers(broken)
        with pytest.raises(LedgerError):
            world.claim()
    assert {world.row(key).status for key in ("f1", "f2")} == {Status.RETRY_SCHEDULED}
    assert len(world.claim().items) == 1


def test_an_outcome_that_loses_its_race_is_not_counted(world: World) -> None:
    world.add("p1")
    item = world.take("p1")
    late = decide(item, Retry("down"), world.plan, world.now, 0.0)
    assert world.settle(item, Done()) is None
    assert world.apply(late) is not None
    assert world.breaker(NAME) is None


def test_a_closed_breaker_is_not_written_to(world: World) -> None:
    statements: list[str] = []
    store = world.ledger._store  # type: ignore[attr-defined]
    store.write(lambda tx: tx.connection.set_trace_callback(statements.append))
    world.add("p1", "p2", "p3")
    for item in world.claim().items:
        world.settle(item, Done())
    assert statements
    assert not [one for one in statements if "document" in one and not one.startswith("SELECT")]
