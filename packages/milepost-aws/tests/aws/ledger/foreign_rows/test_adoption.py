"""`milepost adopt` takes in foreign rows at their stage; `milepost quarantine` shows and replays
rows that were set aside."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.aws_command_line import SIGNED, AwsCommandLine, address

from milepost_aws.ledger.names import ResourceNames

TODAY = """
from __future__ import annotations

import milepost as mp

parcels = mp.Route("parcels", key=("assetId", "batchId"), dialect="today")
parcels.external("CC"{queue})
parcels.external("TC")
"""
PATHS = {"filePaths": ["one", "two"]}


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
    command_line = AwsCommandLine(tmp_path, capsys, address(endpoint, prefix))
    command_line.write("parcels.py", TODAY.format(queue=""))
    command_line.ok("submit", "parcels", "--item", '{"assetId": "ours", "batchId": "b"}')
    return command_line


Put = Callable[..., None]


@pytest.fixture
def put(command_line: AwsCommandLine, client: Callable[[str], Any], prefix: str) -> Put:
    """A row as today's system leaves it."""

    def put(
        asset: str,
        queue: str | None = None,
        content: str | None = '{"id":"s1"}',
        last: str = "2026-01-05T10:00:00.5Z",
        **answers: Any,
    ) -> None:
        row: dict[str, Any] = {"assetId": {"S": asset}, "batchId": {"S": "b"}}
        if content is not None:
            row["input"] = {"S": content}
        if queue is not None:
            row |= {
                "queue": {"S": queue},
                "firstQueued": {"S": "2026-01-02T10:00:00.123456Z"},
                "lastQueued": {"S": last},
            }
        row |= {f"result_{stage}": {"S": json.dumps(value)} for stage, value in answers.items()}
        client("dynamodb").put_item(TableName=ResourceNames(prefix).rows("parcels"), Item=row)

    return put


@pytest.fixture
def calls(client: Callable[[str], Any], prefix: str) -> Callable[[str], list[dict[str, Any]]]:
    """What a confirmer finds in its queue."""

    def calls(queue: str) -> list[dict[str, Any]]:
        sqs = client("sqs")
        url = (
            queue
            if "/" in queue
            else sqs.get_queue_url(QueueName=ResourceNames(prefix).queue("parcels", queue))[
                "QueueUrl"
            ]
        )
        found = []
        while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get(
            "Messages", []
        ):
            found += [json.loads(message["Body"]) for message in messages]
        return sorted(found, key=lambda call: str(call["key"]))

    return calls


def test_a_whole_table_is_taken_in_each_row_where_it_stands(
    command_line: AwsCommandLine, put: Put, calls: Callable[[str], list[dict[str, Any]]]
) -> None:
    put("new")
    put("first", "CC")
    put("second", "TC", CC=PATHS)
    put("answered", "TC", CC=PATHS, TC={"one": ["L1"]})
    put("elsewhere", "Glacier", CC=PATHS)
    planned = command_line("adopt", "parcels", "--all", "--dry-run", "--json").json
    assert (planned["adopted"], planned["stages"], planned["refused_count"]) == (
        4,
        {"CC": 2, "TC": 2},
        1,
    )
    answer = command_line("adopt", "parcels", "--all", *SIGNED)
    assert answer.code == 1
    assert "6 rows read: 4 items adopted" in answer.flat
    assert "its stage 'Glacier' is not in the route (CC, TC)" in answer.flat
    second = command_line.show("second#b")
    assert (second["stage"], second["status"], second["results"], second["payload"]) == (
        "TC",
        "QUEUED",
        {"CC": PATHS},
        PATHS,
    )
    assert second["entered_at"] == "2026-01-02T10:00:00.123Z", "its age is not lost"
    [line] = second["history"]
    assert (line["reason"], line["stage"], line["by"], line["why"]) == (
        "accepted",
        "TC",
        "ops",
        "a test",
    )
    assert line["note"] == {"found": {"queue": "TC", "through": ["CC"]}}
    assert second["verified"]
    assert [(call["key"], call["payload"]) for call in calls("TC")] == [("second#b", PATHS)], (
        "who has answered is not called"
    )
    assert [call["key"] for call in calls("CC")] == ["first#b", "new#b"]
    command_line.up()
    assert (
        command_line.show("answered#b")["status"],
        command_line.show("answered#b")["results"],
    ) == (
        "COMPLETED",
        {"CC": PATHS, "TC": {"one": ["L1"]}},
    )
    assert [command_line.show(f"{name}#b")["stage"] for name in ("new", "first", "second")] == [
        "CC",
        "CC",
        "TC",
    ]
    again = command_line("adopt", "parcels", "--all", *SIGNED, "--json").json
    assert (again["adopted"], again["refused_count"]) == (0, 1)
    assert [act["verb"] for act in command_line.ok("acts", "--json").json["acts"]] == [
        "adopt",
        "adopt",
    ]


