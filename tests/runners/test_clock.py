"""Time never stands still because the machine's clock was set back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import milepost as mp
from milepost.composition import open_context
from milepost.runners.clock import SystemClock


class Times:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall = 1_700_000_000_000
        self.steady = 5_000
        monkeypatch.setattr(time, "time_ns", lambda: self.wall * 1_000_000)
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.steady * 1_000_000)

    def pass_(self, ms: int) -> None:
        self.wall += ms
        self.steady += ms


def test_a_clock_set_back_goes_on_from_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    times = Times(monkeypatch)
    clock = SystemClock()
    times.pass_(1_000)
    before = clock.now()
    assert before == times.wall
    times.wall -= 3_600_000
    times.pass_(250)
    assert clock.now() == before + 250
    times.wall += 7_200_000
    assert clock.now() == times.wall


@pytest.mark.parametrize(("back_ms", "follows"), [(3_600_000, True), (3 * 86_400_000, False)])
def test_a_process_that_starts_after_the_clock_was_set_back_goes_on_from_the_newest_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back_ms: int, follows: bool
) -> None:
    times = Times(monkeypatch)
    route = mp.Route("parcels", key="id")
    route.stage("weigh")(lambda item: mp.Done())
    url = f"sqlite:///{tmp_path}/m.db"
    with mp.open(url, [route]) as post:
        post.submit("parcels", {"id": "a"})
    written = times.wall
    times.wall -= back_ms
    ctx = open_context(url, [route])
    assert (ctx.clock.now() >= written) is follows
    ctx.ledger.close()
