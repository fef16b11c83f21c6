"""Every command on a ledger on AWS, through the real entry point: the same words, the same
answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.aws_command_line import ROUTES, SIGNED, AwsCommandLine, address

from milepost.core.status import Status
from milepost_aws.ledger.names import ResourceNames


@pytest.fixture
def command_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    endpoint: str,
    prefix: str,
) -> AwsCommandLine:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILEPOST_LEDGER", raising=False)
    return AwsCommandLine(tmp_path, capsys, address(endpoint, prefix))


@pytest.fixture
def busy(command_line: AwsCommandLine) -> AwsCommandLine:
    """One item at the external stage, one that failed, one that was tried too often, one that
    waits."""
    command_line.write(
        "list.jsonl",
        '{"id":"A","depot":"west"}\n{"id":"B","torn":true}\n{"id":"C","busy":true}\n{"id":"D","later":true}\n',
    )
    assert command_line.ok("submit", "parcels", "list.jsonl", "--json").json["counts"]["new"] == 4
    assert "1 REJECTED" in command_line.up().err
    # What was settled in the last moment is told and counted by the next run.
    command_line.up()
    assert command_line.keys("--status", "failed") == {"B", "C"}
    return command_line


def test_a_ledger_that_nobody_made_is_said_to_be_missing(command_line: AwsCommandLine) -> None:
    for command in (
        ("status",),
        ("list", "parcels"),
        ("doctor",),
        ("retry", "parcels", "A", *SIGNED),
    ):
        answer = command_line(*command)
        assert answer.code == 1, answer
        assert "there is no ledger at dynamodb://" in answer.flat
        assert "'milepost submit' and 'milepost up' make one" in answer.flat
    command_line.write("one.txt", "A\n")
    assert (
        command_line.ok("submit", "parcels", "one.txt", "--dry-run", "--json").json["counts"]["new"]
        == 1
    )
    assert "there is no ledger" in command_line("status").flat


def test_status_counts_the_rows_of_a_small_route_whatever_the_counters_say(
    command_line: AwsCommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a move, or while the stream is unread, the counters have seen nothing."""
    command_line.submit({"id": "A"}, {"id": "B"}, {"id": "C"})
    found = command_line.ok("status", "--json").json["routes"]["parcels"]
    assert (found["total"], found["stages"]["weigh"], found["approximate"]) == (
        3,
        {"PENDING": 3},
        False,
    )
    assert "3 items: 3 PENDING" in command_line.ok("status").flat
    monkeypatch.setattr("milepost.engine.views.items.COUNTED_AFRESH", 2)
    said = command_line.ok("status").flat
    assert "There are more than 2: the counters are still catching up with the rows." in said
    command_line.up()
    assert (
        "Approximate: the counters are updated shortly after the rows."
        in command_line.ok("status").flat
    )


def test_looking(busy: AwsCommandLine) -> None:
    stages = busy.ok("status", "--json").json["routes"]["parcels"]["stages"]
    assert stages == {
        "weigh": {"WAITING": 1, "MAX_RETRIES_EXCEEDED": 1, "REJECTED": 1},
        "delivered": {"QUEUED": 1},
    }
    assert busy.keys() == {"A", "B", "C", "D"}
    assert busy.keys("--status", "failed") == {"B", "C"}
    assert busy.keys("--stage", "delivered", "--lane", "west") == {"A"}
    assert busy.keys("--list", "list.jsonl") == {"A", "B", "C", "D"}
    groups = {group["category"]: group for group in busy.ok("groups", "--json").json["groups"]}
    assert {kind: (group["now"], group["total"]) for kind, group in groups.items()} == {
        "TORN": (1, 1),
        "BUSY": (1, 2),
    }
    assert busy.keys("--group", groups["TORN"]["group"]) == {"B"}
    view = busy.show("A")
    assert (view["stage"], view["status"], view["verified"], view["results"]) == (
        "delivered",
        "QUEUED",
        True,
        {"weigh": {"grams": 340}},
    )
    assert [line["reason"] for line in view["history"]] == ["accepted", "advanced", "offered"]
    assert "waiting for the confirmation" in busy.ok("show", "parcels", "A").flat
    rows = [
        line
        for line in busy.ok("export", "parcels", "--status", "failed", "--history").out.splitlines()
        if line
    ]
    assert len(rows) == 2
    assert busy.ok("lists", "--json").json["lists"][0]["counts"]["new"] == 4
    assert busy("show", "parcels", "Z").code == 1


def test_what_waits_for_a_worker_says_when_it_is_called_again(command_line: AwsCommandLine) -> None:
    command_line.submit({"id": "A"})
    said = command_line.ok("show", "parcels", "A").flat
    assert "Its message is in the queue. If the message is lost, it is sent again in 10 min" in said
    assert "It runs" not in said


