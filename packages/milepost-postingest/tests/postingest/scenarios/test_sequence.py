"""Random steps and failures: each asset in each batch has the notifications update, update,
complete in this order, with the same ids when repeated, and complete only when every stage was
confirmed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.postingest.in_process_scene import InProcessScene, Offer, url_of
from tests.postingest.scenarios.sequence_scene import FILES, Oracle, confirmations, on_tape
from tests.seeds import examples

import milepost as mp
from milepost.core.status import FAILED
from milepost.core.values.key_text import key_parts
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.verbs import RetryVerb
from milepost.engine.context import Context
from milepost.ports.ledger import Ledger
from milepost.station import Station
from milepost_testing import SeededChance, SimRunner, problems
from milepost_testing.simulator_faults import MORTAL, Died, MortalLedger, prove_dead

DAY = 86_400_000
OTHER_CONTENT = {"preservationSystemId": "another"}

ANY_STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 2), st.booleans()),
    confirmations(),
    confirmations(),
    st.tuples(st.just("answer"), st.integers(0, 50)),
    st.tuples(st.just("arrive"), st.integers(0, 2), st.integers(0, 1)),
    st.tuples(st.just("wait"), st.sampled_from(["1s", "2m", "7h", "14d", "31d"])),
    st.tuples(st.just("deafen"), st.booleans()),
    st.tuples(st.just("trouble"), st.sampled_from(["raise", "retry", "reject"])),
    st.tuples(
        st.just("die"), st.sampled_from(["before", "after"]), st.sampled_from(MORTAL), st.booleans()
    ),
    st.just(("run",)),
)
STEPS = st.lists(ANY_STEP, min_size=4, max_size=30)


class World:
    """The route on a ledger, confirmed by somebody else or by workers of ours, and what happens to
    it."""

    def __init__(self, url: str, dialect: str, ours: bool) -> None:
        self.oracle = Oracle(dialect)
        self.last, self.keys = self.oracle.last, self.oracle.keys
        self.there: set[tuple[str, str]] = set()
        """What a worker of ours would find."""
        self.troubles: list[str] = []
        self.offers: list[Offer] = []
        self.deaths = 0
        options: dict[str, Any] = {}
        if ours:
            kinds = (("CC", "ocfl"), (self.last, "scoutam"))
            options["queues"] = [
                {"queueAlias": alias, "queueOrder": n, "worker": kind}
                for n, (alias, kind) in enumerate(kinds, 1)
            ]
            options["workers"] = {alias: self._look for alias, _ in kinds}
        self.scene = InProcessScene(url, dialect=dialect, **options)

    def _look(self, item: mp.Item) -> mp.Outcome:
        if self.troubles:
            match self.troubles.pop():
                case "raise":
                    raise RuntimeError("the tape library is on fire")
                case "retry":
                    return mp.Retry("busy")
                case _:
                    return mp.Reject("damaged")
        if (item.key, item.stage) not in self.there:
            return mp.NotYet(note="not there yet")
        value = FILES[0] if item.stage == "CC" else on_tape(item.payload)
        self.oracle.say(item.key, item.stage, value)
        return mp.Done(value)

    # What happens ---------------------------------------------------------------------------------
    def do(self, name: str, *values: Any) -> None:
        getattr(self, f"_{name}")(*values)
        self.check()

    def _put(self, number: int, other: bool) -> None:
        asset, batch = key_parts(self.keys[number])
        self.scene.put(asset, OTHER_CONTENT if other else {"preservationSystemId": asset}, batch)

    def _confirm(self, number: int, place: int, value: Any) -> None:
        key, stage = self.keys[number], ("CC", self.last)[place]
        self.oracle.say(key, stage, value)
        asset, batch = key_parts(key)
        try:
            self.scene.confirm(stage, value, asset, batch)
        except mp.ActRefused:
            pass  # it is not there, or that confirms nothing

    def _answer(self, number: int) -> None:
        """Somebody comes upon an old offer, or a new one, and does what it asks for."""
        self.offers += self.scene.offers
        self.scene.offers.clear()
        if self.offers:
            offer = self.offers[number % len(self.offers)]
            first = offer.stage == "CC"
            usable = isinstance(offer.payload, dict) and "filePaths" in offer.payload
            value = FILES[0] if first else on_tape(offer.payload) if usable else {"a": ["L1"]}
            self._confirm(self.keys.index(offer.key), 0 if first else 1, value)

    def _arrive(self, number: int, place: int) -> None:
        self.there.add((self.keys[number], ("CC", self.last)[place]))

    def _wait(self, span: str) -> None:
        self.scene.clock.advance(span)
        self.scene.run()

    def _deafen(self, deaf: bool) -> None:
        self.scene.deaf = deaf

    def _trouble(self, kind: str) -> None:
        self.troubles.append(kind)

    def _run(self) -> None:
        self.scene.run()

    def _die(self, moment: str, verb: str, proved: bool) -> None:
        """A process that dies before or after its next write of this kind."""
        scene, self.deaths = self.scene, self.deaths + 1
        self.oracle.repeats = True
        ledger = MortalLedger(scene.ctx.ledger)
        ctx = Context(
            cast(Ledger, ledger),
            scene.ctx.plans,
            scene.clock,
            SeededChance(self.deaths),
            scene.ctx.blobs,
        )
        runner = SimRunner(scene.clock, self.deaths)
        station = Station(
            ctx, subscribers=scene.subscribers, runner=runner, holder=f"mortal-{self.deaths}"
        )
        station.heartbeat.start()
        runner.enlist(station.roles)
        ledger.doomed = (moment, verb)
        try:
            for _ in range(4):
                runner.everybody()
                scene.clock.advance("50ms")
        except Died:
            pass
        runner.close()
        if proved:
            prove_dead(scene.ctx.ledger, station.holder)

    # What must hold -------------------------------------------------------------------------------
    def results(self) -> dict[str, dict[str, Any]]:
        """The results on each row; those of a row that has left (the route keeps no ended rows) are
        not there."""
        items = self.scene.ctx.ledger.get([("postingest", key) for key in self.keys])
        return {
            key: item.results
            for key, item in zip(self.keys, items, strict=True)
            if item is not None
        }

    def check(self) -> None:
        self.oracle.check(self.scene.heard, self.results())

    def calm_down(self) -> None:
        """No more trouble: what is missing is put, what failed is started again, and each stage
        gets the answer it waits for."""
        scene = self.scene
        scene.deaf, self.troubles = False, []
        for number, key in enumerate(self.keys):
            self._put(number, other=False)
            self.there |= {(key, "CC"), (key, self.last)}
        for _ in range(3):
            scene.run(scene.clock.now() + 2 * DAY)
            for number, item in enumerate(
                scene.ctx.ledger.get([("postingest", key) for key in self.keys])
            ):
                if item is None:
                    continue  # it has completed and left
                if item.row.status in FAILED:
                    act(
                        scene.ctx,
                        select(scene.ctx, "postingest", keys=[item.key]),
                        RetryVerb(),
                        by="ops",
                        reason="mended",
                    )
                if (
                    not item.row.terminal
                    and scene.ctx.plan("postingest").by_name[item.stage].external
                ):
                    place = 0 if item.stage == "CC" else 1
                    usable = isinstance(item.payload, dict) and "filePaths" in item.payload
                    self._confirm(
                        number,
                        place,
                        FILES[0]
                        if place == 0
                        else on_tape(item.payload)
                        if usable
                        else {"a": ["L1"]},
                    )
        scene.run(scene.clock.now() + 2 * DAY)
        self.oracle.check_end(scene.heard, self.results())
        assert list(problems(scene.ctx.ledger, "postingest", scene.ctx.plan("postingest"))) == []


@contextmanager
def world(ledger: str, dialect: str, ours: bool) -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder:
        made = World(url_of(ledger, Path(folder)), dialect, ours)
        try:
            yield made
        finally:
            made.scene.close()


def see_through(ledger: str, dialect: str, ours: bool, steps: list[tuple[Any, ...]]) -> None:
    with world(ledger, dialect, ours) as made:
        for step in steps:
            made.do(*step)
        made.calm_down()


@pytest.mark.parametrize("dialect", ["seed", "today"])
@pytest.mark.parametrize("ours", [False, True], ids=["their confirmers", "our workers"])
@given(steps=STEPS)
@settings(max_examples=examples(80, thorough=200))
def test_update_update_complete_whatever_happens(
    dialect: str, ours: bool, steps: list[tuple[Any, ...]]
) -> None:
    see_through("memory", dialect, ours, steps)


@pytest.mark.parametrize("ours", [False, True], ids=["their confirmers", "our workers"])
@given(steps=STEPS)
@settings(max_examples=examples(8, thorough=60))
def test_update_update_complete_in_a_file(ours: bool, steps: list[tuple[Any, ...]]) -> None:
    see_through("sqlite", "today", ours, steps)
