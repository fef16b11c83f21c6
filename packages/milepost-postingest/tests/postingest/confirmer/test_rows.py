"""Payloads and confirmations that are too large for a message or a row, and where they are
found."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.postingest.confirmer.confirmer_scene import ASSET, BATCH, Scene

import milepost as mp
from milepost.blobs.folder import FolderBlobs
from milepost.blobs.memory import MemoryBlobs
from milepost_aws.ledger.tables.conditional_write import places_of
from milepost_aws.ledger.tables.keys import Layout
from milepost_aws.ledger.tables.values import Values
from milepost_postingest.confirmer.rows import LARGE
from milepost_postingest.confirmer.service import TurnTally

AT = {"attribute": "payload_TC", "size": 300_000}
FILES = {"filePaths": ["é/a", "b"]}
TEXT = json.dumps(FILES, ensure_ascii=False)


class Seen:
    """A check that writes down what it was given."""

    def __init__(self, outcome: mp.Outcome | None = None) -> None:
        self.payloads: list[Any] = []
        self._outcome = outcome or mp.Done({"on": "tape"})

    def __call__(self, payload: Any) -> mp.Outcome:
        self.payloads.append(payload)
        return self._outcome


def ask(scene: Scene, **attributes: dict[str, Any]) -> None:
    scene.put(**attributes)
    scene.send(
        {
            "assetId": ASSET,
            "batchId": BATCH,
            "resultAttrName": "result_TC",
            "payload": None,
            "payloadAt": AT,
        }
    )


@pytest.mark.parametrize(
    "attributes",
    [
        {"payload_TC": {"S": TEXT}},
        {"payload_TC": {"M": {"of": {"S": "CC"}}}, "result_CC": {"S": TEXT}},
        {
            "payload_TC": {"M": {"of": {"S": "CC"}}},
            "result_CC": {"M": {"filePaths": {"L": [{"S": "é/a"}, {"S": "b"}]}}},
        },
        {"queue": {"S": "TC"}, "input": {"S": TEXT}},
    ],
    ids=["on the row", "as another stage's answer", "as typed values", "as the input"],
)
def test_a_payload_that_is_not_in_the_message_is_read_from_the_row(
    scene: Scene, attributes: dict[str, Any]
) -> None:
    ask(scene, **attributes)
    check = Seen()
    assert scene.confirmer(check, "result_TC").tick() == TurnTally(received=1, confirmed=1)
    assert check.payloads == [FILES]
    assert scene.confirmed("result_TC") == {"on": "tape"}


def test_as_in_the_design_document_too(scene: Scene) -> None:
    scene.put(payload_Scout={"M": {"of": {"S": "CC"}}}, ingested_CC={"S": TEXT})
    scene.send(
        {"payloadAt": {"attribute": "payload_Scout", "size": 300_000}},
        key=json.dumps({"assetId": ASSET, "batchId": BATCH}),
    )
    check = Seen()
    assert scene.confirmer(check, "ingested_Scout").tick() == TurnTally(received=1, confirmed=1)
    assert check.payloads == [FILES]
    assert scene.confirmed("ingested_Scout") == {"on": "tape"}


@pytest.mark.parametrize(
    "attributes",
    [{}, {"queue": {"S": "CC"}}, {"payload_TC": {"M": {"of": {"S": "CC"}}}}],
    ids=["before the write", "at the stage before", "without the answer"],
)
def test_a_message_that_comes_before_its_row_is_written_waits(
    scene: Scene, attributes: dict[str, Any]
) -> None:
    """Milepost sends first and writes then: what the row has before that must not be taken for the
    payload."""
    ask(scene, **attributes)
    check = Seen()
    assert scene.confirmer(check, "result_TC").tick() == TurnTally(
        received=1, not_yet=1, notes={"its row has no 'payload_TC' yet": 1}
    )
    assert check.payloads == []
    assert scene.left() == (0, 1)


def test_a_payload_that_milepost_keeps_apart_is_read_from_there(
    scene: Scene, tmp_path: Path
) -> None:
    kept = Values(FolderBlobs(tmp_path)).encode({**FILES, "more": "x" * 5000}, "postingest/one")
    assert "blob" in kept["M"]
    ask(scene, payload_TC=kept)
    check = Seen()
    assert scene.confirmer(check, "result_TC", blobs=str(tmp_path)).tick() == TurnTally(
        received=1, confirmed=1
    )
    assert check.payloads == [{**FILES, "more": "x" * 5000}]


@pytest.mark.parametrize(
    ("spoiled", "told"),
    [(True, "its digest is not the one on its row"), (False, "set MILEPOST_BLOBS to")],
    ids=["spoiled", "nowhere to look"],
)
def test_a_payload_that_cannot_be_trusted_or_found_is_not_checked(
    scene: Scene, tmp_path: Path, spoiled: bool, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Values(FolderBlobs(tmp_path)).encode("x" * 5000, "postingest/one")
    (tmp_path / kept["M"]["blob"]["S"]).write_bytes(b'"y"')
    ask(scene, payload_TC=kept)
    check = Seen()
    assert scene.confirmer(
        check, "result_TC", blobs=str(tmp_path) if spoiled else None
    ).tick() == TurnTally(received=1, failed=1)
    assert check.payloads == []
    assert scene.left() == (0, 1)
    assert told in caplog.text


def test_a_large_confirmation_is_kept_where_milepost_reads_it(scene: Scene, tmp_path: Path) -> None:
    paths = {"filePaths": [f"{number}/é" + "x" * 250 for number in range(2_000)]}
    scene.ask_as_in_seed("x")
    assert (
        scene.confirmer(
            Seen(mp.Done({"a": "small"}, payload=paths)), "ingested_CC", blobs=str(tmp_path)
        )
        .tick()
        .confirmed
        == 1
    )
    row = scene.row()
    assert row is not None
    assert row["ingested_CC"] == {"S": '{"a":"small"}'}
    assert set(row["input"]["M"]) == {"blob", "sha256", "size"}
    assert Values(FolderBlobs(tmp_path)).decode(row["input"]) == paths


def test_two_rows_never_share_what_is_kept_for_them(scene: Scene, tmp_path: Path) -> None:
    scene.ask("x")
    scene.ask("x", "another")
    large = mp.Done("x" * (LARGE + 1))
    assert scene.confirmer(Seen(large), blobs=str(tmp_path)).tick().confirmed == 2
    rows = [scene.row(), scene.row("another")]
    assert len({row["result_CC"]["M"]["blob"]["S"] for row in rows if row is not None}) == 2
    assert len({row["result_CC"]["M"]["sha256"]["S"] for row in rows if row is not None}) == 1


def test_what_is_kept_for_a_row_leaves_with_it(scene: Scene, tmp_path: Path) -> None:
    scene.ask("x")
    assert (
        scene.confirmer(Seen(mp.Done("x" * (LARGE + 1))), blobs=str(tmp_path)).tick().confirmed == 1
    )
    row, values = scene.row(), Values(FolderBlobs(tmp_path))
    assert row is not None
    layout = Layout("postingest", scene.table, ("assetId", "batchId"), "result_")
    values.remove(row, *places_of(layout, f"{ASSET}#another"))
    assert values.decode(row["result_CC"]) == "x" * (LARGE + 1)
    values.remove(row, *places_of(layout, f"{ASSET}#{BATCH}"))
    with pytest.raises(FileNotFoundError):
        values.decode(row["result_CC"])


def test_a_confirmation_that_no_row_holds_says_what_to_do(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.ask("x")
    assert scene.confirmer(Seen(mp.Done("x" * 400_001))).tick() == TurnTally(received=1, failed=1)
    assert "a row holds 400,000; if Milepost reads" in caplog.text
    assert scene.left() == (0, 1)
    assert scene.made("UpdateItem") == []


def test_a_reference_is_as_milepost_writes_it_itself(scene: Scene, tmp_path: Path) -> None:
    scene.ask("x")
    value = "x" * (LARGE + 1)
    scene.confirmer(Seen(mp.Done(value)), blobs=str(tmp_path)).tick()
    row = scene.row()
    assert row is not None
    ours = Values(MemoryBlobs()).encode(value, "place")
    theirs = row["result_CC"]
    assert {**theirs["M"], "blob": None} == {**ours["M"], "blob": None}
    assert theirs["M"]["sha256"]["S"] == hashlib.sha256(json.dumps(value).encode()).hexdigest()
