"""A process with an outdated route stands by, and every view says so."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.engine.work.stepped_worker import SteppedWorker, add, context

from milepost.core.outcome import Done
from milepost.core.routes.route import Route
from milepost.engine.health.doctor import doctor
from milepost.engine.presence import Heartbeat
from milepost.engine.routes.versions import apply_route
from milepost.engine.views.caches import TtlCache
from milepost.engine.views.snapshot import snapshots
from milepost.engine.views.story import story
from milepost.http.dashboard.pages.overview import health
from milepost.ports.ledger import Ledger
from milepost.station import Station
from milepost.subscribers.in_process import CallSubscriber
from milepost_testing.clock import VirtualClock

SIGNED = {"by": "ops", "reason": "one more stage"}


def route(*stages: str) -> Route:
    made = Route("parcels")
    for name in stages:
        made.stage(name)(lambda item: Done())
    return made


def test_a_process_that_stands_by_says_so_in_its_log_in_the_story_on_the_overview_and_to_the_doctor(
    ledger: Ledger, clock: VirtualClock, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    old = context(ledger, clock, route("weigh"))
    stepped = SteppedWorker(old, clock, "old-process")
    beat = Heartbeat(
        old,
        "old-process",
        lambda: {"roles": {"worker": clock.now()}, "outdated": sorted(stepped.worker.outdated)},
    )
    stepped.work(100)
    new = context_of(ledger, clock)
    add(new, "parcels", "a")
    with caplog.at_level(logging.WARNING, "milepost"):
        stepped.work(5_000)
        beat.beat()
    told = [record.getMessage() for record in caplog.records if "stands by" in record.getMessage()]
    assert told == [
        "old-process stands by for route 'parcels': 'routes apply' has changed it in the ledger, and this process has the version"
        " before; restart it with the present route file"
    ]
    assert stepped.worker.claimed == 0
    found = story(new, "parcels", "a")
    assert found is not None
    by = "old-process stands by: it has an older version of the route; restart with the current route file."
    assert by in found.next
    assert any("old-process stands by" in finding.what for finding in doctor(new).findings)
    well = health(new, snapshots(new).values(), all_seen=True, ttl_cache=TtlCache())
    assert [notice.headline for notice in well.notices if "stands by" in notice.headline] == [
        "old-process stands by: it has an older version of route 'parcels'. Restart it."
    ]
    # Beside one that has the present route, an item is in good hands.
    Heartbeat(new, "new-process", lambda: {"roles": {"worker": clock.now()}}).beat()
    found = story(new, "parcels", "a")
    assert found is not None
    assert by not in found.next


def test_a_resender_and_a_relay_of_an_outdated_process_have_no_successful_run_and_the_doctor_says_why(
    ledger: Ledger, clock: VirtualClock
) -> None:
    old = context(ledger, clock, route("weigh"))
    station = Station(
        old,
        subscribers=[CallSubscriber(print, name="desk")],
        roles={"resender", "relay"},
        holder="old-process",
    )
    new = context_of(ledger, clock)
    clock.advance("1m")
    for role in station.roles:
        role.turn()
    station.heartbeat.beat()
    found = {
        finding.what.partition(":")[0]: finding.what
        for finding in doctor(new).findings
        if "stands still" in finding.what
    }
    assert set(found) == {"resender", "relay-desk"}
    for what in found.values():
        assert (
            "the ledger holds a newer version of parcels; restart it with the present route file"
            in what
        )


def context_of(ledger: Ledger, clock: VirtualClock):  # type: ignore[no-untyped-def]
    """Another process, with a route that has one more stage; the operator has applied it."""
    from milepost.blobs.memory import MemoryBlobs
    from milepost.core.routes.plan import Plan
    from milepost.engine.context import Context
    from milepost_testing.clock import SeededChance

    plan = Plan(
        route("weigh", "stamp"),
        grace_ms=ledger.timing.grace_ms,
        offer_life_ms=ledger.timing.offer_life_ms,
    )
    ctx = Context(ledger, {plan.name: plan}, clock, SeededChance(2), MemoryBlobs())
    apply_route(ctx, plan, mapping={}, **SIGNED)
    return ctx
