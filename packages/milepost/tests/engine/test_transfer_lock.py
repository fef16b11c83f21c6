"""Lock of a transfer: routes are never open in both ledgers, also if it is abandoned meanwhile."""

from __future__ import annotations

import pytest
from tests.engine.world import ROUTE, World, parcels

from milepost.core.admission.controls import Hold
from milepost.core.errors import LedgerError, LedgerMoved
from milepost.engine.transfer import lock
from milepost.ledgers.memory import MemoryLedger
from milepost.ports.documents import CURSOR, HOLD, MOVER, Cursor, Moving, read_all
from milepost_testing.clock import VirtualClock

SIGNED = {"by": "ops", "reason": "a move"}


@pytest.fixture
def source(clock: VirtualClock) -> World:
    return World(MemoryLedger(), clock, parcels()).registered()


@pytest.fixture
def target(clock: VirtualClock) -> World:
    world = World(MemoryLedger(), clock, parcels()).registered()
    world.ledger.write(CURSOR, "log", Cursor(0, clock.now(), lease=MOVER, until=clock.now() + 1))
    return world


def moving(source: World) -> Moving:
    return Moving(source.ledger.url, [ROUTE], 0, cursors={"log": 7, "gone": 8})


def finish(source: World, target: World) -> None:
    lock.finish(source.ctx, target.ctx, moving(source), "move", **SIGNED)


def held_there(target: World) -> bool:
    """Whether the move holds the route and the subscriber in the target."""
    holds = read_all(target.ledger, HOLD, Hold)
    cursor = read_all(target.ledger, CURSOR, Cursor)["log"]
    assert (ROUTE in holds) == (cursor.lease == MOVER)
    return ROUTE in holds


def test_a_finished_move_opens_the_route_and_the_subscriber_there(
    source: World, target: World
) -> None:
    lock.close(source.ctx, target.ctx, [ROUTE], **SIGNED)
    assert held_there(target)
    finish(source, target)
    assert lock.marks(source.ctx)[ROUTE].finished_at == source.clock.now()
    assert not held_there(target)
    assert read_all(target.ledger, CURSOR, Cursor)["log"].seq == 7
    assert list(read_all(target.ledger, CURSOR, Cursor)) == ["log"]
    with pytest.raises(LedgerMoved, match="finished"):
        lock.give_up(source.ctx, [ROUTE], **SIGNED)


def test_a_move_that_is_finished_twice_is_recorded_once(source: World, target: World) -> None:
    lock.close(source.ctx, target.ctx, [ROUTE], **SIGNED)
    finish(source, target)
    marks = lock.marks(source.ctx)
    recorded = source.ledger.read("act")
    source.clock.advance("1h")
    finish(source, target)
    assert (lock.marks(source.ctx), source.ledger.read("act")) == (marks, recorded)


def test_a_move_that_is_abandoned_before_its_end_opens_nothing_there(
    source: World, target: World
) -> None:
    lock.close(source.ctx, target.ctx, [ROUTE], **SIGNED)
    assert lock.give_up(source.ctx, [ROUTE], **SIGNED) == [ROUTE]
    assert lock.give_up(source.ctx, [ROUTE], **SIGNED) == []
    with pytest.raises(LedgerError, match="has just been abandoned"):
        finish(source, target)
    assert held_there(target)
    assert lock.marks(source.ctx) == {}
