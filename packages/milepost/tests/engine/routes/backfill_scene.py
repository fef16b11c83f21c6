"""Finished items and a route with an added stage, for tests of back-fills."""

from __future__ import annotations

from typing import Any

from tests.engine.world import ROUTE, World

from milepost.core.outcome import Done
from milepost.core.status import Reason
from milepost.engine.acts.bulk import confirm_outside
from milepost.engine.routes.versions import Applied, apply_route
from milepost.ports.documents import BACK_FILL, BackFill, read_as

SIGNED: dict[str, Any] = {"by": "ops", "reason": "everything is filed from now on"}
LONGER = ("weigh", "stamp", "Delivered", "filed")


def finished(world: World, *keys: str) -> None:
    world.add(*keys)
    for stage in ("weigh", "stamp"):
        world.work(stage)
    for key in keys:
        confirm_outside(world.ctx, ROUTE, key, "Delivered", Done(True), by="p")
    world.clock.advance("1s")


def names(n: int) -> list[str]:
    return [f"k{number:03d}" for number in range(n)]


def changed(
    world: World, pace: float | None = 2.0, *stages: str, to: str = "filed", **options: Any
) -> tuple[World, Applied]:
    newer = world.beside(*(stages or LONGER))
    return newer, apply_route(
        newer.ctx, newer.plan, mapping={}, back_fill=to, pace=pace, **SIGNED, **options
    )


def held(world: World) -> BackFill:
    return read_as(BackFill, world.ledger.read(BACK_FILL)[ROUTE].value)


def sent_on(world: World, keys: list[str]) -> list[int]:
    return [world.reasons(key).count(Reason.BACK_FILL) for key in keys]