def test_acting(busy: AwsCommandLine) -> None:
    assert busy("retry", "parcels", "B").code == 2
    busy.signed("retry", "parcels", "B")
    assert (busy.show("B")["status"], busy.show("B")["round"]) == ("PENDING", 2)
    assert (
        busy.ok("retry", "parcels", "--status", "failed", "--dry-run", "--json").json["matched"]
        == 1
    )
    report = busy.signed("retry", "parcels", "--status", "failed", "--json").json
    assert (report["done"], report["refused_count"]) == (1, 0)
    assert busy.signed("retry", "parcels", "--act", report["id"], "--json").json == report
    told = busy.up()
    assert ": -" not in told.err
    assert busy.show("C")["status"] == "MAX_RETRIES_EXCEEDED"
    busy.signed("skip", "parcels", "C")
    busy.signed("cancel", "parcels", "D")
    busy.signed("resend", "parcels", "A")
    assert busy.show("A")["history"][-1]["reason"] == "resent"
    assert busy("resend", "parcels", "B", *SIGNED).code == 1
    busy.signed("confirm", "parcels", "A", "--stage", "delivered", "--output", '{"at": "the door"}')
    assert (busy.show("A")["status"], busy.show("A")["results"]["delivered"]) == (
        "COMPLETED",
        {"at": "the door"},
    )
    assert "known: " in busy.ok("confirm", "parcels", "A", "--stage", "delivered", *SIGNED).flat
    busy.signed("retry", "parcels", "D")
    busy.up()
    assert (busy.show("C")["stage"], busy.show("C")["status"]) == ("delivered", "QUEUED")
    assert busy.show("D")["status"] == "WAITING"
    verbs = [act["verb"] for act in busy.ok("acts", "--json").json["acts"]]
    assert verbs == [
        "retry",
        "confirm",
        "confirm",
        "resend",
        "resend",
        "cancel",
        "skip",
        "retry",
        "retry",
    ], "those on single items too"
    assert "nothing to do" in busy.ok("resend").out


def test_pausing_and_limiting(command_line: AwsCommandLine) -> None:
    command_line.submit({"id": "A"})
    command_line.signed("pause", "parcels", "weigh")
    command_line.up()
    assert command_line.show("A")["stage"] == "weigh"
    assert "parcels/weigh is paused by ops" in command_line.ok("show", "parcels", "A").flat
    assert command_line.signed("resume", "parcels", "weigh", "--json").json["resumed"]
    command_line.up()
    assert command_line.show("A")["stage"] == "delivered"
    assert (
        command_line.signed("limit", "parcels", "weigh", "--rate", "50/s", "--json").json["rate"]
        == "50/s"
    )
    command_line.submit({"id": "B"})
    command_line.up()
    assert command_line.show("B")["stage"] == "delivered"
    assert (
        command_line.signed("limit", "parcels", "weigh", "--clear", "--json").json["rate"] is None
    )


def test_a_stage_that_was_sent_back_to_takes_a_new_confirmation(
    command_line: AwsCommandLine, client: Callable[[str], Any], prefix: str
) -> None:
    """By the attribute, as an outsider gives it: what the stage answered the first time is not what
    it answers now."""
    command_line.write("parcels.py", ROUTES + '\nparcels.external("signed")\n')
    command_line.submit({"id": "A"})
    command_line.up()
    table = ResourceNames(prefix).rows("parcels")

    def confirm(stage: str, value: str) -> None:
        client("dynamodb").update_item(
            TableName=table,
            Key={"id": {"S": "A"}},
            UpdateExpression="SET #it = :it",
            ConditionExpression="attribute_exists(id)",
            ExpressionAttributeNames={"#it": f"ingested_{stage}"},
            ExpressionAttributeValues={":it": {"S": value}},
        )

    confirm("delivered", '{"at":"the door"}')
    command_line.up()
    assert command_line.show("A")["stage"] == "signed"
    command_line.signed("retry", "parcels", "A", "--to", "delivered")
    command_line.up()
    assert command_line.show("A")["stage"] == "delivered"
    confirm("delivered", '{"at":"the shop"}')
    command_line.up()
    view = command_line.show("A")
    assert (view["stage"], view["results"]["delivered"]) == ("signed", {"at": "the shop"})


def test_a_renamed_stage(busy: AwsCommandLine) -> None:
    busy.write("parcels.py", ROUTES.replace('external("delivered"', 'external("handed-out"'))
    refused = busy("work", "--until-idle")
    assert refused.code == 1
    assert "milepost routes apply" in refused.flat
    assert "removed 'delivered' (1 item there)" in busy.ok("routes").flat
    assert busy.ok("routes", "apply", "--map", "delivered=handed-out", "--dry-run", "--json").json[
        "renamed"
    ] == {"delivered": 1}
    assert (
        busy.signed("routes", "apply", "--map", "delivered=handed-out", "--json").json["version"]
        == 2
    )
    assert (busy.show("A")["stage"], busy.show("A")["verified"]) == ("handed-out", True)
    assert busy.ok("status", "--json").json["routes"]["parcels"]["stages"]["handed-out"] == {
        "QUEUED": 1
    }


def test_subscribers(busy: AwsCommandLine) -> None:
    [log] = busy.ok("subscribers", "--json").json["subscribers"]
    assert (log["name"], log["behind"], log["parked"]) == ("log", 0, [])
    assert "0 parked items" in busy.signed("subscribers", "release", "log").out
    busy.signed("subscribers", "forget", "log")
    assert busy.ok("subscribers", "--json").json["subscribers"] == []


