"""The confirmer that stands alone, with real repositories and a tape library's stand-in. Numbers
are those of the scenario list for the system that it stands beside."""

from __future__ import annotations

import io
import json
import logging
import platform
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from tests.postingest.confirmer.confirmer_scene import ASSET, BATCH, OTHER, Scene, Turns
from tests.postingest.ocfl import ocfl_scene
from tests.postingest.ocfl.ocfl_scene import FILES, commit, hashed, stage
from tests.postingest.tape_scene import scene_of
from urllib3 import HTTPResponse

import milepost as mp
from milepost_postingest.confirmer.service import TurnTally
from milepost_postingest.custodial_copy import CustodialCopy

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


# Custodial Copy -----------------------------------------------------------------------------------
def test_18_what_is_in_the_repository_is_confirmed_and_what_is_not_is_left(
    scene: Scene, repository: ocfl_scene.Scene, copy: CustodialCopy
) -> None:
    repository.build()
    scene.ask(PAYLOAD)
    scene.ask(ABSENT, OTHER)
    tally = scene.confirmer(copy.check).tick()
    assert tally == TurnTally(
        received=2, confirmed=1, not_yet=1, notes={"not in the repository yet": 1}
    )
    [update] = scene.made("UpdateItem")
    seen = copy.check(PAYLOAD)
    assert isinstance(seen, mp.Done)
    assert update == {
        "TableName": scene.table,
        "Key": {"assetId": {"S": ASSET}, "batchId": {"S": BATCH}},
        "UpdateExpression": "SET #0 = :0, #1 = :1",
        "ConditionExpression": "attribute_exists(#key)",
        "ExpressionAttributeNames": {"#0": "result_CC", "#1": "confirmedBy_CC", "#key": "assetId"},
        "ExpressionAttributeValues": {
            ":0": {"S": json.dumps(seen.output, separators=(",", ":"))},
            ":1": {"S": f"{platform.node()} (milepost {mp.__version__}, ocfl)"},
        },
        "ReturnConsumedCapacity": "TOTAL",
    }
    assert scene.confirmed()["filePaths"] == PATHS
    assert list(scene.confirmed()) == [
        "filePaths",
        "digests",
        "sizes",
        "version",
        "objectId",
        "fixity",
        "bytes",
    ]
    assert scene.row(OTHER) == {**scene.key(OTHER), "input": {"S": "{}"}}
    assert len(scene.made("DeleteMessage")) == 1
    assert scene.left() == (0, 1)


def test_18_as_the_design_document_has_it_the_next_input_is_written_with_the_confirmation(
    scene: Scene, repository: ocfl_scene.Scene, copy: CustodialCopy
) -> None:
    repository.build()
    scene.ask_as_in_seed(PAYLOAD)
    assert scene.confirmer(copy.check, "ingested_CC").tick().confirmed == 1
    row = scene.row()
    assert row is not None
    outcome = copy.check(PAYLOAD)
    assert isinstance(outcome, mp.Done)
    assert json.loads(row["ingested_CC"]["S"]) == outcome.output
    assert row["input"] == {"S": json.dumps({"filePaths": PATHS}, separators=(",", ":"))}
    assert scene.made("UpdateItem")[0]["UpdateExpression"] == "SET #0 = :0, #1 = :1, #2 = :2"
    assert scene.left() == (0, 0)


def test_19_staged_changes_are_not_confirmed_before_they_are_committed(
    scene: Scene, repository: ocfl_scene.Scene, copy: CustodialCopy
) -> None:
    path = repository.build()
    stage(path, "late.txt", "more")
    confirmer = scene.confirmer(copy.check)
    scene.ask(PAYLOAD)
    assert confirmer.tick().notes == {"it has staged changes": 1}
    assert scene.confirmed() is None
    commit(path)
    scene.ask(PAYLOAD)
    assert confirmer.tick().confirmed == 1
    assert f"{hashed(OBJECT)}/v2/content/r1/late.txt" in scene.confirmed()["filePaths"]


