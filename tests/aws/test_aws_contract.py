"""The whole ledger contract on DynamoDB and SQS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from followed import PROMPT, Followed, open_followed
from standins import REGION

from milepost.blobs.memory import MemoryBlobs
from milepost.ledgers.aws.client import Requests
from milepost.ledgers.aws.ledger import AwsLedger
from milepost.ports.ledger import Ledger
from milepost.testing.contract import LedgerContract


class TestAws(LedgerContract):
    @pytest.fixture
    def ledger(self, endpoint: str, prefix: str) -> Iterator[Ledger]:
        ledger = open_followed(endpoint, prefix, REGION)
        self.opened = [ledger]
        yield ledger
        for one in self.opened:
            one.close()

    def another(self, ledger: Ledger) -> Ledger:
        assert isinstance(ledger, Followed)
        requests = ledger.store.requests
        second = AwsLedger(
            Requests(requests.region, requests.endpoint), ledger.store.names.prefix, MemoryBlobs(), settings=PROMPT, make=True
        )
        self.opened.append(Followed(second, ledger.follower))
        return self.opened[-1]
