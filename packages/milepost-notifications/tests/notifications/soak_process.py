"""Processes of the soak on AWS: a station (worker, relay, resender) that is killed from outside,
and a Lambda worker that its time limit ends.

Some of their requests to DynamoDB and SQS fail, are made twice, or are carried out without an
answer; some SQS messages come twice.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import boto3
import msgspec
from msgspec import Struct
from tests.aws.ledger.processes.worker_process import Life, WrongClock, shorten_waits

from milepost.application.installation import install, services
from milepost.blobs.folder import FolderBlobs
from milepost.core.routes.plan import Plan
from milepost.engine.context import Context
from milepost.engine.routes.versions import register
from milepost.runners.clock import SystemChance
from milepost.station import Station
from milepost_aws.aws_model import Faults, kinds
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.requests.client import Requests
from milepost_aws.ledger.store import StoreSettings
from milepost_notifications import application

FAULTY = {
    "dynamodb": ("UpdateItem", "PutItem", "BatchGetItem", "BatchWriteItem", "Query"),
    "sqs": ("SendMessageBatch", "ReceiveMessage", "DeleteMessageBatch"),
}
"""Requests that fail now and then."""
CALLS = 20_000
"""Requests of a kind for which faults are planned."""
PATIENCE_S = 10.0
"""How long a request to AWS is repeated."""
STAGE = "notifications/deliver"


class SoakLife(Struct, kw_only=True, frozen=True):
    """What a process is to be and do."""

    endpoint: str
    prefix: str
    region: str
    folder: str
    settings: dict[str, Any]
    """The settings of [notifications]."""
    holder: str
    seed: int
    faulty: float = 0.02
    """The part of the requests that have a fault."""
    lease_ms: int = 4_000
    run_ms: int = 12_000
    """The time limit of the function, of which it keeps a quarter for giving back what it cannot
    end."""
    cut: float = 0.05
    """The part of the function's calls that their time limit ends without warning."""


def run_process(kind: str, told: dict[str, Any]) -> None:
    """A process of this kind begins here, and ends when this returns."""
    {"station": work, "function": serve}[kind](msgspec.convert(told, SoakLife))


def work(life: SoakLife) -> None:
    """A station of the application, until SIGTERM or death."""
    usual = Life(
        endpoint=life.endpoint,
        prefix=life.prefix,
        folder=life.folder,
        region=life.region,
        lease_ms=life.lease_ms,
    )
    shorten_waits(usual)
    requests = Requests(life.region, life.endpoint, deadline_s=PATIENCE_S)
    planned_faults(life).attach(requests)
    configured = application.configured(life.settings, environment={})
    blobs = FolderBlobs(str(Path(life.folder) / "blobs"))
    settings = StoreSettings(
        fresh_ms=1_000, poll_ms=200, resend_delay_ms=300, grace_ms=5_000, offer_life_ms=10_000
    )
    ledger = AwsLedger(requests, life.prefix, blobs, settings=settings, make=True)
    clock = WrongClock(0)
    plan = Plan(
        configured.state.route, grace_ms=settings.grace_ms, offer_life_ms=settings.offer_life_ms
    )
    plan = register(ledger, ledger.prepare(plan), clock.now(), life.holder)
    ctx = Context(ledger, {plan.name: plan}, clock, SystemChance(), blobs)
    install(ctx, [configured])
    station = Station(ctx, services=services(ctx, [configured]), holder=life.holder)
    assert station.worker is not None
    station.worker.lease_ms = life.lease_ms
    signal.signal(signal.SIGTERM, lambda *_: station.stop())
    station.run()
    ledger.close()


def serve(life: SoakLife) -> None:
    """A container of the worker function, called by the stage's queue until SIGTERM, or until a
    call's time limit ends it."""
    os.environ |= {
        "MILEPOST_APPLICATIONS": "notifications",
        "MILEPOST_LEDGER": f"dynamodb://{life.region}/{life.prefix}?endpoint={life.endpoint}",
        "MILEPOST_BLOBS": str(Path(life.folder) / "blobs"),
        "MILEPOST_STAGE": STAGE,
        **{
            f"MILEPOST_NOTIFICATIONS_{name.upper()}": json.dumps(value)
            for name, value in life.settings.items()
        },
    }
    from tests.aws.lambdas.deployment import Countdown, named
    from tests.aws.lambdas.event_source_mapping import QueueMapping

    from milepost_aws.lambdas import start, worker

    dice, faults, stopped = random.Random(life.seed), planned_faults(life), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    faults.attach(start.opened("notifications").store.requests)
    sqs = boto3.client("sqs", region_name=life.region, endpoint_url=life.endpoint)
    faults.attach(sqs)

    def called(event: dict[str, Any], _: Any) -> Any:
        if dice.random() < life.cut:
            # Lambda ends a container at its time limit wherever it stands; here long before the
            # time that it counts on.
            threading.Timer(dice.random(), os.kill, (os.getpid(), signal.SIGKILL)).start()
        return worker.handler(event, named(Countdown(life.run_ms), life.holder))

    queue = QueueMapping(
        sqs, start.opened().store.queues.url(*STAGE.split("/")), called, hurry=False
    )
    while not stopped.is_set():
        try:
            if queue.poll() == 0:
                time.sleep(0.2)
        except Exception as error:  # a fault of the mapping's own requests: AWS goes on polling
            print(f"the mapping: {error!r}", flush=True)


def planned_faults(life: SoakLife) -> Faults:
    dice, faults = random.Random(life.seed), Faults()
    for service, operations in FAULTY.items():
        for operation in operations:
            for nth in dice.sample(range(1, CALLS), round(CALLS * life.faulty)):
                faults.plan((operation, nth), dice.choice(kinds(service, operation)))
    return faults
