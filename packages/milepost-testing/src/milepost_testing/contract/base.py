"""Base of every part of the contract: a fresh ledger, a second handle on it, and a world around
it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from milepost.ports.ledger import Ledger
from milepost_testing.contract.world import World


class Promises:
    """Subclass `LedgerContract`, give it a `ledger` fixture, say how its rows are damaged and when
    they are too large, and override the other hooks if needed."""

    many = 1000
    """Items in the bulk test; fewer for a slow stand-in."""

    @pytest.fixture
    def ledger(self) -> Iterator[Ledger]:
        """A fresh, empty ledger; the fixture closes it afterwards."""
        raise NotImplementedError("give the contract a 'ledger' fixture that yields a fresh ledger")

    def another(self, ledger: Ledger) -> Ledger:
        """A second handle on the same ledger, as another process would open it."""
        return ledger

    def make_departed(self, ledger: Ledger, holder: str) -> None:
        """Make `holder` a process that signed on and is proved dead; skip if death cannot be
        proved."""
        self.needs(ledger, "proof of death")
        raise NotImplementedError("say how a holder is made one that is proved dead")

    def damage(self, ledger: Ledger, route: str, key: str, what: str) -> None:
        """Make the "content" of this item, or its "row", unreadable, as a broken disk or a wrong
        manual change would."""
        raise NotImplementedError("say how an item is damaged")

    def refused_size(self, ledger: Ledger) -> int:
        """A row of this many bytes is refused; the hook may first set such a limit."""
        raise NotImplementedError("say how large a row is that the storage refuses")

    def needs(self, ledger: Ledger, ability: str) -> None:
        """Skip the test if the ledger declares that it lacks this capability."""
        if ability in ledger.missing_capabilities:
            pytest.skip(f"this ledger says that it lacks: {ability}")

    @pytest.fixture
    def world(self, ledger: Ledger) -> World:
        return World(ledger)
