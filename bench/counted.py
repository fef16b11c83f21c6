"""A counted run on AWS: one ledger with its own stream reader, relay, topic and worker, phase by
phase, and a meter on every client."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

from msgspec.structs import replace

from bench.meter import Meter
from bench.standin import account, client
from milepost.core.item import Row
from milepost.core.status import Status
from milepost.engine.context import Context
from milepost.engine.events.deliver import EventRelay as Teller
from milepost.engine.work.worker import Worker
from milepost.runners.threads import ThreadRunner
from milepost_aws.aws_model import AwsModel
from milepost_aws.ledger.cost.model import Need
from milepost_aws.ledger.cost.prices import dollars, prices_in
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.relay import StreamRelay
from milepost_aws.ledger.retention import finish
from milepost_aws.ledger.stream import HandledBatch, Stream, StreamRecord
from milepost_aws.topic import Topic
from milepost_testing.clock import VirtualClock

REGION, PRICED_IN = "eu-central-1", "us-east-1"
PATIENCE_S = 300
MILLION = 1_000_000
SHARED = ("journal", "counters", "cursors", "control")
"""Parts of the control table that cost something for each item. Functions have no checkpoints, and
keys are read every few seconds."""
TABLES = ("rows", "due", "history", "seen", *SHARED)
COUNTED = ("DynamoDB writes", "DynamoDB reads", "SQS", "SNS")
"""Parts of the price that follow from counts; the others follow from durations and sizes that are
assumed."""
READS = {"get_item", "batch_get_item", "query", "scan"}
WRITES = {"put_item", "update_item", "delete_item", "batch_write_item"}
QUEUE = {
    "send_message",
    "send_message_batch",
    "receive_message",
    "delete_message",
    "delete_message_batch",
    "change_message_visibility_batch",
}


class Figure(NamedTuple):
    """One figure of a case, with its prediction by `milepost cost` and its bar."""

    case: str
    name: str
    counted: float
    predicted: float | None = None
    most: float | None = None
    """The bar; None: reported only."""

    @property
    def good(self) -> bool:
        return self.most is None or self.counted <= self.most + 1e-9


class CountedRun:
    """The items of one route are counted; time is the benchmark's own. The relay handles so many
    changes in a call (`batch`)."""

    def __init__(
        self, ctx: Context, clock: VirtualClock, endpoint: str, route: str, batch: int
    ) -> None:
        assert isinstance(ctx.ledger, AwsLedger)
        self.ctx, self.clock, self.route, self.batch = ctx, clock, route, batch
        self._endpoint = endpoint
        self.ledger = ledger = ctx.ledger
        self.names = ledger.store.names
        self.meter = Meter(self.names, route)
        requests = ledger.store.requests
        self._stream = Stream(
            requests, ledger.store.control, route, self.names.rows(route), "bench"
        )
        self._relay = StreamRelay(ledger.store, ctx.plans, lambda: 0.0)
        self.outside = {
            service: client(service, endpoint, REGION) for service in ("dynamodb", "sqs", "sns")
        }
        topic = self.outside["sns"].create_topic(Name=self.names.topic)["TopicArn"]
        self._teller = Teller(ctx, Topic(topic, client=self.outside["sns"], offers=False), "bench")
        self.relay()  # the first poll finds its shards, and everybody's cursor begins
        for service in ("dynamodb", "sqs"):
            self.meter.watch(requests.client(service), "ours")
            self.meter.watch(self.outside[service], "outside")
        self.meter.watch(self.outside["sns"], "topic")

    def relay(self) -> None:
        """Read the stream to its end: what follows, who is told, what is finished."""
        while self._stream.poll(self._handle, self.clock):
            pass
        self._tell()

    def work(self, n: int) -> None:
        """A worker settles n outcomes. All that it has claimed are settled together, so that the
        count does not depend on the handlers' speed."""
        with closing(ThreadRunner()) as runner:
            worker = Worker(self.ctx, runner, "bench")
            until = time.monotonic() + PATIENCE_S
            while worker.finished < n:
                worker.turn()
                for slots in worker.all_slots:
                    while len(slots.collect()) < len(slots.in_hand):
                        if time.monotonic() > until:
                            raise TimeoutError(
                                f"{worker.finished} of {n} settled within {PATIENCE_S} s"
                            )
                        time.sleep(0.002)
        if worker.finished != n:
            raise RuntimeError(f"{worker.finished} outcomes, expected {n}")

    def _handle(self, records: list[StreamRecord]) -> HandledBatch:
        now = self.clock.advance(0.05)
        # Told at once by the world's time; here a day may have passed since.
        some = [replace(record, at=now) for record in records[: self.batch]]
        self._finish(self._relay.handle(some, now), now)
        return HandledBatch(again=records[self.batch].seq if len(records) > self.batch else None)

    def _finish(self, ended: list[Row], now: int) -> None:
        self._tell()
        if ended:
            finish(self.ledger.store, ended, now)

    def _tell(self) -> None:
        while self._teller.run_once().waiting:
            pass

    def close(self) -> None:
        self.ledger.close()
        for one in self.outside.values():
            one.close()

    def check_ended(self, n: int, status: Status) -> None:
        """All n have ended so, and no request was refused."""
        rows = client("dynamodb", self._endpoint, REGION).scan(
            TableName=self.names.rows(self.route)
        )["Items"]
        ended = [row for row in rows if row["status"]["S"] == status.value]
        if len(ended) != n or self.meter.refused:
            raise RuntimeError(
                f"{len(ended)} of {n} items have ended {status.value}; {self.meter.refused} requests were refused"
            )


