"""A worker on a ledger with a virtual clock, and ways to look at what it does: for the tests of the
worker and its station."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

from milepost.blobs.memory import MemoryBlobs
from milepost.core.item import Item, Row
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route, Stage
from milepost.core.status import Reason
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost.engine.routes.versions import register
from milepost.engine.work.worker import Worker
from milepost.ports.ledger import Ledger
from milepost.ports.runner import Clock
from milepost_testing.clock import SeededChance, VirtualClock
from milepost_testing.seeded_runner import SimRunner

TIMEOUT = 30
"""How long a test waits for something that happens in a thread; only a broken one ever does."""


def context(ledger: Ledger, clock: Clock, *routes: Route, seed: int = 1) -> Context:
    timing = ledger.timing
    plans = [
        Plan(route, grace_ms=timing.grace_ms, offer_life_ms=timing.offer_life_ms)
        for route in routes
    ]
    made = {plan.name: register(ledger, plan, clock.now(), "test") for plan in plans}
    return Context(ledger, made, clock, SeededChance(seed), MemoryBlobs())


def add(ctx: Context, route: str, *keys: str, **content: Any) -> None:
    assert {
        receipt.answer for receipt in submit(ctx, route, [{"id": key, **content} for key in keys])
    } <= {"new"}


def row(ctx: Context, route: str, key: str) -> Row:
    item = ctx.ledger.get([(route, key)])[0]
    assert item is not None
    return item.row


def reasons(ctx: Context, route: str, key: str) -> list[Reason]:
    return [written.line.reason for written in ctx.ledger.history(route, key)]


def lasting(**spans: int) -> Callable[[Any, Stage], int]:
    """How long each stage's calls take, in milliseconds; 1 where nothing is said."""
    return lambda dice, stage: spans.get(stage.name, 1)


class SteppedWorker:
    """One worker whose time is virtual. Another Rig on the same ledger is another process."""

    def __init__(
        self,
        ctx: Context,
        clock: VirtualClock,
        holder: str = "host-1",
        *,
        seed: int = 0,
        **spans: int,
    ) -> None:
        self.ctx = ctx
        self.clock = clock
        self.holder = holder
        self.runner = SimRunner(clock, seed, duration=lasting(**spans))
        self.worker = Worker(ctx, self.runner, holder)
        self.most: dict[str, int] = {}
        """The most that each stage had in hand."""
        self.runner.enlist([self.worker])

    def step(self) -> None:
        self.clock.advance_to(self.runner.next_at())
        self.runner.step()
        for slots in self.worker.all_slots:
            self.most[slots.stage.name] = max(
                self.most.get(slots.stage.name, 0), len(slots.in_hand)
            )

    def work(self, ms: int = 1000) -> None:
        """Work for so long."""
        until = self.clock.now() + ms
        while self.runner.next_at() <= until:
            self.step()
        self.clock.advance_to(until)

    def in_hand(self) -> list[Item]:
        return [item for slots in self.worker.all_slots for item in slots.in_hand.values()]


def together(clock: VirtualClock, *rigs: SteppedWorker, ms: int) -> None:
    """Several processes work at the same time; who comes first at the same moment is a matter of
    chance."""
    until, dice = clock.now() + ms, random.Random(0)
    while (first := min(stepped.runner.next_at() for stepped in rigs)) <= until:
        dice.choice(
            [stepped for stepped in rigs if stepped.runner.next_at() <= max(first, clock.now())]
        ).step()
    clock.advance_to(until)


class Gate:
    """A handler that says when it has begun, and ends when it is let go; for real threads."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self._count = threading.Condition()
        self.running = self.most = self.begun = 0

    def pass_through(self) -> None:
        with self._count:
            self.begun += 1
            self.running += 1
            self.most = max(self.most, self.running)
            self._count.notify_all()
        assert self.open.wait(TIMEOUT)
        with self._count:
            self.running -= 1

    def wait_for(self, begun: int) -> None:
        with self._count:
            assert self._count.wait_for(lambda: self.begun >= begun, TIMEOUT), (
                f"only {self.begun} calls have begun"
            )
