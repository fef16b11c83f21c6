"""Simulator: several processes on one ledger, in one thread, with faults chosen by a seed.

    Simulator(seed=7, routes=[parcels]).run()

Processes crash between claim, execute and settle and are started again; items are submitted twice;
the clock jumps; handlers fail, hang and hand over; partners confirm early, twice and late;
operators pause, retry and cancel. The promises of the design are checked all along, and at the end,
without further faults, everything must become idle. The same seed gives the same run, so a failing
run can be repeated.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any, NamedTuple, cast

from msgspec import Struct

from milepost.blobs.memory import MemoryBlobs
from milepost.composition import open_ledger
from milepost.core.admission.breakers import BreakerRecord
from milepost.core.events import events_of
from milepost.core.outcome import Done, Retry
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import Reason, Status
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act, confirm_outside
from milepost.engine.acts.controls import close_breakers, pause, resume
from milepost.engine.acts.verbs import verb_of
from milepost.engine.clock_watch import make_due
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost.engine.routes.versions import register
from milepost.ports.documents import BREAKER, HOLD, read_as
from milepost.ports.ledger import Ledger
from milepost.station import Station
from milepost_testing.audit import every_item, problems
from milepost_testing.clock import SeededChance, VirtualClock
from milepost_testing.drive import run_until_rest
from milepost_testing.seeded_runner import SimRunner
from milepost_testing.simulator_faults import (
    MORTAL,
    Died,
    Ear,
    Meddler,
    MortalLedger,
    plain_input,
    prove_dead,
)

DAY = 86_400_000


class SimulationReport(Struct, frozen=True):
    """Result of a run. `digest` is over every history line in the order written: the same for the
    same seed."""

    seed: int
    happened: dict[str, int]
    statuses: dict[str, int]
    lines: int
    digest: str


class _Process(NamedTuple):
    ledger: Ledger
    station: Station
    runner: SimRunner


class Simulator:
    """`ledger` is "memory:" or the path of a SQLite file. `inputs` gives the items of each route by
    its name; without it each gets `items` plain ones, with the route's key field and an `n`.
    `faults` is the share of handler calls that fail, from 0 to 1. `wrong_clock`: the machine's
    clock is at times days ahead."""

    def __init__(
        self,
        seed: int,
        routes: Sequence[Route],
        ledger: str = "memory:",
        *,
        items: int = 24,
        inputs: dict[str, list[Any]] | None = None,
        processes: int = 3,
        faults: float = 0.2,
        wrong_clock: bool = False,
    ) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.clock = VirtualClock()
        self.happened: Counter[str] = Counter()
        self._contexts = self._born = 0
        self._wrong_clock, self._ahead_ms = wrong_clock, 0
        self._url = ledger if ":" in ledger else f"sqlite:///{ledger}"
        self._ledger = open_ledger(self._url)[0]
        timing = self._ledger.timing
        plans = [
            Plan(route, grace_ms=timing.grace_ms, offer_life_ms=timing.offer_life_ms)
            for route in routes
        ]
        self._plans = {
            plan.name: register(self._ledger, plan, self.clock.now(), "simulator") for plan in plans
        }
        self.ctx = self._context(self._ledger)
        made = inputs or {
            route.name: [plain_input(route, n) for n in range(items)] for route in routes
        }
        self._inputs = {name: list(given) for name, given in made.items()}
        self._fresh = {
            (route, route_plan.route.key_of(one))
            for route, route_plan in self._plans.items()
            for one in self._inputs[route]
        }
        self._meddler = Meddler(random.Random(self.dice.random()), faults)
        self._ear = Ear(random.Random(self.dice.random()), faults / 2)
        self._wanted = processes
        self._guarded = [
            (plan, stage)
            for plan in self._plans.values()
            for stage in plan.stages
            if stage.has_breaker
        ]
        self._alive: list[_Process] = []
        self._left_behind: list[Ledger] = []

    def run(self, steps: int = 1500, look_every: int = 250) -> SimulationReport:
        """Run so many steps with faults, then without. Raises AssertionError, with the seed, if a
        promise is broken."""
        happenings, weights = zip(*self._happenings(), strict=True)
        try:
            for step in range(steps):
                self.dice.choices(happenings, weights)[0]()
                if step % look_every == look_every - 1:
                    self._look(f"step {step}")
            self._calm_down()
            self._look("the end")
            self._look_at_the_end()
            return self._report()
        finally:
            self._close()

    def _happenings(self) -> list[tuple[Callable[[], None], float]]:
        """The possible next events, and their weights."""
        return [
            (self._move, 100),
            (self._hand_over, 4),
            (self._confirm, 5),
            (self._start, 2),
            (self._doom, 0.8),
            (self._jump, 1.5),
            (self._pause_or_resume, 0.7),
            (self._operate, 1),
            (self._stop, 0.3),
            *([(self._close_breakers, 0.5)] if self._guarded else []),
            *([(self._set_clock_wrong, 1.5)] if self._wrong_clock else []),
        ]

    # The world moves on ---------------------------------------------------------------------------
    def _move(self) -> None:
        """Some process handles its next event; time moves if no process has one now, and further if
        all is quiet."""
        if not self._alive:
            self._start()
            return
        if not any(process.runner.busy for process in self._alive) and self.dice.random() < 0.2:
            due = self._ledger.next_due(self._plans.values())
            if due is not None:
                self.clock.advance_to(min(due, self.clock.now() + DAY))
        self.clock.advance_to(min(process.runner.next_at() for process in self._alive))
        ready = [process for process in self._alive if process.runner.next_at() <= self.clock.now()]
        process = self.dice.choice(ready)
        try:
            process.runner.step()
        except Died:
            self._bury(process)

    def _start(self) -> None:
        if len(self._alive) >= self._wanted:
            return
        self._born += 1
        ledger = self._ledger if self._url == "memory:" else open_ledger(self._url)[0]
        ctx = self._context(cast(Ledger, MortalLedger(ledger)))
        seed = self.seed * 1_000 + self._born
        runner = SimRunner(
            self.clock, seed, duration=self._meddler.duration, meddle=self._meddler.meddle
        )
        station = Station(
            ctx, subscribers=[self._ear], runner=runner, holder=f"process-{self._born}"
        )
        station.heartbeat.start()
        watch = [station.clock_watch] if self._wrong_clock else []
        runner.enlist([*watch, station.heartbeat, *station.roles])
        self._alive.append(_Process(ledger, station, runner))
        self.happened["started"] += 1

    def _context(self, ledger: Ledger) -> Context:
        self._contexts += 1
        return Context(
            ledger,
            self._plans,
            self.clock,
            SeededChance(self.seed * 1_000 + self._contexts),
            MemoryBlobs(),
        )

    # What people and partners do ------------------------------------------------------------------
    def _hand_over(self) -> None:
        """Submit new inputs, known ones, one with other content, and a malformed one, and check
        each answer."""
        route = self.dice.choice(list(self._plans))
        chosen = self.dice.sample(self._inputs[route], min(4, len(self._inputs[route])))
        later = "1h" if self.dice.random() < 0.2 else None
        for receipt in submit(self.ctx, route, [*chosen, None], not_before=later):
            expected = (
                "new"
                if (route, receipt.key) in self._fresh
                else "known"
                if receipt.key
                else "malformed"
            )
            assert receipt.answer == expected, self._told(
                f"{route}/{receipt.key} was answered {receipt.answer!r}, not {expected!r}"
            )
            self._fresh.discard((route, receipt.key))
        self.happened["submitted"] += 1

    def _confirm(self) -> None:
        """Confirm any stage, whether the item is there, not yet there or past it; sometimes twice,
        sometimes with a failure."""
        plan = self._plans[self.dice.choice(list(self._plans))]
        stage = self.dice.choice(plan.stages)
        if not stage.external and self.dice.random() < 0.8:
            return
        key = plan.route.key_of(self.dice.choice(self._inputs[plan.name]))
        outcome = (
            Retry("simulated: they say no")
            if self.dice.random() < 0.2
            else Done({"receipt": self.dice.randrange(3)})
        )
        for _ in range(self.dice.choice([1, 1, 2])):
            confirm_outside(self.ctx, plan.name, key, stage.name, outcome, "partner")
        self.happened["confirmed"] += 1

    def _pause_or_resume(self) -> None:
        held = list(self._ledger.read(HOLD))
        plan = self._plans[self.dice.choice(list(self._plans))]
        if held and self.dice.random() < 0.7:
            for name in held:
                resume(self.ctx, *name.split("/"), by="ops", reason="simulated")
        else:
            pause(
                self.ctx,
                plan.name,
                self.dice.choice([None, *plan.by_name]),
                by="ops",
                reason="simulated",
            )
            self.happened["paused"] += 1

    def _close_breakers(self) -> None:
        plan, stage = self.dice.choice(self._guarded)
        self.happened["breakers closed"] += len(
            close_breakers(self.ctx, plan.name, stage.name, by="ops", reason="simulated")
        )

    def _operate(self) -> None:
        plan = self._plans[self.dice.choice(list(self._plans))]
        place = self._place_to_act_on(plan)
        given = self._inputs[plan.name][place]
        verb = self.dice.choice(
            ["retry", "retry", "skip", "cancel", "resend", "rerun", "replace", "reschedule"]
        )
        options: dict[str, Any] = {}
        if verb == "rerun":
            options = {
                "stage": self.dice.choice([None, *plan.by_name]),
                "as_new": self.dice.random() < 0.5,
            }
        elif verb == "reschedule":
            options = {"not_before": self.dice.choice(["0s", "30s", "2h"])}
        elif verb == "replace":
            if not isinstance(given, dict) or plan.route.carries is not None:
                return
            changed = {**given, "replaced": self.dice.randrange(1_000_000)}
            options = {
                "content": changed,
                "here": self.dice.random() < 0.5,
                "rerun": self.dice.random() < 0.5,
            }
        selection = select(self.ctx, plan.name, keys=[plan.route.key_of(given)])
        done = act(self.ctx, selection, verb_of(verb, **options), by="ops", reason="simulated").done
        if verb == "replace" and done:
            self._inputs[plan.name][place] = options["content"]
        self.happened[verb] += done

    def _place_to_act_on(self, plan: Plan) -> int:
        """Half of the time one of the inputs whose item is here and not completed, because most
        verbs are for those; otherwise any."""
        inputs = self._inputs[plan.name]
        if self.dice.random() < 0.5:
            open_keys = {
                item.key
                for item in every_item(self._ledger, plan.name)
                if item.row.status is not Status.COMPLETED
            }
            places = [
                place for place, given in enumerate(inputs) if plan.route.key_of(given) in open_keys
            ]
            if places:
                return self.dice.choice(places)
        return self.dice.randrange(len(inputs))

    # What goes wrong ------------------------------------------------------------------------------
    def _doom(self) -> None:
        """A process crashes: now, or before or after its next claim, settle or heartbeat."""
        if not self._alive:
            return
        process = self.dice.choice(self._alive)
        if self.dice.random() < 0.3:
            self._bury(process)
        else:
            cast(MortalLedger, process.station.ctx.ledger).doomed = (
                self.dice.choice(["before", "after"]),
                self.dice.choice(MORTAL),
            )

    def _bury(self, process: _Process) -> None:
        """The process is gone with everything it held. Its neighbours may have proof, or must wait
        for the leases to expire."""
        self._alive.remove(process)
        process.runner.close()
        self.happened["died"] += 1
        if self.dice.random() < 0.6:
            prove_dead(process.ledger, process.station.holder)
        if process.ledger is not self._ledger:
            self._left_behind.append(process.ledger)

    def _stop(self) -> None:
        """A process is stopped properly: it drains."""
        if not self._alive:
            return
        process = self.dice.choice(self._alive)
        worker = process.station.worker
        assert worker is not None
        process.station.stop()
        try:
            while not worker.drained:
                self.clock.advance_to(process.runner.next_at())
                process.runner.step()
            process.station.heartbeat.stop()
        except Died:
            self._bury(process)
            return
        self._alive.remove(process)
        process.runner.close()
        if process.ledger is not self._ledger:
            process.ledger.close()
        self.happened["stopped"] += 1

    def _jump(self) -> None:
        if self.dice.random() < 0.4:
            self.clock.set_back(self.dice.uniform(0.001, 5))
        else:
            self.clock.advance(self.dice.choice(["1s", "20s", "45s", "10m", "2h", "2d"]))
        self.happened["clock jumped"] += 1

    def _set_clock_wrong(self) -> None:
        """The machine's clock is set days ahead, and later back to the true time; every process
        follows it, as `SystemClock` does."""
        if self._ahead_ms:
            self.clock.set_back(timedelta(milliseconds=self._ahead_ms))
            for process in self._alive:
                process.runner.set_back(self._ahead_ms)
            self._ahead_ms = 0
        else:
            self._ahead_ms = self.dice.choice([1, 3]) * DAY
            self.clock.advance(timedelta(milliseconds=self._ahead_ms))
            self.happened["clock set ahead"] += 1

    # What must hold -------------------------------------------------------------------------------
    def _look(self, when: str) -> None:
        wrong = [
            f"{plan.name}: {one}"
            for plan in self._plans.values()
            for one in problems(self._ledger, plan.name, plan)
        ]
        wrong += self._meddler.wrong
        wrong += self._wrong_breakers()
        assert not wrong, self._told("\n  ".join([when, *wrong[:20]]))

    def _wrong_breakers(self) -> list[str]:
        """Breakers that let more items through than their stage allows, or that belong to nothing
        any more."""
        wrong, now = [], self.clock.now()
        lanes = {(plan.name, stage.name): stage for plan, stage in self._guarded}
        for name, document in self._ledger.read(BREAKER).items():
            route, stage, lane = name.split("/", 2)
            record = read_as(BreakerRecord, document.value)
            breaker = lanes[route, stage].breaker_of(lane) if (route, stage) in lanes else None
            self.happened["breakers seen open"] += not record.closed
            if breaker is None:
                wrong.append(f"{name} has a breaker's record, but no breaker")
            elif len(record.failures) >= breaker.failures:
                wrong.append(
                    f"the breaker of {name} is closed after {len(record.failures)} failures"
                )
            elif sum(now < probe.until for probe in record.probes) + record.passed > breaker.probes:
                wrong.append(
                    f"the breaker of {name} has let {len(record.probes)} items through after {record.passed} that passed"
                )
        return wrong

    def _calm_down(self) -> None:
        """Stop the faults. Every remaining item gets what it waits for: time, workers, answers."""
        for process in list(self._alive):
            self._bury(process)
        if self._ahead_ms:
            self._set_clock_wrong()
        if self._wrong_clock:
            make_due(self.ctx)
        for name in list(self._ledger.read(HOLD)):
            resume(self.ctx, *name.split("/"), by="ops", reason="calm")
        self._ear.share = 0
        for route, inputs in self._inputs.items():
            submit(self.ctx, route, inputs)
        for _ in range(
            1 + sum(stage.external for plan in self._plans.values() for stage in plan.stages)
        ):
            run_until_rest(
                self.ctx, self.clock, [self._ear], self.clock.now() + 60 * DAY, self.seed
            )
            for plan in self._plans.values():
                for item in every_item(self._ledger, plan.name):
                    if not item.row.terminal and plan.by_name[item.stage].external:
                        confirm_outside(
                            self.ctx, plan.name, item.key, item.stage, Done(True), "partner"
                        )
        run_until_rest(self.ctx, self.clock, [self._ear], self.clock.now() + DAY, self.seed)

    def _look_at_the_end(self) -> None:
        """Checks of whole histories: no outcome counts after its loss, and all events were
        delivered in order."""
        for plan in self._plans.values():
            assert self._ledger.next_due([plan]) is None, self._told(f"{plan.name} is not idle")
            for item in every_item(self._ledger, plan.name):
                lost: set[tuple[str | None, int | None]] = set()
                expected: list[str] = []
                for written in self._ledger.history(plan.name, item.key):
                    line = written.line
                    expected += [
                        event.id
                        for event in events_of(line, plan.name, item.key, item.row.correlation_id)
                    ]
                    who = (line.by, line.since)
                    assert line.since is None or who not in lost, self._told(
                        f"{item.key}: {line} is from a worker that was lost"
                    )
                    if line.reason is Reason.LOST:
                        lost.add(who)
                heard = list(dict.fromkeys(self._ear.heard.get((plan.name, item.key), [])))
                assert heard == expected, self._told(
                    f"{item.key}: events delivered {heard}, its history has {expected}"
                )

    def _report(self) -> SimulationReport:
        statuses = Counter(
            item.row.status.value for name in self._plans for item in every_item(self._ledger, name)
        )
        lines = self._ledger.feed(0, 10_000_000)
        digest = sha256(b"\n".join(line.previous + line.body for line in lines)).hexdigest()
        return SimulationReport(
            self.seed,
            dict(sorted(self.happened.items())),
            dict(sorted(statuses.items())),
            len(lines),
            digest,
        )

    def _told(self, what: str) -> str:
        return f"seed {self.seed}: {what}"

    def _close(self) -> None:
        for process in list(self._alive):
            self._bury(process)
        for ledger in [*self._left_behind, self._ledger]:
            ledger.close()
