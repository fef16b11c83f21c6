"""The share of intake: how long a worker pauses while calls submit items, in virtual time."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.work.stepped_worker import TIMEOUT, add, context, row

from milepost.core.item import Item
from milepost.core.outcome import Done, Outcome
from milepost.core.routes.route import Route
from milepost.core.status import Status
from milepost.engine.time_share import LONGEST_MS, PER_CALL_MS, Accepts, SharedTurns, rest_ms
from milepost.ports.ledger import Ledger
from milepost.ports.service import Service
from milepost.runners.clock import SystemClock
from milepost.station import Station
from milepost_testing.clock import VirtualClock


class Turns(Service):
    """A service whose turns take so many milliseconds each; it wants the next one at once."""

    name = "worker"

    def __init__(self, clock: VirtualClock, takes_ms: int) -> None:
        self.clock, self.takes_ms = clock, takes_ms
        self.n = 0
        self.error: Exception | None = None

    def turn(self) -> float:
        self.n += 1
        self.clock.advance(self.takes_ms / 1000)
        if self.error is not None:
            raise self.error
        return 0.0


class SteppedWorker:
    def __init__(self, takes_ms: int = 50) -> None:
        self.clock, self.accepts = VirtualClock(), Accepts()
        self.turns = Turns(self.clock, takes_ms)
        self.stopping = False
        self.shared = SharedTurns(self.turns, self.accepts, self.clock, lambda: self.stopping)

    def turn(self) -> int:
        """One call as the runner makes it; the rest that it asks for is slept. The milliseconds of
        rest; 0: it has worked."""
        before = self.turns.n
        ms = round(self.shared.turn() * 1000)
        self.clock.advance(ms / 1000)
        assert ms == 0 or self.turns.n == before
        return ms

    def rest(self) -> int:
        """All the rest until the next turn that works."""
        total = 0
        while ms := self.turn():
            total += ms
        return total


@pytest.mark.parametrize(
    ("worked", "rested", "calls", "rest"),
    [
        (50, 0, 0, 0),  # no call: no rest
        (50, 0, 1, PER_CALL_MS),  # one call costs the work a moment, not a turn
        (50, 0, 64, 50),  # many calls: as long as the turn took
        (50, 40, 64, 10),
        (50, 50, 64, 0),  # work keeps half of the time
        (50, 70, 64, 0),  # it waited for its handlers meanwhile
        (0, 0, 64, 0),  # it had nothing to do
        (3_600_000, 0, 1_000_000, LONGEST_MS),
    ],
)
def test_the_rule(worked: int, rested: int, calls: int, rest: int) -> None:
    assert rest_ms(worked, rested, calls) == rest


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 10**5))
def test_a_rest_is_never_longer_than_the_turn_before_it_and_without_calls_there_is_none(
    worked: int, rested: int, calls: int
) -> None:
    rest = rest_ms(worked, rested, calls)
    assert 0 <= rest <= max(0, min(worked, LONGEST_MS) - rested)
    assert rest == 0 or calls > 0


def test_work_does_not_rest_while_no_call_comes() -> None:
    stepped = SteppedWorker()
    assert [stepped.turn() for _ in range(5)] == [0] * 5
    assert stepped.turns.n == 5


def test_accepting_has_half_of_the_time_while_calls_wait() -> None:
    stepped = SteppedWorker(takes_ms=50)
    began = stepped.clock.now()
    for _ in range(64):
        stepped.accepts.__enter__()
    rested = sum(stepped.rest() for _ in range(10))
    assert stepped.turns.n == 10
    assert (rested, stepped.clock.now() - began) == (9 * 50, 10 * 50 + 9 * 50)


def test_one_call_that_is_answered_soon_costs_the_work_a_moment() -> None:
    stepped = SteppedWorker(takes_ms=50)
    stepped.rest()
    with stepped.accepts:
        pass
    assert stepped.rest() == PER_CALL_MS
    assert stepped.rest() == 0


def test_calls_that_come_during_a_rest_make_it_longer_up_to_what_the_turn_took() -> None:
    stepped = SteppedWorker(takes_ms=50)
    stepped.rest()
    rested = 0
    while True:
        for _ in range(8):
            with stepped.accepts:
                pass
        ms = stepped.turn()
        if not ms:
            break
        rested += ms
    assert rested == 50


def test_a_finished_job_that_wakes_the_worker_does_not_end_its_rest() -> None:
    stepped = SteppedWorker(takes_ms=50)
    stepped.turn()
    with stepped.accepts:
        stepped.accepts.came += 29
        assert stepped.shared.turn() == 0.03
        stepped.clock.advance(0.01)
        assert stepped.shared.turn() == 0.02
        stepped.clock.advance(0.02)
        assert (stepped.turns.n, stepped.shared.turn()) == (1, PER_CALL_MS / 1000)


def test_who_is_stopping_does_not_rest() -> None:
    stepped = SteppedWorker()
    stepped.turn()
    with stepped.accepts:
        assert stepped.turn() > 0
        stepped.stopping = True
        assert stepped.turn() == 0
        assert stepped.turns.n == 2


def test_a_turn_that_fails_counts_too_and_its_error_is_raised() -> None:
    stepped = SteppedWorker()
    stepped.turns.error = OSError("the disk is full")
    with pytest.raises(OSError, match="full"):
        stepped.turn()
    stepped.turns.error = None
    with stepped.accepts:
        assert stepped.turn() > 0


@pytest.mark.parametrize("jump", ["forward", "back"])
def test_a_clock_that_jumps_does_not_stop_the_work(jump: str) -> None:
    stepped = SteppedWorker()
    with stepped.accepts:
        stepped.turn()
        if jump == "forward":
            stepped.turns.takes_ms = 3_600_000
            stepped.rest()
            stepped.turns.takes_ms = 50
            assert stepped.rest() == LONGEST_MS
        else:
            assert stepped.turn() > 0
            stepped.clock.set_back("1h")
            assert stepped.rest() == 0
    assert stepped.turns.n >= 2


def test_the_wrapped_service_answers_for_itself() -> None:
    stepped = SteppedWorker()
    stepped.turns.failed, stepped.turns.stands_still = True, "its clock differs"
    stepped.turn()
    shared = stepped.shared
    assert (shared.failed, shared.stands_still) == (True, "its clock differs")
    assert (shared.quiet, shared.follows_others) == (True, False)


def test_a_call_that_never_ends_does_not_keep_items_from_being_worked(ledger: Ledger) -> None:
    route = Route("parcels", key="id")

    @route.stage("weigh")
    def weigh(item: Item) -> Outcome:
        return Done()

    ctx = context(ledger, SystemClock(), route)
    add(ctx, "parcels", *(f"p{number}" for number in range(200)))
    with ctx.accepts:
        running = threading.Thread(target=Station(ctx).run, kwargs={"until_idle_s": 0})
        running.start()
        running.join(TIMEOUT)
        assert not running.is_alive()
    assert {row(ctx, "parcels", f"p{number}").status for number in range(200)} == {Status.COMPLETED}
    assert (ctx.accepts.came, ctx.accepts.waiting) == (1, 0)
