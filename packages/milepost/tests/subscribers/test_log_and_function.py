"""The subscribers that come with the core: a log, and a Python function."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from tests.engine.events.recording_subscribers import Envelope, RecordingSubscriber
from tests.engine.world import World, parcels

from milepost.core.decide import accept
from milepost.core.errors import EventRefused, RouteMistake, UsageError
from milepost.core.events import cloud_event, events_of
from milepost.core.item import digest_of
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.engine.events.deliver import EventRelay
from milepost.ports.documents import CURSOR
from milepost.ports.ledger import Ledger
from milepost.subscribers import CallSubscriber, LogSubscriber
from milepost.subscribers.route_formats import Formed
from milepost_testing.clock import VirtualClock


@pytest.fixture
def world(ledger: Ledger, clock: VirtualClock) -> World:
    return World(ledger, clock, parcels()).registered()


def test_log_and_call(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.add("a", "ü")
    stream, called = io.StringIO(), []

    def hears(envelope: Envelope) -> None:
        called.append(envelope["subject"])

    EventRelay(world.ctx, LogSubscriber(stream), "p1").run_once()
    EventRelay(world.ctx, CallSubscriber(hears), "p1").run_once()
    with caplog.at_level(logging.INFO, "milepost.events"):
        EventRelay(
            world.ctx,
            LogSubscriber(logger=logging.getLogger("milepost.events"), name="logged"),
            "p1",
        ).run_once()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["subject"] for line in lines] == called == ["a", "ü"]
    assert [json.loads(message)["id"] for message in caplog.messages] == [
        "parcels/a/1/accepted",
        "parcels/ü/1/accepted",
    ]
    assert set(world.ledger.read(CURSOR)) == {"log", "hears", "logged"}


def test_names_must_be_names(world: World) -> None:
    with pytest.raises(UsageError, match="give it a permanent one"):
        CallSubscriber(lambda envelope: None)
    with pytest.raises(RouteMistake, match="a subscriber's name is 'a/b'"):
        EventRelay(world.ctx, RecordingSubscriber("a/b"), "p1")


class Answers:
    """Refuses every second event that it is told."""

    name = "answers"
    batch = 4

    def __init__(self) -> None:
        self.told: list[str] = []

    def tell(self, envelopes: Sequence[dict[str, Any]]) -> list[Exception | None]:
        self.told += [envelope["said"] for envelope in envelopes]
        return [
            None if place % 2 == 0 else EventRefused(f"not {envelope['said']}")
            for place, envelope in enumerate(envelopes)
        ]


def test_who_wants_one_form_only_is_told_nothing_else() -> None:
    route = Route(
        "parcels",
        form=lambda envelope: (
            None if envelope["data"]["key"] == "plain" else {"said": envelope["data"]["key"]}
        ),
    )
    route.external("weigh")
    plan = Plan(route)
    lines = {
        key: accept(
            plan, key, {"id": key}, 1, correlation_id=key, digest=digest_of({"id": key})
        ).line
        for key in ("a", "plain", "b")
    }
    envelopes = [
        cloud_event(events_of(line, "parcels", key, key)[0], plan)
        for key, line in lines.items()
        if line is not None
    ]
    answers = Answers()
    assert [repr(answer) for answer in Formed(answers).tell(envelopes) or ()] == [
        "None",
        "None",
        "EventRefused('not b')",
    ]
    assert answers.told == ["a", "b"]
    assert Formed(answers).tell([envelopes[1]]) is None
    assert answers.told == ["a", "b"]
