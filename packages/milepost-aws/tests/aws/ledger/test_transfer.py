"""`milepost move`: copies a SQLite ledger to AWS completely and once, and prevents work in both
places."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.aws_command_line import ROUTES, SIGNED, AwsCommandLine, address

import milepost
from milepost.composition import open_context
from milepost.core.due import Lease
from milepost.core.outcome import Reject
from milepost.core.routes.route import Route
from milepost.engine.context import Context
from milepost.engine.evidence import records_of
from milepost.engine.heads.daily import publish
from milepost.engine.transfer.copy import MoveReport, move
from milepost.engine.transfer.lock import marks
from milepost.engine.transfer.verify import compare
from milepost.ports.documents import HOLD, PROCESS, Process
from milepost.ports.items import ClaimRequest
from milepost.route_files import load_routes
from milepost_aws.ledger.names import ResourceNames
from milepost_aws.ledger.requests.client import Requests

SOURCE = "sqlite:///milepost.db"


@pytest.fixture
def command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> AwsCommandLine:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILEPOST_LEDGER", raising=False)
    command_line = AwsCommandLine(tmp_path, capsys, SOURCE)
    command_line.write("parcels.py", ROUTES + '\nparcels.external("signed")\n')
    return command_line


@pytest.fixture
def to(endpoint: str, prefix: str) -> str:
    return address(endpoint, prefix)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first desk that was filled is kept, for the others to have a copy of."""
    return tmp_path_factory.mktemp("filled") / "desk"


@pytest.fixture
def full(command_line: AwsCommandLine, filled: Path) -> AwsCommandLine:
    if filled.exists():
        shutil.copytree(filled, command_line.folder, dirs_exist_ok=True)
    else:
        fill(command_line)
        shutil.copytree(command_line.folder, filled)
    return command_line


def fill(command_line: AwsCommandLine) -> None:
    """Items in every state that rests, a list, a pause, a limit, an act, a seal, a subscriber that
    has not been told the last lines."""
    items: list[dict[str, Any]] = [
        {"id": "gone", "torn": True},
        {"id": "offered", "depot": "west"},
        {"id": "early", "depot": "east"},
        {"id": "through"},
        {"id": "large", "text": "x" * 9000},
        {"id": "torn", "torn": True},
        {"id": "busy", "busy": True},
        {"id": "later", "later": True},
        {"id": "off", "later": True},
    ]
    command_line.write("list.jsonl", "".join(json.dumps(item) + "\n" for item in items))
    command_line.ok("submit", "parcels", "list.jsonl", "--full")
    command_line.write("first.jsonl", json.dumps(items[0]))
    command_line.up()
    command_line.signed("prune", "parcels", "--older-than", "0s", "--status", "failed")
    command_line.signed("retry", "parcels", "--status", "failed", "--dry-run")
    command_line.submit(
        *({"id": name, "torn": True} for name in ("torn", "again")), {"id": "busy", "busy": True}
    )
    command_line.up()
    command_line.signed(
        "confirm", "parcels", "early", "--stage", "signed", "--output", '{"by": "the heir"}'
    )
    for stage in ("delivered", "signed"):
        command_line.signed(
            "confirm", "parcels", "through", "--stage", stage, "--output", '{"at": "the door"}'
        )
    command_line.signed("retry", "parcels", "again", "offered", "--to", "weigh")
    command_line.up()
    command_line.signed("cancel", "parcels", "off")
    command_line.signed("pause", "parcels", "weigh")
    command_line.signed("limit", "parcels", "weigh", "--rate", "100/s")
    command_line.submit({"id": "fresh"})


def views(command_line: AwsCommandLine) -> dict[str, dict[str, Any]]:
    keys = [item["key"] for item in command_line.ok("list", "parcels", "--json").json["items"]]
    return {key: command_line.show(key) for key in sorted(keys)}


