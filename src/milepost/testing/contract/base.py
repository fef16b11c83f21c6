"""What every part of the contract stands on: a fresh ledger, a second handle on it, and a world around it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from milepost.ports.ledger import Ledger
from milepost.testing.contract.world import World


class Promises:
    """Subclass `LedgerContract`, give it a `ledger` fixture, and override the two hooks where they make a difference."""

    @pytest.fixture
    def ledger(self) -> Iterator[Ledger]:
        """A fresh, empty ledger; closed afterwards by whoever made it."""
        raise NotImplementedError("give the contract a 'ledger' fixture that yields a fresh ledger")

    def another(self, ledger: Ledger) -> Ledger:
        """A second handle on the same ledger, as another process would open it."""
        return ledger

    def make_departed(self, ledger: Ledger, holder: str) -> None:
        """Make `holder` one that signed on and is proved dead; skip where death cannot be proved."""
        pytest.skip("this ledger cannot prove that a process is dead")

    @pytest.fixture
    def world(self, ledger: Ledger) -> World:
        return World(ledger)
