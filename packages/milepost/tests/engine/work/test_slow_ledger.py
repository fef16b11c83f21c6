"""A step that waits for the ledger, as for the lock of its file: what comes after it uses the time
that it then is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.engine.routes.backfill_scene import changed, finished, held
from tests.engine.work.stepped_worker import SteppedWorker, add, context, row
from tests.engine.world import Faulty, World, parcels

from milepost.core.outcome import Done
from milepost.core.routes.route import Route
from milepost.core.status import Status
from milepost.engine import intake
from milepost.engine.routes.backfill import HOLD_MS, step
from milepost.engine.work.remote import Remote, RemoteClaimRequest, ShownLease
from milepost.engine.work.worker import LEASE_MS
from milepost.ports.documents import BACK_FILL, LIMIT
from milepost.ports.items import Query
from milepost.ports.ledger import Ledger
from milepost_testing.clock import VirtualClock


def one_stage(**options: Any) -> Route:
    route = Route("parcels")
    route.stage("weigh", **options)(lambda item: Done())
    return route


def slow(clock: VirtualClock) -> Callable[[], None]:
    """A wait of 40 seconds."""

    def wait() -> None:
        clock.advance("40s")

    return wait


def test_a_claim_after_a_slow_read_of_the_controls_has_a_whole_lease(
    ledger: Ledger, clock: VirtualClock
) -> None:
    faulty = Faulty(ledger)
    ctx = context(faulty, clock, one_stage(concurrency=1))  # type: ignore[arg-type]
    stepped = SteppedWorker(ctx, clock, weigh=60_000)
    add(ctx, "parcels", "a")
    faulty.after("read", slow(clock), lambda kind: kind == LIMIT)
    stepped.worker.turn()
    assert row(ctx, "parcels", "a").look_at == clock.now() + LEASE_MS


def test_a_claim_that_has_waited_is_extended_before_its_handler_starts(
    ledger: Ledger, clock: VirtualClock
) -> None:
    faulty = Faulty(ledger)
    ctx = context(faulty, clock, one_stage(concurrency=1))  # type: ignore[arg-type]
    stepped = SteppedWorker(ctx, clock, weigh=1_000)
    add(ctx, "parcels", "a")
    faulty.before("claim", slow(clock))
    stepped.worker.turn()
    assert row(ctx, "parcels", "a").look_at == clock.now() + LEASE_MS
    assert len(stepped.in_hand()) == 1


def test_an_item_that_another_worker_took_while_its_claim_waited_is_not_started(
    ledger: Ledger, clock: VirtualClock
) -> None:
    faulty = Faulty(ledger)
    ctx = context(faulty, clock, one_stage(concurrency=1))  # type: ignore[arg-type]
    slow_one, other = (
        SteppedWorker(ctx, clock, "slow", weigh=1_000),
        SteppedWorker(context(ledger, clock, one_stage()), clock, "other", weigh=1_000),
    )
    add(ctx, "parcels", "a")

    def wait_and_lose() -> None:
        clock.advance("40s")
        other.worker.turn()

    faulty.after("claim", wait_and_lose)
    slow_one.worker.turn()
    assert slow_one.in_hand() == []
    assert len(other.in_hand()) == 1
    other.work(5_000)
    slow_one.work(5_000)
    assert row(ctx, "parcels", "a").status is Status.COMPLETED
    assert [slow_one.worker.finished, other.worker.finished] == [0, 1]


def test_a_remote_workers_lease_counts_from_the_claim(ledger: Ledger, clock: VirtualClock) -> None:
    faulty = Faulty(ledger)
    route = Route("parcels")
    route.stage("weigh", remote=True)
    ctx = context(faulty, clock, route)  # type: ignore[arg-type]
    add(ctx, "parcels", "a")
    plan = ctx.plan("parcels")
    remote = Remote(ctx)
    faulty.after("read", slow(clock), lambda kind: kind == LIMIT)
    claimed = remote.claim(RemoteClaimRequest(plan, plan.first, "w", 1, 30_000))
    assert claimed.until == row(ctx, "parcels", "a").look_at == clock.now() + 30_000
    # A server that was started anew finds the lease on the row; that may take its time as well.
    again = Remote(ctx)
    faulty.after("get", lambda: clock.advance("20s") and None)
    [until] = again.extend(
        plan, plan.first, [ShownLease("a", claimed.items[0].row.lease or "")], 30_000
    )
    assert until == row(ctx, "parcels", "a").look_at == clock.now() + 30_000


def test_a_portion_of_a_back_fill_is_held_from_the_end_of_the_search(faulty: World) -> None:
    finished(faulty, "k0", "k1")
    newer, _ = changed(faulty, 100.0)
    ledger = faulty.ledger
    assert isinstance(ledger, Faulty)
    ledger.after("find", slow(faulty.clock), lambda query: isinstance(query, Query))
    seen: list[int] = []
    ledger.after(
        "write",
        lambda: seen.append(held(faulty).held_until - faulty.clock.now()),
        lambda kind, *more, **options: kind == BACK_FILL,
    )
    step(newer.ctx, "parcels", faulty.ledger.read(BACK_FILL)["parcels"])
    assert seen == [HOLD_MS]


def test_each_portion_of_a_large_batch_is_dated_when_it_is_written(
    ledger: Ledger, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "BATCH", 1)
    faulty = Faulty(ledger)
    world = World(faulty, clock, parcels()).registered()  # type: ignore[arg-type]
    faulty.after("add", slow(clock))
    began = clock.now()
    intake.take_in(world.ctx, world.plan, [{"id": "a"}, {"id": "b"}])
    assert [world.row(key).created_at for key in ("a", "b")] == [began, began + 40_000]
