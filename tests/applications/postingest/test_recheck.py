"""Completed assets are checked again on a schedule, and people hear of it when something is gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost.applications.postingest import postingest
from milepost.composition import open_context
from milepost.core.status import Status
from milepost.engine.events.follow_ups import follow_up_routes, follow_ups
from milepost.testing.clock import SeededChance, VirtualClock
from milepost.testing.drive import run_until_rest

QUEUES = [{"queueAlias": "CC", "queueOrder": 1, "worker": "ocfl"}, {"queueAlias": "Scout", "queueOrder": 2, "worker": "scoutam"}]
KEY = "a%231#b"


class Shelf:
    """Stands where a worker looks: holds what it is said to hold."""

    def __init__(self, output: Any) -> None:
        self.output = output
        self.there = True
        self.away = False
        self.payloads: list[Any] = []

    def __call__(self, item: mp.Item) -> mp.Outcome:
        return self.check(item.payload)

    def check(self, payload: Any, absent: Any = lambda note: mp.NotYet(note=note)) -> mp.Outcome:
        self.payloads.append(payload)
        if self.away:
            return mp.NotYet(note="it does not answer")
        return mp.Done(self.output) if self.there else absent("not in the repository yet")


class Scene:
    def __init__(self, url: str) -> None:
        self.clock = VirtualClock()
        self.disk, self.tape = Shelf({"filePaths": ["p/1"]}), Shelf({"p/1": ["V1"]})
        self.route = postingest(QUEUES, workers={"CC": self.disk, "Scout": self.tape}, recheck="1y")
        routes = [self.route, *follow_up_routes([self.route])]
        self.ctx = open_context(url, routes, clock=self.clock, chance=SeededChance(1))
        self.told: list[dict[str, Any]] = []

    def run(self) -> None:
        """Do all that is due within the hour, and no more."""
        run_until_rest(self.ctx, self.clock, follow_ups(self.ctx, self.ctx.plans), self.clock.now() + 3_600_000, 1)

    def item(self, route: str = "postingest-recheck") -> mp.Item:
        [item] = self.ctx.ledger.get([(route, KEY)])
        assert isinstance(item, mp.Item)
        return item


@pytest.fixture(params=["memory", "sqlite"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    from milepost.engine.intake import submit

    scene = Scene("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/m.db")
    submit(scene.ctx, "postingest", [{"assetId": "a#1", "batchId": "b", "input": {"preservationSystemId": "p"}}])
    scene.run()
    assert scene.item("postingest").status is Status.COMPLETED
    yield scene
    scene.ctx.ledger.close()


def advance(scene: Scene, span: str) -> None:
    scene.clock.advance(span)
    scene.run()


def test_a_completed_asset_is_checked_again_every_year_and_not_earlier(scene: Scene) -> None:
    item = scene.item()
    assert (item.status, item.key_parts) == (Status.PENDING, ["a#1", "b"])
    assert item.input["payloads"] == {"CC": {"preservationSystemId": "p"}, "Scout": {"filePaths": ["p/1"]}}
    looks = len(scene.disk.payloads)
    advance(scene, "360d")
    assert len(scene.disk.payloads) == looks
    advance(scene, "6d")
    assert (len(scene.disk.payloads), scene.item().status) == (looks + 1, Status.WAITING)
    assert (scene.item().row.note or "").startswith("every file was there on ")
    advance(scene, "366d")
    assert len(scene.disk.payloads) == looks + 2


@pytest.mark.parametrize("shelf", ["disk", "tape"])
def test_what_is_gone_is_rejected_and_goes_on_after_a_retry(scene: Scene, shelf: str) -> None:
    from milepost.engine.acts.bulk import act

    getattr(scene, shelf).there = False
    advance(scene, "366d")
    row = scene.item().row
    assert (row.status, row.error and row.error.category) == (Status.REJECTED, "GONE")
    assert row.error is not None
    assert "not in the repository; restore it, then retry this item" in row.error.message
    getattr(scene, shelf).there = True
    act(scene.ctx, "retry", "postingest-recheck", keys=[KEY], by="ops", reason="restored")
    scene.run()
    assert scene.item().status is Status.WAITING


def test_a_partner_that_does_not_answer_is_no_loss(scene: Scene) -> None:
    scene.tape.away = True
    advance(scene, "366d")
    assert (scene.item().status, scene.item().row.note) == (Status.WAITING, "it does not answer")
    scene.tape.away = False
    advance(scene, "1d")
    assert (scene.item().row.note or "").startswith("every file was there on ")


def test_an_event_that_comes_again_makes_no_second_item(scene: Scene) -> None:
    from milepost.core.events import cloud_event
    from milepost.engine.events.feed import feed_events

    [subscriber] = follow_ups(scene.ctx, scene.ctx.plans)
    envelopes = [cloud_event(entry.event) for entry in feed_events(scene.ctx.ledger.history("postingest", KEY))]
    assert set(subscriber.tell(envelopes)) == {None}
    assert len(scene.ctx.ledger.history("postingest-recheck", KEY)) == 1


def test_a_row_that_has_left_is_refused_with_the_reason(scene: Scene) -> None:
    from msgspec.structs import replace

    from milepost.core.events import Envelope, cloud_event
    from milepost.engine.events.feed import feed_events

    [subscriber] = follow_ups(scene.ctx, scene.ctx.plans)
    written = scene.ctx.ledger.history("postingest", KEY)[-1]
    event = replace(feed_events([written])[0].event, key="gone#b")
    answers: Sequence[Exception | None] = subscriber.tell([Envelope(cloud_event(event), event)])
    assert isinstance(answers[0], mp.EventRefused)


def test_recheck_needs_a_stage_with_a_worker_of_ours() -> None:
    with pytest.raises(mp.ConfigMistake, match="worker 'ocfl' or 'scoutam'"):
        postingest(recheck="1y")
    route = postingest(QUEUES, recheck=timedelta(days=30), environment={})
    assert route.follow_up is not None
    assert route.follow_up.target.name == "postingest-recheck"
