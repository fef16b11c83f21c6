"""The subscribers that come with the core: a log, and a Python function."""

from __future__ import annotations

import io
import json
import logging

import pytest
from ears import Ear, Envelope
from engine_world import World

from milepost.core.errors import RouteMistake, UsageError
from milepost.engine.relay import Relay
from milepost.ports.documents import CURSOR
from milepost.subscribers import CallSubscriber, LogSubscriber


def test_log_and_call(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.add("a", "ü")
    stream, called = io.StringIO(), []

    def hears(envelope: Envelope) -> None:
        called.append(envelope["subject"])

    Relay(world.ctx, LogSubscriber(stream), "p1").run_once()
    Relay(world.ctx, CallSubscriber(hears), "p1").run_once()
    with caplog.at_level(logging.INFO, "milepost.events"):
        Relay(world.ctx, LogSubscriber(logger=logging.getLogger("milepost.events"), name="logged"), "p1").run_once()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["subject"] for line in lines] == called == ["a", "ü"]
    assert [json.loads(message)["id"] for message in caplog.messages] == ["parcels/a/1/accepted", "parcels/ü/1/accepted"]
    assert set(world.ledger.read(CURSOR)) == {"log", "hears", "logged"}


def test_names_must_be_names(world: World) -> None:
    with pytest.raises(UsageError, match="give it one that stays"):
        CallSubscriber(lambda envelope: None)
    with pytest.raises(RouteMistake, match="a subscriber's name is 'a/b'"):
        Relay(world.ctx, Ear("a/b"), "p1")