def test_what_is_adopted_is_confirmed_like_any_other(
    command_line: AwsCommandLine, put: Put, client: Callable[[str], Any], prefix: str
) -> None:
    put("second", "TC", CC=PATHS)
    command_line.signed("adopt", "parcels", "second#b")
    client("dynamodb").update_item(
        TableName=ResourceNames(prefix).rows("parcels"),
        Key={"assetId": {"S": "second"}, "batchId": {"S": "b"}},
        UpdateExpression="SET result_TC = :x",
        ExpressionAttributeValues={":x": {"S": '{"one":["L1"]}'}},
    )
    command_line.up()
    assert command_line.show("second#b")["status"] == "COMPLETED"


def test_a_call_that_the_old_queue_still_keeps_is_not_made_again(
    command_line: AwsCommandLine,
    put: Put,
    calls: Callable[[str], list[dict[str, Any]]],
    client: Callable[[str], Any],
    prefix: str,
) -> None:
    own = client("sqs").create_queue(
        QueueName=f"{prefix}-theirs", Attributes={"MessageRetentionPeriod": "1209600"}
    )["QueueUrl"]
    command_line.write("parcels.py", TODAY.format(queue=f', queue="{own}"'))
    put("old", "CC")
    put("recent", "CC", last="2099-01-01T00:00:00Z")
    command_line.signed("adopt", "parcels", "old#b", "recent#b")
    assert [call["key"] for call in calls(own)] == ["old#b"]
    assert command_line.show("recent#b")["due_at"] == "2099-01-15T00:00:00.000Z"


def test_rows_are_not_adopted_twice_nor_without_being_there(
    command_line: AwsCommandLine, put: Put
) -> None:
    put("one")
    command_line.signed("adopt", "parcels", "one#b")
    answer = command_line("adopt", "parcels", "one#b", "none#b", *SIGNED)
    assert answer.code == 1
    assert "already adopted" in answer.flat
    assert "no row with this key" in answer.flat
    assert command_line("adopt", "parcels", *SIGNED).code == 2
    assert command_line("adopt", "parcels", "--all").code == 2


def test_rows_of_another_stage_are_left_to_people(command_line: AwsCommandLine, put: Put) -> None:
    """The relay takes in what is new; what says that it is under way already is for an operator."""
    put("second", "TC")
    command_line.up()
    [aside] = command_line.ok("quarantine", "list", "--json").json["set_aside"]
    assert aside["kind"] == "row"
    assert "'milepost adopt' takes it in at that stage" in aside["reason"]
    command_line.signed("quarantine", "replay", aside["id"])
    assert command_line.show("second#b")["stage"] == "TC"
    assert command_line.ok("quarantine", "list", "--json").json["set_aside"] == []


def test_quarantine_is_looked_at_without_taking_anything_away(
    command_line: AwsCommandLine, put: Put
) -> None:
    assert command_line.ok("quarantine", "list").out == "The quarantine is empty.\n"
    put("ghost", content=None)
    put("born", CC=PATHS)
    command_line.up()
    for _ in range(2):
        answer = command_line.ok("quarantine", "list", "--json").json
        assert (
            {aside["kind"] for aside in answer["set_aside"]},
            len(answer["set_aside"]),
            answer["more"],
        ) == ({"row"}, 2, False)
    [one] = command_line.ok("quarantine", "list", "-n", "1", "--json").json["set_aside"]
    assert command_line.ok("quarantine", "list", "-n", "1", "--json").json["more"]
    assert "it has no input" in command_line.ok("quarantine", "list").flat
    assert command_line.ok("quarantine", "show", one["id"], "--json").json == one
    assert '"assetId"' in command_line.ok("quarantine", "show", one["id"]).out
    assert command_line("quarantine", "show", "nothing").code == 1
    assert command_line("quarantine", "drop", one["id"]).code == 2
    assert command_line("quarantine", "drop", *SIGNED).code == 2
    assert command_line.signed("quarantine", "drop", one["id"]).out == "1 entry deleted.\n"
    assert command_line("quarantine", "drop", one["id"], *SIGNED).code == 1
    assert len(command_line.ok("quarantine", "list", "--json").json["set_aside"]) == 1


