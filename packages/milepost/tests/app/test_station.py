"""A station: real threads, real processes, real signals; and until-idle in virtual time. Nothing
here sleeps."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.engine.events.recording_subscribers import RecordingSubscriber
from tests.engine.work.stepped_worker import TIMEOUT, Gate, add, context, lasting, reasons, row
from tests.polling import wait_until
from tests.project import ROOT

import milepost as mp
from milepost.composition import open_context
from milepost.core.errors import LedgerFull
from milepost.core.item import Item
from milepost.core.outcome import Done, HandedOver, NotYet, Outcome, Retry
from milepost.core.routes.backoff import Backoff
from milepost.core.routes.route import Route, Stage
from milepost.core.status import Reason, Status
from milepost.engine.acts.controls import limit, pause
from milepost.engine.context import Context
from milepost.engine.views.items import live_processes, processes
from milepost.engine.work.execute import run_async, run_plain
from milepost.ports.documents import PROCESS
from milepost.ports.items import Query
from milepost.ports.ledger import Ledger
from milepost.ports.service import Service
from milepost.runners.clock import SystemClock
from milepost.runners.handler_pool import AsyncHandlerPool, ThreadHandlerPool
from milepost.runners.threads import ThreadRunner
from milepost.station import Station
from milepost_testing.audit import audit
from milepost_testing.clock import VirtualClock
from milepost_testing.seeded_runner import SimRunner

SIGNED = {"by": "ops", "reason": "test"}


@contextmanager
def at_work(
    station: Station, **options: Any
) -> Iterator[tuple[list[BaseException], threading.Event]]:
    """The station runs in a thread; stopped and waited for at the end. Yields a list for the error
    it may end with, and its end."""
    errors: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            station.run(**options)
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=run, name="station")
    thread.start()
    try:
        yield errors, ended
    finally:
        station.stop()
        thread.join(TIMEOUT)
        assert not thread.is_alive(), "the station does not stop"


def one_stage(handler: Callable[..., Any], name: str = "parcels", **options: Any) -> Route:
    route = Route(name)
    route.stage("weigh", **options)(handler)
    return route


def gated(gate: Gate, name: str = "parcels", **options: Any) -> Route:
    def handler(item: Item) -> Outcome:
        gate.pass_through()
        return Done()

    return one_stage(handler, name, **options)


# Threads ------------------------------------------------------------------------------------------
def test_plain_and_async_stages_see_every_item_through(ledger: Ledger) -> None:
    route = one_stage(lambda item: Done({"n": item.input["id"]}), concurrency=4)

    @route.stage("stamp", concurrency=4)
    async def stamp(item: Item) -> Outcome:
        await asyncio.sleep(0)
        return Done({"saw": item.payload["n"]})

    route.stage("pack", batch=7)(lambda items: [Done() for _ in items])
    ctx = context(ledger, SystemClock(), route)
    keys = [f"k{number}" for number in range(200)]
    add(ctx, "parcels", *keys)
    ear = RecordingSubscriber()
    Station(ctx, subscribers=[ear]).run(until_idle_s=0)
    assert {row(ctx, "parcels", key).status for key in keys} == {Status.COMPLETED}
    assert ctx.ledger.get([("parcels", "k7")])[0].results["stamp"] == {"saw": "k7"}  # type: ignore[union-attr]
    assert ear.of("k7") == ["accepted", "advanced", "advanced", "completed"]
    audit(ledger, "parcels", ctx.plan("parcels"))


def test_a_stage_never_runs_more_calls_at_once_than_it_may(ledger: Ledger) -> None:
    gate = Gate()
    ctx = context(ledger, SystemClock(), gated(gate, concurrency=3))
    keys = [f"k{number}" for number in range(40)]
    add(ctx, "parcels", *keys)
    with at_work(Station(ctx)) as (errors, _):
        gate.wait_for(3)
        gate.open.set()
        gate.wait_for(40)
    assert errors == []
    assert gate.most == 3


def test_a_slow_stage_holds_up_no_other_and_stopping_waits_for_what_runs(ledger: Ledger) -> None:
    gate = Gate()
    finished = threading.Event()
    quick = one_stage(
        lambda item: (finished.set() if item.key == "last" else None) or Done(), "quick"
    )
    ctx = context(ledger, SystemClock(), gated(gate, "slow", concurrency=2), quick)
    add(ctx, "slow", "s1", "s2", "s3")
    with at_work(Station(ctx)):
        gate.wait_for(2)
        add(ctx, "quick", *(f"k{number}" for number in range(50)))
        add(ctx, "quick", "last")
        assert finished.wait(TIMEOUT)
        gate.open.set()
    assert gate.begun == 3 or row(ctx, "slow", "s3").status is Status.QUEUED
    assert {row(ctx, "slow", key).status for key in ("s1", "s2")} == {Status.COMPLETED}


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
@pytest.mark.parametrize("is_async", [False, True])
def test_sys_exit_and_the_like_in_a_handler_end_neither_thread_nor_loop_nor_station(
    ledger: Ledger, error: BaseException, is_async: bool
) -> None:
    def plain(item: Item) -> Outcome:
        if item.key.startswith("bad"):
            raise error
        return Done()

    async def awaited(item: Item) -> Outcome:
        return plain(item)

    ctx = context(
        ledger,
        SystemClock(),
        one_stage(awaited if is_async else plain, concurrency=2, retry=Backoff(attempts=2, base=0)),
    )
    add(ctx, "parcels", "bad1", "bad2", "bad3", "good")
    Station(ctx).run(until_idle_s=0)
    assert row(ctx, "parcels", "good").status is Status.COMPLETED
    for key in ("bad1", "bad2", "bad3"):
        bad = row(ctx, "parcels", key)
        assert (bad.status, bad.attempts) == (Status.MAX_RETRIES_EXCEEDED, 2)
        assert bad.error is not None
        assert type(error).__name__ in str(bad.error.details)


def test_a_limit_reaches_a_running_station(ledger: Ledger) -> None:
    gate = Gate()
    ctx = context(ledger, SystemClock(), gated(gate, concurrency=1))
    add(ctx, "parcels", *(f"k{number}" for number in range(6)))
    with at_work(Station(ctx)):
        gate.wait_for(1)
        limit(ctx, "parcels", "weigh", concurrency=4, **SIGNED)
        gate.wait_for(4)
        gate.open.set()
    assert gate.most == 4


def test_an_error_in_one_service_stops_the_station_with_it_and_nothing_stays_leased(
    ledger: Ledger,
) -> None:
    gate = Gate()
    ctx = context(ledger, SystemClock(), gated(gate, concurrency=2))
    add(ctx, "parcels", "a", "b", "c")
    station = Station(ctx)

    def tick() -> None:
        if gate.begun == 2:
            raise LedgerFull("no space is left")

    with at_work(station, on_tick=tick, tick_s=0.01) as (errors, ended):
        assert ended.wait(TIMEOUT)
        gate.open.set()
    assert [str(error) for error in errors] == ["no space is left"]
    assert not ledger.find(Query(route="parcels", statuses=frozenset({Status.PROCESSING}))).items
    assert [row(ctx, "parcels", key).unknown for key in ("a", "b", "c")] == [True, True, False]
    assert {row(ctx, "parcels", key).attempts for key in ("a", "b", "c")} == {0}


def test_a_station_says_that_it_is_there_and_leaves_no_trace_of_life_behind(ledger: Ledger) -> None:
    ctx = context(ledger, SystemClock(), one_stage(lambda item: Done()))
    station = Station(ctx, holder="me")
    station.run(until_idle_s=0)
    assert ledger.read(PROCESS)["me"].value["pid"] == os.getpid()
    assert ledger.dead_workers() == []


class Turns(Service):
    """A service that notes when it had a turn."""

    def __init__(self, name: str, wants: float) -> None:
        self.name = name
        self.wants = wants
        self.count = 0

    def turn(self) -> float:
        self.count += 1
        return self.wants


def test_a_service_has_its_next_turn_when_it_wanted_it_not_before() -> None:
    patient, eager = Turns("patient", 60), Turns("eager", 0.01)
    ThreadRunner().run([patient, eager], lambda: eager.count >= 80)
    assert patient.count == 1


# Crews --------------------------------------------------------------------------------------------
def jobs(*keys: str) -> list[list[Item]]:
    from milepost.ledgers.memory import MemoryLedger
    from milepost_testing.contract import World

    world = World(MemoryLedger())
    world.add(*keys)
    return [[item] for item in world.claim().items]


def stage_with(handler: Callable[..., Any]) -> Stage:
    return one_stage(handler).stages[0]


def test_a_thread_crew_made_smaller_is_smaller_at_once_though_jobs_lie_there() -> None:
    gate, taken = Gate(), threading.Semaphore(0)
    first = [threading.Event() for _ in range(4)]
    running, most, lock = [0], [0], threading.Lock()

    def handler(item: Item) -> Outcome:
        number = int(item.key)
        if number < 4:
            first[number].set()
            gate.pass_through()
        else:
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            # Long enough for a second thread to come by, if there were one.
            threading.Event().wait(0.003)
            with lock:
                running[0] -= 1
        taken.release()
        return Done()

    pool = ThreadHandlerPool(stage_with(handler), 4, run_plain, lambda: None)
    pool.put(jobs(*map(str, range(24))))
    while not all(event.wait(0.01) for event in first):
        pool.take()
    pool.resize(1)
    gate.open.set()
    for _ in range(24):
        assert taken.acquire(timeout=TIMEOUT)
    assert most[0] == 1


def test_an_async_crew_made_smaller_leaves_no_job_lying() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    begun, ended = threading.Semaphore(0), threading.Semaphore(0)
    opened = asyncio.Event()

    async def handler(item: Item) -> Outcome:
        begun.release()
        await opened.wait()
        ended.release()
        return Done()

    pool = AsyncHandlerPool(stage_with(handler), 4, run_async, lambda: None, loop)
    pool.put(jobs(*map(str, range(8))))
    for _ in range(4):
        assert begun.acquire(timeout=TIMEOUT)
    pool.resize(1)
    loop.call_soon_threadsafe(opened.set)  # all four end in the same round of the loop
    for _ in range(8):
        assert ended.acquire(timeout=TIMEOUT), "a job was left lying"
    loop.call_soon_threadsafe(loop.stop)
    thread.join(TIMEOUT)
    loop.close()


# Until idle, in virtual time ----------------------------------------------------------------------
def run_until_idle(ctx: Context, clock: VirtualClock, seconds: float, **options: Any) -> int:
    """How many milliseconds the station ran."""
    began = clock.now()
    Station(
        ctx, runner=SimRunner(clock, duration=lasting()), holder=f"until-{began}", **options
    ).run(until_idle_s=seconds)
    return clock.now() - began


def idle_route(outcome: Callable[[Item], Outcome]) -> Route:
    route = one_stage(outcome, retry=Backoff(attempts=3, base=1, factor=1, jitter=0))
    route.external("delivered")
    return route


def test_until_idle_waits_for_what_falls_due_within_its_seconds(
    ledger: Ledger, clock: VirtualClock
) -> None:
    ctx = context(
        ledger, clock, idle_route(lambda item: Done() if item.attempt == 2 else Retry("once more"))
    )
    add(ctx, "parcels", "a")
    assert 1_000 <= run_until_idle(ctx, clock, 2) < 2_000
    assert row(ctx, "parcels", "a").stage == "delivered"


@pytest.mark.parametrize(
    "outcome", [Retry("later", after="1h"), NotYet(after="1h"), HandedOver(within="1h")]
)
def test_until_idle_does_not_wait_for_what_is_due_later(
    ledger: Ledger, clock: VirtualClock, outcome: Outcome
) -> None:
    ctx = context(ledger, clock, idle_route(lambda item: outcome))
    add(ctx, "parcels", "a")
    assert run_until_idle(ctx, clock, 2) < 1_000
    assert row(ctx, "parcels", "a").status in (Status.RETRY_SCHEDULED, Status.WAITING)
    assert run_until_idle(ctx, clock, 600) < 1_000


def test_until_idle_does_not_count_external_and_paused_items(
    ledger: Ledger, clock: VirtualClock
) -> None:
    ctx = context(
        ledger, clock, idle_route(lambda item: Done()), one_stage(lambda item: Done(), "held")
    )
    pause(ctx, "held", **SIGNED)
    add(ctx, "parcels", "a")
    add(ctx, "held", "b")
    assert run_until_idle(ctx, clock, 30 * 86_400) < 1_000
    assert (row(ctx, "parcels", "a").stage, row(ctx, "held", "b").status) == (
        "delivered",
        Status.QUEUED,
    )


def test_until_idle_waits_until_everybody_has_been_told(
    ledger: Ledger, clock: VirtualClock
) -> None:
    ctx = context(ledger, clock, one_stage(lambda item: Done()))
    add(ctx, "parcels", *(f"k{number}" for number in range(30)))
    ear = RecordingSubscriber()
    failures = iter([ConnectionError("away")] * 3)
    ear.takes = lambda envelope: next(failures, None)
    run_until_idle(ctx, clock, 60, subscribers=[ear])
    assert {key: ear.of(key) for key in ("k0", "k29")} == {
        key: ["accepted", "completed"] for key in ("k0", "k29")
    }


def test_until_idle_waits_for_a_call_that_takes_long(ledger: Ledger, clock: VirtualClock) -> None:
    ctx = context(ledger, clock, one_stage(lambda item: Done()))
    add(ctx, "parcels", "a")
    Station(ctx, runner=SimRunner(clock, duration=lasting(weigh=300_000)), holder="me").run(
        until_idle_s=2
    )
    assert reasons(ctx, "parcels", "a") == [Reason.ACCEPTED, Reason.COMPLETED]


# Processes ----------------------------------------------------------------------------------------
SCRIPT = """
import os, signal, sys, threading, time
import milepost as mp
from milepost.station import Station
from milepost.composition import open_context