@pytest.mark.parametrize(
    "payload_at",
    [None, {"attribute": "payload_CC", "size": 300_000}],
    ids=["in the message", "on the row"],
)
def test_20_a_row_that_is_gone_is_not_made_again_and_its_message_goes(
    scene: Scene, payload_at: Any
) -> None:
    scene.send({"assetId": ASSET, "batchId": BATCH, "payload": PAYLOAD, "payloadAt": payload_at})
    assert scene.confirmer(done).tick() == TurnTally(received=1, gone=1)
    assert scene.row() is None
    assert scene.left() == (0, 0)


@pytest.mark.parametrize("fault", ["throttle", "500", "timeout_before"])
@pytest.mark.parametrize("operation", ["UpdateItem", "DeleteMessage"])
def test_21_a_message_is_not_deleted_when_its_update_or_deletion_fails(
    scene: Scene, operation: str, fault: str
) -> None:
    scene.ask(PAYLOAD)
    scene.faults.plan(operation, fault)
    confirmer = scene.confirmer(done)
    assert confirmer.tick() == TurnTally(received=1, failed=1)
    assert scene.left() == (0, 1)
    scene.ask(PAYLOAD, OTHER)
    assert confirmer.tick() == TurnTally(received=1, confirmed=1)


def test_21_a_queue_that_cannot_be_asked_is_asked_again_in_the_next_turn(scene: Scene) -> None:
    scene.ask(PAYLOAD)
    scene.faults.plan("ReceiveMessage", "500")
    turns = Turns(2)
    scene.confirmer(done).run(60, turns)
    assert turns.pauses == [60, 60]
    assert scene.confirmed()["filePaths"] == ["a"]


def test_21_what_was_received_before_the_queue_failed_is_seen_to(scene: Scene) -> None:
    for number in range(12):
        scene.ask(PAYLOAD, f"asset-{number}")
    scene.faults.plan(("ReceiveMessage", 2), "500")
    assert scene.confirmer(done).tick() == TurnTally(received=10, confirmed=10, cut_short=True)


def test_22_a_turn_takes_exactly_as_many_as_it_may(scene: Scene) -> None:
    for number in range(17):
        scene.ask(PAYLOAD, f"asset-{number}")
    confirmer = scene.confirmer(done, max_messages=12)
    assert confirmer.tick() == TurnTally(received=12, confirmed=12)
    assert [call["MaxNumberOfMessages"] for call in scene.made("ReceiveMessage")] == [10, 2]
    assert scene.left() == (5, 0)
    assert confirmer.tick() == TurnTally(received=5, confirmed=5)


def test_22_it_is_fifty_unless_something_else_is_said(scene: Scene) -> None:
    assert scene.confirmer(done).settings.max_messages == 50


@pytest.mark.parametrize("payload", [{"filePaths": ["a"]}, "input", None])
def test_23_a_payload_of_another_kind_goes_to_the_quarantine(
    scene: Scene, copy: CustodialCopy, payload: Any, caplog: pytest.LogCaptureFixture
) -> None:
    scene.ask(payload)
    assert scene.confirmer(copy.check, quarantine_url=scene.quarantine).tick() == TurnTally(
        received=1, refused=1
    )
    [aside] = scene.aside()
    assert aside["kind"] == "message"
    assert aside["reason"].startswith("WRONG_PAYLOAD: the payload does not name an asset")
    assert aside["content"]["url"] == scene.queue
    assert json.loads(aside["content"]["body"])["payload"] == payload
    assert scene.left() == (0, 0)
    assert scene.confirmed() is None
    assert [
        record.levelname for record in caplog.records if "WRONG_PAYLOAD" in record.getMessage()
    ] == ["ERROR"]


def test_23_without_a_quarantine_it_is_left_and_takes_up_ever_less_time(
    scene: Scene, copy: CustodialCopy
) -> None:
    scene.ask({"filePaths": ["a"]})
    assert scene.confirmer(copy.check).tick() == TurnTally(received=1, refused=1)
    assert scene.left() == (0, 1)
    assert scene.hidden_for() == [600]


