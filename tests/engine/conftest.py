"""The ledgers that the engine's tests run on, and a small world on each (see engine_world)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_world import Faulty, World, parcels

from milepost.ledgers.memory import MemoryLedger
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ports.ledger import Ledger
from milepost.testing.clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    ledger: Ledger = MemoryLedger() if request.param == "memory" else SqliteLedger.open(str(tmp_path / "ledger.db"))
    yield ledger
    ledger.close()


@pytest.fixture
def world(ledger: Ledger, clock: VirtualClock) -> World:
    return World(ledger, clock, parcels()).registered()


@pytest.fixture
def faulty(ledger: Ledger, clock: VirtualClock) -> World:
    """A world whose `ledger` is a Faulty one."""
    return World(Faulty(ledger), clock, parcels()).registered()  # type: ignore[arg-type]
