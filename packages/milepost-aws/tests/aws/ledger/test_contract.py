"""The ledger contract on DynamoDB and SQS: all of it on the model in this process, and each test on
one of the two stand-ins.

`make thorough` runs all of it on both stand-ins.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.aws.ledger.synchronous_ledger import SynchronousLedger, damage, open_synchronous_ledger
from tests.standins import REGION, Server

from milepost.blobs.memory import MemoryBlobs
from milepost.ports.ledger import Ledger
from milepost_testing.contract import LedgerContract


class AwsContract(LedgerContract):
    """The contract on the ledger that `first` gives."""

    # Enough for claims of more than a hundred, which is as many keys as one request takes.
    many = 250

    @pytest.fixture
    def first(self, endpoint: str, prefix: str) -> SynchronousLedger:
        return open_synchronous_ledger(endpoint, prefix, REGION)

    @pytest.fixture
    def ledger(self, first: SynchronousLedger) -> Iterator[Ledger]:
        self.opened = [first]
        yield first
        for one in self.opened:
            one.close()

    def another(self, ledger: Ledger) -> Ledger:
        assert isinstance(ledger, SynchronousLedger)
        self.opened.append(ledger.another())
        return self.opened[-1]

    def damage(self, ledger: Ledger, route: str, key: str, what: str) -> None:
        assert isinstance(ledger, SynchronousLedger)
        damage(ledger, route, key, what)

    def refused_size(self, ledger: Ledger) -> int:
        return 450_000

    def traces(self, ledger: Ledger, text: str) -> list[str]:
        """The tables with a row that holds it, and the blobs."""
        assert isinstance(ledger, SynchronousLedger)
        store = ledger.store
        tables = (
            store.names.rows("parcels"),
            store.names.history,
            store.names.seen,
            store.names.control,
        )
        rows = [
            table
            for table in tables
            for image in store.requests.scan(table, ConsistentRead=True)
            if text in repr(image)
        ]
        blobs = store.blobs
        assert isinstance(blobs, MemoryBlobs)
        return rows + [name for name, body in blobs.held.items() if text.encode() in body]


class TestModel(AwsContract):
    pass


@pytest.mark.wire
class TestMinistack(AwsContract):
    many = 120


@pytest.mark.wire
class TestDynoxide(AwsContract):
    """A second DynamoDB, which shares no code with the first: what one of the two takes by mistake,
    the other refuses. The queues are ministack's. (`pytest_collection_modifyitems` in this folder's
    conftest.py shares the tests between the two.)"""

    # It gets slower as a table's stream gets longer.
    many = 120

    @pytest.fixture
    def first(self, dynoxide: Server, endpoint: str, prefix: str) -> SynchronousLedger:
        return open_synchronous_ledger(dynoxide.url, prefix, REGION, {"sqs": endpoint})
