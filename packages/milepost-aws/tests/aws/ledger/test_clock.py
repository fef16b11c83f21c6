"""One clock for all processes of a deployment on AWS: that of its answers, whatever each machine's
clock shows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from tests.standins import REGION

import milepost as mp
from milepost.blobs.memory import MemoryBlobs
from milepost.core.routes.plan import Plan
from milepost.core.values.durations import Span, span_ms
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost.engine.resend import Resender
from milepost.engine.routes.versions import register
from milepost.engine.work.worker import Worker
from milepost.ports.clock import ClockState
from milepost.ports.runner import Service
from milepost_aws.aws_model import AwsModel
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.requests.answer_clock import AnswerClock
from milepost_aws.ledger.requests.client import Requests
from milepost_testing.clock import SeededChance, VirtualClock
from milepost_testing.seeded_runner import SimRunner

ITEMS = 8
CALL_MS = 15_000

jobs = mp.Route("jobs", key="id")


@jobs.stage("one", concurrency=4)
def one(item: mp.Item) -> mp.Outcome:
    return mp.Done()


class World:
    """AWS with the true time, and machines that show another."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.model = AwsModel(REGION, clock=lambda: self.clock.now() / 1000)


class Machine:
    """A process on a machine whose wall clock is `ahead` of the true time, and whose monotonic
    clock began at its start."""

    def __init__(
        self, world: World, name: str, ahead: Span = 0, behind: Span = 0, seed: int = 1
    ) -> None:
        self.world, self.name = world, name
        self.ahead_ms = span_ms(ahead, "ahead") - span_ms(behind, "behind")
        self.asleep_ms = 0
        self.answers = True
        self.requests = Requests(
            REGION, session=world.model, clock=self.monotonic_s, sleep=lambda _: None, deadline_s=0
        )
        self.ledger = AwsLedger(self.requests, "p", MemoryBlobs(), make=True)
        self.clock = AnswerClock(self.requests.dates, self.monotonic_s, self.ask, self.wall)
        timing = self.ledger.timing
        plan = Plan(jobs, grace_ms=timing.grace_ms, offer_life_ms=timing.offer_life_ms)
        chance = SeededChance(seed)
        plan = self.ledger.prepare(register(self.ledger, plan, self.clock.now(), name))
        self.ctx = Context(self.ledger, {"jobs": plan}, self.clock, chance, MemoryBlobs())
        self.runner = SimRunner(world.clock, seed, duration=lambda dice, stage: CALL_MS)

    def monotonic_s(self) -> float:
        return (self.world.clock.now() - self.asleep_ms) / 1000

    def wall(self) -> int:
        return self.world.clock.now() + self.ahead_ms

    def ask(self) -> None:
        if self.answers:
            self.requests.ask(
                "dynamodb",
                "get_item",
                TableName="p-control",
                Key={"kind": {"S": "clock"}, "name": {"S": "date"}},
            )

    def work(self) -> Worker:
        worker = Worker(self.ctx, self.runner, self.name)
        self.runner.enlist([worker])
        return worker

    def up(self) -> None:
        beside: list[Service] = [
            service
            for _, service in self.ledger.services(
                self.ctx.plans, self.clock, self.ctx.chance, self.name
            )
        ]
        self.runner.enlist([Resender(self.ctx), *beside])

    def state(self) -> ClockState:
        return self.ctx.check_clock()


def run(world: World, machines: list[Machine], until: Callable[[], bool], limit: Span) -> None:
    ends_at = world.clock.now() + span_ms(limit, "limit")
    while not until() and world.clock.now() < ends_at:
        world.clock.advance_to(min(machine.runner.next_at() for machine in machines))
        for machine in machines:
            while machine.runner.step():
                pass


def lines(machine: Machine) -> list[str]:
    return [
        str(entry.line.reason)
        for number in range(ITEMS)
        for entry in machine.ledger.history("jobs", f"j{number}")
    ]


@pytest.mark.parametrize(
    ("worker", "up"),
    [
        ({"behind": "300s"}, {"ahead": "300s"}),
        ({"ahead": "300s"}, {"behind": "300s"}),
        ({}, {"ahead": "300s"}),
    ],
)
def test_no_finished_work_is_lost_where_clocks_are_five_minutes_off(
    account: str, worker: dict[str, Any], up: dict[str, Any]
) -> None:
    world = World()
    relay, hands = Machine(world, "relay", seed=1, **up), Machine(world, "hands", seed=2, **worker)
    relay.up()
    worked = hands.work()
    submit(relay.ctx, "jobs", [{"id": f"j{number}"} for number in range(ITEMS)])
    run(world, [relay, hands], lambda: worked.finished >= ITEMS and worked.in_hand == 0, "10m")
    [*found] = hands.ledger.get([("jobs", f"j{number}") for number in range(ITEMS)])
    assert [str(getattr(item, "status", item)) for item in found] == ["COMPLETED"] * ITEMS
    assert worked.finished == ITEMS
    assert not {"lost", "late"} & set(lines(hands))