def test_everything_is_there_as_it_was(full: AwsCommandLine, to: str) -> None:
    here, seal = views(full), full.show("gone")
    assert {view["status"] for view in here.values()} >= {
        "QUEUED",
        "WAITING",
        "COMPLETED",
        "REJECTED",
        "CANCELLED",
    }
    planned = full.ok("move", "--to", to, "--dry-run", "--json").json
    report = full.signed("move", "--to", to, "--json").json
    assert report["finished"], report["differences"]
    assert (planned["items"], planned["lines"], planned["seals"]) == (
        report["items"],
        report["lines"],
        report["seals"],
    )
    assert (report["items"], report["statuses"]) == (len(here), planned["statuses"])
    assert report["subscribers"] == {"log": 2}
    lists, acts = full.ok("lists", "--json").json, full.ok("acts", "--json").json["acts"]
    [several] = [act["id"] for act in acts if act["verb"] == "retry" and act["done"] == 2]
    became = full.ok("acts", "--id", several, "--json").json["outcome"]
    assert (became["unknown"], became["counted"]) == (0, 2)
    full.settle(to)
    there = views(full)
    late = ("due_at", "results")
    for key, view in here.items():
        assert {name: value for name, value in there[key].items() if name not in late} == {
            name: value for name, value in view.items() if name not in late
        }
        assert {
            stage: value for stage, value in view["results"].items() if value is not None
        } == there[key]["results"]
    assert all(view["verified"] for view in there.values())
    assert {**full.show("gone"), "history": []} == {**seal, "history": []}
    assert full.ok("lists", "--json").json == lists
    assert full.ok("acts", "--id", several, "--json").json["outcome"] == became, (
        "its lines have other places there"
    )
    assert {act["id"] for act in acts if act["verb"] != "move"} < {
        act["id"] for act in full.ok("acts", "--json").json["acts"]
    }
    assert {
        item["key"]
        for item in full.ok("list", "parcels", "--status", "failed", "--json").json["items"]
    } == {
        key for key, view in here.items() if view["status"] in ("REJECTED", "MAX_RETRIES_EXCEEDED")
    }


def test_it_goes_on_there(
    full: AwsCommandLine, to: str, client: Callable[[str], Any], prefix: str
) -> None:
    full.signed("move", "--to", to)
    full.settle(to)
    told = [
        json.loads(line)["subject"] for line in full.up().out.splitlines() if line.startswith("{")
    ]
    assert told.count("off") == 1, "what the subscriber had not been told yet is told once"
    assert not {"through", "torn", "busy"} & set(told), "what it had been told is not told again"
    assert full.show("fresh")["stage"] == "weigh", "the pause came along"
    full.signed("resume", "parcels", "weigh")
    full.up()
    assert full.show("fresh")["stage"] == "delivered", "a worker was called"
    queue = client("sqs").get_queue_url(
        QueueName=ResourceNames(prefix).queue("parcels", "delivered")
    )["QueueUrl"]
    offered = client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
    assert {"early", "large"} <= {json.loads(message["Body"])["key"] for message in offered}, (
        "who does the external stage was called"
    )
    full.signed("confirm", "parcels", "early", "--stage", "delivered")
    full.up()
    early = full.show("early")
    assert (early["status"], early["results"]["signed"]) == ("COMPLETED", {"by": "the heir"}), (
        "what came early was kept"
    )
    counts = full.ok("status", "--json").json["routes"]["parcels"]
    assert counts["total"] == len(views(full)), "counters follow once the stream is read"
    full.write("again.jsonl", '{"id": "gone", "torn": true}\n')
    assert (
        full.ok("submit", "parcels", "again.jsonl", "--full", "--json").json["counts"]["failed"]
        == 1
    ), "a seal remembers"
    last = full.ok("lists", "--json").json["lists"][0]["id"]
    assert "offered" in full.ok("lists", "parcels", "--vanished", last).out.split(), (
        "a list's keys came along"
    )


def test_the_evidence_of_a_key_that_was_taken_in_again_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    monkeypatch.chdir(tmp_path)
    route = Route("parcels", evidence=True)
    route.stage("weigh")(lambda item: Reject("torn"))
    with milepost.open(SOURCE, [route]) as here:
        for again in (None, "a second parcel"):
            here.submit("parcels", {"id": "p1"}, by="ops", failed_again=again)
            here.run(until_idle=0)
            publish(
                here.context,
                None,
                "2027-01-01" if again is None else "2027-01-02",
                here.context.clock.now() + 1,
            )
            here.prune("parcels", 0, by="ops", reason="a test", statuses=["failed"])
        records = records_of(here.context, "parcels", "p1")
        target = open_context(to, [route], check=False)
        try:
            assert move(
                here.context, target, list(here.context.plans), by="ops", reason="a test"
            ).finished
            assert records_of(target, "parcels", "p1") == records
        finally:
            target.ledger.close()
    assert [found.record["stages"] for found in records] == [[], []]
    assert "a second parcel" in str(records[0].record["chain"]["lines"])


