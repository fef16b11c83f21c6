"""The worker, turn by turn in virtual time: how much it claims, what runs beside what, how it keeps
and gives back."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.work.stepped_worker import SteppedWorker, add, context, reasons, row, together

from milepost.core.decide import MAX_LOSSES
from milepost.core.item import Item
from milepost.core.outcome import Done, NotYet, Outcome, Retry
from milepost.core.routes.backoff import Backoff
from milepost.core.routes.route import Limits, Route
from milepost.core.status import Reason, Status
from milepost.engine.acts.controls import limit, pause, resume
from milepost.engine.work.worker import GRACE_MS, LEASE_MS
from milepost.ports.ledger import Ledger
from milepost_testing.audit import audit
from milepost_testing.clock import VirtualClock

SIGNED = {"by": "ops", "reason": "test"}


def keys(n: int, prefix: str = "k") -> list[str]:
    return [f"{prefix}{number}" for number in range(n)]


def simple(name: str = "parcels", **options: Any) -> Route:
    """One stage whose handler says Done."""
    route = Route(name)
    if options.get("batch", 1) > 1:
        route.stage("weigh", **options)(lambda items: [Done() for _ in items])
    else:
        route.stage("weigh", **options)(lambda item: Done())
    return route


def held_by(ctx: Any, route: str, names: list[str]) -> dict[str, list[str]]:
    """The keys in hand, by holder, as the ledger says."""
    found: dict[str, list[str]] = {}
    for key in names:
        held = row(ctx, route, key)
        if held.holder is not None:
            found.setdefault(held.holder, []).append(key)
    return found


# How much is claimed ------------------------------------------------------------------------------
def test_of_slow_work_no_more_is_claimed_than_can_run(ledger: Ledger, clock: VirtualClock) -> None:
    ctx = context(ledger, clock, simple(concurrency=4))
    add(ctx, "parcels", *keys(40))
    stepped = SteppedWorker(ctx, clock, weigh=2_500)
    stepped.work(9_000)
    assert stepped.most["weigh"] == 4
    assert stepped.worker.finished == 12


def test_of_quick_work_no_more_is_claimed_than_can_begin_within_a_second(
    ledger: Ledger, clock: VirtualClock
) -> None:
    ctx = context(ledger, clock, simple(concurrency=4))
    add(ctx, "parcels", *keys(300))
    stepped = SteppedWorker(ctx, clock, weigh=100)
    stepped.work(3_000)
    assert 4 < stepped.most["weigh"] <= 40
    # All hands were busy all the time, but for the turns that hand out the next work.
    assert stepped.worker.finished >= 0.9 * 4 * 3_000 / 100


def test_a_batch_stage_claims_whole_batches_for_each_hand(
    ledger: Ledger, clock: VirtualClock
) -> None:
    ctx = context(ledger, clock, simple(batch=10, concurrency=2))
    add(ctx, "parcels", *keys(95))
    stepped = SteppedWorker(ctx, clock, weigh=2_000)
    stepped.work(1_000)
    assert len(stepped.in_hand()) == 20
    stepped.work(12_000)
    assert stepped.worker.finished == 95


def test_a_slow_stage_does_not_hold_up_another(ledger: Ledger, clock: VirtualClock) -> None:
    ctx = context(ledger, clock, simple("slow", concurrency=2), simple("quick", concurrency=2))
    slow, quick = ctx.plan("slow"), ctx.plan("quick")
    assert slow.first.name == quick.first.name == "weigh"
    add(ctx, "slow", *keys(10))
    stepped = SteppedWorker(ctx, clock)
    stepped.runner.duration = lambda dice, stage: 3_600_000 if stage is slow.first else 5
    stepped.work(100)
    add(ctx, "quick", *keys(50))
    stepped.work(2_000)
    assert {row(ctx, "quick", key).status for key in keys(50)} == {Status.COMPLETED}
    assert sum(row(ctx, "slow", key).status is Status.PROCESSING for key in keys(10)) == 2


# Leases -------------------------------------------------------------------------------------------
def test_leases_of_slow_work_are_extended_for_as_long_as_it_takes(
    ledger: Ledger, clock: VirtualClock
) -> None:
    ctx = context(ledger, clock, simple(concurrency=3))
    add(ctx, "parcels", *keys(3))
    slow = SteppedWorker(ctx, clock, "slow", weigh=10 * LEASE_MS)
    slow.work(100)
    idle = SteppedWorker(context(ledger, clock, ctx.plan("parcels").route, seed=2), clock, "idle")
    together(clock, slow, idle, ms=9 * LEASE_MS)
    assert held_by(ctx, "parcels", keys(3)) == {"slow": keys(3)}
    together(clock, slow, idle, ms=2 * LEASE_MS)
    for key in keys(3):
        assert reasons(ctx, "parcels", key) == [Reason.ACCEPTED, Reason.COMPLETED]


def test_a_clock_that_is_set_back_does_not_keep_leases_from_being_extended(ledger: Ledger) -> None:
    clock = VirtualClock()
    ctx = context(ledger, clock, simple(concurrency=2))
    stepped = SteppedWorker(ctx, clock, weigh=10 * LEASE_MS)
    stepped.work(1_000)
    clock.set_back("1h")
    stepped.runner.wake("worker")
    add(ctx, "parcels", "a")
    stepped.work(LEASE_MS // 2)
    until = row(ctx, "parcels", "a").look_at
    assert until is not None
    assert until > clock.now() + LEASE_MS // 2


def test_an_item_that_is_lost_and_claimed_again_by_the_same_worker_is_two_calls(
    ledger: Ledger, clock: VirtualClock
) -> None:
    """The machine slept: the worker's own lease has run out, and it is the first to notice."""
    ctx = context(ledger, clock, simple(concurrency=2))
    add(ctx, "parcels", "a")
    stepped = SteppedWorker(ctx, clock, weigh=60_000)
    stepped.work(100)
    clock.advance("50s")
    stepped.worker._extend_at = clock.now() + 1_000  # it claims before it extends
    stepped.runner.wake("worker")
    stepped.step()
    assert len(stepped.in_hand()) == 2
    stepped.work(
        20_000
    )  # the first call ends; its outcome is late, and the second is still in hand, its lease kept
    assert reasons(ctx, "parcels", "a") == [Reason.ACCEPTED, Reason.LOST, Reason.LATE]
    assert len(stepped.in_hand()) == 1
    stepped.work(LEASE_MS + 30_000)
    assert reasons(ctx, "parcels", "a")[-1] is Reason.COMPLETED


