"""A process that is not sure of the time claims and resends nothing; what it has claimed it settles and keeps."""

from __future__ import annotations

import pytest
from tests.engine.work.stepped_worker import SteppedWorker, add, context, row

from milepost.core.outcome import Done
from milepost.core.routes.route import Route
from milepost.core.status import Status
from milepost.engine.resend import Resender
from milepost.engine.work.remote import Remote, RemoteClaimRequest
from milepost.ports.clock import ClockState
from milepost.ports.ledger import Ledger
from milepost.testing.clock import VirtualClock


class UnsureClock(VirtualClock):
    doubt = ""

    def check(self) -> ClockState:
        return ClockState("a clock", doubt=self.doubt)

    def follow(self, moment: int) -> None: ...


@pytest.fixture
def clock() -> UnsureClock:
    return UnsureClock()


def test_a_worker_claims_nothing_and_settles_what_it_has(ledger: Ledger, clock: UnsureClock) -> None:
    route = Route("parcels")
    route.stage("weigh", concurrency=1)(lambda item: Done())
    ctx = context(ledger, clock, route)
    stepped = SteppedWorker(ctx, clock, weigh=40_000)
    add(ctx, "parcels", "a", "b")
    stepped.work(1_000)
    [running] = stepped.in_hand()
    clock.doubt = "it has had no answer for 61 s"
    stepped.work(60_000)
    other = "a" if running.key == "b" else "b"
    assert row(ctx, "parcels", running.key).status is Status.COMPLETED
    assert row(ctx, "parcels", other).status is Status.QUEUED
    clock.doubt = ""
    stepped.work(60_000)
    assert row(ctx, "parcels", other).status is Status.COMPLETED


def test_a_resender_resends_nothing(ledger: Ledger, clock: UnsureClock) -> None:
    route = Route("parcels")
    route.external("delivered", resend_after="1h")
    ctx = context(ledger, clock, route)
    add(ctx, "parcels", "a")
    clock.advance("2h")
    clock.doubt = "it has had no answer yet"
    assert Resender(ctx).run_once().resent == 0
    clock.doubt = ""
    assert Resender(ctx).run_once().resent == 1


def test_a_remote_worker_gets_nothing(ledger: Ledger, clock: UnsureClock) -> None:
    route = Route("parcels")
    route.stage("weigh", remote=True)
    ctx = context(ledger, clock, route)
    add(ctx, "parcels", "a")
    plan = ctx.plan("parcels")
    request = RemoteClaimRequest(plan, plan.first, "w", 1, 30_000)
    clock.doubt = "it has had no answer yet"
    assert Remote(ctx).claim(request).items == []
    clock.doubt = ""
    assert len(Remote(ctx).claim(request).items) == 1
