"""The memory ledger keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from milepost.ledgers.memory import MemoryLedger
from milepost.ports.ledger import Ledger
from milepost_testing.contract import LedgerContract


class TestMemoryLedger(LedgerContract):
    @pytest.fixture
    def ledger(self) -> Iterator[Ledger]:
        ledger = MemoryLedger()
        yield ledger
        ledger.close()

    def make_departed(self, ledger: Ledger, holder: str) -> None:
        assert isinstance(ledger, MemoryLedger)
        ledger.sign_on(holder)
        ledger.kill(holder)

    def damage(self, ledger: Ledger, route: str, key: str, what: str) -> None:
        assert isinstance(ledger, MemoryLedger)
        ledger.damage(route, key, what)

    def refused_size(self, ledger: Ledger) -> int:
        assert isinstance(ledger, MemoryLedger)
        ledger.refuse_above(50_000)
        return 60_000

    def traces(self, ledger: Ledger, text: str) -> list[str]:
        assert isinstance(ledger, MemoryLedger)
        return [name for name, value in vars(ledger._state).items() if text in repr(value)]