# Draining -----------------------------------------------------------------------------------------
def draining(ledger: Ledger, clock: VirtualClock, ms: int) -> tuple[SteppedWorker, list[str]]:
    """A worker with 20 quick items in hand, of which 2 run, is asked to stop."""
    seen: list[str] = []
    route = Route("parcels")

    def verify(item: Item) -> bool:
        seen.append(f"verify {item.key}")
        return True

    @route.stage("weigh", concurrency=2, verify=verify)
    def weigh(item: Item) -> Outcome:
        seen.append(item.key)
        return Done()

    ctx = context(ledger, clock, route)
    add(ctx, "parcels", *keys(30))
    stepped = SteppedWorker(ctx, clock, weigh=50)
    stepped.work(300)
    assert len(stepped.in_hand()) > 4
    stepped.runner.duration = lambda dice, stage: ms
    stepped.work(60)
    stepped.worker.drain(GRACE_MS)
    return stepped, seen


def test_draining_gives_back_what_was_not_begun_and_lets_what_runs_finish(
    ledger: Ledger, clock: VirtualClock
) -> None:
    stepped, _ = draining(ledger, clock, 3_000)
    finished = stepped.worker.finished
    stepped.work(100)
    assert len(stepped.in_hand()) == 2
    assert not stepped.worker.drained
    given = [key for key in keys(30) if Reason.GIVEN_BACK in reasons(stepped.ctx, "parcels", key)]
    assert given
    for key in given:
        held = row(stepped.ctx, "parcels", key)
        assert (held.status, held.attempts, held.losses, held.unknown) == (
            Status.QUEUED,
            0,
            0,
            False,
        )
    stepped.work(3_500)
    assert stepped.worker.drained
    assert stepped.worker.finished == finished + 2
    audit(ledger, "parcels", stepped.ctx.plan("parcels"))


