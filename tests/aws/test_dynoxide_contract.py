"""The whole ledger contract on a second DynamoDB, which shares no code with the first: what one of the two takes by mistake, the
other refuses. The queues are ministack's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from followed import Followed, damage, open_followed
from standins import REGION, Server

from milepost.ports.ledger import Ledger
from milepost.testing.contract import LedgerContract


class TestDynoxide(LedgerContract):
    # It gets slower as a table's stream gets longer, and a thousand items took a seventh of all the time.
    many = 200

    @pytest.fixture
    def ledger(self, dynoxide: Server, endpoint: str, prefix: str) -> Iterator[Ledger]:
        ledger = open_followed(dynoxide.url, prefix, REGION, {"sqs": endpoint})
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
