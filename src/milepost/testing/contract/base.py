"""What every part of the contract stands on: a fresh ledger, a second handle on it, and a world around it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from milepost.ports.ledger import Ledger
from milepost.testing.contract.world import World


class Promises:
    """Subclass `LedgerContract`, give it a `ledger` fixture, and override the two hooks where they make a difference."""

    many = 1000
    """Items in the test of bulk; fewer for a stand-in that is slow at it."""

    @pytest.fixture
    def ledger(self) -> Iterator[Ledger]:
        """A fresh, empty ledger; closed afterwards by whoever made it."""
        raise NotImplementedError("give the contract a 'ledger' fixture that yields a fresh ledger")

    def another(self, ledger: Ledger) -> Ledger:
        """A second handle on the same ledger, as another process would open it."""
        return ledger

    def make_departed(self, ledger: Ledger, holder: str) -> None:
        """Make `holder` one that signed on and is proved dead; skip where death cannot be proved."""
        self.needs(ledger, "proof of death")
        raise NotImplementedError("say how a holder is made one that is proved dead")

    def needs(self, ledger: Ledger, ability: str) -> None:
        """This promise is only for ledgers that do not say that they lack this."""
        if ability in ledger.lacks:
            pytest.skip(f"this ledger says that it lacks: {ability}")

    @pytest.fixture
    def world(self, ledger: Ledger) -> World:
        return World(ledger)