def test_what_does_not_finish_while_draining_is_cut_off_and_verified_by_the_next(
    ledger: Ledger, clock: VirtualClock
) -> None:
    stepped, seen = draining(ledger, clock, 3_600_000)
    stepped.work(GRACE_MS + 100)
    assert stepped.worker.drained
    cut_off = [key for key in keys(30) if row(stepped.ctx, "parcels", key).unknown]
    assert len(cut_off) == 2
    assert {row(stepped.ctx, "parcels", key).attempts for key in cut_off} == {0}
    seen.clear()
    SteppedWorker(
        context(ledger, clock, stepped.ctx.plan("parcels").route, seed=2), clock, "next"
    ).work(1_000)
    assert {row(stepped.ctx, "parcels", key).status for key in keys(30)} == {Status.COMPLETED}
    assert {f"verify {key}" for key in cut_off} <= set(seen)
    assert not set(cut_off) & set(seen), "what the probe found is not done again"


# Losses -------------------------------------------------------------------------------------------
class Deadly:
    """A route on which some items take their process with them; whoever is called is written
    down."""

    def __init__(self, ledger: Ledger, clock: VirtualClock, **options: Any) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.ledger = ledger
        self.clock = clock
        self.route = Route("parcels")
        self.processes = 0
        batch = options.get("batch", 1)

        def weigh(argument: Any) -> Any:
            self.calls.append(
                tuple(item.key for item in argument) if batch > 1 else (argument.key,)
            )
            return [Done() for _ in argument] if batch > 1 else Done()

        self.route.stage("weigh", **options)(weigh)
        self.ctx = context(ledger, clock, self.route)

    def process(self, **spans: int) -> SteppedWorker:
        self.processes += 1
        return SteppedWorker(
            context(self.ledger, self.clock, self.route, seed=self.processes + 1),
            self.clock,
            f"p{self.processes}",
            **spans,
        )

    def lose(self, times: int, **spans: int) -> None:
        """So many processes take what is due in hand and are lost with it."""
        for _ in range(times):
            self.process(**{"weigh": 10_000, **spans}).work(50)
            self.clock.advance(LEASE_MS / 1000)


def test_after_one_loss_an_item_has_a_batch_of_its_own(ledger: Ledger, clock: VirtualClock) -> None:
    deadly = Deadly(ledger, clock, batch=4, concurrency=3)
    add(deadly.ctx, "parcels", *keys(4))
    deadly.lose(1)
    add(deadly.ctx, "parcels", *keys(4, "new"))
    deadly.calls.clear()
    deadly.process().work(1_000)
    assert sorted(deadly.calls) == [("k0",), ("k1",), ("k2",), ("k3",), tuple(keys(4, "new"))]
    assert {row(deadly.ctx, "parcels", key).status for key in keys(4)} == {Status.COMPLETED}


def test_after_two_losses_nothing_runs_beside_an_item_in_its_process(
    ledger: Ledger, clock: VirtualClock
) -> None:
    deadly = Deadly(ledger, clock, concurrency=4)
    add(deadly.ctx, "parcels", "bad1", "bad2")
    deadly.lose(2)
    assert [row(deadly.ctx, "parcels", key).losses for key in ("bad1", "bad2")] == [
        1,
        1,
    ]  # the second is written by the next claim
    add(deadly.ctx, "parcels", *keys(20))
    stepped = deadly.process(weigh=400)
    beside: set[tuple[str, ...]] = set()
    while not all(row(deadly.ctx, "parcels", key).terminal for key in [*keys(20), "bad1", "bad2"]):
        stepped.step()
        held = tuple(sorted(item.key for item in stepped.in_hand()))
        if any(key.startswith("bad") for key in held):
            beside.add(held)
    assert beside == {("bad1",), ("bad2",)}
    assert {row(deadly.ctx, "parcels", key).status for key in ("bad1", "bad2")} == {
        Status.COMPLETED
    }