def test_pruning_says_why_rows_stay(busy: AwsCommandLine) -> None:
    assert (
        busy.ok("prune", "parcels", "--older-than", "0s", "--dry-run", "--json").json["items"] == 0
    )
    said = busy.signed("prune", "parcels", "--older-than", "0s").flat
    assert "0 rows removed" in said
    assert "rows stay 1 h longer than requested" in said
    assert busy.show("B")["sealed"] is False


def test_doctor(busy: AwsCommandLine, client: Callable[[str], Any], prefix: str) -> None:
    report = busy.ok("doctor", "--json").json
    assert report["ledger"]["kind"] == "dynamodb"
    about = {finding["about"] for finding in report["findings"] if finding["level"] != "ok"}
    assert about == {"failed"}
    client("sqs").send_message(
        QueueUrl=client("sqs").get_queue_url(QueueName=ResourceNames(prefix).quarantine)[
            "QueueUrl"
        ],
        MessageBody="{}",
    )
    [found] = [
        finding
        for finding in busy.ok("doctor", "--json").json["findings"]
        if finding["about"] == "ledger"
    ]
    assert found["next"] == "milepost quarantine list"
    assert "in quarantine" in found["what"]


@pytest.fixture
def crowded(busy: AwsCommandLine, client: Callable[[str], Any], prefix: str) -> AwsCommandLine:
    """A route that says that it has a quarter of a million rows."""
    client("dynamodb").put_item(
        TableName=ResourceNames(prefix).control,
        Item={
            "kind": {"S": "count#parcels"},
            "name": {"S": f"weigh#{Status.COMPLETED}#1"},
            "n": {"N": "250000"},
            "token": {"S": "x"},
        },
    )
    return busy


def test_a_filter_that_no_index_serves_says_what_it_costs(
    crowded: AwsCommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from milepost_aws.ledger.cost import prices

    # One desk for all of them: it takes longer to make than to ask. The one that changes something
    # comes last.
    for command in (
        ("list", "parcels", "--stage", "weigh"),
        ("export", "parcels"),
        ("prune", "parcels", *SIGNED),
        ("cancel", "parcels", "--stage", "weigh", "--status", "waiting", *SIGNED),
    ):
        refused = crowded(*command)
        assert refused.code == 2
        assert (
            "no index serves this: all 250,004 rows of parcels are read, about 250,004 read units"
            in refused.flat
        )
        assert "--yes" in refused.flat
        allowed = crowded.ok(*command, "--yes")
        assert "all 250,004 rows of parcels are read" in allowed.err
    monkeypatch.setitem(prices.REGIONS, "eu-central-1", prices.REGIONS["us-east-1"])
    assert "read units, $0.03" in crowded("list", "parcels", "--stage", "weigh").flat


def test_what_an_index_serves_costs_nothing_worth_a_word(crowded: AwsCommandLine) -> None:
    answer = crowded.ok("list", "parcels", "--status", "failed")
    assert "index" not in answer.err
    assert crowded.ok("retry", "parcels", "--status", "failed", *SIGNED, "--json").json["done"] == 2


def test_upgrade_raises_the_format_once(
    command_line: AwsCommandLine, endpoint: str, prefix: str, client: Callable[[str], Any]
) -> None:
    command_line.submit({"id": "A"})
    command_line.signed("pause", "parcels", "weigh")
    table, key = ResourceNames(prefix).control, {"kind": {"S": "format"}, "name": {"S": "tables"}}
    assert (
        command_line.signed("upgrade").flat
        == "Format 2, as before; 0 documents brought into its form."
    )
    db = client("dynamodb")
    db.delete_item(TableName=table, Key=key)
    for row in db.query(
        TableName=table,
        KeyConditionExpression="kind = :kind",
        ExpressionAttributeValues={":kind": {"S": "hold#parcels"}},
    )["Items"]:
        # As an earlier version keeps it.
        db.delete_item(TableName=table, Key={"kind": row["kind"], "name": row["name"]})
        db.put_item(TableName=table, Item={**row, "kind": {"S": "hold"}})
    assert "the tables have format 1" in command_line("doctor").flat
    preview = command_line.ok("upgrade", "--dry-run")
    assert (
        "Format 1 → 2; 1 document would be brought into its form. Nothing was changed."
        in preview.flat
    )
    assert command_line.signed("upgrade", "--json").json["documents"] == 1
    assert next(act["verb"] for act in command_line.ok("acts", "--json").json["acts"]) == "upgrade"
    assert "the tables have format 2" in command_line("doctor").flat
    assert command_line.signed("resume", "parcels", "weigh").code == 0
    db.put_item(
        TableName=table, Item={**key, "value": {"S": '{"number":3}'}, "version": {"N": "9"}}
    )
    refused = command_line("submit", "parcels", "--item", '{"id":"B"}')
    assert (
        refused.code,
        "the tables of this ledger have format 3, and this Milepost knows formats up to 2"
        in refused.flat,
    ) == (1, True)
