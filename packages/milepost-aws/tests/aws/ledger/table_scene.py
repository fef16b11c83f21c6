"""The control and history tables of one ledger, processes that use them, and points at which a
process dies or waits."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.aws.ledger.metered_requests import MeteredRequests
from tests.standins import REGION

from milepost.blobs.memory import MemoryBlobs
from milepost_aws.aws_model import Faults
from milepost_aws.ledger.names import ResourceNames
from milepost_aws.ledger.tables.values import Values


class Died(Exception):
    """The process is gone: nothing after this call is done."""


class Process(MeteredRequests):
    """One process's requests. `at(operation, act)`: the act is done just before the next such call,
    and may raise `Died`."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(REGION, endpoint, width=4, sleep=lambda _: None)
        self.faults = Faults()
        self.faults.attach(self)
        self._acts: list[tuple[str, Callable[[], Any]]] = []

    def at(self, operation: str, act: Callable[[], Any]) -> None:
        self._acts.append((operation, act))

    def die_at(self, operation: str) -> None:
        def die() -> None:
            raise Died(operation)

        self.at(operation, die)

    def call(self, service: str, operation: str, /, **params: Any) -> dict[str, Any]:
        for number, (awaited, act) in enumerate(self._acts):
            if awaited == operation:
                del self._acts[number]
                act()
                break
        return super().call(service, operation, **params)


class Scene:
    """One ledger's tables, and any number of processes."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.names = ResourceNames(f"t{secrets.token_hex(4)}")
        self.values = Values(MemoryBlobs())
        self._processes: list[Process] = []
        first = self.process()
        for table, hash_key, range_key, range_type in (
            (self.names.control, "kind", "name", "S"),
            (self.names.history, "item", "version", "N"),
        ):
            first.call(
                "dynamodb",
                "create_table",
                TableName=table,
                KeySchema=[
                    {"AttributeName": hash_key, "KeyType": "HASH"},
                    {"AttributeName": range_key, "KeyType": "RANGE"},
                ],
                AttributeDefinitions=[
                    {"AttributeName": hash_key, "AttributeType": "S"},
                    {"AttributeName": range_key, "AttributeType": range_type},
                ],
                BillingMode="PAY_PER_REQUEST",
            )

    def process(self) -> Process:
        made = Process(self.endpoint)
        self._processes.append(made)
        return made

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All that stands in a table."""
        return list(self._processes[0].scan(table, ConsistentRead=True))

    def close(self) -> None:
        for process in self._processes:
            process.close()


@contextmanager
def scene_at(endpoint: str) -> Iterator[Scene]:
    scene = Scene(endpoint)
    try:
        yield scene
    finally:
        scene.close()


def writes(process: Process) -> float:
    """Write units that the process was charged for since it began to measure."""
    return sum(units for (_, kind), units in process.units.items() if kind == "write")
