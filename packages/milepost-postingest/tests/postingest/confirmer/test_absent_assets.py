"""Messages of absent assets: hidden for longer each time, and no delay for assets that are
ready."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest
from tests.postingest.confirmer.confirmer_scene import Scene, Turns
from tests.postingest.tape_scene import Hands

import milepost as mp
from milepost_postingest.confirmer.rules import wait_s
from milepost_postingest.confirmer.service import TurnTally

HOUR = 3600


def not_yet(payload: Any) -> mp.Outcome:
    return mp.NotYet()


@pytest.mark.parametrize(
    ("received", "hidden"),
    [
        (0, 600),
        (1, 600),
        (2, 1200),
        (3, 2400),
        (6, 19_200),
        (7, 38_400),
        (8, 43_140),
        (100_000, 43_140),
    ],
)
def test_each_time_twice_as_long_and_never_longer_than_sqs_allows(
    received: int, hidden: int
) -> None:
    assert wait_s(received, None, 0.0) == hidden


@pytest.mark.parametrize(
    ("after", "held", "hidden"),
    [
        ("2h", 0, 7200),
        (90, 0, 90),
        (1.5, 0, 1),
        (0, 0, 0),
        ("3d", 0, 43_140),
        ("3d", 1000, 42_140),
        ("3d", 13 * HOUR, 0),
        ("2h", 60, 7200),
    ],
)
def test_the_checks_own_word_wins_within_what_sqs_allows(
    after: Any, held: float, hidden: int
) -> None:
    assert wait_s(5, after, held) == hidden


def test_a_message_is_hidden_by_how_often_it_was_received(scene: Scene) -> None:
    scene.ask("x")
    confirmer = scene.confirmer(not_yet)
    for _ in range(3):
        assert confirmer.tick() == TurnTally(received=1, not_yet=1)
        handle = scene.made("ChangeMessageVisibility")[-1]["ReceiptHandle"]
        scene.sqs.change_message_visibility(
            QueueUrl=scene.queue, ReceiptHandle=handle, VisibilityTimeout=0
        )
    assert scene.hidden_for() == [600, 1200, 2400]
    assert scene.made("UpdateItem") == []


@pytest.mark.parametrize(
    ("outcome", "became"),
    [(mp.NotYet(after="2h"), {"not_yet": 1}), (mp.Retry("wrong root", after="2h"), {"failed": 1})],
    ids=["not yet", "failed"],
)
def test_what_says_when_to_look_again_is_looked_at_then(
    scene: Scene, outcome: mp.Outcome, became: dict[str, int]
) -> None:
    scene.ask("x")
    assert scene.confirmer(lambda payload: outcome).tick() == TurnTally(received=1, **became)
    assert scene.hidden_for() == [7200]


def test_a_failure_comes_again_when_the_queue_says_so(scene: Scene) -> None:
    scene.ask("x")
    assert scene.confirmer(lambda payload: mp.Retry("no answer")).tick() == TurnTally(
        received=1, failed=1
    )
    assert scene.hidden_for() == []
    assert scene.left() == (0, 1)


def test_a_slow_check_leaves_less_of_the_twelve_hours(scene: Scene) -> None:
    hands = Hands()

    def check(payload: Any) -> mp.Outcome:
        hands.pause(1000)
        return mp.NotYet(after="12h")

    scene.ask("x")
    scene.confirmer(check, clock=hands).tick()
    assert scene.hidden_for() == [43_200 - 60 - 1000]


def test_what_is_ready_is_not_behind_those_that_wait(scene: Scene) -> None:
    """35 wait in front of it, and a turn takes 10: turns follow at once until all have been seen,
    and each is looked at once."""
    looked: Counter[str] = Counter()

    def check(payload: str) -> mp.Outcome:
        looked[payload] += 1
        return mp.Done({"there": True}) if payload == "ready" else mp.NotYet()

    for number in range(35):
        scene.send({"assetId": f"asset-{number}", "batchId": "b", "payload": f"waits-{number}"})
    scene.ask("ready")
    turns = Turns()
    scene.confirmer(check, max_messages=10, width=1).run(60, turns)
    assert turns.pauses == [60]
    assert len(looked) == 36
    assert set(looked.values()) == {1}
    assert scene.confirmed() == {"there": True}
    assert scene.left() == (0, 35)


@pytest.mark.parametrize("trouble", ["check", "hiding"])
def test_turns_do_not_hurry_while_something_fails(
    scene: Scene, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(4):
        scene.send({"assetId": f"asset-{number}", "batchId": "b", "payload": number})
    if trouble == "hiding":
        scene.faults.plan("ChangeMessageVisibility", "500", times=9)
    check = not_yet if trouble == "hiding" else lambda payload: mp.Retry("down")
    turns = Turns()
    scene.confirmer(check, max_messages=2).run(60, turns)
    assert turns.pauses == [60]
    assert scene.left() == (2, 2)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [
        text.startswith("2 messages could not be hidden for longer (is sqs:Change") for text in told
    ] == [True] * (trouble == "hiding")


def test_the_loop_survives_a_turn_that_fails_as_a_whole(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.ask("x")
    confirmer = scene.confirmer(lambda payload: mp.Done(), width=0)
    turns = Turns(2)
    confirmer.run(5, turns)
    assert turns.pauses == [5, 5]
    assert "the turn failed; the next one starts in 5 s" in caplog.text
    confirmer.width = 1
    assert confirmer.tick().confirmed == 1
    assert scene.confirmed() is True


def test_every_turn_says_what_became_of_its_messages(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "milepost")
    scene.confirmer(not_yet).tick()
    [turn] = [vars(record) for record in caplog.records]
    assert turn["msg"] == "turn"
    assert {name: turn[name] for name in ("attribute", "received", "confirmed", "not_yet", "refused", "failed", "unreadable")} == {
        "attribute": "result_CC", "received": 0, "confirmed": 0, "not_yet": 0, "refused": 0, "failed": 0, "unreadable": 0,
    }  # fmt: skip
