"""Traces of calls, as X-Ray's daemon is told of them: each function runs in a process of its own,
with what Lambda puts into its environment, and the daemon is a socket of the test."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.aws.lambdas.deployment import Deploy, Deployment, deployments
from tests.aws.lambdas.event_source_mapping import QueueMapping, StreamMapping, sqs_event
from tests.standins import REGION

from milepost_aws.lambdas.start import MOST, is_sampled

pytestmark = pytest.mark.wire

ROOT, PARENT = "1-5759e988-bd862e3fe1be46a994272793", "53995c3f42cd8ad8"
SAMPLED = f"Root={ROOT};Parent={PARENT};Sampled=1"
UNREACHABLE = "192.0.2.1:2000"
"""An address that is kept for examples: nothing is there."""
CHILD = """
import importlib, json, sys
module, name, event = json.load(sys.stdin)

class Call:
    function_name, aws_request_id = name, "r-1"

    def get_remaining_time_in_millis(self):
        return 60_000

answer = importlib.import_module(f"milepost_aws.lambdas.{module}").handler(event, Call())
print(json.dumps({"answer": answer, "loaded": "aws_xray_sdk" in sys.modules}))
"""


class Called(NamedTuple):
    answer: Any
    loaded: bool
    """Was the SDK?"""
    said: str


class Daemon:
    """Takes datagrams; once the function's process has ended, all of them have arrived."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def segments(self) -> list[dict[str, Any]]:
        found = []
        while True:
            try:
                head, _, body = self._socket.recv(65_536).partition(b"\n")
            except BlockingIOError:
                return found
            assert json.loads(head) == {"format": "json", "version": 1}
            found.append(json.loads(body))

    def segment(self) -> dict[str, Any]:
        (found,) = self.segments()
        return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    made = Daemon()
    yield made
    made.close()


@pytest.fixture
def deploy(endpoint: str, prefix: str, tmp_path: Path) -> Iterator[Deploy]:
    with deployments(endpoint, prefix, tmp_path) as made:
        yield made


@pytest.fixture
def one(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setenv("MILEPOST_STAGE", "parcels/weigh")
    return deploy()


def started(module: str, event: Any, address: str, header: str) -> subprocess.CompletedProcess[str]:
    # The first of them is by what Powertools knows that it is on Lambda.
    lambdas = {
        "LAMBDA_TASK_ROOT": os.getcwd(),
        "AWS_XRAY_DAEMON_ADDRESS": address,
        "_X_AMZN_TRACE_ID": header,
    }
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", CHILD],
        input=json.dumps([module, f"test-{module}", event]),
        env={**os.environ, **lambdas},
        capture_output=True,
        text=True,
        check=False,
    )


def call(module: str, event: Any, address: str, header: str = SAMPLED) -> Called:
    done = started(module, event, address, header)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    return Called(told["answer"], told["loaded"], done.stdout + done.stderr)


def worked(one: Deployment, address: str) -> None:
    """The queue of `weigh` calls its function, in a process of its own."""
    url = one.store.queues.url("parcels", "weigh")
    mapping = QueueMapping(
        one.sqs, url, lambda event, _: call("worker", event, address).answer, hurry=False
    )
    mapping.poll()
    assert not mapping.errors, mapping.errors


def test_a_workers_batch_is_told_with_its_route_stage_and_items(
    one: Deployment, daemon: Daemon
) -> None:
    one.submit("a", "b")
    one.stream.drain()
    worked(one, daemon.address)
    assert {one.row(key).stage for key in "ab"} == {"send"}
    told = daemon.segment()
    assert (told["trace_id"], told["parent_id"]) == (ROOT, PARENT)
    assert told["end_time"] >= told["start_time"]
    assert told["annotations"] == {"function": "test-worker", "route": "parcels", "stage": "weigh"}
    noted = told["metadata"]["milepost"]
    assert {name: noted["done"][name] for name in ("messages", "again", "claimed", "written")} == {
        "messages": 2,
        "again": 0,
        "claimed": 2,
        "written": 2,
    }
    assert sorted(noted["correlation_ids"]) == sorted(one.row(key).correlation_id for key in "ab")