def test_a_forgotten_key_stays_known_in_the_new_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    monkeypatch.chdir(tmp_path)
    route = Route("parcels", evidence=True)
    route.stage("weigh")(lambda item: Reject("torn"))
    with milepost.open(SOURCE, [route]) as here:
        here.submit("parcels", {"id": "p1"}, {"id": "p2"})
        here.run(until_idle=0)
        here.forget("parcels", "p1", by="ops", reason="a test")
        target = open_context(to, [route], check=False)
        try:
            report = move(here.context, target, list(here.context.plans), by="ops", reason="a test")
            assert (report.finished, report.differences) == (True, [])
            [known, absent] = target.ledger.peek("parcels", ["p1", "p3"])
            assert known is not None
            assert (known.forgotten, absent) == (True, None)
            assert records_of(target, "parcels", "p1") == records_of(here.context, "parcels", "p1")
        finally:
            target.ledger.close()


def test_the_ledger_says_where_its_items_have_gone(full: AwsCommandLine, to: str) -> None:
    full.signed("move", "--to", to)
    for command in (
        ("up", "--until-idle"),
        ("work", "--until-idle"),
        ("submit", "parcels", "--item", '{"id": "x"}'),
        ("retry", "parcels", "torn", *SIGNED),
        ("routes", "apply", "--dry-run"),
        ("prune", "parcels", "--dry-run"),
    ):
        answer = full(*command)
        assert answer.code == 1, (command, answer)
        assert f"route 'parcels' was moved to {to} by ops (a test); use that ledger" in answer.flat
    assert full.show("offered")["status"] == "QUEUED", "it can still be looked at"
    again = full.signed("move", "--to", to, "--json").json
    assert (again["finished"], again["before"], again["items"]) == (True, True, 0)
    refused = full("move", "--to", to, "--give-up", *SIGNED)
    assert refused.code == 1
    assert "can no longer be abandoned" in refused.flat


class Died(BaseException):
    """The process is gone."""


@contextmanager
def contexts(command_line: AwsCommandLine, to: str) -> Iterator[tuple[Context, Context]]:
    routes = load_routes([str(command_line.folder / "parcels.py")])
    source = open_context(SOURCE, routes, check=False)
    target = open_context(to, routes, check=False)
    try:
        yield source, target
    finally:
        source.ledger.close()
        target.ledger.close()


