"""The idle check of a station, at every moment of a worker's turn: it never misses an item."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.engine.work.stepped_worker import TIMEOUT, add, context, lasting, row

from milepost.core.item import Item
from milepost.core.outcome import Done, Outcome
from milepost.core.routes.route import Route
from milepost.core.status import Status
from milepost.ledgers.memory import MemoryLedger
from milepost.station import Station
from milepost_testing.clock import VirtualClock
from milepost_testing.seeded_runner import SimRunner

CLAIMS = ("claim", "apply_and_claim")
KEYS = ("a", "b", "c")


class WatchedLedger:
    """A ledger that calls a function after each of its verbs, but not for calls of that function
    itself."""

    def __init__(self, inner: MemoryLedger) -> None:
        self._inner = inner
        self.after: Callable[[str], None] = lambda verb: None
        self._inside = threading.local()

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        if not callable(real):
            return real

        def call(*args: Any, **options: Any) -> Any:
            answer = real(*args, **options)
            if not getattr(self._inside, "calls", False):
                self._inside.calls = True
                try:
                    self.after(name)
                finally:
                    self._inside.calls = False
            return answer

        return call


class IdleScene:
    """A station with two stages and a worker whose turns are called by the test."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.ledger = WatchedLedger(MemoryLedger())
        route = Route("parcels", key="id")

        @route.stage("weigh")
        def weigh(item: Item) -> Outcome:
            return Done()

        @route.stage("stamp")
        def stamp(item: Item) -> Outcome:
            return Done()

        self.ctx = context(self.ledger, self.clock, route)  # type: ignore[arg-type]
        self.runner = SimRunner(self.clock, duration=lasting())
        self.station = Station(self.ctx, runner=self.runner, roles=["worker"])
        assert self.station.worker is not None
        self.worker = self.station.worker

    def all_completed(self) -> bool:
        return {row(self.ctx, "parcels", key).status for key in KEYS} == {Status.COMPLETED}

    def work(self) -> None:
        """Turns and calls until all items have completed."""
        self.runner.enlist([self.worker])
        while not self.all_completed():
            self.clock.advance_to(self.runner.next_at())
            self.runner.step()


@pytest.fixture
def scene() -> IdleScene:
    return IdleScene()


def test_no_moment_of_a_turn_looks_idle_before_all_items_have_completed(scene: IdleScene) -> None:
    verbs: set[str] = set()
    mistakes: list[str] = []

    def look(verb: str) -> None:
        verbs.add(verb)
        if scene.station.idle(0) and not scene.all_completed():
            mistakes.append(verb)

    add(scene.ctx, "parcels", *KEYS)
    scene.ledger.after = look
    scene.work()
    assert mistakes == []
    assert verbs & set(CLAIMS), "the check was made between a claim and its record"
    scene.worker.turn()
    assert scene.station.idle(0)


@pytest.mark.parametrize("ends", ["during the check", "after the check"])
def test_an_item_claimed_before_the_ledger_is_read_and_recorded_after_it_is_not_missed(
    scene: IdleScene, ends: str
) -> None:
    add(scene.ctx, "parcels", "a")
    claimed, go_on = threading.Event(), threading.Event()
    turn = threading.Thread(target=scene.worker.turn)

    def after(verb: str) -> None:
        if verb in CLAIMS and threading.current_thread() is turn:
            claimed.set()
            assert go_on.wait(TIMEOUT)
        elif verb == "next_due" and ends == "during the check":
            go_on.set()
            turn.join(TIMEOUT)

    scene.ledger.after = after
    turn.start()
    assert claimed.wait(TIMEOUT)
    assert scene.worker.in_hand == 0, "the claim is not recorded yet"
    assert not scene.station.idle(0)
    go_on.set()
    turn.join(TIMEOUT)
    assert (scene.worker.in_hand, scene.worker.claimed) == (1, 1)
    assert not scene.worker.is_idle_since(1), "it is in hand"


def test_a_worker_that_has_claimed_and_settled_since_is_not_idle_since(scene: IdleScene) -> None:
    add(scene.ctx, "parcels", *KEYS)
    assert scene.worker.is_idle_since(0)
    scene.work()
    assert scene.worker.in_hand == 0
    assert not scene.worker.is_idle_since(0)
    assert scene.worker.is_idle_since(scene.worker.claimed)


def test_a_worker_that_drains_is_not_drained_during_a_turn_that_has_claimed(
    scene: IdleScene,
) -> None:
    add(scene.ctx, "parcels", "a")
    drained: list[bool] = []

    def after(verb: str) -> None:
        if verb in CLAIMS:
            scene.worker.drain(0)
            drained.append(scene.worker.drained)

    scene.ledger.after = after
    scene.worker.turn()
    assert drained == [False]
    scene.worker.turn()
    assert scene.worker.drained
    assert row(scene.ctx, "parcels", "a").status is Status.QUEUED