ledger, calls, mode = sys.argv[1:4]
opened = threading.Event()


def write_down(text):
    descriptor = os.open(calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, (text + "\\n").encode())
    os.close(descriptor)


parcels = mp.Route("parcels", key="id")


def there(item):
    write_down(f"verify {item.key}")
    return False


# With lanes a process holds at least twice as many items as it can run, whatever its pace; one of its four threads is for other lanes.
@parcels.stage("weigh", concurrency=4, verify=there, lane=(lambda content: "") if mode == "drain" else None)
def weigh(item):
    write_down(f"weigh {item.key} {os.getpid()}")
    if mode == "pair" and not opened.is_set():
        # Nobody gets ahead before both have begun.
        while len({line.split()[2] for line in open(calls) if line.startswith("weigh")}) < 2:
            opened.wait(0.01)
        opened.set()
    if mode == "hold" or item.key.startswith("slow"):
        os.write(1, b"begun\\n")
        # Until the station has been told to stop and has given back what was not begun.
        while mode == "hold" or not station.stopping.is_set() or station.worker.in_hand > 4:
            opened.wait(0.01)
    return mp.Done()


@parcels.stage("stamp", concurrency=4)
async def stamp(item):
    write_down(f"stamp {item.key} {os.getpid()}")
    return mp.Done()


