"""A list of which almost everything is known: what reading it costs."""

from __future__ import annotations

from pathlib import Path

import milepost as mp
from bench.counted import REGION
from bench.meter import Meter
from milepost.blobs.memory import MemoryBlobs
from milepost.core.routes.plan import Plan
from milepost.engine.context import Context
from milepost.engine.lists.reconcile import submit_list
from milepost.engine.routes.versions import register
from milepost.runners.clock import SystemChance, SystemClock
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.requests.client import Requests

ROUTE = "parcels"


def write(path: Path, known: int, new: int) -> Path:
    """`known` old lines, with the new ones spread evenly among them."""
    every = max(1, known // new) if new else known + 1
    fresh = iter(range(new))
    with path.open("w") as out:
        for number in range(known):
            if number % every == 0 and (one := next(fresh, None)) is not None:
                out.write(
                    f'{{"id":"new-{one:06}","to":"shelf {one % 97:02}","grams":{one + 100}}}\n'
                )
            out.write(
                f'{{"id":"parcel-{number:08}","to":"shelf {number % 97:02}","grams":{number % 30_000 + 100}}}\n'
            )
        for one in fresh:
            out.write(f'{{"id":"new-{one:06}","to":"shelf {one % 97:02}","grams":{one + 100}}}\n')
    return path


def run(endpoint: str, folder: Path, known: int, new: int) -> Meter:
    """Take in a list of known keys, then one with new ones among them; what the second one asked
    for."""
    requests = Requests(REGION, endpoint)
    ledger = AwsLedger(requests, "list", MemoryBlobs(), make=True)
    route = mp.Route(ROUTE, key="id")
    route.external("shelf")
    clock = SystemClock()
    plan = register(
        ledger,
        Plan(route, grace_ms=ledger.timing.grace_ms, offer_life_ms=ledger.timing.offer_life_ms),
        clock.now(),
        "bench",
    )
    ctx = Context(ledger, {ROUTE: plan}, clock, SystemChance(), MemoryBlobs())
    submit_list(ctx, ROUTE, str(write(folder / "first.jsonl", known, 0)))
    meter = Meter(ledger.store.names, ROUTE)
    meter.watch(requests.client("dynamodb"), "ours")
    report = submit_list(ctx, ROUTE, str(write(folder / "second.jsonl", known, new)))
    if (report.counts["new"], report.counts["in_progress"]) != (new, known):
        raise RuntimeError(f"expected {known} known and {new} new, got {report.counts}")
    ledger.close()
    return meter
