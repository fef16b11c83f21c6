"""Circuit breakers in the simulator: with processes that die, clocks that jump and partners that
fail, everything still ends."""

from __future__ import annotations

from pathlib import Path

import pytest

import milepost as mp
from milepost_testing import Simulator

ENDED = {"COMPLETED", "MAX_RETRIES_EXCEEDED", "REJECTED", "CANCELLED"}


def calls() -> mp.Route:
    """Two stages with breakers: one with a breaker for each lane, one of them with settings of its
    own; one without lanes."""
    route = mp.Route("calls", key="id")

    @route.stage(
        "deliver",
        lane=lambda content: f"partner{content['n'] % 3}",
        lanes={
            "partner0": mp.Limits(
                breaker=mp.Breaker(failures=1, cooldown="1m", probes=2),
                retry=mp.Backoff(attempts=2, base=1),
            )
        },
        breaker=mp.Breaker(failures=2, within="10m", cooldown="20s"),
        retry=mp.Backoff(attempts=5, base=1),
    )
    def deliver(item: mp.Item) -> mp.Outcome:
        return mp.Done()

    @route.stage(
        "report",
        breaker=mp.Breaker(failures=2, within="1h", cooldown="5s"),
        retry=mp.Backoff(attempts=4, base=1),
    )
    async def report(item: mp.Item) -> mp.Outcome:
        return mp.Done()

    return route


@pytest.mark.parametrize("seed", range(12))
def test_every_promise_holds_in_memory(seed: int) -> None:
    report = Simulator(seed, [calls()], faults=0.4, items=16).run(1_500, look_every=25)
    assert sum(report.statuses.values()) == 16
    assert set(report.statuses) <= ENDED
    assert report.happened["breakers seen open"], "else this would show little"


@pytest.mark.parametrize("seed", range(6))
def test_every_promise_holds_on_sqlite(seed: int, tmp_path: Path) -> None:
    report = Simulator(2_000 + seed, [calls()], str(tmp_path / "sim.db"), faults=0.4, items=8).run(
        500, look_every=25
    )
    assert sum(report.statuses.values()) == 8
    assert set(report.statuses) <= ENDED
    assert report.happened["breakers seen open"]
