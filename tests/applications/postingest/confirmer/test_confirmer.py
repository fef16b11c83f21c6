"""The confirmer that stands alone, with real repositories and a tape library's stand-in. Numbers are those of the scenario list for
the system that it stands beside."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from tests.applications.postingest.confirmer.confirmer_scene import ASSET, BATCH, OTHER, Scene, Turns
from tests.applications.postingest.ocfl import ocfl_scene
from tests.applications.postingest.ocfl.ocfl_scene import FILES, commit, hashed, stage
from tests.applications.postingest.tape_scene import scene_of
from urllib3 import HTTPResponse

import milepost as mp
from milepost.applications.postingest.confirmer.service import TurnTally
from milepost.applications.postingest.custodial_copy import CustodialCopy

OBJECT = ocfl_scene.ASSET
PAYLOAD = {"preservationSystemId": OBJECT}
ABSENT = {"preservationSystemId": "00000000-0000-4000-8000-000000000002"}
PATHS = sorted(f"{hashed(OBJECT)}/v1/content/{name}" for name in FILES)
DONE = mp.Done({"seen": True}, payload={"filePaths": ["a"]})


@pytest.fixture
def repository(tmp_path: Path) -> ocfl_scene.Scene:
    return ocfl_scene.Scene(tmp_path)


@pytest.fixture
def copy(repository: ocfl_scene.Scene) -> CustodialCopy:
    return CustodialCopy(repository.root)


def done(payload: Any) -> mp.Outcome:
    return DONE


# Custodial Copy ------------------------------------------------------------------------------------------------------------
def test_18_what_is_in_the_repository_is_confirmed_and_what_is_not_is_left(
    desk: Scene, repository: ocfl_scene.Scene, copy: CustodialCopy
) -> None:
    repository.build()
    desk.ask(PAYLOAD)
    desk.ask(ABSENT, OTHER)
    tally = desk.confirmer(copy.check).tick()
    assert tally == TurnTally(received=2, confirmed=1, not_yet=1, notes={"not in the repository yet": 1})
    [update] = desk.made("UpdateItem")
    seen = copy.check(PAYLOAD)
    assert isinstance(seen, mp.Done)
    assert update == {
        "TableName": desk.table,
        "Key": {"assetId": {"S": ASSET}, "batchId": {"S": BATCH}},
        "UpdateExpression": "SET #0 = :0",
        "ConditionExpression": "attribute_exists(#key)",
        "ExpressionAttributeNames": {"#0": "result_CC", "#key": "assetId"},
        "ExpressionAttributeValues": {":0": {"S": json.dumps(seen.output, separators=(",", ":"))}},
        "ReturnConsumedCapacity": "TOTAL",
    }
    assert desk.confirmed()["filePaths"] == PATHS
    assert list(desk.confirmed()) == ["filePaths", "digests", "sizes", "version", "objectId", "fixity", "bytes"]
    assert desk.row(OTHER) == {**desk.key(OTHER), "input": {"S": "{}"}}
    assert len(desk.made("DeleteMessage")) == 1
    assert desk.left() == (0, 1)


def test_18_as_the_design_document_has_it_the_next_input_is_written_with_the_confirmation(
    desk: Scene, repository: ocfl_scene.Scene, copy: CustodialCopy
) -> None:
    repository.build()
    desk.ask_as_in_seed(PAYLOAD)
    assert desk.confirmer(copy.check, "ingested_CC").tick().confirmed == 1
    row = desk.row()
    assert row is not None
    outcome = copy.check(PAYLOAD)
    assert isinstance(outcome, mp.Done)
    assert json.loads(row["ingested_CC"]["S"]) == outcome.output
    assert row["input"] == {"S": json.dumps({"filePaths": PATHS}, separators=(",", ":"))}
    assert desk.made("UpdateItem")[0]["UpdateExpression"] == "SET #0 = :0, #1 = :1"
    assert desk.left() == (0, 0)


def test_19_staged_changes_are_not_confirmed_before_they_are_committed(
    desk: Scene, repository: ocfl_scene.Scene, copy: CustodialCopy
) -> None:
    path = repository.build()
    stage(path, "late.txt", "more")
    confirmer = desk.confirmer(copy.check)
    desk.ask(PAYLOAD)
    assert confirmer.tick().notes == {"it has staged changes": 1}
    assert desk.confirmed() is None
    commit(path)
    desk.ask(PAYLOAD)
    assert confirmer.tick().confirmed == 1
    assert f"{hashed(OBJECT)}/v2/content/r1/late.txt" in desk.confirmed()["filePaths"]


@pytest.mark.parametrize("payload_at", [None, {"attribute": "payload_CC", "size": 300_000}], ids=["in the message", "on the row"])
def test_20_a_row_that_is_gone_is_not_made_again_and_its_message_goes(desk: Scene, payload_at: Any) -> None:
    desk.send({"assetId": ASSET, "batchId": BATCH, "payload": PAYLOAD, "payloadAt": payload_at})
    assert desk.confirmer(done).tick() == TurnTally(received=1, gone=1)
    assert desk.row() is None
    assert desk.left() == (0, 0)


@pytest.mark.parametrize("fault", ["throttle", "500", "timeout_before"])
@pytest.mark.parametrize("operation", ["UpdateItem", "DeleteMessage"])
def test_21_a_message_is_not_deleted_when_its_update_or_deletion_fails(desk: Scene, operation: str, fault: str) -> None:
    desk.ask(PAYLOAD)
    desk.faults.plan(operation, fault)
    confirmer = desk.confirmer(done)
    assert confirmer.tick() == TurnTally(received=1, failed=1)
    assert desk.left() == (0, 1)
    desk.ask(PAYLOAD, OTHER)
    assert confirmer.tick() == TurnTally(received=1, confirmed=1)


def test_21_a_queue_that_cannot_be_asked_is_asked_again_in_the_next_turn(desk: Scene) -> None:
    desk.ask(PAYLOAD)
    desk.faults.plan("ReceiveMessage", "500")
    turns = Turns(2)
    desk.confirmer(done).run(60, turns)
    assert turns.pauses == [60, 60]
    assert desk.confirmed()["filePaths"] == ["a"]


def test_21_what_was_received_before_the_queue_failed_is_seen_to(desk: Scene) -> None:
    for number in range(12):
        desk.ask(PAYLOAD, f"asset-{number}")
    desk.faults.plan(("ReceiveMessage", 2), "500")
    assert desk.confirmer(done).tick() == TurnTally(received=10, confirmed=10, cut_short=True)


def test_22_a_turn_takes_exactly_as_many_as_it_may(desk: Scene) -> None:
    for number in range(17):
        desk.ask(PAYLOAD, f"asset-{number}")
    confirmer = desk.confirmer(done, max_messages=12)
    assert confirmer.tick() == TurnTally(received=12, confirmed=12)
    assert [call["MaxNumberOfMessages"] for call in desk.made("ReceiveMessage")] == [10, 2]
    assert desk.left() == (5, 0)
    assert confirmer.tick() == TurnTally(received=5, confirmed=5)


def test_22_it_is_fifty_unless_something_else_is_said(desk: Scene) -> None:
    assert desk.confirmer(done).max_messages == 50


@pytest.mark.parametrize("payload", [{"filePaths": ["a"]}, "input", None])
def test_23_a_payload_of_another_kind_goes_to_the_quarantine(
    desk: Scene, copy: CustodialCopy, payload: Any, caplog: pytest.LogCaptureFixture
) -> None:
    desk.ask(payload)
    assert desk.confirmer(copy.check, quarantine_url=desk.quarantine).tick() == TurnTally(received=1, refused=1)
    [aside] = desk.aside()
    assert aside["kind"] == "message"
    assert aside["reason"].startswith("WRONG_PAYLOAD: the payload does not name an asset")
    assert aside["content"]["url"] == desk.queue
    assert json.loads(aside["content"]["body"])["payload"] == payload
    assert desk.left() == (0, 0)
    assert desk.confirmed() is None
    assert [record.levelname for record in caplog.records if "WRONG_PAYLOAD" in record.getMessage()] == ["ERROR"]


def test_23_without_a_quarantine_it_is_left_and_takes_up_ever_less_time(desk: Scene, copy: CustodialCopy) -> None:
    desk.ask({"filePaths": ["a"]})
    assert desk.confirmer(copy.check).tick() == TurnTally(received=1, refused=1)
    assert desk.left() == (0, 1)
    assert desk.hidden_for() == [600]


@pytest.mark.parametrize("operation", ["SendMessage", "DeleteMessage"])
def test_23_what_the_quarantine_does_not_take_is_kept(desk: Scene, copy: CustodialCopy, operation: str) -> None:
    desk.ask("input")
    desk.faults.plan(operation, "500")
    assert desk.confirmer(copy.check, quarantine_url=desk.quarantine).tick() == TurnTally(received=1, failed=1)
    assert desk.left() == (0, 1)


def test_a_damaged_object_is_told_and_never_confirmed(desk: Scene, repository: ocfl_scene.Scene) -> None:
    copy = CustodialCopy(repository.root, settled=0)
    path = repository.build()
    next(path.glob("v1/content/*.xml")).unlink()
    desk.ask(PAYLOAD)
    assert desk.confirmer(copy.check, quarantine_url=desk.quarantine).tick() == TurnTally(received=1, refused=1)
    assert desk.aside()[0]["reason"].startswith("DAMAGED: ")
    assert desk.confirmed() is None


def test_a_repository_that_is_not_mounted_loses_nothing(desk: Scene, repository: ocfl_scene.Scene, copy: CustodialCopy) -> None:
    repository.build()
    confirmer = desk.confirmer(copy.check, quarantine_url=desk.quarantine)
    away = repository.root.rename(repository.root.with_name("away"))
    repository.root.mkdir()
    desk.ask(PAYLOAD)
    tally = confirmer.tick()
    assert (tally.received, tally.not_yet) == (1, 1)
    assert "is it mounted?" in next(iter(tally.notes)), "what keeps all of them waiting is told with every turn"
    assert desk.left() == (0, 1)
    repository.root.rmdir()
    away.rename(repository.root)
    desk.ask(PAYLOAD)
    assert confirmer.tick().confirmed == 1


# Tapes ---------------------------------------------------------------------------------------------------------------------
def test_24_files_on_tape_are_confirmed_with_their_volumes(desk: Scene) -> None:
    with scene_of() as tapes:
        tapes.standin.put("a", "L03721", "L03722")
        tapes.standin.put("b", "L03723")
        desk.ask({"filePaths": ["a", "b"]})
        assert desk.confirmer(tapes.tape.check, "result_TC").tick() == TurnTally(received=1, confirmed=1)
    row = desk.row()
    assert row is not None
    assert row["result_TC"] == {"S": '{"a":["L03721","L03722"],"b":["L03723"]}'}
    assert row["input"] == {"S": "{}"}


def test_25_one_of_two_files_on_tape_confirms_nothing(desk: Scene) -> None:
    with scene_of() as tapes:
        tapes.on_tape("a")
        tapes.standin.put("b", archdone=False)
        desk.ask({"filePaths": ["a", "b"]})
        assert desk.confirmer(tapes.tape.check, "result_TC").tick() == TurnTally(
            received=1, not_yet=1, notes={"1 of 2 files on tape; missing: b": 1}
        )
    assert desk.confirmed("result_TC") is None


def test_26_a_tape_library_that_lets_nobody_in_is_told_with_every_turn_and_without_the_password(
    desk: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with scene_of(client={"password": "hunter2-wrong"}) as tapes:
        caplog.set_level(logging.DEBUG, "milepost")
        desk.ask({"filePaths": ["a"]})
        [(note, many)] = desk.confirmer(tapes.tape.check, "result_TC").tick().notes.items()
    assert "Authentication failed with status code: 401" in note
    assert many == 1
    [turn] = [record for record in caplog.records if record.getMessage() == "turn"]
    assert vars(turn)["not_yet"] == 1
    assert vars(turn)["notes"] == {note: 1}
    assert not any("hunter2" in str(vars(record)) for record in caplog.records)


def test_33_names_stay_as_they_are_to_the_letter_through_both_confirmers(
    desk: Scene, repository: ocfl_scene.Scene, copy: CustodialCopy
) -> None:
    names = ["r\u00e9sum\u00e9 \u2014 \U0001f4dc.txt", "re\u0301sume\u0301.txt", '\u202eabc & "quoted" + 100%.txt', "\u65e5\u672c.txt"]
    repository.build({name: name for name in names})
    desk.ask(PAYLOAD)
    assert desk.confirmer(copy.check).tick().confirmed == 1
    found = desk.confirmed()
    assert sorted(found["filePaths"]) == sorted(f"{hashed(OBJECT)}/v1/content/{name}" for name in names)
    with scene_of() as tapes:
        tapes.on_tape(*found["filePaths"])
        desk.send(json.dumps({"assetId": ASSET, "batchId": BATCH, "payload": found}, ensure_ascii=False))
        assert desk.confirmer(tapes.tape.check, "result_TC").tick().confirmed == 1
    assert list(desk.confirmed("result_TC")) == found["filePaths"]


# Each by itself -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("no JSON", "the message names no row"),
        ("[1, 2]", "the message names no row"),
        ("[" * 5_000, "the message cannot be read"),
        (json.dumps({"assetId": ASSET, "batchId": BATCH}), "has no payload"),
        (json.dumps({"assetId": 7, "batchId": BATCH, "payload": {}}), "expected one or two texts by name"),
        (json.dumps({"assetId": ASSET, "batchId": BATCH, "payload": {}, "payloadAt": 3}), "payloadAt does not say where"),
    ],
)
def test_a_message_that_cannot_be_read_hides_no_other(desk: Scene, body: str, why: str) -> None:
    desk.ask(PAYLOAD)
    desk.send(body)
    desk.ask(PAYLOAD, OTHER)
    assert desk.confirmer(done, quarantine_url=desk.quarantine).tick() == TurnTally(received=3, confirmed=2, unreadable=1)
    [aside] = desk.aside()
    assert why in aside["reason"]
    assert aside["content"]["body"] == body
    assert desk.left() == (0, 0)


@pytest.mark.parametrize(("label", "why"), [('["assetId"]', "expected one or two texts by name"), ("[" * 5_000, "cannot be read")])
def test_a_label_that_is_no_key_is_told(desk: Scene, label: str, why: str) -> None:
    desk.send(PAYLOAD, key=label)
    assert desk.confirmer(done, "ingested_CC", quarantine_url=desk.quarantine).tick() == TurnTally(received=1, unreadable=1)
    [aside] = desk.aside()
    assert why in aside["reason"]
    assert aside["content"]["attributes"] == {"key": label}


def test_a_check_that_raises_ends_nothing_but_itself(desk: Scene) -> None:
    def check(payload: Any) -> mp.Outcome:
        if payload == "raise":
            raise OSError("stale file handle")
        return mp.HandedOver(within="1h") if payload == "odd" else DONE

    for number, payload in enumerate(["fine", "raise", "odd", "fine", "fine"]):
        desk.ask(payload, f"asset-{number}")
    assert desk.confirmer(check).tick() == TurnTally(received=5, confirmed=3, failed=2)
    assert desk.left() == (0, 2)


@pytest.mark.wire
@pytest.mark.parametrize("payload_at", [None, {"attribute": "payload_CC"}], ids=["to a write", "to a read"])
def test_an_answer_that_is_not_dynamodbs_says_nothing_of_the_row(desk: Scene, payload_at: Any) -> None:
    """A proxy's own page, with status 200: boto3 takes it for an empty answer."""

    def page(**_: Any) -> AWSResponse:
        body = b"<html>sign in first</html>"
        return AWSResponse("", 200, {}, HTTPResponse(io.BytesIO(body), {}, 200, preload_content=False))

    desk.own[1].meta.events.register_first("before-send", page)
    desk.ask(PAYLOAD, payloadAt=payload_at)
    assert desk.confirmer(done).tick() == TurnTally(received=1, failed=1)
    assert desk.left() == (0, 1)
