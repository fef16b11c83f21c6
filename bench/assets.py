"""A batch of assets on their way: put, offered to the first external stage, confirmed, offered to
the second, confirmed, ended."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import milepost as mp
from bench.counted import REGION, CountedRun
from milepost.blobs.memory import MemoryBlobs
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost.engine.context import Context
from milepost.engine.heads.route import heads_for
from milepost.engine.lists.reconcile import submit_list
from milepost.engine.resend import Resender
from milepost.engine.routes.versions import register
from milepost.runners.clock import SystemChance, SystemClock
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.requests.client import Requests
from milepost_testing.clock import VirtualClock

ROUTE, STAGES = "assets", ("CC", "TC")


def make_route(*, evidence: bool = False) -> mp.Route:
    route = mp.Route(ROUTE, key=["assetId", "batchId"], keep="7d", evidence=evidence)
    for stage in STAGES:
        route.external(stage)
    return route


def asset(number: int) -> tuple[str, str, dict[str, Any]]:
    """An asset's two key fields and what it carries, as long as real ones."""
    made = [
        str(UUID(bytes=sha256(f"{what} {number}".encode()).digest()[:16]))
        for what in ("asset", "batch", "entity")
    ]
    return made[0], f"TDR_{made[1]}_0", {"preservationSystemId": made[2]}


def listed(number: int, size: int = 0) -> str:
    """An asset as a line of a list, which has the key fields too; filled up to `size` bytes."""
    asset_id, batch_id, content = asset(number)
    line = json.dumps({"assetId": asset_id, "batchId": batch_id, **content}, separators=(",", ":"))
    more = size - len(line) - len(',"title":""')
    return f'{line[:-1]},"title":"{"t" * more}"}}' if more > 0 else line


def confirmation(asset_id: str) -> str:
    return json.dumps(
        {"filePaths": [f"{asset_id[:8]}/v1/{name}" for name in ("a.pdf", "b.xml", "c.txt")]},
        separators=(",", ":"),
    )


class CountedBlobs(MemoryBlobs):
    """Counts what is written, by the beginning of its name: a request each, where blobs are in
    S3."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: Counter[str] = Counter()

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        super().write(name, chunks)
        self.writes[name.split("/")[0]] += 1


class Assets(CountedRun):
    """Assets in a ledger of their own, and the outsiders around it."""

    def __init__(self, endpoint: str, prefix: str, batch: int, *, evidence: bool = False) -> None:
        self.blobs = CountedBlobs()
        ledger, clock = (
            AwsLedger(Requests(REGION, endpoint), prefix, self.blobs, make=True),
            VirtualClock(SystemClock().now()),
        )
        timing = ledger.timing
        plans: dict[str, Plan] = {}
        route = make_route(evidence=evidence)
        for one in (route, *heads_for([route], None)):
            plan = Plan(one, grace_ms=timing.grace_ms, offer_life_ms=timing.offer_life_ms)
            plans[one.name] = ledger.prepare(register(ledger, plan, clock.now(), "bench"))
        super().__init__(
            Context(ledger, plans, clock, SystemChance(), self.blobs), clock, endpoint, ROUTE, batch
        )

    # What others do -------------------------------------------------------------------------------
    def put_by_others(self, n: int) -> None:
        for asset_id, batch_id, content in map(asset, range(n)):
            row = {
                "assetId": {"S": asset_id},
                "batchId": {"S": batch_id},
                "input": {"S": json.dumps(content, separators=(",", ":"))},
            }
            self.outside["dynamodb"].put_item(TableName=self.names.rows(ROUTE), Item=row)

    def confirm(self, stage: str, n: int) -> None:
        """A confirmer that knows nothing of Milepost: receives ten, writes what it has found out,
        deletes ten."""
        queue = self.outside["sqs"].get_queue_url(QueueName=self.names.queue(ROUTE, stage))[
            "QueueUrl"
        ]
        self.meter.calls["outside", "", "get_queue_url"] -= 1  # once in a confirmer's life
        done = 0
        while done < n:
            messages = (
                self.outside["sqs"]
                .receive_message(QueueUrl=queue, MaxNumberOfMessages=10)
                .get("Messages", [])
            )
            if not messages:
                raise RuntimeError(f"{done} of {n} items were offered to {stage}")
            for message in messages:
                told = json.loads(message["Body"])["confirm"]
                self.outside["dynamodb"].update_item(
                    TableName=told["table"],
                    Key={name: {"S": value} for name, value in told["key"].items()},
                    UpdateExpression="SET #result = :result",
                    ConditionExpression="attribute_exists(assetId)",
                    ExpressionAttributeNames={"#result": told["attribute"]},
                    ExpressionAttributeValues={
                        ":result": {"S": confirmation(told["key"]["assetId"])}
                    },
                )
            entries = [
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                for number, message in enumerate(messages)
            ]
            self.outside["sqs"].delete_message_batch(QueueUrl=queue, Entries=entries)
            done += len(messages)

    # What we do -----------------------------------------------------------------------------------
    def submit(self, n: int, size: int = 0) -> None:
        """A list of n assets, taken in as `milepost submit` takes it in."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "assets.jsonl"
            path.write_text("".join(f"{listed(number, size)}\n" for number in range(n)))
            report = submit_list(self.ctx, ROUTE, str(path), by="bench")
        if report.counts["new"] != n:
            raise RuntimeError(f"expected {n} new assets, got {report.counts}")

    def wait_a_day(self) -> None:
        """Nobody answers. The stream is read twice a day, since a poller that is silent for longer
        would look for a gap."""
        for _ in range(2):
            self.clock.advance("12h")
            self.relay()
        Resender(self.ctx).run_once()

    # What came of it ------------------------------------------------------------------------------
    def check(self, n: int) -> float:
        """All have ended, are out of the index and will leave; how heavy a row is at its end."""
        rows = list(self.ledger.store.requests.scan(self.names.rows(ROUTE)))
        ended = [
            row
            for row in rows
            if row["status"]["S"] == Status.COMPLETED.value and "dueAt" not in row and "ttl" in row
        ]
        if len(ended) != n:
            raise RuntimeError(f"{len(ended)} of {n} assets have ended as they should")
        return sum(map(weight, rows)) / n


def travel(
    assets: Assets, n: int, *, adopted: bool = False, waits: bool = False, size: int = 0
) -> None:
    """The whole way of n assets, phase by phase; `size`: bytes of the input that is submitted."""
    if adopted:
        assets.put_by_others(n)
    else:
        assets.submit(n, size)
    assets.relay()
    for stage in STAGES:
        if waits:
            assets.wait_a_day()
        assets.confirm(stage, n)
        assets.relay()


def weight(row: dict[str, dict[str, Any]]) -> int:
    """A row's bytes as DynamoDB reckons them: names and values."""
    return sum(len(name.encode()) + _weight(value) for name, value in row.items())


def _weight(value: dict[str, Any]) -> int:
    ((kind, content),) = value.items()
    if kind == "M":
        return 3 + sum(1 + len(name.encode()) + _weight(one) for name, one in content.items())
    if kind == "L":
        return 3 + sum(1 + _weight(one) for one in content)
    if kind == "SS":
        return sum(len(one.encode()) for one in content)
    if kind == "N":
        return 1 + (len(content.lstrip("-").strip("0")) + 1) // 2
    if kind == "B":
        return len(content)
    return 1 if kind in ("BOOL", "NULL") else len(content.encode())