@pytest.mark.parametrize("operation", ["SendMessage", "DeleteMessage"])
def test_23_what_the_quarantine_does_not_take_is_kept(
    scene: Scene, copy: CustodialCopy, operation: str
) -> None:
    scene.ask("input")
    scene.faults.plan(operation, "500")
    assert scene.confirmer(copy.check, quarantine_url=scene.quarantine).tick() == TurnTally(
        received=1, failed=1
    )
    assert scene.left() == (0, 1)


def test_a_damaged_object_is_told_and_never_confirmed(
    scene: Scene, repository: ocfl_scene.Scene
) -> None:
    copy = CustodialCopy(repository.root, settled=0)
    path = repository.build()
    next(path.glob("v1/content/*.xml")).unlink()
    scene.ask(PAYLOAD)
    assert scene.confirmer(copy.check, quarantine_url=scene.quarantine).tick() == TurnTally(
        received=1, refused=1
    )
    assert scene.aside()[0]["reason"].startswith("DAMAGED: ")
    assert scene.confirmed() is None


def test_a_repository_that_is_not_mounted_loses_nothing(
    scene: Scene, repository: ocfl_scene.Scene, copy: CustodialCopy
) -> None:
    repository.build()
    confirmer = scene.confirmer(copy.check, quarantine_url=scene.quarantine)
    away = repository.root.rename(repository.root.with_name("away"))
    repository.root.mkdir()
    scene.ask(PAYLOAD)
    tally = confirmer.tick()
    assert (tally.received, tally.not_yet) == (1, 1)
    assert "is it mounted?" in next(iter(tally.notes)), (
        "what keeps all of them waiting is told with every turn"
    )
    assert scene.left() == (0, 1)
    repository.root.rmdir()
    away.rename(repository.root)
    scene.ask(PAYLOAD)
    assert confirmer.tick().confirmed == 1


# Tapes --------------------------------------------------------------------------------------------
def test_24_files_on_tape_are_confirmed_with_their_volumes(scene: Scene) -> None:
    with scene_of() as tapes:
        tapes.standin.put("a", "L03721", "L03722")
        tapes.standin.put("b", "L03723")
        scene.ask({"filePaths": ["a", "b"]})
        assert scene.confirmer(tapes.tape.check, "result_TC").tick() == TurnTally(
            received=1, confirmed=1
        )
    row = scene.row()
    assert row is not None
    assert row["result_TC"] == {"S": '{"a":["L03721","L03722"],"b":["L03723"]}'}
    assert row["input"] == {"S": "{}"}


def test_25_one_of_two_files_on_tape_confirms_nothing(scene: Scene) -> None:
    with scene_of() as tapes:
        tapes.on_tape("a")
        tapes.standin.put("b", archdone=False)
        scene.ask({"filePaths": ["a", "b"]})
        assert scene.confirmer(tapes.tape.check, "result_TC").tick() == TurnTally(
            received=1, not_yet=1, notes={"1 of 2 files on tape; missing: b": 1}
        )
    assert scene.confirmed("result_TC") is None


