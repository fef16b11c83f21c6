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


def test_a_clock_set_back_by_minutes_never_shows_an_earlier_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = Times(monkeypatch)
    clock = SystemClock()
    before = clock.now()
    times.wall -= 299_000
    times.pass_(1_000)
    state = clock.check()
    assert clock.now() == before + 1_000
    assert state.offset_ms == 299_000
    assert state.since == clock.now()


def test_a_clock_set_back_by_more_is_noticed_and_the_process_starts_from_the_machines_clock(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    times = Times(monkeypatch)
    clock = SystemClock()
    times.wall -= 3 * 86_400_000
    state = clock.check()
    assert clock.now() == times.wall
    assert (state.source, state.offset_ms, state.since, state.doubt) == (
        "this machine's clock",
        0,
        times.wall,
        "",
    )
    assert [record.getMessage() for record in caplog.records] == [
        "this machine's clock was set back by 3 d",
        "the time of this process was 3 d ahead of this machine's clock; it starts from that clock anew",
    ]


def test_a_clock_set_forward_is_noticed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    times = Times(monkeypatch)
    clock = SystemClock()
    times.wall += 3_600_000
    clock.check()
    clock.check()
    assert [record.getMessage() for record in caplog.records] == [
        "this machine's clock was set forward by 1 h"
    ]


def test_a_clock_that_slews_is_not_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    times = Times(monkeypatch)
    clock = SystemClock()
    for _ in range(10):
        times.pass_(1_000)
        times.wall -= 500
        clock.check()
    assert caplog.records == []


@pytest.mark.parametrize(
    ("back_ms", "follows"), [(299_000, True), (301_000, False), (3 * 86_400_000, False)]
)
def test_a_process_goes_on_from_the_newest_line_if_that_is_at_most_five_minutes_ahead(
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
