"""The resender function: sends lost messages again, measures backlogs, and repairs once a day."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.aws.lambdas.deployment import Countdown, Deploy, deployments

from milepost.core.errors import LedgerError
from milepost.engine.acts import controls
from milepost.engine.health.doctor import doctor
from milepost.ports.documents import PARKED, PROCESS, Parked, Process, read_as
from milepost_aws.aws_model import Faults
from milepost_aws.lambdas import relay, resender


@pytest.fixture
def deploy(endpoint: str, prefix: str, tmp_path: Path) -> Iterator[Deploy]:
    with deployments(endpoint, prefix, tmp_path) as made:
        yield made


def metrics(text: str) -> dict[tuple[str, ...], float]:
    """What CloudWatch would read: by name and dimensions, in the order of Prefix, Route, Stage."""
    found: dict[tuple[str, ...], float] = {}
    for line in text.splitlines():
        told: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        for group in told.get("_aws", {}).get("CloudWatchMetrics", ()):
            assert group["Namespace"] == "Milepost"
            (names,) = group["Dimensions"]
            assert set(names) in ({"Prefix"}, {"Prefix", "Route", "Stage"})
            for metric in group["Metrics"]:
                value = told[metric["Name"]]
                place = [str(told[name]) for name in ("Prefix", "Route", "Stage") if name in names]
                found[metric["Name"], *place] = value[0] if isinstance(value, list) else value
    return found


def test_a_call_that_was_lost_is_made_again(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a")
    one.stream.drain()
    one.sqs.purge_queue(QueueUrl=one.store.queues.url("parcels", "weigh"))
    one.run()
    assert one.row("a").status == "QUEUED"
    one.clock.advance("15d")
    assert one.resend()["resent"] == {"offered": 1, "looked": 1}
    one.run()
    assert one.row("a").status == "COMPLETED"


def test_what_stands_is_measured(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    one = deploy()
    one.submit("a", "b")
    one.stream.drain()
    one.clock.advance("5h")
    one.resend()
    told = metrics(capsys.readouterr().out)
    prefix = one.prefix
    assert told["Items", prefix, "parcels", "weigh"] == 2
    assert 4 * 3600 - 60 <= told["OldestAge", prefix, "parcels", "weigh"] <= 5 * 3600 + 60
    assert (
        told["Items", prefix, "parcels", "send"]
        == told["OldestAge", prefix, "parcels", "send"]
        == 0
    )
    assert told["ResenderRun", prefix] == 1


def test_events_that_wait_or_are_refused_are_measured(
    deploy: Deploy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = deploy()
    monkeypatch.setattr(relay, "deliver", lambda *_: None)
    monkeypatch.setattr(resender, "deliver", lambda *_: None)
    one.resend()
    one.submit("a")
    one.stream.drain()
    [topic] = one.opened.event_relays
    topic.start()
    subscriber = topic.name.removeprefix("relay-")
    one.opened.ledger.write(
        PARKED, "p", msgspec.to_builtins(Parked(subscriber, "parcels", "b", 1, 0, 1, 0, "no"))
    )
    one.clock.advance("20m")
    one.resend()
    told = metrics(capsys.readouterr().out)
    assert (told["ParkedItems", one.prefix], told["SubscriberLag", one.prefix] // 60) == (1, 20)
    assert told["HeldAge", one.prefix] == 0


def test_rows_that_are_held_are_measured_and_all_come_back_in_one_run(
    deploy: Deploy, capsys: pytest.CaptureFixture[str]
) -> None:
    one = deploy()
    controls.pause(one.opened.ctx, "parcels", "weigh", by="ops", reason="x")
    one.submit(*(f"k{n:04}" for n in range(1200)))
    one.clock.advance("10s")
    one.run()
    one.clock.advance("2h")
    assert one.resend()["resumed"] == 0
    assert metrics(capsys.readouterr().out)["HeldAge", one.prefix] // 60 == 120
    controls.resume(one.opened.ctx, "parcels", "weigh", by="ops", reason="x")
    one.clock.advance("10s")
    assert one.resend()["resumed"] == 1200
    for _ in range(3):
        capsys.readouterr()
        one.clock.advance("1m")
        one.resend()
    assert metrics(capsys.readouterr().out)["HeldAge", one.prefix] == 0


def test_a_step_that_fails_is_no_successful_run_of_its_role(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = deploy()
    one.resend()
    one.clock.advance("5m")

    def fail(*_: object) -> None:
        raise LedgerError("DynamoDB does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(resender, "_resend", fail)
        with pytest.raises(LedgerError, match="does not answer"):
            one.resend()
    roles = {
        finding.what.partition(":")[0]: finding.what
        for finding in doctor(one.opened.ctx).findings
        if finding.about == "role"
    }
    assert "stands still" in roles["resender"]
    assert "DynamoDB does not answer" in roles["resender"]
    assert "last successful run" in roles["resender"]
    assert "stands still" not in roles["sweeper"]


def test_a_run_that_fails_does_not_count_as_one(
    deploy: Deploy, capsys: pytest.CaptureFixture[str]
) -> None:
    one = deploy()
    one.submit("a")
    one.stream.drain()
    faults = Faults()
    faults.attach(one.store.requests)
    one.store.requests.deadline_s = 0.0
    faults.plan("Query", "throttle")
    with pytest.raises(LedgerError):
        one.resend()
    told = metrics(capsys.readouterr().out)
    assert ("ResenderRun", one.prefix) not in told
    # The other steps were taken all the same.
    assert ("Items", one.prefix, "parcels", "weigh") in told


def test_the_doctor_sees_it(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a")
    one.run()
    one.resend()
    sheets = {
        name: read_as(Process, document.value)
        for name, document in one.opened.ledger.read(PROCESS).items()
    }
    assert sheets[f"{one.prefix}-resender"].roles.keys() >= {"resender", "sweeper"}
    assert "worker" in sheets[f"{one.prefix}-parcels-weigh"].roles
    roles = [finding for finding in doctor(one.opened.ctx).findings if finding.about == "role"]
    assert {finding.level for finding in roles} == {"ok"}
    assert len(roles) >= 4


def test_the_repair_takes_in_what_the_stream_never_told(deploy: Deploy) -> None:
    one = deploy()
    one.dynamodb.put_item(
        TableName=one.store.names.rows("parcels"),
        Item={"id": {"S": "a"}, "input": {"S": '{"id":"a"}'}},
    )
    one.stream._read = lambda: iter(())  # type: ignore[method-assign]
    one.clock.advance("10m")
    done = one.resend(repair=True)
    assert "1 rows" in done["repaired"]["parcels"]
    assert one.row("a").stage == "weigh"
    # It is not at its end: counters are given time. The runs of every minute go on with it.
    one.clock.advance("10m")
    assert " rows read: " in one.resend()["repaired"]["parcels"]
    one.clock.advance("1m")
    assert one.resend()["repaired"]["parcels"] == "not due"


def test_a_run_ends_before_its_time_is_over(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a")
    one.run()
    call = Countdown(8000)
    one.resend(call, repair=True)
    assert call.get_remaining_time_in_millis() > 0
