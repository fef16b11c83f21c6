"""The simulator on both ledgers, and the helpers with which users test their own routes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.seeds import seeds

import milepost as mp
from milepost.ledgers.memory import MemoryLedger
from milepost.ports.items import Conflict
from milepost_testing import (
    SeededChance,
    SimRunner,
    Simulator,
    VirtualClock,
    assert_item,
    audit,
    drain,
)
from milepost_testing.simulator import SimulationReport

DAY = 86_400_000


def routes() -> list[mp.Route]:
    """Every kind of stage there is: lanes, a probe, batches, async with a timeout, checks, a rate,
    an external one."""
    parcels = mp.Route("parcels", key="id")

    @parcels.stage(
        "weigh",
        retry=mp.Backoff(attempts=3, base=1),
        verify=lambda item: None,
        lane=lambda content: f"lane{content['n'] % 3}",
    )
    def weigh(item: mp.Item) -> mp.Outcome:
        return mp.Done({"grams": 340})

    @parcels.stage("pack", batch=4, concurrency=2, retry=mp.Backoff(attempts=4, base=5))
    def pack(items: list[mp.Item]) -> list[mp.Outcome]:
        return [mp.Done() for _ in items]

    @parcels.stage("post", timeout=10, concurrency=3, checks=mp.Checks(every="10m", overdue="1d"))
    async def post(item: mp.Item) -> mp.Outcome:
        await asyncio.sleep(0.5)
        return mp.Done({"posted": item.work_id})

    parcels.external("delivered", resend_after="2d", overdue="5d")

    letters = mp.Route("letters", key=("sender", "number"))

    @letters.stage("one", rate="50/s")
    def one(item: mp.Item) -> mp.Outcome:
        return mp.Done()

    @letters.stage("two", verify=lambda item: mp.Done({"found": 1}) if item.row.losses else False)
    def two(item: mp.Item) -> mp.Outcome:
        return mp.Done({"two": 2})

    return [parcels, letters]


def check(report: SimulationReport, items: int) -> None:
    ended = {"COMPLETED", "MAX_RETRIES_EXCEEDED", "REJECTED", "CANCELLED"}
    assert sum(report.statuses.values()) == items
    assert set(report.statuses) <= ended, "when all has calmed down, everything has ended"


@pytest.mark.parametrize("seed", seeds(30, quick=6))
def test_every_promise_holds_in_memory(seed: int) -> None:
    check(Simulator(seed, routes(), faults=0.3, items=16).run(2_000), 32)


@pytest.mark.parametrize("seed", seeds(10, quick=3))
def test_every_promise_holds_on_sqlite(seed: int, tmp_path: Path) -> None:
    check(
        Simulator(1_000 + seed, routes(), str(tmp_path / "sim.db"), faults=0.3, items=6).run(500),
        12,
    )


@pytest.mark.parametrize("seed", seeds(20, quick=4))
def test_every_promise_holds_where_the_clock_is_days_ahead_at_times(seed: int) -> None:
    """The promise "One clock": every item ends, and no promise is broken on the way."""
    simulator = Simulator(3_000 + seed, routes(), faults=0.3, items=16, wrong_clock=True)
    report = simulator.run(2_000)
    check(report, 32)
    assert report.happened["clock set ahead"] > 0


def test_the_same_seed_gives_the_same_run_to_the_letter(tmp_path: Path) -> None:
    first, second, other = (Simulator(seed, routes(), items=8).run(1_000) for seed in (5, 5, 6))
    assert first == second
    assert first.digest != other.digest
    assert Simulator(5, routes(), str(tmp_path / "a.db"), items=4).run(300) == Simulator(
        5, routes(), str(tmp_path / "b.db"), items=4
    ).run(300)


def test_what_is_to_go_wrong_goes_wrong() -> None:
    """Else the runs above would show little."""
    reasons: dict[str, int] = {}
    happened: dict[str, int] = {}
    for seed in range(4):
        simulator = Simulator(seed, routes(), faults=0.4)
        report = simulator.run(3_000)
        for written in simulator.ctx.ledger.feed(0, 1_000_000):
            reasons[written.line.reason.value] = reasons.get(written.line.reason.value, 0) + 1
        for what, times in report.happened.items():
            happened[what] = happened.get(what, 0) + times
    for reason in (
        "lost", "late", "given-back", "kept", "noted", "confirmed", "retry", "exhausted", "rejected", "not-yet", "handed-over",
        "resent", "overdue", "operator-retry", "skipped", "cancelled",
    ):  # fmt: skip
        assert reasons.get(reason, 0) > 0, f"no line says {reason!r}: {reasons}"
    assert happened["died"] > 20
    assert (
        min(
            happened[what]
            for what in ("started", "stopped", "clock jumped", "paused", "submitted", "confirmed")
        )
        > 5
    ), happened


class Careless(MemoryLedger):
    """A ledger that writes whatever it is given, whoever holds the lease by now."""

    def _apply(self, change: Any, versions: dict[str, int]) -> Conflict | None:
        record = self._state.records[change.before.route, change.before.key]
        self._state.write(record, change)
        return None


def test_a_ledger_that_does_not_fence_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.ledgers.memory.MemoryLedger", Careless)
    with pytest.raises(AssertionError, match="seed"):
        for seed in range(10):
            Simulator(seed, routes()).run()


def test_an_engine_that_forgets_the_probe_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.engine.work.execute._probe_plain", lambda stage, item: None)
    with pytest.raises(AssertionError, match="without a verify probe"):
        for seed in range(10):
            Simulator(seed, routes()).run()


# Drain --------------------------------------------------------------------------------------------
@pytest.fixture(params=["memory:", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory:" else f"sqlite:///{tmp_path / 'drain.db'}"


def weekly(answers: list[Any], **options: Any) -> mp.Route:
    """A stage that answers in turn; the last answer holds from then on."""
    route = mp.Route("parcels", key="id")

    @route.stage(
        "weigh",
        **{"retry": mp.Backoff(attempts=5, base="7d", factor=1, cap="7d", jitter=0), **options},
    )
    async def weigh(item: mp.Item) -> mp.Outcome:
        await asyncio.sleep(3)
        answer: mp.Outcome = answers.pop(0) if len(answers) > 1 else answers[0]
        return answer

    route.external("delivered")
    return route


def test_a_week_of_waiting_takes_a_moment(url: str) -> None:
    clock = VirtualClock()
    began = clock.now()
    with mp.open(
        url,
        [weekly([mp.Retry("busy"), mp.NotYet(after="3d"), mp.Done()])],
        clock=clock,
        chance=SeededChance(),
    ) as post:
        post.submit("parcels", {"id": "a"})
        assert drain(post, clock) == clock.now()
        assert clock.now() - began == pytest.approx(10 * DAY, abs=60_000)
        assert_item(post, "parcels", "a", stage="delivered", status="QUEUED", attempts=0)
        assert drain(post.context, clock) == clock.now(), "external items are not waited for"
        audit(post.context.ledger, "parcels", post.context.plan("parcels"))


def test_silence_after_handing_over_is_waited_out_too(url: str) -> None:
    clock = VirtualClock()
    with mp.open(
        url, [weekly([mp.HandedOver(within="2d")])], clock=clock, chance=SeededChance()
    ) as post:
        post.submit("parcels", {"id": "a"})
        drain(post, clock)
        item = assert_item(
            post, "parcels", "a", stage="weigh", status=mp.Status.MAX_RETRIES_EXCEEDED, attempts=5
        )
        assert item.row.error is not None
        assert item.row.error.category == "NO_ANSWER"


def test_what_never_comes_to_rest_is_told(url: str) -> None:
    clock = VirtualClock()
    route = weekly([mp.NotYet()], checks=mp.Checks(every="1h", up_to="1h"))
    with mp.open(url, [route], clock=clock, chance=SeededChance()) as post:
        post.submit("parcels", {"id": "a"})
        with pytest.raises(
            AssertionError, match=r"(?s)not idle after 2 d.*parcels/a: WAITING at 'weigh'"
        ):
            drain(post, clock, at_most="2d")


def test_paused_items_are_left_and_rates_are_kept(url: str) -> None:
    from milepost.engine.acts.controls import pause

    clock = VirtualClock()
    route = mp.Route("parcels", key="id")
    route.stage("weigh", rate="1/m")(lambda item: mp.Done())
    held = mp.Route("held", key="id")
    held.stage("weigh")(lambda item: mp.Done())
    with mp.open(url, [route, held], clock=clock, chance=SeededChance()) as post:
        pause(post.context, "held", by="ops", reason="test")
        post.submit("held", {"id": "a"})
        post.submit("parcels", *({"id": f"k{number}"} for number in range(10)))
        began = clock.now()
        drain(post, clock)
        assert 8 * 60_000 <= clock.now() - began <= 10 * 60_000
        assert_item(post, "parcels", "k9", status="COMPLETED")
        assert_item(post, "held", "a", status="QUEUED")


class RecordingSubscriber:
    name = "ear"
    batch = 10

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.heard: list[str] = []

    def tell(self, envelopes: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("away")
        self.heard += [envelope["data"]["reason"] for envelope in envelopes]


def test_subscribers_are_told_before_it_rests(url: str) -> None:
    clock, own, given = VirtualClock(), RecordingSubscriber(4), RecordingSubscriber(0)
    given.name = "given"
    route = mp.Route("parcels", key="id")
    route.stage("weigh")(lambda item: mp.Done())
    with mp.open(url, [route], clock=clock, chance=SeededChance(), subscribers=[own]) as post:
        post.submit("parcels", {"id": "a"})
        drain(post, clock, subscribers=[given])
    assert own.heard == given.heard == ["accepted", "completed"]


# assert_item --------------------------------------------------------------------------------------
def test_assert_item_says_what_it_found_instead() -> None:
    clock = VirtualClock()
    with mp.open(
        "memory:", [weekly([mp.Retry("the scale is busy")])], clock=clock, chance=SeededChance()
    ) as post:
        post.submit("parcels", {"id": "a"})
        drain(post, clock)
        assert assert_item(post, "parcels", "a").key == "a"
        with pytest.raises(AssertionError) as told:
            assert_item(post, "parcels", "a", stage="weigh", status="COMPLETED", attempts=1)
        text = str(told.value)
        assert "status is 'MAX_RETRIES_EXCEEDED', not 'COMPLETED'" in text
        assert "attempts is 5, not 1" in text
        assert "stage is" not in text
        assert "the scale is busy" in text
        with pytest.raises(AssertionError, match="never submitted"):
            assert_item(post, "parcels", "nobody")


# SimRunner ----------------------------------------------------------------------------------------
def test_a_station_on_the_sim_runner_takes_no_real_time_and_is_the_same_every_time() -> None:
    from milepost.station import Station

    def run(seed: int) -> tuple[int, list[str]]:
        clock, order = VirtualClock(), []
        route = mp.Route("parcels", key="id")

        @route.stage("weigh", concurrency=2)
        async def weigh(item: mp.Item) -> mp.Outcome:
            await asyncio.sleep(60)
            order.append(item.key)
            return mp.Done()

        @route.stage("stamp", concurrency=2)
        def stamp(item: mp.Item) -> mp.Outcome:
            order.append(item.key + "!")
            return mp.Done()

        with mp.open("memory:", [route], clock=clock, chance=SeededChance()) as post:
            post.submit("parcels", *({"id": f"k{number}"} for number in range(4)))
            Station(post.context, runner=SimRunner(clock, seed), holder="me").run(until_idle_s=1)
            assert_item(post, "parcels", "k3", status="COMPLETED")
            return clock.now(), order

    assert run(1) == run(1)
    assert run(1)[0] - VirtualClock().now() >= 2 * 60_000
    assert any(run(1) != run(seed) for seed in (2, 3, 4))