def test_a_batch_of_many_names_some(one: Deployment, daemon: Daemon) -> None:
    keys = [f"p{n}" for n in range(MOST + 5)]
    one.submit(*keys)
    bodies = [json.dumps({"route": "parcels", "key": key, "stage": "weigh"}) for key in keys]
    messages = [
        {"MessageId": f"m{n}", "ReceiptHandle": "r", "Body": body, "Attributes": {}}
        for n, body in enumerate(bodies)
    ]
    call("worker", sqs_event(messages), daemon.address)
    noted = daemon.segment()["metadata"]["milepost"]
    assert noted["done"]["claimed"] == MOST + 5
    assert len(noted["correlation_ids"]) == MOST


def test_the_relay_and_the_resender_are_told_of_too(one: Deployment, daemon: Daemon) -> None:
    one.submit("a")
    mapping = StreamMapping(
        one.streams, one.stream.arn, lambda event, _: call("relay", event, daemon.address).answer
    )
    mapping.poll()
    assert not mapping.errors, mapping.errors
    told = daemon.segments()
    assert [segment["annotations"] for segment in told] == [
        {"function": "test-relay", "route": "parcels"}
    ] * len(told)
    assert sum(segment["metadata"]["milepost"]["done"]["records"] for segment in told) >= 1
    call("resender", {}, daemon.address)
    assert daemon.segment()["annotations"] == {"function": "test-resender", "repair": False}


def test_the_list_intake_names_a_route_that_there_is(
    one: Deployment, daemon: Daemon, client: Callable[[str], Any]
) -> None:
    s3 = client("s3")
    s3.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": REGION})
    for route, annotated in (("parcels", {"route": "parcels"}), ("nobody", {})):
        key = f"lists/{route}/a.csv"
        s3.put_object(Bucket="bucket", Key=key, Body=b"id\nlisted\n")
        told = {"bucket": {"name": "bucket"}, "object": {"key": key, "sequencer": "1"}}
        assert key in call("lists", {"Records": [{"s3": told}]}, daemon.address).answer
        assert daemon.segment()["annotations"] == {"function": "test-lists", **annotated}


def test_a_call_that_fails_says_so(
    one: Deployment, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILEPOST_STAGE", "parcels")
    assert started("worker", sqs_event([]), daemon.address, SAMPLED).returncode == 1
    told = daemon.segment()
    assert told["fault"] is True
    (raised,) = told["cause"]["exceptions"]
    assert raised["message"].startswith("MILEPOST_STAGE is 'parcels'")
    assert told["annotations"] == {"function": "test-worker"}


def test_a_call_that_is_not_chosen_tells_nothing_and_loads_nothing(
    one: Deployment, daemon: Daemon
) -> None:
    called = call(
        "worker", sqs_event([]), daemon.address, SAMPLED.replace("Sampled=1", "Sampled=0")
    )
    assert called.answer == {"batchItemFailures": []}
    assert not called.loaded
    assert daemon.segments() == []
    assert call("worker", sqs_event([]), daemon.address).loaded


def test_no_daemon_is_no_trouble(one: Deployment, daemon: Daemon) -> None:
    daemon.close()
    for address in (daemon.address, UNREACHABLE):
        called = call("worker", sqs_event([]), address)
        assert called.answer == {"batchItemFailures": []}
        assert called.loaded
        assert '"level":"ERROR"' not in called.said


@pytest.mark.parametrize(
    ("header", "is_chosen"),
    [
        (SAMPLED, True),
        (f"Sampled=1;{SAMPLED}", True),
        ("", False),
        (f"Root={ROOT};Sampled=0", False),
        (f"Root={ROOT};Sampled=10", False),
    ],
)
def test_which_calls_are_traced(header: str, is_chosen: bool) -> None:
    assert is_sampled(header) is is_chosen