def test_cut_off_anywhere_it_goes_on_and_nothing_is_doubled(
    full: AwsCommandLine, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Requests.attempt
    left = 0

    def mortal(self: Requests, *args: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise Died
        return whole(self, *args)

    report: MoveReport | None = None
    deaths = 0
    while report is None:
        with contexts(full, to) as (source, target):
            left = 1 + 4 * deaths
            monkeypatch.setattr(Requests, "attempt", mortal)
            try:
                report = move(source, target, ["parcels"], by="ops", reason="a test")
            except Died:
                deaths += 1
                monkeypatch.setattr(Requests, "attempt", whole)
                mark = marks(source).get("parcels")
                if mark is not None:
                    assert f"moved to {to}" in full("work", "--until-idle").flat, (
                        "nobody works here"
                    )
                there = [
                    hold
                    for hold in target.ledger.read(HOLD).values()
                    if hold.value["by"] == "the move"
                ]
                if deaths > 3 and mark is not None and mark.finished_at is None:
                    assert there, "nor there"
            monkeypatch.setattr(Requests, "attempt", whole)
    assert deaths > 8
    assert report.finished, report.differences
    with contexts(full, to) as (source, target):
        lines = source.ledger.feed(0, 10_000)
        assert [(line.key, line.body) for line in target.ledger.feed(0, 10_000)] == [
            (line.key, line.body) for line in lines
        ]
        assert target.ledger.last_seq() == len(lines)
        assert compare(source, target, ["parcels"], 0, lambda *_: None) == []
        assert "parcels" not in target.ledger.read(HOLD)


def test_a_difference_is_found_and_nothing_is_opened(
    full: AwsCommandLine, to: str, client: Callable[[str], Any], prefix: str
) -> None:
    """Somebody else's row stands where one of ours belongs."""
    with contexts(full, to):
        pass
    client("dynamodb").put_item(
        TableName=ResourceNames(prefix).rows("parcels"),
        Item={"id": {"S": "again"}, "input": {"S": "{}"}},
    )
    answer = full("move", "--to", to, *SIGNED)
    assert answer.code == 1
    assert "another program has put a row there" in answer.flat
    assert "The move is not finished" in answer.flat
    assert "is being moved to" in full("up", "--until-idle").flat
    full.signed("move", "--to", to, "--give-up")
    full.ok("up", "--until-idle", "0.1")


def test_what_was_changed_there_is_found(
    full: AwsCommandLine, to: str, client: Callable[[str], Any], prefix: str
) -> None:
    full.signed("move", "--to", to)
    names = ResourceNames(prefix)
    client("dynamodb").update_item(
        TableName=names.rows("parcels"),
        Key={"id": {"S": "large"}},
        UpdateExpression="SET #input = :input",
        ExpressionAttributeNames={"#input": "input"},
        ExpressionAttributeValues={":input": {"S": '{"id":"large"}'}},
    )
    client("dynamodb").delete_item(TableName=names.seen, Key={"key": {"S": "parcels/gone"}})
    client("dynamodb").delete_item(TableName=names.rows("parcels"), Key={"id": {"S": "later"}})
    with contexts(full, to) as (source, target):
        found = {
            difference.key: difference.what
            for difference in compare(source, target, ["parcels"], 0, lambda *_: None)
        }
        assert found.keys() == {"large", "gone", "later"}
        assert "digest" in found["large"]
        line = target.ledger.history("parcels", "again")[0]
        client("dynamodb").delete_item(
            TableName=names.history,
            Key={"item": {"S": "parcels/again"}, "version": {"N": str(line.line.version)}},
        )
        [first, *_] = compare(source, target, ["parcels"], 0, lambda *_: None)
        assert (first.key, first.what) == ("again", "its line 1 is missing or out of order")


def test_a_ledger_at_work_is_not_moved(full: AwsCommandLine, to: str) -> None:
    with contexts(full, to) as (source, target):
        now = source.clock.now()
        source.ledger.write(PROCESS, "w1", Process("w1", "here", 1, now, now))
        answer = full("move", "--to", to, *SIGNED)
        assert (answer.code, "processes are running on this ledger: w1" in answer.flat) == (1, True)
        source.ledger.write(PROCESS, "w1", None)
        target.ledger.write(PROCESS, "w2", Process("w2", "there", 1, now, now))
        assert "w2; stop them" in full("move", "--to", to, *SIGNED).flat
        target.ledger.write(PROCESS, "w2", None)
        full.signed("resume", "parcels", "weigh")
        source.take(source.plan("parcels").at_version(1))
        ask = ClaimRequest(source.plans["parcels"], "weigh", 1, Lease("token", "w3", now + 60_000))
        assert [item.key for item in source.ledger.claim([ask], now, 0.0)[0].items] == ["fresh"]
    answer = full("move", "--to", to, *SIGNED)
    assert answer.code == 1
    assert "1 item of 'parcels' held by w3" in answer.flat
    assert full.ok("status").code == 0
    assert "was moved" not in full("up", "--until-idle", "0").flat, "nothing was closed"


def test_what_a_dead_worker_held_is_a_loss_and_is_moved(full: AwsCommandLine, to: str) -> None:
    full.signed("resume", "parcels", "weigh")
    with contexts(full, to) as (source, _):
        now = source.clock.now()
        source.take(source.plan("parcels").at_version(1))
        source.ledger.claim(
            [ClaimRequest(source.plans["parcels"], "weigh", 1, Lease("token", "w3", now - 1))],
            now,
            0.0,
        )
    report = full.signed("move", "--to", to, "--json").json
    assert (report["lost"], report["finished"]) == (1, True)
    full.settle(to)
    view = full.show("fresh")
    assert (view["losses"], view["history"][-1]["reason"]) == (1, "lost")


def test_what_cannot_be_moved_says_what_to_do(full: AwsCommandLine, to: str, endpoint: str) -> None:
    for args, code, said in (
        (("--to", "sqlite:///other.db"), 2, "give --to dynamodb://REGION/PREFIX"),
        (("--to", to, "--route", "letters"), 2, "no route file for"),
        (("--to", to, "--ledger", to), 2, "only a SQLite ledger can be moved"),
        (("--to", to, "--ledger", "sqlite:///none.db"), 1, "there is no ledger at none.db"),
    ):
        answer = full("move", *args, *SIGNED)
        assert (answer.code, said in answer.flat) == (code, True), answer
    assert full("move", "--to", to).code == 2
    full.write("parcels.py", ROUTES)
    changed = full("move", "--to", to, *SIGNED)
    assert changed.code == 1
    assert "milepost routes apply parcels" in changed.flat
