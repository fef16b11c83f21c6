"""Messages that a queue loses: noticed by comparing the queue with its rows, and called again
without an operator."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.aws.ledger.repair.repair_scene import Scene, scene_at

from milepost.core import operators
from milepost.core.change import Change
from milepost.core.due import look
from milepost.core.errors import LedgerReadOnly
from milepost.core.item import Item
from milepost.core.outcome import Done, NotYet, Outcome
from milepost.core.routes.backoff import Checks
from milepost.core.routes.route import Route
from milepost.core.status import Status
from milepost.engine.context import Context
from milepost.engine.health.doctor import doctor
from milepost.engine.resend import Resender, ResendSummary
from milepost.ports.documents import BACK_FILL
from milepost_aws.ledger import apply
from milepost_testing.clock import SeededChance

OFFER = 600
"""Seconds for which an offer lives."""


@pytest.fixture
def scene(endpoint: str, prefix: str) -> Iterator[Scene]:
    with scene_at(endpoint, prefix) as made:
        yield made


def context(scene: Scene) -> Context:
    return Context(
        scene.aws, {scene.plan.name: scene.plan}, scene.clock, SeededChance(), scene.blobs
    )


def resend(scene: Scene) -> ResendSummary:
    return Resender(context(scene)).run_once()


def purge(scene: Scene, stage: str = "weigh") -> None:
    scene.process.call("sqs", "purge_queue", QueueUrl=scene.store.queues.url("parcels", stage))


def offer(scene: Scene, n: int) -> list[str]:
    """So many items wait for a worker, each with its message."""
    keys = [f"p{number:04}" for number in range(n)]
    for start in range(0, n, 100):
        scene.add(*keys[start : start + 100])
        scene.follow()
    assert scene.store.queues.depth(scene.store.queues.url("parcels", "weigh"))[0] == n
    return keys


def work_all(scene: Scene, most_rounds: int = 100) -> set[str]:
    done: set[str] = set()
    for _ in range(most_rounds):
        items = scene.claim().items
        if not items:
            break
        for item in items:
            assert scene.settle(item, Done()) is None
            done.add(item.key)
    return done


def test_a_purged_queue_of_300_items_is_worked_within_minutes_without_an_operator(
    scene: Scene,
) -> None:
    keys = offer(scene, 300)
    purge(scene)
    minutes = 0
    while (summary := resend(scene)).offered == 0:
        assert scene.claim().items == []
        scene.clock.advance(60)
        minutes += 1
        assert minutes <= OFFER // 60 + 1
    assert summary.offered == 300
    assert work_all(scene) == set(keys)
    assert resend(scene).offered == 0


def test_a_backlog_whose_messages_exist_is_not_called_again_however_old(scene: Scene) -> None:
    keys = offer(scene, 120)
    sent = scene.process.counts["sqs", "send_message_batch"]
    for span in ("11m", "1h", "1d"):
        scene.clock.advance(span)
        assert resend(scene).offered == 0
        assert scene.aws.missing_messages(scene.plan, scene.now) == {}
    assert scene.process.counts["sqs", "send_message_batch"] == sent
    assert work_all(scene) == set(keys)


def test_a_backlog_is_not_gone_through_while_its_messages_exist(scene: Scene) -> None:
    offer(scene, 120)
    scene.clock.advance(OFFER + 1)
    before = scene.process.counts["dynamodb", "batch_get_item"]
    assert resend(scene).looked == 0
    assert scene.process.counts["dynamodb", "batch_get_item"] == before


def test_what_is_due_behind_an_old_backlog_is_found(scene: Scene) -> None:
    scene.add("lost")
    scene.follow()
    scene.take("lost")
    offer(scene, 60)
    scene.clock.advance("1h")
    assert resend(scene).lost == 1


def test_a_message_whose_receiver_died_is_not_sent_again_but_comes_again(scene: Scene) -> None:
    scene.add("p1")
    scene.follow()
    url = scene.store.queues.url("parcels", "weigh")
    assert len(scene.store.queues.receive(url, 10, 1)) == 1
    scene.clock.advance(OFFER + 1)
    assert resend(scene).offered == 0
    while not (items := scene.claim().items):
        time.sleep(0.05)
    assert [item.key for item in items] == ["p1"]


def test_one_lost_message_is_noticed_beside_items_in_hand_and_to_be_looked_at(scene: Scene) -> None:
    """The lost one's message is deleted by hand; the others' are in flight, or held back until the
    next look."""
    scene.add("lost")
    scene.follow()
    (message,) = scene.store.queues.receive(scene.store.queues.url("parcels", "weigh"), 10, 600)
    scene.store.queues.delete([message])
    scene.clock.advance(OFFER - 30)
    keys = [f"p{n}" for n in range(8)]
    scene.add(*keys)
    scene.follow()
    items: list[Item] = []
    while len(items) < len(keys):
        items += scene.claim(lease=900_000).items
    scene.clock.advance(31)
    assert scene.aws.missing_messages(scene.plan, scene.now) == {"weigh": 1}
    assert resend(scene).offered == 1
    scene.take("lost")
    assert scene.aws.missing_messages(scene.plan, scene.now) == {}


def test_a_call_that_came_before_its_write_does_not_get_lost(scene: Scene) -> None:
    """An operator sends an item again that waits for a look hours ahead: the worker that is called
    before the write puts it off."""
    scene.add("p1")
    scene.follow()
    assert scene.settle(scene.take("p1"), NotYet(after="6h")) is None
    scene.follow()
    change = operators.resend(scene.item("p1"), scene.plan, scene.now, by="ops", why="now")
    assert isinstance(change, Change)
    write = apply._write
    with pytest.MonkeyPatch.context() as patch:

        def called_first(*args: object) -> object:
            assert scene.claim().items == []
            return write(*args)  # type: ignore[arg-type]

        patch.setattr(apply, "_write", called_first)
        assert scene.apply(change) is None
    assert scene.take("p1").row.status is Status.PROCESSING


def test_an_overdue_mark_of_an_item_that_waits_in_its_queue_is_told(
    endpoint: str, prefix: str
) -> None:
    def handler(item: Item) -> Outcome:
        return Done()

    route = Route("parcels")
    route.stage("weigh", checks=Checks(every="1h", up_to="6h", overdue="1d"))(handler)
    with scene_at(endpoint, prefix, route) as scene:
        keys = offer(scene, 30)
        scene.clock.advance("2h")
        assert (resend(scene).overdue, resend(scene).offered) == (0, 0)
        scene.clock.advance("1d")
        assert resend(scene).overdue == 30
        scene.follow()
        assert resend(scene).overdue == 0
        # The messages are still there, and then they are lost.
        assert scene.aws.missing_messages(scene.plan, scene.now) == {}
        purge(scene)
        scene.clock.advance(61)
        assert resend(scene).offered == 30
        assert work_all(scene) == set(keys)


def test_items_with_an_overdue_mark_are_called_again_too(endpoint: str, prefix: str) -> None:
    route = Route("parcels")
    route.stage("weigh", checks=Checks(every="1h", up_to="6h", overdue="1d"))(lambda item: Done())
    with scene_at(endpoint, prefix, route) as scene:
        keys = offer(scene, 30)
        purge(scene)
        scene.clock.advance(OFFER + 1)
        assert resend(scene).offered == 30
        assert work_all(scene) == set(keys)


def test_the_doctor_tells_of_lost_messages(scene: Scene) -> None:
    offer(scene, 3)
    scene.clock.advance(OFFER + 1)
    assert [
        finding for finding in doctor(context(scene)).findings if finding.about == "message"
    ] == []
    purge(scene)
    (finding,) = [
        finding for finding in doctor(context(scene)).findings if finding.about == "message"
    ]
    assert finding.level == "warn"
    assert "3 items queued at parcels/weigh without a message in its queue" in finding.what
    assert "milepost resend parcels --stage weigh --status QUEUED" in finding.next


def test_a_paused_lane_is_not_called_and_hides_no_other(scene: Scene) -> None:
    scene.add(*[f"a{n}" for n in range(10)], lane="air")
    scene.follow()
    scene.clock.advance(1)
    scene.add("s1", lane="sea")
    scene.follow()
    scene.hold("parcels/weigh/air")
    purge(scene)
    scene.clock.advance(OFFER + 1)
    assert resend(scene).offered == 1
    assert scene.settle(scene.take("s1"), Done()) is None
    scene.release("parcels/weigh/air")
    scene.clock.advance(61)
    assert resend(scene).offered == 10


def test_the_resenders_look_says_nothing_of_what_waits_in_its_queue(scene: Scene) -> None:
    """The rule that decides about one row is the same on every ledger: what is named as lost is
    offered."""
    offer(scene, 1)
    scene.clock.advance(OFFER + 1)
    change = look(scene.item("p0000"), scene.plan, scene.now, 0.0, None)
    assert change is not None
    assert change.after.status is Status.QUEUED


def test_a_queue_that_cannot_be_asked_keeps_no_other_route_waiting(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    offer(scene, 1)
    purge(scene)
    scene.clock.advance(f"{OFFER + 1}s")
    depth, asked = scene.store.queues.depth, list[str]()

    def denied(url: str) -> tuple[int, int, int]:
        asked.append(url)
        raise LedgerReadOnly("not allowed")

    monkeypatch.setattr(scene.store.queues, "depth", denied)
    ctx = context(scene)
    later = list[str]()
    monkeypatch.setattr(type(scene.aws), "read", lambda self, kind, *more: later.append(kind) or {})
    summary = Resender(ctx).run_once()
    assert (summary.looked, len(asked)) == (0, 1)
    assert BACK_FILL in later, "the turn goes on to its end"
    assert "cannot check whether messages of parcels/weigh are lost: not allowed" in caplog.text
    monkeypatch.undo()
    assert scene.store.queues.depth == depth
    scene.clock.advance("61s")
    assert resend(scene).looked == 1
