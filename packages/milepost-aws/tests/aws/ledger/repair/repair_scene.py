"""A ledger whose stream loses records when a test asks for it, damage to its rows, and a repair
scan step by step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.aws.ledger.synchronous_ledger import PROMPT, Moment, carry_out
from tests.aws.ledger.table_scene import Process

from milepost.blobs.memory import MemoryBlobs
from milepost.core.routes.route import Route
from milepost.engine.context import Context
from milepost.engine.resend import Resender
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.relay import StreamRelay
from milepost_aws.ledger.repair.repair import Progress, Repair
from milepost_aws.ledger.stream import Stream
from milepost_aws.ledger.tables.keys import Image
from milepost_testing.clock import SeededChance
from milepost_testing.contract.world import World

DAY = 86_400_000


class Scene(World):
    """A world on AWS in which nothing follows from a change until the stream is read, and what it
    told may be lost."""

    def __init__(self, endpoint: str, prefix: str, route: Route | None = None) -> None:
        self.endpoint, self.prefix, self.blobs = endpoint, prefix, MemoryBlobs()
        self._ledgers: list[AwsLedger] = []
        self.process = Process(endpoint)
        self.aws = self.open(self.process)
        super().__init__(self.aws, route)
        self.store = self.aws.store
        self.table = self.store.names.rows(self.plan.name)
        self.layout = self.store.load_route(self.plan)
        self.stream = Stream(
            self.store.requests, self.store.control, self.plan.name, self.table, "reader"
        )
        self.relay = StreamRelay(self.store, {self.plan.name: self.plan}, lambda: 0.0)
        self.told: list[str] = []

    def open(self, process: Process) -> AwsLedger:
        """The same deployment as another process sees it."""
        self._ledgers.append(
            AwsLedger(process, self.prefix, self.blobs, settings=PROMPT, make=True)
        )
        return self._ledgers[-1]

    def close(self) -> None:
        for ledger in self._ledgers:
            ledger.close()

    # The stream -----------------------------------------------------------------------------------
    def lose(self) -> int:
        """What the stream has to tell is read by nobody; how many records."""
        lost = 0
        while done := self.stream.poll(lambda records: None, self.clock):
            lost += done
        return lost

    def follow(self) -> None:
        """The stream is read to its end, and rows that have ended are finished."""
        for _ in range(50):
            if not self.stream.poll(
                lambda records: carry_out(self.store, self.relay, records, self.now), self.clock
            ):
                return
        raise AssertionError("the stream never comes to rest")

    def resend(self) -> None:
        plans = {self.plan.name: self.plan}
        Resender(Context(self.aws, plans, Moment(self.now), SeededChance(), self.blobs)).run_once()

    # Rows -----------------------------------------------------------------------------------------
    def image(self, key: str) -> Image:
        return self.store.images(self.plan.name, [key])[key]

    def put(self, key: str, **attributes: Any) -> None:
        """Somebody puts a row."""
        self.process.call(
            "dynamodb",
            "put_item",
            TableName=self.table,
            Item={**self.layout.key_image(key), **attributes},
        )

    def damage(self, key: str, *remove: str, **put: dict[str, Any]) -> None:
        """Somebody changes attributes of a row, knowing nothing of Milepost."""
        sets = ", ".join(f"#s{n} = :s{n}" for n in range(len(put)))
        removes = ", ".join(f"#r{n}" for n in range(len(remove)))
        names = {f"#s{n}": name for n, name in enumerate(put)} | {
            f"#r{n}": name for n, name in enumerate(remove)
        }
        more = (
            {"ExpressionAttributeValues": {f":s{n}": value for n, value in enumerate(put.values())}}
            if put
            else {}
        )
        self.process.call(
            "dynamodb",
            "update_item",
            TableName=self.table,
            Key=self.layout.key_image(key),
            UpdateExpression=" ".join(
                [*(["SET " + sets] if put else []), *(["REMOVE " + removes] if remove else [])]
            ),
            ExpressionAttributeNames=names,
            **more,
        )

    def remove_seal(self, key: str) -> None:
        self.process.batch_write(
            self.store.names.seen, deletes=[{"key": {"S": f"{self.plan.name}/{key}"}}]
        )

    def quarantined(self) -> list[dict[str, Any]]:
        """Everything that is set aside, taken out of the queue."""
        queues = self.store.queues
        messages = queues.receive(queues.quarantine(), 100, 60)
        queues.delete(messages)
        return [message.body for message in messages]

    def versions_told(self, key: str) -> list[int]:
        """A subscriber's view: the item's lines in the order in which all lines were written."""
        return [written.line.version for written in self.aws.feed(0, 10_000) if written.key == key]

    # The repair -----------------------------------------------------------------------------------
    def repair(self, **options: Any) -> Repair:
        return Repair(self.store, self.plan, lambda: 0.0, **options)

    def run(self, repair: Repair | None = None) -> Progress:
        """A whole run, each step when it is time."""
        repair = repair or self.repair()
        for _ in range(100):
            progress = repair.step(self.clock)
            assert progress.standing_by in (None, "waiting: the scan keeps to its pace")
            if progress.done:
                return progress
            assert progress.next_at is not None
            self.clock.advance_to(progress.next_at)
        raise AssertionError("the repair never ends")

    def mended(self) -> dict[str, int]:
        """What a run mends, the next day."""
        self.clock.advance("1d")
        return self.run().found.mended

    def whole(self) -> None:
        """Once the stream has been read everything agrees, and there is nothing left to mend."""
        self.follow()
        self.audit()
        assert self.mended() == {}
        self.follow()
        self.audit()


@contextmanager
def scene_at(endpoint: str, prefix: str, route: Route | None = None) -> Iterator[Scene]:
    scene = Scene(endpoint, prefix, route)
    try:
        yield scene
    finally:
        scene.close()