def test_fragile_items_do_not_keep_the_others_from_being_done(
    ledger: Ledger, clock: VirtualClock
) -> None:
    """Ten fragile items and a steady stream of sound ones: both get on."""
    deadly = Deadly(ledger, clock, concurrency=4)
    add(deadly.ctx, "parcels", *keys(10, "bad"))
    deadly.lose(2)
    stepped = deadly.process(weigh=20)
    for number in range(60):
        add(deadly.ctx, "parcels", f"k{number}")
        stepped.work(100)
    assert {row(deadly.ctx, "parcels", key).status for key in keys(10, "bad")} == {Status.COMPLETED}
    assert sum(row(deadly.ctx, "parcels", key).terminal for key in keys(60)) >= 55


def test_after_ten_losses_it_ends_and_no_worker_is_lost_with_it_any_more(
    ledger: Ledger, clock: VirtualClock
) -> None:
    deadly = Deadly(ledger, clock, concurrency=4)
    add(deadly.ctx, "parcels", "bad")
    deadly.lose(MAX_LOSSES)
    add(deadly.ctx, "parcels", "good")
    stepped = deadly.process()
    stepped.work(1_000)
    bad = row(deadly.ctx, "parcels", "bad")
    assert (bad.status, bad.losses, bad.attempts) == (Status.MAX_RETRIES_EXCEEDED, MAX_LOSSES, 0)
    assert bad.error is not None
    assert bad.error.category == "WORKER_LOST"
    assert row(deadly.ctx, "parcels", "good").status is Status.COMPLETED
    assert reasons(deadly.ctx, "parcels", "bad").count(Reason.LOST) == MAX_LOSSES - 1
    audit(ledger, "parcels", deadly.ctx.plan("parcels"))


def test_an_item_that_failed_alone_is_given_alone_until_it_advances(
    ledger: Ledger, clock: VirtualClock
) -> None:
    calls: list[tuple[str, str]] = []
    tries = {"bad": 0}
    route = Route("parcels")

    def answer(stage: str, batch: list[Item]) -> list[Outcome]:
        calls.append((stage, "+".join(sorted(item.key for item in batch))))
        if stage == "weigh" and any(item.key == "bad" for item in batch) and tries["bad"] < 2:
            tries["bad"] += len(batch) == 1
            raise ValueError("bad batch")
        return [Done() for _ in batch]

    route.stage("weigh", batch=4, concurrency=1, retry=Backoff(attempts=5, base=10, jitter=0))(
        lambda items: answer("weigh", items)
    )
    route.stage("pack", batch=4, concurrency=1)(lambda items: answer("pack", items))
    ctx = context(ledger, clock, route)
    add(ctx, "parcels", "bad", "k0", "k1", "k2")
    stepped = SteppedWorker(ctx, clock)
    stepped.work(5_000)
    assert row(ctx, "parcels", "bad").attempts == 1
    assert {row(ctx, "parcels", key).status for key in keys(3)} == {Status.COMPLETED}
    assert {row(ctx, "parcels", key).total_attempts for key in keys(3)} == {0}
    calls.clear()
    pause(ctx, "parcels", "pack", **SIGNED)
    clock.advance("6s")
    add(ctx, "parcels", *keys(3, "n"))
    stepped.work(40_000)
    assert {call for stage, call in calls if stage == "weigh"} == {"bad", "n0+n1+n2"}
    resume(ctx, "parcels", "pack", **SIGNED)
    stepped.work(2_000)
    assert ("pack", "bad+n0+n1+n2") in calls, "at its next stage it is one among others again"


# Limits -------------------------------------------------------------------------------------------
class Tally:
    """When each call was made."""

    def __init__(self, clock: VirtualClock, **options: Any) -> None:
        self.at: list[int] = []
        self.route = Route("parcels")

        def weigh(argument: Any) -> Any:
            self.at.append(clock.now())
            return [Done() for _ in argument] if isinstance(argument, list) else Done()

        self.route.stage("weigh", **options)(weigh)

    def most_within(self, ms: int) -> int:
        return max(sum(begin <= at < begin + ms for at in self.at) for begin in self.at)


