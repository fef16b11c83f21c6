"""Assets on the AWS ledger with stand-alone confirmers: from the step function's row to disk, tape
and the last notification."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from tests import standins
from tests.postingest.confirmer.confirmer_scene import ASSET, BATCH
from tests.postingest.ocfl import ocfl_scene
from tests.postingest.ocfl.ocfl_scene import hashed
from tests.postingest.tape_scene import Hands, scene_of

import milepost as mp
from milepost.station import Station
from milepost.subscribers import CallSubscriber
from milepost.subscribers.route_formats import Formed
from milepost_aws.ledger.offers import LARGEST_PAYLOAD
from milepost_postingest import postingest
from milepost_postingest.confirmer.rules import ConfirmerSettings
from milepost_postingest.confirmer.service import Confirmer, TurnTally
from milepost_postingest.custodial_copy import CustodialCopy
from milepost_postingest.standins.scoutam import StandIn

OBJECT = ocfl_scene.ASSET
KEY = {"assetId": {"S": ASSET}, "batchId": {"S": BATCH}}
GIVEN_UP_S = 60.0
TOLD = [
    ("update", "Asset has been ingested to the Preservation System."),
    ("update", "Asset has been written to custodial copy disk."),
]


class Post:
    """Our ledger with its station, and somebody who hears the notifications."""

    def __init__(self, url: str, blobs: Path, dialect: str) -> None:
        self.heard: list[dict[str, Any]] = []
        address = f"dynamodb://{standins.REGION}/through?endpoint={url}&blobs={blobs}"
        self.milepost = mp.open(address, routes=[postingest(dialect=dialect)])
        self.context = self.milepost.context
        self.store = self.context.ledger.store  # type: ignore[attr-defined]
        self.table = self.store.names.rows("postingest")
        self.sqs, self.dynamodb = (
            boto3.client(name, endpoint_url=url) for name in ("sqs", "dynamodb")
        )

    def close(self) -> None:
        self.milepost.close()
        self.sqs.close()
        self.dynamodb.close()

    def put(self) -> None:
        """The step function's PutItem."""
        row = {**KEY, "input": {"S": json.dumps({"preservationSystemId": OBJECT})}}
        self.dynamodb.put_item(TableName=self.table, Item=row)

    def run(self, until_heard: int) -> None:
        """The station at work, until so many notifications have been told."""

        def hear(told: dict[str, Any]) -> None:
            self.heard.append(told)
            if len(self.heard) >= until_heard:
                station.stop()

        station = Station(self.context, subscribers=[Formed(CallSubscriber(hear, name="desk"))])
        give_up = threading.Timer(GIVEN_UP_S, station.stop)
        give_up.start()
        try:
            station.run()
        finally:
            give_up.cancel()

    def queue(self, stage: str) -> str:
        url: str = self.store.queues.url("postingest", stage)
        return url

    def confirmer(self, check: Any, attribute: str, blobs: str) -> Confirmer:
        prefix, stage = attribute.split("_")
        dialect = {"result": "today", "ingested": "seed"}[prefix]
        settings = ConfirmerSettings(
            self.queue(stage), self.table, attribute, dialect, "ocfl", blobs=blobs
        )
        return Confirmer(check, settings, sqs=self.sqs, dynamodb=self.dynamodb)

    def said(self) -> list[tuple[str, str]]:
        bodies = [one.get("body", one) for one in self.heard]
        return [
            (one["properties"]["messageType"].rpartition(".")[2], one["parameters"]["status"])
            for one in bodies
        ]


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty, and found by boto3 wherever it looks."""
    for name, value in standins.environment(standins.new_account()).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)


@pytest.fixture
def repository(tmp_path: Path) -> ocfl_scene.Scene:
    return ocfl_scene.Scene(tmp_path)


@pytest.fixture
def library() -> Iterator[StandIn]:
    """A tape library where every file is on tape."""
    with StandIn(everything=True, password="hunter2", clock=Hands()) as standin:
        yield standin


def started(
    folder: Path, endpoint: str, attribute: str, post: Post, **more: str
) -> subprocess.Popen[str]:
    (folder / "milepost.toml").write_text('applications = ["postingest"]\n')
    environment = {
        **os.environ,
        "AWS_ENDPOINT_URL": endpoint,
        "SQS_QUEUE_URL": post.queue(attribute.partition("_")[2]),
        "DYNAMO_TABLE_NAME": post.table,
        "DYNAMO_ATTRIBUTE_NAME": attribute,
        **more,
    }
    command = [sys.executable, "-m", "milepost", "postingest", "confirmer", "--every", "100ms"]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Asked to end, which it does by itself; what it logged."""
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=GIVEN_UP_S)
    assert (process.returncode, err) == (0, "")
    assert "hunter2" not in out
    return [json.loads(line) for line in out.splitlines()]


