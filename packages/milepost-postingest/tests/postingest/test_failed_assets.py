"""A failed asset stays until somebody has dealt with it, whatever became of its row."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost.engine.health.doctor import doctor
from milepost.engine.retention import prune
from milepost.subscribers import CallSubscriber
from milepost.subscribers.route_formats import Formed
from milepost_postingest import postingest
from milepost_testing import SeededChance, VirtualClock
from milepost_testing.drive import run_until_rest

QUEUES = [{"queueAlias": "CC", "queueOrder": 1, "worker": "ocfl"}]


class Repository:
    """Holds every object; the objects of `damaged` are damaged."""

    def __init__(self) -> None:
        self.damaged = {"p-1"}

    def __call__(self, item: mp.Item) -> mp.Outcome:
        return self.check(item.payload)

    def check(self, payload: Any, absent: Any = None) -> mp.Outcome:
        if payload["preservationSystemId"] in self.damaged:
            return mp.Reject(
                "the object is damaged; have it repaired, then retry the item", category="DAMAGED"
            )
        return mp.Done({"filePaths": [f"{payload['preservationSystemId']}/v1/content/letter.txt"]})


class Scene:
    """One asset, a-1, in two batches: b-1, whose object is damaged, and b-2."""

    def __init__(self, url: str) -> None:
        self.clock = VirtualClock()
        self.repository = Repository()
        self.messages: list[str] = []
        self.desk = Formed(
            CallSubscriber(lambda message: self.messages.append(str(dict(message))), name="desk")
        )
        route = postingest(QUEUES, workers={"CC": self.repository}, wait_for_batches=True)
        self.post = mp.open(
            url, routes=[route], clock=self.clock, chance=SeededChance(1), subscribers=[self.desk]
        )
        for number in (1, 2):
            self.submit(number)

    def submit(self, number: int, **options: Any) -> None:
        content = {
            "assetId": "a-1",
            "batchId": f"b-{number}",
            "input": {"preservationSystemId": f"p-{number}"},
        }
        self.post.submit("postingest", content, **options)

    def run(self, hours: int = 0) -> None:
        for _ in range(hours + 1):
            run_until_rest(self.post.context, self.clock, [self.desk], self.clock.now() + 60_000)
            self.clock.advance("1h")

    def status(self, batch: str) -> str:
        return str(self.post.show("postingest", f"a-1#{batch}")["status"])

    @property
    def failed(self) -> list[str]:
        return [item["key"] for item in self.post.items("postingest", statuses=["failed"])]

    @property
    def complete(self) -> int:
        return sum("ingest.complete" in message for message in self.messages)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(f"sqlite:///{tmp_path}/m.db")
    with scene.post:
        yield scene


def test_a_rejected_asset_stays_and_can_be_retried(scene: Scene) -> None:
    scene.run(hours=26)
    assert scene.failed == ["a-1#b-1"]
    scene.repository.damaged.clear()
    assert (
        scene.post.act("retry", "postingest", keys=["a-1#b-1"], by="ops", reason="repaired").done
        == 1
    )
    scene.run(hours=2)
    assert (scene.status("b-1"), scene.status("b-2"), scene.complete) == (
        "COMPLETED",
        "COMPLETED",
        2,
    )


def test_a_rejected_batch_holds_the_others_of_its_asset_up(scene: Scene) -> None:
    scene.run(hours=26)
    assert (scene.status("b-2"), scene.complete) == ("WAITING", 0)


def leave_as_before(scene: Scene) -> None:
    """Let the rows of failed assets leave, as an earlier version did."""
    [plan] = [plan for plan in scene.post.context.plans.values() if plan.name == "postingest"]
    plan.route.keep = dict.fromkeys((mp.Status.COMPLETED, mp.Status.REJECTED), 0)
    scene.run(hours=3)
    plan.route.keep = {mp.Status.COMPLETED: 0}
    assert scene.post.show("postingest", "a-1#b-1")["sealed"]


def test_a_rejected_batch_counts_whatever_became_of_its_row(scene: Scene) -> None:
    leave_as_before(scene)
    scene.run(hours=3)
    shown = scene.post.show("postingest", "a-1#b-2")
    assert (shown["status"], scene.complete) == ("WAITING", 0)
    assert (
        shown["note"]
        == "all its stages are confirmed; other batches of the asset are not completed: b-1"
    )


def test_doctor_counts_failed_assets_that_have_left_and_were_not_pruned(scene: Scene) -> None:
    leave_as_before(scene)
    findings = [
        (found.what, found.next)
        for found in doctor(scene.post.context).findings
        if found.about == "failed"
    ]
    assert findings == [
        (
            "1 failed item of postingest left the ledger before anybody dealt with it; only the seals are left",
            "milepost list postingest --status failed",
        )
    ]
    prune(
        scene.post.context,
        "postingest",
        0,
        by="ops",
        reason="settled by hand",
        statuses=frozenset({mp.Status.REJECTED}),
    )
    assert [found for found in doctor(scene.post.context).findings if found.about == "failed"] == []


def test_retry_of_a_failed_asset_that_has_left_names_the_command_that_starts_it_again(
    scene: Scene,
) -> None:
    leave_as_before(scene)
    report = scene.post.act(
        "retry", "postingest", keys=["a-1#b-1"], by="ops", reason="repaired", dry_run=True
    )
    [(key, why)] = report.refused
    assert key == "a-1#b-1"
    command = why.partition("submit it again: ")[2]
    words = shlex.split(command)
    assert words[:4] == ["milepost", "submit", "postingest", "--item"]
    assert json.loads(words[4]) == {
        "assetId": "a-1",
        "batchId": "b-1",
        "input": {"preservationSystemId": "p-1"},
    }
    assert words[5:] == ["--failed-again", "--by", "YOU", "--reason", "…"]
    scene.repository.damaged.clear()
    scene.post.submit("postingest", json.loads(words[4]), by="ops", failed_again="repaired")
    scene.run(hours=3)
    assert (scene.status("b-1"), scene.status("b-2"), scene.complete) == (
        "COMPLETED",
        "COMPLETED",
        2,
    )