@contextmanager
def on_model(clock: VirtualClock) -> Iterator[str]:
    """An empty account in the model of AWS, whose time is this clock's; its address."""
    with (
        account("630000000000"),
        AwsModel(REGION, clock=lambda: clock.now() / 1000).served() as endpoint,
    ):
        yield endpoint


def item_figures(case: str, run: CountedRun, n: int, need: Need | None) -> Iterator[Figure]:
    """Requests, units and dollars of one of n items, beside what `milepost cost` says of it."""
    meter, names = run.meter, run.names
    units: defaultdict[str, float] = defaultdict(float)
    if need is not None:
        rows = names.rows(run.route)
        units["state"] = need.units[rows, "write"] + need.units[f"{rows}/due", "write"]
        units["kept"] = need.units[names.history, "write"] + need.units[names.seen, "write"]
        units["shared"], units["read"] = need.units[names.control, "write"], need.total("read")

    def expected(value: float) -> float | None:
        return None if need is None else value

    writes = meter.made("rows")
    yield Figure(
        case,
        "row: writing calls",
        writes / n,
        expected(0 if need is None else sum(need.steps.values()) - need.steps["gone"]),
    )
    yield Figure(
        case, "row and index: write units", meter.total("rows", "due") / n, expected(units["state"])
    )
    yield Figure(
        case,
        "history and seal: write units",
        meter.total("history", "seen") / n,
        expected(units["kept"]),
    )
    yield Figure(
        case,
        "journal, counters, cursors: write units",
        meter.total(*SHARED) / n,
        expected(units["shared"]),
    )
    yield Figure(case, "read units", meter.total(*TABLES, kind="read") / n, expected(units["read"]))
    yield Figure(case, "DynamoDB requests that write", meter.made(*TABLES, operations=WRITES) / n)
    yield Figure(case, "DynamoDB requests that read", meter.made(*TABLES, operations=READS) / n)
    queue = meter.made("", who="ours", operations=QUEUE) / n
    publishes = meter.by("topic") / n
    calls = {} if need is None else need.calls
    yield Figure(
        case,
        "SQS requests",
        queue,
        expected(sum(each for (service, _), each in calls.items() if service == "sqs")),
    )
    yield Figure(case, "SNS requests", publishes, expected(0 if need is None else need.publishes))
    counted = Need(
        defaultdict(float),
        defaultdict(float),
        defaultdict(float),
        queue_requests=queue,
        publishes=publishes,
    )
    for kind in ("read", "write"):
        counted.units["all", kind] = meter.total(*TABLES, kind=kind) / n
    prices = prices_in(PRICED_IN)
    price = dollars(counted, prices)
    model = None if need is None else dollars(need, prices)
    said = expected(0 if model is None else MILLION * sum(model[service] for service in COUNTED))
    yield Figure(
        case,
        f"$ a million in {PRICED_IN}: DynamoDB, SQS, SNS",
        MILLION * sum(price[service] for service in COUNTED),
        said,
    )
    if model is not None:
        rest = sum(each for service, each in model.items() if service not in COUNTED)
        whole = MILLION * (sum(price[service] for service in COUNTED) + rest)
        yield Figure(
            case,
            f"$ a million in {PRICED_IN}, with functions and storage as assumed",
            whole,
            MILLION * sum(model.values()),
        )