def test_what_still_cannot_be_used_stays(
    command_line: AwsCommandLine, put: Put, client: Callable[[str], Any], prefix: str
) -> None:
    put("second", "TC")
    put("lost", "TC")
    command_line.up()
    table = ResourceNames(prefix).rows("parcels")
    client("dynamodb").delete_item(
        TableName=table, Key={"assetId": {"S": "lost"}, "batchId": {"S": "b"}}
    )
    answer = command_line("quarantine", "replay", "--all", *SIGNED)
    assert answer.code == 1
    assert "1 of 2 entries processed." in answer.flat
    assert "the row of lost#b no longer exists" in answer.flat
    [left] = command_line.ok("quarantine", "list", "--json").json["set_aside"]
    assert left["content"]["row"]["assetId"] == "lost"
    assert command_line.signed("quarantine", "drop", "--all").out == "1 entry deleted.\n"
    assert [act["verb"] for act in command_line.ok("acts", "--json").json["acts"]] == [
        "drop",
        "replay",
    ]


def test_a_message_that_nobody_could_read_goes_back_to_its_queue(
    command_line: AwsCommandLine, client: Callable[[str], Any], prefix: str
) -> None:
    command_line.write(
        "parcels.py",
        TODAY.format(queue="")
        + "\nchecks = mp.Route('checks')\n@checks.stage('check')\ndef check(item: mp.Item) -> mp.Outcome:\n    return mp.Done()\n",
    )
    command_line.up()
    sqs = client("sqs")
    url = sqs.get_queue_url(QueueName=ResourceNames(prefix).queue("checks", "check"))["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="what is this?")
    command_line.up()
    [aside] = command_line.ok("quarantine", "list", "--json").json["set_aside"]
    assert (aside["kind"], aside["content"]["body"]) == ("message", "what is this?")
    command_line.signed("quarantine", "replay", aside["id"])
    assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "what is this?"


def test_a_row_that_cannot_be_read_keeps_no_other_from_being_taken_in(
    command_line: AwsCommandLine, put: Put, client: Callable[[str], Any], prefix: str
) -> None:
    lost = {"M": {"blob": {"S": "gone/for/good"}, "sha256": {"S": "0"}, "size": {"N": "1"}}}
    put("one", "TC", CC=PATHS)
    for asset, row in (
        ("answer", {"input": {"S": "{}"}, "queue": {"S": "TC"}, "result_CC": lost}),
        ("input", {"input": lost}),
    ):
        key = {"assetId": {"S": asset}, "batchId": {"S": "b"}}
        client("dynamodb").put_item(
            TableName=ResourceNames(prefix).rows("parcels"), Item={**key, **row}
        )
    answer = command_line("adopt", "parcels", "--all", *SIGNED, "--json").json
    assert (answer["adopted"], sorted(key for key, _ in answer["refused"])) == (
        1,
        ["answer#b", "input#b"],
    )
    assert all("cannot be read" in why for _, why in answer["refused"])


def test_on_an_embedded_ledger_nothing_is_left_to_be_taken_in(command_line: AwsCommandLine) -> None:
    command_line.settle("sqlite:///milepost.db")
    command_line.ok("submit", "parcels", "--item", '{"assetId": "a", "batchId": "b"}')
    assert "The quarantine is empty." in command_line.ok("quarantine", "list").flat
    assert command_line.ok("quarantine", "list", "--json").json["set_aside"] == []
    answer = command_line("adopt", "parcels", "--all", *SIGNED)
    assert answer.code == 2
    assert "other programs cannot write to this ledger" in answer.flat


def test_a_row_for_later_starts_then_unless_it_has_started(
    command_line: AwsCommandLine, put: Put, calls: Callable[[str], list[dict[str, Any]]]
) -> None:
    command_line.write(
        "parcels.py",
        TODAY.format(queue="").replace('dialect="today"', 'dialect="today", not_before="at"'),
    )
    put("later", content='{"id":"s1","at":"2099-01-01T00:00:00Z"}')
    put("begun", "CC", content='{"id":"s1","at":"2099-01-01T00:00:00Z"}')
    put("wrong", content='{"id":"s1","at":"some day"}')
    answer = command_line("adopt", "parcels", "--all", *SIGNED, "--json").json
    assert (answer["adopted"], [key for key, _ in answer["refused"]]) == (2, ["wrong#b"])
    later = command_line.show("later#b")
    assert (later["status"], later["not_before"], later["due_at"]) == (
        "PENDING",
        *["2099-01-01T00:00:00.000Z"] * 2,
    )
    assert command_line.show("begun#b")["status"] == "QUEUED"
    assert [call["key"] for call in calls("CC")] == ["begun#b"]
