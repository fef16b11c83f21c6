"""Lanes within a wider lane: a pause of the wider one holds them back, and every view says so."""

from __future__ import annotations

from typing import Any

import pytest

import milepost as mp
from milepost.engine.acts.controls import pause
from milepost.engine.health.doctor import doctor
from milepost.engine.views.forecast import route_forecast
from milepost.engine.views.lanes import WaitingCount, count_waiting
from milepost_testing import VirtualClock

SIGNED: dict[str, Any] = {"by": "ops", "reason": "the partner asked for it"}


@pytest.fixture
def desk() -> mp.Milepost:
    """Two items in lanes of two senders to the same host, and one to another host."""
    route = mp.Route("calls", key="id")

    @route.stage("send", lane=lambda content: content["to"])
    def send(item: mp.Item) -> mp.Outcome:
        return mp.Done()

    desk = mp.open("memory:", [route], clock=VirtualClock())
    for key, to in (("a", "shop@host:443"), ("b", "news@host:443"), ("c", "shop@other:443")):
        desk.submit("calls", {"id": key, "to": to})
    return desk


def test_a_pause_of_a_wider_lane_counts_the_items_within_it(desk: mp.Milepost) -> None:
    assert count_waiting(desk.context, "calls", "send", "host:443") == WaitingCount(2, [])
    assert count_waiting(desk.context, "calls", "send", "shop@host:443") == WaitingCount(1, [])
    typo = count_waiting(desk.context, "calls", "send", "host:434")
    assert typo is not None
    assert (typo.n, typo.near[0]) == (0, "host:443")


def test_a_forecast_does_not_promise_items_within_a_paused_wider_lane(desk: mp.Milepost) -> None:
    pause(desk.context, "calls", "send", "host:443", **SIGNED)
    forecast = route_forecast(desk.context, "calls")
    assert forecast is not None
    assert (forecast.moving, forecast.waiting) == (1, 2)


def test_work_within_a_paused_wider_lane_is_not_reported_as_late(desk: mp.Milepost) -> None:
    pause(desk.context, "calls", "send", "other:443", **SIGNED)
    pause(desk.context, "calls", "send", "host:443", **SIGNED)
    clock = desk.context.clock
    assert isinstance(clock, VirtualClock)
    clock.advance("1h")
    assert "late" not in {finding.about for finding in doctor(desk.context).findings}
