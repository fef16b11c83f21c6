"""Faults of the simulator: handlers that fail in every possible way, processes that crash,
subscribers that refuse events."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from typing import Any, cast

from msgspec.structs import replace

from milepost.core.item import Item
from milepost.core.outcome import HandedOver, NotYet, Reject, Retry
from milepost.core.routes.route import Route, Stage
from milepost.ports.ledger import Ledger

MORTAL = ("claim", "apply", "extend", "write", "reclaim")
"""The ledger calls before or after which a process may crash."""


class Died(BaseException):
    """The process crashes here, in the middle of a turn. No part of the engine may catch this."""


class MortalLedger:
    """One process's view of the ledger. Once `doomed`, it crashes just before or just after that
    call."""

    def __init__(self, inner: Ledger) -> None:
        self.inner = inner
        self.doomed: tuple[str, str] | None = None

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.inner, name)
        if self.doomed is None or self.doomed[1] != name:
            return real
        moment = self.doomed[0]

        def call(*values: Any, **options: Any) -> Any:
            if moment == "after":
                real(*values, **options)
            raise Died

        return call


class Meddler:
    """Replaces a route's handlers by ones that mostly forward the call, and sometimes fail.

    It also checks: `wrong` has what no handler should ever have seen.
    """

    def __init__(self, dice: random.Random, share: float) -> None:
        self.dice = dice
        self.share = share
        self.wrong: list[str] = []
        self.calls = 0
        self._probed: set[tuple[str, str, str | None]] = set()

    def duration(self, dice: random.Random, stage: Stage) -> int:
        """Mostly short; now and then longer than a lease."""
        return dice.randrange(20_000, 90_000) if dice.random() < 0.02 else dice.randrange(21)

    def meddle(self, stage: Stage) -> Stage:
        handler, verify = stage.handler, stage.verify
        assert handler is not None

        def call(argument: Any) -> Any:
            self._watch(stage, argument)
            fault = self._fault(stage, argument)
            return handler(argument) if fault is None else fault

        async def call_async(argument: Any) -> Any:
            self._watch(stage, argument)
            fault = self._fault(stage, argument)
            if self.dice.random() < self.share / 4:
                await asyncio.sleep(
                    self.dice.choice([1, 3600])
                )  # in virtual time; longer than the timeout, if there is one
            return await handler(argument) if fault is None else fault

        def probe(item: Item) -> Any:
            self._probed.add((item.key, item.stage, item.row.lease))
            assert verify is not None
            return verify(item)

        return replace(
            stage,
            handler=call_async if stage.is_async else call,
            verify=None if verify is None else probe,
        )

    def _watch(self, stage: Stage, argument: Any) -> None:
        self.calls += 1
        for item in argument if stage.batch > 1 else [argument]:
            if item.stage != stage.name or item.row.lease is None:
                self.wrong.append(
                    f"{item.key} came to the handler of {stage.name!r} at {item.stage!r}, lease {item.row.lease}"
                )
            if (
                item.row.unknown
                and stage.verify is not None
                and (item.key, item.stage, item.row.lease) not in self._probed
            ):
                self.wrong.append(
                    f"{item.key}: {stage.name!r} was repeated without a verify probe, although its result was unknown"
                )

    def _fault(self, stage: Stage, argument: Any) -> Any:
        dice = self.dice
        if dice.random() >= self.share:
            return None
        kind = dice.randrange(8)
        if kind == 0:
            raise RuntimeError(f"simulated trouble {dice.randrange(3)}")
        if kind == 1:
            raise SystemExit(1)
        if stage.batch > 1:
            return [] if kind == 2 else [self._outcome(kind) for _ in argument]
        return self._outcome(kind)

    def _outcome(self, kind: int) -> object:
        match kind:
            case 2:
                return "no outcome at all"
            case 3:
                return NotYet(after=self.dice.choice([None, 5, "10m"]))
            case 4:
                return HandedOver(within=self.dice.choice(["10s", "1h"]))
            case 5 if self.dice.random() < 0.3:
                return Reject("simulated: no such thing")
            case _:
                return Retry(
                    "simulated: busy",
                    after=self.dice.choice([None, 3]),
                    unknown=self.dice.random() < 0.3,
                )


class Ear:
    """The simulator's subscriber: records the events it receives, and while `moody` refuses
    some."""

    name = "ear"
    batch = 10

    def __init__(self, dice: random.Random, share: float) -> None:
        self.dice = dice
        self.share = share
        self.heard: dict[tuple[str, str], list[str]] = {}

    def tell(self, envelopes: Sequence[dict[str, Any]]) -> Sequence[Exception | None] | None:
        if self.dice.random() < self.share:
            raise ConnectionError("simulated: no answer")
        answers: list[Exception | None] = []
        for envelope in envelopes:
            if self.dice.random() < self.share / 2:
                answers.append(ValueError("simulated: not this one"))
                continue
            answers.append(None)
            self.heard.setdefault((envelope["data"]["route"], envelope["subject"]), []).append(
                envelope["id"]
            )
        return answers


def prove_dead(ledger: Any, holder: str) -> None:
    """Release the lock of a dead process, as the operating system does when a process ends; its
    lock file stays."""
    if hasattr(ledger, "kill"):
        ledger.kill(holder)
        return
    descriptor = ledger._liveness._held.pop(holder, None)
    if descriptor is not None:
        os.close(descriptor)


def plain_input(route: Route, n: int) -> dict[str, Any]:
    """An input with the fields of the route's key, and a number."""
    fields = [route.key] if isinstance(route.key, str) else list(cast(Sequence[str], route.key))
    return {**{field: f"{field}-{n}" for field in fields}, "n": n}
