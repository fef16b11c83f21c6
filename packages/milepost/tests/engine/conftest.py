"""Fixtures for tests of the engine: a small world on each ledger that runs in one process (see
`tests.engine.world`)."""

from __future__ import annotations

import pytest
from tests.engine.world import Faulty, World, parcels

from milepost.ports.ledger import Ledger
from milepost_testing.clock import VirtualClock


@pytest.fixture
def world(ledger: Ledger, clock: VirtualClock) -> World:
    return World(ledger, clock, parcels()).registered()


@pytest.fixture
def faulty(ledger: Ledger, clock: VirtualClock) -> World:
    """A world whose `ledger` is a Faulty one."""
    return World(Faulty(ledger), clock, parcels()).registered()  # type: ignore[arg-type]
