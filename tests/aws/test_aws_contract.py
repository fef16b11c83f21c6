"""The whole ledger contract on DynamoDB and SQS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from followed import Followed, damage, open_followed
from standins import REGION

from milepost.ports.ledger import Ledger
from milepost.testing.contract import LedgerContract


class TestAws(LedgerContract):
    # Enough for claims of more than a hundred, which is as many keys as one request takes.
    many = 250

    @pytest.fixture
    def ledger(self, endpoint: str, prefix: str) -> Iterator[Ledger]:
        ledger = open_followed(endpoint, prefix, REGION)
        self.opened = [ledger]
        yield ledger
        for one in self.opened:
            one.close()

    def another(self, ledger: Ledger) -> Ledger:
        assert isinstance(ledger, Followed)
        self.opened.append(ledger.another())
        return self.opened[-1]

    def damage(self, ledger: Ledger, route: str, key: str, what: str) -> None:
        assert isinstance(ledger, Followed)
        damage(ledger, route, key, what)

    def refused_size(self, ledger: Ledger) -> int:
        return 450_000