def test_a_rate_holds_for_the_whole_ledger_whatever_the_number_of_processes(
    ledger: Ledger, clock: VirtualClock
) -> None:
    tally = Tally(clock, rate="20/s", concurrency=16)
    ctx = context(ledger, clock, tally.route)
    add(ctx, "parcels", *keys(400))
    one = SteppedWorker(ctx, clock, "one")
    two = SteppedWorker(context(ledger, clock, tally.route, seed=2), clock, "two")
    together(clock, one, two, ms=10_000)
    assert 180 <= len(tally.at) <= 203
    assert tally.most_within(1_000) <= 20 + 3
    assert one.worker.finished > 20
    assert two.worker.finished > 20


def test_a_rate_counts_calls_and_the_extra_calls_of_a_halved_batch_too(
    ledger: Ledger, clock: VirtualClock
) -> None:
    calls: list[int] = []
    route = Route("parcels")

    @route.stage("weigh", rate="2/s", batch=8, concurrency=4, retry=Backoff(attempts=1))
    def weigh(items: list[Item]) -> list[Outcome]:
        calls.append(clock.now())
        if any(item.key.endswith("0") for item in items):
            raise ValueError("bad")
        return [Done() for _ in items]

    ctx = context(ledger, clock, route)
    add(ctx, "parcels", *keys(80))
    began = clock.now()
    stepped = SteppedWorker(ctx, clock)
    while not all(row(ctx, "parcels", key).terminal for key in keys(80)):
        stepped.work(1_000)
    seconds = (clock.now() - began) / 1000
    assert len(calls) > 30, "the batches were halved"
    assert len(calls) <= 2 * seconds + 8, "the last batch's extra calls may still be owed"


def test_items_that_go_alone_are_charged_to_the_rate_as_the_calls_they_are(
    ledger: Ledger, clock: VirtualClock
) -> None:
    deadly = Deadly(ledger, clock, batch=10, concurrency=4, rate="2/s")
    add(deadly.ctx, "parcels", *keys(10))
    deadly.lose(1)
    deadly.calls.clear()
    add(deadly.ctx, "parcels", *keys(40, "new"))
    stepped = deadly.process()
    stepped.work(3_000)
    assert sum(len(call) == 1 for call in deadly.calls) == 10
    assert len(deadly.calls) <= 12, "the ten single calls have used up the rate of five seconds"
    stepped.work(8_000)
    assert {row(deadly.ctx, "parcels", key).status for key in keys(40, "new")} == {Status.COMPLETED}


def test_a_pause_reaches_a_running_worker_and_so_does_its_end(
    ledger: Ledger, clock: VirtualClock
) -> None:
    tally = Tally(clock, concurrency=1)
    ctx = context(ledger, clock, tally.route)
    add(ctx, "parcels", *keys(100))
    stepped = SteppedWorker(ctx, clock, weigh=500)
    stepped.work(3_000)
    pause(ctx, "parcels", "weigh", **SIGNED)
    stepped.work(5_000)
    paused = len(tally.at)
    stepped.work(60_000)
    assert len(tally.at) == paused
    assert stepped.in_hand() == []
    assert {row(ctx, "parcels", key).attempts for key in keys(100)} == {0}
    resume(ctx, "parcels", "weigh", **SIGNED)
    stepped.work(5_000)
    assert len(tally.at) > paused + 5


def test_changed_limits_reach_a_running_worker_within_five_seconds(
    ledger: Ledger, clock: VirtualClock
) -> None:
    ctx = context(ledger, clock, simple(concurrency=2))
    add(ctx, "parcels", *keys(200))
    stepped = SteppedWorker(ctx, clock, weigh=20_000)
    running = lambda: sum(len(slots.pool.running()) for slots in stepped.worker.all_slots)  # noqa: E731
    stepped.work(1_000)
    assert running() == 2
    limit(ctx, "parcels", "weigh", concurrency=6, **SIGNED)
    stepped.work(5_000)
    assert running() == 6
    limit(ctx, "parcels", "weigh", concurrency=1, **SIGNED)
    stepped.work(60_000)
    assert running() == 1
    limit(ctx, "parcels", "weigh", clear=True, **SIGNED)
    stepped.work(5_000)
    assert running() == 2


