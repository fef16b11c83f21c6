"""`python -m bench.cold_start`: what a function's container does before its first call, in a fresh
interpreter each time.

Imports are this machine's own; opening is our CPU and the requests' number. How long those take on
AWS is not to be seen here: each is a few milliseconds there, one after the other.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.standin import account, client, running

ROUNDS = 5
REGION = "eu-central-1"
FUNCTIONS = ("worker", "relay", "resender", "lists")
UNWANTED = ("click", "rich", "milepost.cli", "milepost.ledgers.sqlite", "sqlite3")
ROUTE = """
import milepost as mp

parcels = mp.Route("parcels", key="id")


@parcels.stage("weigh")
def weigh(item: mp.Item) -> mp.Outcome:
    return mp.Done()


parcels.external("tape")


@parcels.stage("send")
def send(item: mp.Item) -> mp.Outcome:
    return mp.Done()
"""
CHILD = """
import json, sys, time
began, cpu, before = time.perf_counter(), time.process_time(), len(sys.modules)
import milepost_aws.lambdas.{function}
imported, imported_cpu, modules = time.perf_counter(), time.process_time(), len(sys.modules) - before
from milepost_aws.lambdas.start import opened
requests = opened().store.requests
print(json.dumps({{
    "import": 1000 * (imported - began),
    "import_cpu": 1000 * (imported_cpu - cpu),
    "open": 1000 * (time.perf_counter() - imported),
    "open_cpu": 1000 * (time.process_time() - imported_cpu),
    "modules": modules,
    "modules_open": len(sys.modules) - before,
    "requests": requests.counts.total(),
    "unwanted": [name for name in {unwanted!r} if name in sys.modules],
}}))
"""
PARTS = ("msgspec", "milepost", "aws_lambda_powertools", "boto3")
PART = "import sys, time; began = time.process_time(); import {part}; print(1000 * (time.process_time() - began), len(sys.modules))"


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "parcels.py").write_text(ROUTE)
        with running(folder) as endpoint, account("100000000001"):
            os.environ |= {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_REGION": REGION,
                "MILEPOST_ROUTES": str(folder / "parcels.py"),
                "MILEPOST_BLOBS": str(folder / "blobs"),
                "MILEPOST_TOPIC": client("sns", endpoint, REGION).create_topic(Name="cold-events")[
                    "TopicArn"
                ],
            }
            # Compiled once, as an installed package is.
            os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
            os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
            # The first one makes the tables; all others find them, as functions do.
            os.environ["MILEPOST_LEDGER"] = f"dynamodb://{REGION}/cold?endpoint={endpoint}"
            measured("worker")
            os.environ["MILEPOST_LEDGER"] = f"dynamodb://{REGION}/cold"
            print(
                f"{'':10} {'import ms':>10} {'(cpu)':>7} {'modules':>8} {'open ms':>9} {'(cpu)':>7} {'requests':>9} {'modules':>8}"
            )
            for function in FUNCTIONS:
                rounds = [measured(function) for _ in range(ROUNDS)]
                told = {
                    key: statistics.median(one[key] for one in rounds)
                    for key in rounds[0]
                    if key != "unwanted"
                }
                print(
                    f"{function:10} {told['import']:10.0f} {told['import_cpu']:7.0f} {told['modules']:8.0f} {told['open']:9.0f}"
                    f" {told['open_cpu']:7.0f} {told['requests']:9.0f} {told['modules_open']:8.0f}"
                )
                if rounds[0]["unwanted"]:
                    print(
                        f"{'':10} has imported what it does not need: {', '.join(rounds[0]['unwanted'])}"
                    )
                    return 1
            print("\nof which, each in an interpreter of its own, cpu:")
            for part in PARTS:
                answers = [run(PART.format(part=part)).split() for _ in range(ROUNDS)]
                print(
                    f"  {part:24} {statistics.median(float(ms) for ms, _ in answers):5.0f} ms, {answers[0][1]:>4} modules"
                )
    return 0


def measured(function: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        run(CHILD.format(function=function, unwanted=UNWANTED)).splitlines()[-1]
    )
    return found


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
