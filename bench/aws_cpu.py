"""Our own CPU for an item, beside that of a bare boto3 loop which makes the very same calls again,
on an empty account of its own.

Only this process's time is taken: the stand-in is another process, and how fast it is says nothing
about AWS.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import milepost as mp
from bench.counted import REGION
from bench.meter import Call, Meter
from bench.standin import account, client
from milepost.blobs.memory import MemoryBlobs
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost.engine.routes.versions import register
from milepost.engine.work.worker import Worker
from milepost.runners.clock import SystemChance, SystemClock
from milepost.runners.threads import ThreadRunner
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.relay import StreamRelay
from milepost_aws.ledger.requests.client import Requests
from milepost_aws.ledger.retention import finish
from milepost_aws.ledger.stream import Stream, StreamRecord
from milepost_testing.clock import VirtualClock

ROUTE = "notes"
PATIENCE_S = 300
SPANS = ("worker", "relay")


class Spans:
    """CPU seconds of this process, all threads, by what it was doing."""

    def __init__(self, meter: Meter | None = None) -> None:
        self.cpu: Counter[str] = Counter()
        self._meter = meter

    @contextmanager
    def during(self, span: str) -> Iterator[None]:
        if self._meter is not None:
            self._meter.span = span
        began = time.process_time()
        try:
            yield
        finally:
            self.cpu[span] += time.process_time() - began  # type: ignore[assignment]
            if self._meter is not None:
                self._meter.span = ""


def ratios(endpoint: str, number: int, n: int) -> dict[str, tuple[float, float]]:
    """Ours and the bare loop's, in µs an item, for worker and relay; `number` names two accounts
    that nobody has used."""
    own, other = f"{700_000_000_000 + 2 * number}", f"{700_000_000_001 + 2 * number}"
    with account(own):
        ours, calls = _ours(endpoint, n)
    with account(other):
        bare = _bare(endpoint, calls, own, other)
    return {span: (ours[span] * 1e6 / n, bare[span] * 1e6 / n) for span in SPANS}


def _route() -> mp.Route:
    route = mp.Route(ROUTE, key="id")

    @route.stage("deliver", concurrency=16)
    def deliver(item: mp.Item) -> mp.Outcome:
        return mp.Done({"status": 200})

    return route


def _ours(endpoint: str, n: int) -> tuple[Counter[str], list[Call]]:
    """n items put, called, claimed, settled and ended; every call is kept."""
    requests, reading = Requests(REGION, endpoint), Requests(REGION, endpoint)
    ledger = AwsLedger(requests, "cpu", MemoryBlobs(), make=True)
    store = ledger.store
    meter = Meter(store.names, ROUTE, keep=True)
    for service in ("dynamodb", "sqs"):
        meter.watch(requests.client(service), "ours")
    clock = VirtualClock(SystemClock().now())
    plan = Plan(
        _route(), grace_ms=ledger.timing.grace_ms, offer_life_ms=ledger.timing.offer_life_ms
    )
    plan = ledger.prepare(register(ledger, plan, clock.now(), "bench"))
    ctx = Context(ledger, {ROUTE: plan}, clock, SystemChance(), MemoryBlobs())
    reader = AwsLedger(reading, "cpu", MemoryBlobs())
    stream = Stream(reading, reader.store.control, ROUTE, store.names.rows(ROUTE), "bench")
    relay = StreamRelay(store, ctx.plans, lambda: 0.0)
    spans = Spans(meter)

    def handle(records: list[StreamRecord]) -> None:
        with spans.during("relay"):
            finish(store, relay.handle(records, clock.now()), clock.now())

    def follow() -> None:
        while stream.poll(handle, clock):
            pass

    follow()
    submit(
        ctx,
        ROUTE,
        [
            {"id": f"note-{number:06}", "to": "https://example.org/inbox", "text": "x" * 200}
            for number in range(n)
        ],
    )
    follow()
    until = time.monotonic() + PATIENCE_S
    with closing(ThreadRunner()) as runner, spans.during("worker"):
        worker = Worker(ctx, runner, "bench")
        while worker.finished < n:
            rest = worker.turn()
            if time.monotonic() > until:
                raise TimeoutError(f"{worker.finished} of {n} settled within {PATIENCE_S} s")
            time.sleep(rest)
    follow()
    done = sum(count.n for count in ledger.counts(ROUTE) if count.status is Status.COMPLETED)
    if done != n:
        raise RuntimeError(f"{done} of {n} items have ended")
    for one in (ledger, reader):
        one.close()
    return spans.cpu, meter.kept


def _bare(endpoint: str, calls: list[Call], own: str, other: str) -> Counter[str]:
    """The same requests with the same parameters, one after the other. Only what a server makes up
    differs: queues' addresses and receipt handles."""
    AwsLedger(Requests(REGION, endpoint), "cpu", MemoryBlobs(), make=True).close()
    clients = {service: client(service, endpoint, REGION) for service in ("dynamodb", "sqs")}
    handles: list[str] = []
    spans = Spans()
    made = [(call, getattr(clients[call.service], call.operation)) for call in calls]
    for call, make in made:
        params = _elsewhere(call.params, own, other, handles)
        with spans.during(call.span):
            answer = make(**params)
        handles += [message["ReceiptHandle"] for message in answer.get("Messages") or ()]
    for one in clients.values():
        one.close()
    return spans.cpu


def _elsewhere(params: dict[str, Any], own: str, other: str, handles: list[str]) -> dict[str, Any]:
    if "QueueUrl" not in params:
        return params
    params = {**params, "QueueUrl": params["QueueUrl"].replace(own, other)}
    if any("ReceiptHandle" in entry for entry in params.get("Entries", ())):
        # As many are deleted as before; which of them is all the same.
        params["Entries"] = [
            {**entry, "ReceiptHandle": handles.pop(0)} for entry in params["Entries"]
        ]
    return params