def test_26_a_tape_library_that_lets_nobody_in_is_told_with_every_turn_and_without_the_password(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with scene_of(client={"password": "hunter2-wrong"}) as tapes:
        caplog.set_level(logging.DEBUG, "milepost")
        scene.ask({"filePaths": ["a"]})
        [(note, many)] = scene.confirmer(tapes.tape.check, "result_TC").tick().notes.items()
    assert "Authentication failed with status code: 401" in note
    assert many == 1
    [turn] = [record for record in caplog.records if record.getMessage() == "turn"]
    assert vars(turn)["not_yet"] == 1
    assert vars(turn)["notes"] == {note: 1}
    assert not any("hunter2" in str(vars(record)) for record in caplog.records)


def test_33_names_stay_as_they_are_to_the_letter_through_both_confirmers(
    scene: Scene, repository: ocfl_scene.Scene, copy: CustodialCopy
) -> None:
    names = [
        "r\u00e9sum\u00e9 \u2014 \U0001f4dc.txt",
        "re\u0301sume\u0301.txt",
        '\u202eabc & "quoted" + 100%.txt',
        "\u65e5\u672c.txt",
    ]
    repository.build({name: name for name in names})
    scene.ask(PAYLOAD)
    assert scene.confirmer(copy.check).tick().confirmed == 1
    found = scene.confirmed()
    assert sorted(found["filePaths"]) == sorted(
        f"{hashed(OBJECT)}/v1/content/{name}" for name in names
    )
    with scene_of() as tapes:
        tapes.on_tape(*found["filePaths"])
        scene.send(
            json.dumps({"assetId": ASSET, "batchId": BATCH, "payload": found}, ensure_ascii=False)
        )
        assert scene.confirmer(tapes.tape.check, "result_TC").tick().confirmed == 1
    assert list(scene.confirmed("result_TC")) == found["filePaths"]


# Each by itself -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("no JSON", "the message names no row"),
        ("[1, 2]", "the message names no row"),
        ("[" * 200_000, "the message cannot be read"),
        (json.dumps({"assetId": ASSET, "batchId": BATCH}), "has no payload"),
        (
            json.dumps({"assetId": 7, "batchId": BATCH, "payload": {}}),
            "expected one or two texts by name",
        ),
        (
            json.dumps({"assetId": ASSET, "batchId": BATCH, "payload": {}, "payloadAt": 3}),
            "payloadAt does not say where",
        ),
    ],
)
def test_a_message_that_cannot_be_read_hides_no_other(scene: Scene, body: str, why: str) -> None:
    scene.ask(PAYLOAD)
    scene.send(body)
    scene.ask(PAYLOAD, OTHER)
    assert scene.confirmer(done, quarantine_url=scene.quarantine).tick() == TurnTally(
        received=3, confirmed=2, unreadable=1
    )
    [aside] = scene.aside()
    assert why in aside["reason"]
    assert aside["content"]["body"] == body
    assert scene.left() == (0, 0)


@pytest.mark.parametrize(
    ("label", "why"),
    [('["assetId"]', "expected one or two texts by name"), ("[" * 200_000, "cannot be read")],
)
def test_a_label_that_is_no_key_is_told(scene: Scene, label: str, why: str) -> None:
    scene.send(PAYLOAD, key=label)
    assert scene.confirmer(
        done, "ingested_CC", quarantine_url=scene.quarantine
    ).tick() == TurnTally(received=1, unreadable=1)
    [aside] = scene.aside()
    assert why in aside["reason"]
    assert aside["content"]["attributes"] == {"key": label}


def test_a_check_that_raises_ends_nothing_but_itself(scene: Scene) -> None:
    def check(payload: Any) -> mp.Outcome:
        if payload == "raise":
            raise OSError("stale file handle")
        return mp.HandedOver(within="1h") if payload == "odd" else DONE

    for number, payload in enumerate(["fine", "raise", "odd", "fine", "fine"]):
        scene.ask(payload, f"asset-{number}")
    assert scene.confirmer(check).tick() == TurnTally(received=5, confirmed=3, failed=2)
    assert scene.left() == (0, 2)


@pytest.mark.wire
@pytest.mark.parametrize(
    "payload_at", [None, {"attribute": "payload_CC"}], ids=["to a write", "to a read"]
)
def test_an_answer_that_is_not_dynamodbs_says_nothing_of_the_row(
    scene: Scene, payload_at: Any
) -> None:
    """A proxy's own page, with status 200: boto3 takes it for an empty answer."""

    def page(**_: Any) -> AWSResponse:
        body = b"<html>sign in first</html>"
        return AWSResponse(
            "", 200, {}, HTTPResponse(io.BytesIO(body), {}, 200, preload_content=False)
        )

    scene.own[1].meta.events.register_first("before-send", page)
    scene.ask(PAYLOAD, payloadAt=payload_at)
    assert scene.confirmer(done).tick() == TurnTally(received=1, failed=1)
    assert scene.left() == (0, 1)


def test_a_role_that_may_not_name_the_confirmer_still_confirms(
    scene: Scene, repository: ocfl_scene.Scene, copy: CustodialCopy
) -> None:
    repository.build()
    scene.ask(PAYLOAD)
    scene.faults.plan("UpdateItem", "denied")
    assert scene.confirmer(copy.check).tick() == TurnTally(received=1, confirmed=1)
    assert scene.confirmed()["filePaths"] == PATHS
    assert "confirmedBy_CC" not in (scene.row() or {})