def test_a_changed_rate_reaches_a_running_worker(ledger: Ledger, clock: VirtualClock) -> None:
    tally = Tally(clock, concurrency=4)
    ctx = context(ledger, clock, tally.route)
    limit(ctx, "parcels", "weigh", rate="1/s", **SIGNED)
    add(ctx, "parcels", *keys(500))
    stepped = SteppedWorker(ctx, clock)
    stepped.work(10_000)
    assert 9 <= len(tally.at) <= 12
    limit(ctx, "parcels", "weigh", rate="30/s", **SIGNED)
    stepped.work(10_000)
    assert len(tally.at) >= 9 + 30 * 5


# Lanes --------------------------------------------------------------------------------------------
def lanes_route(**options: Any) -> Route:
    return simple(lane=lambda content: content["to"], **options)


def test_a_paused_lane_holds_up_no_other(ledger: Ledger, clock: VirtualClock) -> None:
    ctx = context(ledger, clock, lanes_route(concurrency=4))
    add(ctx, "parcels", *keys(50, "a"), to="north")
    add(ctx, "parcels", *keys(50, "b"), to="south")
    pause(ctx, "parcels", "weigh", "north", **SIGNED)
    stepped = SteppedWorker(ctx, clock)
    stepped.work(5_000)
    assert {row(ctx, "parcels", key).status for key in keys(50, "b")} == {Status.COMPLETED}
    assert {row(ctx, "parcels", key).status for key in keys(50, "a")} == {Status.QUEUED}
    resume(ctx, "parcels", "weigh", "north", **SIGNED)
    stepped.work(5_000)
    assert {row(ctx, "parcels", key).status for key in keys(50, "a")} == {Status.COMPLETED}


def test_a_slow_lane_within_its_limit_holds_up_no_other(
    ledger: Ledger, clock: VirtualClock
) -> None:
    ctx = context(ledger, clock, lanes_route(concurrency=4, lanes={"north": Limits(concurrency=2)}))
    add(ctx, "parcels", *keys(50, "a"), to="north")
    add(ctx, "parcels", *keys(50, "b"), to="south")
    stepped = SteppedWorker(ctx, clock)
    pool: Any = stepped.worker.all_slots[0].pool
    begin = pool._handle
    slow = {"north": 3_600_000, "south": 5}
    pool._handle = lambda job, took: (begin(job, took)[0], slow[job[0].lane])
    stepped.runner.dice.random = lambda: 0.0  # type: ignore[method-assign]  # every call's handler is called at its beginning
    for _ in range(400):
        stepped.step()
    assert {row(ctx, "parcels", key).status for key in keys(50, "b")} == {Status.COMPLETED}
    assert sum(row(ctx, "parcels", key).status is Status.PROCESSING for key in keys(50, "a")) == 2


def test_a_lanes_rate_slows_that_lane_alone(ledger: Ledger, clock: VirtualClock) -> None:
    ctx = context(ledger, clock, lanes_route(concurrency=8, lanes={"north": Limits(rate="1/s")}))
    add(ctx, "parcels", *keys(30, "a"), to="north")
    add(ctx, "parcels", *keys(30, "b"), to="south")
    SteppedWorker(ctx, clock).work(5_000)
    assert {row(ctx, "parcels", key).status for key in keys(30, "b")} == {Status.COMPLETED}
    assert 4 <= sum(row(ctx, "parcels", key).terminal for key in keys(30, "a")) <= 7


def test_a_batch_holds_items_of_one_lane_only(ledger: Ledger, clock: VirtualClock) -> None:
    seen: list[set[str]] = []
    route = Route("parcels")

    @route.stage("weigh", batch=10, concurrency=2, lane=lambda content: content["to"])
    def weigh(items: list[Item]) -> list[Outcome]:
        seen.append({item.lane for item in items})
        return [Done() for _ in items]

    ctx = context(ledger, clock, route)
    for number in range(30):
        add(ctx, "parcels", f"k{number}", to=("north", "south", "east")[number % 3])
    SteppedWorker(ctx, clock).work(2_000)
    assert {row(ctx, "parcels", key).status for key in keys(30)} == {Status.COMPLETED}
    assert {len(lanes) for lanes in seen} == {1}


