"""A process that is not sure of the time claims and resends nothing; what it has claimed it settles
and keeps."""

from __future__ import annotations

import pytest
from tests.engine.work.stepped_worker import SteppedWorker, add, context, row

from milepost.core.outcome import Done
from milepost.core.routes.route import Route
from milepost.core.status import Status
from milepost.engine.context import Context
from milepost.engine.health.doctor import doctor, unready
from milepost.engine.health.findings import OK, WARN
from milepost.engine.presence import processes_view
from milepost.engine.resend import Resender
from milepost.engine.work.remote import Remote, RemoteClaimRequest
from milepost.ports.clock import ClockState
from milepost.ports.ledger import Ledger
from milepost.station import Station
from milepost_testing.clock import VirtualClock


class UnsureClock(VirtualClock):
    doubt = ""

    def check(self) -> ClockState:
        return ClockState("a clock", doubt=self.doubt)

    def follow(self, moment: int) -> None: ...


@pytest.fixture
def clock() -> UnsureClock:
    return UnsureClock()


def test_a_worker_claims_nothing_and_settles_what_it_has(
    ledger: Ledger, clock: UnsureClock
) -> None:
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


def role_findings(ctx: Context, role: str) -> list[tuple[str, str, str]]:
    return [
        (one.level, one.what, one.next or "")
        for one in doctor(ctx).findings
        if one.what.startswith(f"{role}:")
    ]


@pytest.mark.parametrize("role", ["resender", "worker"])
def test_a_service_that_is_not_sure_of_the_time_has_no_successful_run_and_the_doctor_says_why(
    ledger: Ledger, clock: UnsureClock, role: str
) -> None:
    route = Route("parcels")
    route.stage("weigh")(lambda item: Done())
    ctx = context(ledger, clock, route)
    station = Station(ctx, roles={"worker", "resender"}, holder="host:1")
    [service] = [one for one in station.roles if one.name == role]
    service.turn()
    station.heartbeat.beat()
    [(level, what, _)] = role_findings(ctx, role)
    assert (level, "last successful run" in what) == (OK, True)
    clock.advance("10s")
    clock.doubt = "it has had no answer for 61 s"
    for _ in range(3):
        service.turn()
        clock.advance("10s")
    station.heartbeat.beat()
    [(level, what, cure)] = role_findings(ctx, role)
    assert level == WARN
    assert "stands still in host:1 since " in what
    assert "30 s ago" in what
    assert "it is not sure of the time of a clock: it has had no answer for 61 s" in what
    assert "40 s ago" in what
    assert "continues by itself" in cure
    [view] = [one for one in processes_view(ctx).roles if one.role == role]
    assert view.stands_still
    clock.doubt = ""
    service.turn()
    station.heartbeat.beat()
    assert role_findings(ctx, role)[0][0] == OK


def test_a_process_that_works_makes_up_for_one_that_stands_still(
    ledger: Ledger, clock: UnsureClock
) -> None:
    route = Route("parcels")
    route.stage("weigh")(lambda item: Done())
    ctx = context(ledger, clock, route)
    still, working = (
        Station(ctx, roles={"resender"}, holder=holder) for holder in ("host:1", "host:2")
    )
    clock.doubt = "it has had no answer yet"
    still.roles[0].turn()
    still.heartbeat.beat()
    clock.advance("5s")
    clock.doubt = ""
    assert role_findings(ctx, "resender")[0][0] == WARN
    assert [one.part for one in unready(ctx) if "stood still" in one.why] == ["resender"]
    working.roles[0].turn()
    working.heartbeat.beat()
    assert role_findings(ctx, "resender")[0][0] == OK