if __name__ == "__main__":
    ctx = open_context(f"sqlite:///{ledger}", [parcels])
    station = Station(ctx)

    signal.signal(signal.SIGTERM, lambda number, frame: station.stop())
    print("ready", flush=True)
    station.run(until_idle_s=0.5 if mode in ("pair", "share") else None)
    ctx.ledger.close()
    print("stopped", flush=True)
"""


class Place:
    """A ledger file, the script that works on it, and what its handlers wrote down."""

    def __init__(self, folder: Path) -> None:
        self.ledger, self.calls, self.script = (
            folder / "ledger.db",
            folder / "calls",
            folder / "station.py",
        )
        self.script.write_text(SCRIPT)
        self.calls.touch()
        route = Route("parcels")
        route.stage("weigh")(lambda item: Done())
        route.stage("stamp")(lambda item: Done())
        self.ctx = open_context(f"sqlite:///{self.ledger}", [route])
        self.started: list[subprocess.Popen[str]] = []

    def start(self, mode: str) -> subprocess.Popen[str]:
        started = subprocess.Popen(
            [sys.executable, str(self.script), str(self.ledger), str(self.calls), mode],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(started)
        return started

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()
        self.ctx.ledger.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def lines(process: subprocess.Popen[str], *wanted: str) -> None:
    assert process.stdout is not None
    for text in wanted:
        assert process.stdout.readline().strip() == text, process.communicate(timeout=TIMEOUT)


def test_sigterm_lets_what_runs_finish_and_gives_the_rest_back(place: Place) -> None:
    quick, slow = [f"k{number}" for number in range(40)], [f"slow{number}" for number in range(20)]
    add(place.ctx, "parcels", *quick, *slow)
    process = place.start("drain")
    lines(process, "ready", *["begun"] * 3)
    wait_until(
        lambda: sum(row(place.ctx, "parcels", key).status is Status.PROCESSING for key in slow) >= 8
    )
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out.strip(), err) == (0, "stopped", "")
    told = Counter(reason for key in slow for reason in reasons(place.ctx, "parcels", key)[1:])
    assert told[Reason.ADVANCED] == 3
    assert told[Reason.GIVEN_BACK] == told.total() - 3 >= 5
    assert {row(place.ctx, "parcels", key).attempts for key in slow} == {0}
    assert not place.ctx.ledger.find(
        Query(route="parcels", statuses=frozenset({Status.PROCESSING}))
    ).items
    assert place.ctx.ledger.dead_workers() == [], "it has signed off"
    audit(place.ctx.ledger, "parcels", place.ctx.plan("parcels"))


def test_two_processes_share_two_thousand_items_and_none_is_done_twice(place: Place) -> None:
    for start in range(0, 2_000, 500):
        add(place.ctx, "parcels", *(f"k{number}" for number in range(start, start + 500)))
    processes = [place.start("pair"), place.start("pair")]
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, ""), err
    calls = place.calls.read_text().splitlines()
    done = Counter(call.rsplit(" ", 1)[0] for call in calls)
    assert len(done) == 4_000
    assert set(done.values()) == {1}
    assert len({call.rsplit(" ", 1)[1] for call in calls}) == 2, "both took part"
    assert audit(place.ctx.ledger, "parcels", place.ctx.plan("parcels")) == 2_000
    assert {count.status for count in place.ctx.ledger.counts("parcels") if count.n} == {
        Status.COMPLETED
    }


def test_the_leases_of_a_killed_process_come_back_at_the_next_start(place: Place) -> None:
    keys = [f"k{number}" for number in range(4)]
    add(place.ctx, "parcels", *keys)
    killed = place.start("hold")
    lines(killed, "ready", *["begun"] * 4)
    killed.send_signal(signal.SIGKILL)
    killed.wait(TIMEOUT)
    assert {row(place.ctx, "parcels", key).status for key in keys} == {Status.PROCESSING}
    until = min(row(place.ctx, "parcels", key).look_at or 0 for key in keys)
    process = place.start("share")
    _, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, err) == (0, "")
    for key in keys:
        assert row(place.ctx, "parcels", key).status is Status.COMPLETED
        assert Reason.LOST in reasons(place.ctx, "parcels", key)
        lost = next(
            written.line
            for written in place.ctx.ledger.history("parcels", key)
            if written.line.reason is Reason.LOST
        )
        assert lost.at < until, "nobody waited for the lease to run out"
        assert f"verify {key}" in place.calls.read_text()
    [dead] = [process for process in processes(place.ctx) if process.pid == killed.pid]
    assert (dead.stopped, dead.in_hand) == (True, 0), (
        "whoever took back what it held says that it is gone"
    )
    assert dead not in live_processes(place.ctx)


def test_a_handler_whose_close_fails_leaves_no_thread_behind() -> None:
    class Closing:
        async def __call__(self, item: mp.Item) -> mp.Outcome:
            return mp.Done()

        async def close(self) -> None:
            raise OSError("the connection is gone")

    others = set(threading.enumerate())
    route = mp.Route("letters", key="id")
    route.stage("send")(Closing())
    route.stage("file")(lambda item: mp.Done())
    with mp.open("memory:", [route]) as post:
        post.submit("letters", {"id": "a"})
        with pytest.raises(OSError, match="the connection is gone"):
            post.run(until_idle=0)
        assert post.status()["routes"]["letters"]["statuses"] == {"COMPLETED": 1}
    wait_until(
        lambda: (
            not [
                one
                for one in set(threading.enumerate()) - others
                if one.name.startswith(("handlers", "stage-"))
            ]
        ),
        5.0,
    )