# What handlers say --------------------------------------------------------------------------------
@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), MemoryError()])
def test_whatever_a_handler_raises_the_worker_works_on(
    ledger: Ledger, clock: VirtualClock, error: BaseException
) -> None:
    route = Route("parcels")

    @route.stage("weigh", retry=Backoff(attempts=2, base=1, jitter=0))
    def weigh(item: Item) -> Outcome:
        if item.key == "bad":
            raise error
        return Done()

    ctx = context(ledger, clock, route)
    add(ctx, "parcels", "bad", *keys(5))
    stepped = SteppedWorker(ctx, clock)
    stepped.work(5_000)
    assert {row(ctx, "parcels", key).status for key in keys(5)} == {Status.COMPLETED}
    assert row(ctx, "parcels", "bad").status is Status.MAX_RETRIES_EXCEEDED
    assert stepped.in_hand() == []


def test_an_outcome_that_is_not_json_hits_its_own_item_only(
    ledger: Ledger, clock: VirtualClock
) -> None:
    route = Route("parcels")
    route.stage("weigh", retry=Backoff(attempts=1))(
        lambda item: Done(payload=object()) if item.key == "bad" else Done({"ok": 1})
    )
    ctx = context(ledger, clock, route)
    add(ctx, "parcels", "bad", *keys(5))
    SteppedWorker(ctx, clock).work(1_000)
    assert {row(ctx, "parcels", key).status for key in keys(5)} == {Status.COMPLETED}
    error = row(ctx, "parcels", "bad").error
    assert error is not None
    assert error.category == "WRONG_ANSWER"


def test_a_plain_function_that_overruns_is_shown_and_its_late_answer_is_the_outcome(
    ledger: Ledger, clock: VirtualClock
) -> None:
    ctx = context(ledger, clock, simple(timeout=10))
    add(ctx, "parcels", "a")
    stepped = SteppedWorker(ctx, clock, weigh=60_000)
    stepped.work(9_000)
    assert stepped.worker.overrunning() == []
    stepped.work(40_000)
    [over] = stepped.worker.overrunning()
    assert (over["route"], over["stage"], over["key"]) == ("parcels", "weigh", "a")
    stepped.work(30_000)
    assert stepped.worker.overrunning() == []
    assert reasons(ctx, "parcels", "a") == [Reason.ACCEPTED, Reason.COMPLETED]


def test_an_outdated_worker_settles_what_it_holds_and_claims_no_more(
    ledger: Ledger, clock: VirtualClock
) -> None:
    ctx = context(ledger, clock, simple(concurrency=1))
    add(ctx, "parcels", "a", "b")
    stepped = SteppedWorker(ctx, clock, weigh=500)
    stepped.work(100)
    plan = ctx.plan("parcels")
    document = {
        "version": 2,
        "digest": plan.digest,
        "shape": [list(pair) for pair in plan.shape],
        "at": clock.now(),
    }
    assert ledger.write("route", "parcels", document)
    stepped.work(5_000)
    assert stepped.in_hand() == []
    assert stepped.worker.outdated == {"parcels"}
    assert reasons(ctx, "parcels", "a")[-1] is Reason.UNDECIDED
    assert reasons(ctx, "parcels", "b") == [Reason.ACCEPTED]


def test_not_yet_and_retry_are_looked_at_again_when_they_are_due(
    ledger: Ledger, clock: VirtualClock
) -> None:
    looks: list[int] = []
    route = Route("parcels")

    @route.stage("weigh", retry=Backoff(attempts=3, base=60, factor=2, jitter=0))
    def weigh(item: Item) -> Outcome:
        looks.append((clock.now() - began) // 1000)
        return {1: NotYet(after=30), 2: Retry("busy"), 3: Retry("busy")}.get(len(looks), Done())

    ctx = context(ledger, clock, route)
    began = clock.now()
    add(ctx, "parcels", "a")
    SteppedWorker(ctx, clock).work(300_000)
    assert looks == [0, 30, 90, 210]
    assert row(ctx, "parcels", "a").status is Status.COMPLETED