def test_a_corrected_clock_agrees_with_aws_and_names_its_offset(
    account: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    with caplog.at_level(logging.WARNING, "milepost"):
        machine = Machine(world, "m", behind="300s")
        state = machine.state()
    assert abs(machine.clock.now() - world.clock.now()) <= 1_000
    assert state.source == "the clock of AWS's answers"
    assert abs(state.offset_ms - 300_000) <= 1_000
    assert state.doubt == ""
    assert (
        "this machine's clock is 5 min behind that of AWS; it is corrected by AWS's answers"
        in caplog.text
    )


def test_a_clock_that_is_four_seconds_off_is_left_alone(account: str) -> None:
    world = World()
    machine = Machine(world, "m", ahead="4s")
    assert machine.state().offset_ms == 0
    assert machine.clock.now() == machine.wall()


def test_a_process_without_answers_for_a_minute_claims_nothing_until_it_has_one(
    account: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    relay, hands = Machine(world, "relay"), Machine(world, "hands", behind="300s")
    relay.up()
    worked = hands.work()
    run(world, [relay], lambda: False, "5s")
    hands.answers = False
    worked.turn()
    submit(relay.ctx, "jobs", [{"id": "j0"}])
    run(world, [relay], lambda: False, "61s")
    received = hands.requests.counts["sqs", "receive_message"]
    with caplog.at_level(logging.WARNING, "milepost"):
        worked.turn()
    assert worked.in_hand == 0
    assert hands.requests.counts["sqs", "receive_message"] == received
    assert (
        "this process claims and resends nothing, because it is not sure of AWS's time: it has had no answer for"
        in caplog.text
    )
    assert Resender(hands.ctx).run_once().looked == 0
    hands.answers = True
    world.clock.advance("1s")
    worked.turn()
    worked.turn()
    assert worked.in_hand == 1


def test_no_request_is_added_while_answers_come(account: str) -> None:
    world = World()
    machine = Machine(world, "m")
    machine.state()
    asked = machine.requests.counts["dynamodb", "get_item"]
    for _ in range(10):
        world.clock.advance("30s")
        machine.ledger.read("process")
        machine.state()
    assert machine.requests.counts["dynamodb", "get_item"] == asked


def test_a_machine_that_was_suspended_compares_its_clock_again(account: str) -> None:
    """The monotonic clock of a suspended machine stands still, so that what was measured by it is
    hours behind."""
    world = World()
    machine = Machine(world, "m")
    machine.state()
    world.clock.advance("2h")
    machine.asleep_ms += 7_200_000
    machine.answers = False
    assert machine.state().doubt == "it has had no answer yet"
    machine.answers = True
    world.clock.advance("1s")
    assert machine.state().doubt == ""
    assert abs(machine.clock.now() - world.clock.now()) <= 1_000


def test_answers_without_a_date_leave_the_machines_clock_in_use(account: str) -> None:
    world = World()
    machine = Machine(world, "m", ahead="300s")
    machine.requests.dates.forget()
    undated = {"ResponseMetadata": {"HTTPHeaders": {}}}
    for _ in range(3):
        machine.requests.dates.note(undated, machine.monotonic_s(), machine.monotonic_s())
    state = machine.state()
    assert state.doubt == ""
    assert machine.clock.now() == machine.wall()


def test_an_error_that_aws_answers_shows_its_time_too(account: str) -> None:
    world = World()
    machine = Machine(world, "m", ahead="300s")
    machine.requests.dates.forget()
    for _ in range(3):
        machine.requests.ask("dynamodb", "get_item", TableName="none", Key={"kind": {"S": "a"}})
    assert abs(machine.clock.now() - world.clock.now()) <= 1_000


@pytest.mark.wire
def test_answers_over_a_real_connection_show_the_time(endpoint: str, prefix: str) -> None:
    requests = Requests(REGION, endpoint)
    ledger = AwsLedger(requests, prefix, MemoryBlobs(), make=True)
    clock = ledger.clock()
    assert isinstance(clock, AnswerClock)
    state = clock.check()
    assert (state.source, state.offset_ms, state.doubt) == ("the clock of AWS's answers", 0, "")
    assert len(requests.dates.leads()) >= 3
    ledger.close()