def test_35_two_confirmers_in_processes_of_their_own_and_three_notifications(
    ministack: standins.Server, tmp_path: Path, repository: ocfl_scene.Scene, library: StandIn
) -> None:
    repository.build()
    post = Post(ministack.url, tmp_path / "blobs", "today")
    tapes = {
        "SCOUTAM_URL": library.url,
        "SCOUTAM_USERNAME": library.user,
        "SCOUTAM_PASSWORD": library.password,
        "MOUNT_ROOT": library.root,
    }
    confirmers = [
        started(tmp_path, ministack.url, "result_CC", post, OCFL_REPO_DIR=str(repository.root)),
        started(tmp_path, ministack.url, "result_TC", post, **tapes),
    ]
    try:
        post.put()
        post.run(until_heard=3)
    finally:
        logs = [ended(process) for process in confirmers]
    assert post.said() == [*TOLD, ("complete", "Asset has been written to tape")]
    item = post.milepost.show("postingest", f"{ASSET}#{BATCH}")
    assert item is not None
    assert item["status"] == "COMPLETED"
    for lines in logs:
        assert [line["row"] for line in lines if line["message"] == "confirmed"] == [
            {"assetId": ASSET, "batchId": BATCH}
        ]
        assert any(line["message"] == "turn" and line["confirmed"] == 1 for line in lines)
        assert {line["level"] for line in lines} == {"INFO"}
    post.close()


@pytest.mark.parametrize(
    ("dialect", "disk", "tape"),
    [("seed", "ingested_CC", "ingested_Scout"), ("today", "result_CC", "result_TC")],
)
def test_32_an_asset_whose_paths_fit_into_no_message_passes_both(
    ministack: standins.Server,
    tmp_path: Path,
    repository: ocfl_scene.Scene,
    dialect: str,
    disk: str,
    tape: str,
) -> None:
    folder = "/".join(["é" * 100] * 5)
    names = [f"{folder}/{number}" for number in range(200)]
    repository.build({name: name for name in names})
    blobs = str(tmp_path / "blobs")
    post = Post(ministack.url, tmp_path / "blobs", dialect)
    post.put()
    post.run(until_heard=1)
    assert post.confirmer(
        CustodialCopy(repository.root).check, disk, blobs=blobs
    ).tick() == TurnTally(received=1, confirmed=1)
    post.run(until_heard=2)
    with scene_of(everything=True) as tapes:
        assert post.confirmer(tapes.tape.check, tape, blobs=blobs).tick() == TurnTally(
            received=1, confirmed=1
        )
        asked = {path.removeprefix(f"{tapes.standin.root}/") for path in tapes.standin.asked}
    assert {f"{hashed(OBJECT)}/v1/content/{name}" for name in names} <= asked
    assert len(json.dumps(sorted(asked), ensure_ascii=False).encode()) > LARGEST_PAYLOAD
    post.run(until_heard=3)
    assert post.said()[:2] == TOLD
    assert post.said()[2][0] == "complete"
    post.close()
