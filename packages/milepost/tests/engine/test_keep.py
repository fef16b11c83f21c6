"""Retention by the route's `keep` and `remember`: ended rows leave by themselves while `milepost
up` runs, on ledgers without expiry."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.events.recording_subscribers import RecordingSubscriber

from milepost.blobs.memory import MemoryBlobs
from milepost.core.counters import HOUR
from milepost.core.decide import decide
from milepost.core.due import Lease
from milepost.core.outcome import Done, Reject
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import Status
from milepost.engine import retention
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.verbs import CancelVerb, RetryVerb
from milepost.engine.context import Context
from milepost.engine.events.deliver import EventRelay
from milepost.engine.health.checks import run_checks
from milepost.engine.health.findings import DOCTOR, CheckRun
from milepost.engine.intake import submit
from milepost.engine.retention import Retention
from milepost.engine.routes.versions import register
from milepost.ledgers.memory import MemoryLedger
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ports.items import ClaimRequest
from milepost.ports.ledger import Ledger
from milepost.ports.retention import PruneCriteria, Pruned
from milepost.station import Station
from milepost_testing.audit import audit
from milepost_testing.clock import SeededChance, VirtualClock
from milepost_testing.seeded_runner import SimRunner

DAY = 24 * HOUR


def context(ledger: Ledger, clock: VirtualClock, **options: str | dict[str, str]) -> Context:
    route = Route("parcels", key="id", **options)  # type: ignore[arg-type]
    route.stage("weigh")(lambda item: Done())
    ctx = Context(ledger, {}, clock, SeededChance(0), MemoryBlobs())
    ctx.take(register(ledger, Plan(route), clock.now(), "test"))
    return ctx


def end(ctx: Context, *keys: str) -> None:
    """Complete these items; keys that begin with "bad" are rejected."""
    for key in keys:
        submit(ctx, "parcels", [{"id": key}])
    plan, now = ctx.plan("parcels"), ctx.clock.now()
    lease = Lease(ctx.chance.token(), "host:1", now + 30_000)
    items = ctx.ledger.claim([ClaimRequest(plan, "weigh", 100, lease)], now, 0.0)[0].items
    changes = [
        decide(item, Reject("no") if item.key.startswith("bad") else Done(), plan, now, 0.0)
        for item in items
    ]
    assert ctx.ledger.apply(changes, now) == [None] * len(keys)


def rows(ctx: Context, *keys: str) -> set[str]:
    return {
        key
        for key, item in zip(keys, ctx.ledger.get([("parcels", key) for key in keys]), strict=True)
        if item is not None
    }


def until_done(ctx: Context) -> None:
    role = Retention(ctx)
    while role.turn() == 0.0:
        pass


def test_rows_leave_once_keep_is_over_and_their_keys_stay_known(
    ledger: Ledger, clock: VirtualClock
) -> None:
    ctx = context(ledger, clock, keep={"completed": "30d", "failed": "30d"})
    end(ctx, "a", "bad")
    clock.advance("29d")
    end(ctx, "young")
    until_done(ctx)
    assert rows(ctx, "a", "bad", "young") == {"a", "bad", "young"}
    clock.advance("1d1h")
    until_done(ctx)
    assert rows(ctx, "a", "bad", "young") == {"young"}
    known = ledger.peek("parcels", ["a", "bad"])
    assert [(one.status, one.sealed) for one in known if one] == [
        (Status.COMPLETED, True),
        (Status.REJECTED, True),
    ]
    audit(ledger, "parcels")


def test_a_live_row_never_leaves(ledger: Ledger, clock: VirtualClock) -> None:
    ctx = context(ledger, clock, keep="0s")
    submit(ctx, "parcels", [{"id": "open"}])
    clock.advance("90d")
    until_done(ctx)
    assert rows(ctx, "open") == {"open"}


def test_lines_stay_until_a_subscriber_has_them(ledger: Ledger, clock: VirtualClock) -> None:
    ctx = context(ledger, clock, keep="1d")
    ear = RecordingSubscriber("late")
    relay = EventRelay(ctx, ear, "host:1")
    relay.turn()
    end(ctx, "a")
    clock.advance("2d")
    end(ctx, "newest")
    until_done(ctx)
    assert rows(ctx, "a") == set()
    assert ledger.history("parcels", "a")
    while relay.turn() == 0.0:
        pass
    clock.advance("1h")
    until_done(ctx)
    assert ledger.history("parcels", "a") == []


def test_keys_are_forgotten_by_remember(ledger: Ledger, clock: VirtualClock) -> None:
    ctx = context(ledger, clock, keep="1d", remember="10d")
    end(ctx, "a")
    clock.advance("2d")
    end(ctx, "newest")
    until_done(ctx)
    assert ledger.peek("parcels", ["a"]) != [None]
    clock.advance("9d")
    until_done(ctx)
    assert ledger.peek("parcels", ["a"]) == [None]


def test_an_hour_without_old_rows_reads_no_row(
    ledger: Ledger, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = context(ledger, clock, keep="30d")
    end(ctx, "a")
    asked: list[frozenset[Status]] = []
    prune = ledger.prune

    def noted(request: PruneCriteria) -> Pruned:
        asked.append(request.statuses)
        return prune(request)

    monkeypatch.setattr(ledger, "prune", noted)
    role = Retention(ctx)
    assert [role.turn() for _ in range(3)] == [retention.EVERY] * 3
    assert asked == [frozenset()], "once an hour, and only for lines and seals"


def test_rows_of_failed_and_cancelled_items_stay_unless_keep_names_their_status(
    ledger: Ledger, clock: VirtualClock
) -> None:
    ctx = context(ledger, clock, keep="0s")
    end(ctx, "a", "bad")
    submit(ctx, "parcels", [{"id": "off"}])
    act(ctx, select(ctx, "parcels", keys=["off"]), CancelVerb(), by="ops", reason="not wanted")
    clock.advance("90d")
    until_done(ctx)
    assert rows(ctx, "a", "bad", "off") == {"bad", "off"}
    assert (
        act(
            ctx, select(ctx, "parcels", keys=["bad"]), RetryVerb(), by="ops", reason="corrected"
        ).done
        == 1
    )


def test_each_status_that_keep_names_has_a_time_of_its_own(
    ledger: Ledger, clock: VirtualClock
) -> None:
    ctx = context(ledger, clock, keep={"completed": "0s", "rejected": "30d"})
    end(ctx, "a", "bad")
    clock.advance("29d")
    until_done(ctx)
    assert rows(ctx, "a", "bad") == {"bad"}
    clock.advance("1d1h")
    until_done(ctx)
    assert rows(ctx, "a", "bad") == set()


def test_it_runs_in_batches(
    ledger: Ledger, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    ctx = context(ledger, clock, keep="1d")
    end(ctx, *(f"k{n}" for n in range(5)))
    clock.advance("2d")
    end(ctx, "newest")
    role = Retention(ctx)
    turns = [role.turn() for _ in range(4)]
    assert turns[0] == 0.0
    assert turns[-1] == retention.EVERY
    assert rows(ctx, *(f"k{n}" for n in range(5))) == set()


def test_evidence_that_cannot_be_kept_keeps_the_row(
    ledger: Ledger,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    route = Route("parcels", key="id", keep="1d", evidence=True)
    route.stage("weigh")(lambda item: Done())
    ctx = Context(ledger, {}, clock, SeededChance(0), MemoryBlobs())
    ctx.take(register(ledger, Plan(route), clock.now(), "test"))
    end(ctx, "a")
    clock.advance("2d")

    def full(*_: object) -> None:
        raise OSError("the bucket is full")

    with monkeypatch.context() as patch:
        patch.setattr(ctx.blobs, "write", full)
        assert Retention(ctx).turn() == retention.EVERY
    assert "the bucket is full" in caplog.text
    assert rows(ctx, "a") == {"a"}
    until_done(ctx)
    assert rows(ctx, "a") == set()


def test_a_station_runs_it_where_it_is_needed_and_the_doctor_asks_for_it(
    ledger: Ledger, clock: VirtualClock
) -> None:
    plain, keeping = context(ledger, clock), context(ledger, clock, keep="1d")
    assert "retention" not in [role.name for role in Station(plain, runner=SimRunner(clock)).roles]
    station = Station(keeping, runner=SimRunner(clock))
    assert "retention" in [role.name for role in station.roles]
    assert "retention: no successful run yet" in [
        result.finding.what for result in run_checks(CheckRun(keeping), DOCTOR)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("retention")


@settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    ends=st.lists(st.tuples(st.integers(0, 3 * DAY // 60_000), st.booleans()), max_size=8),
    keep_h=st.integers(0, 48),
    wait_m=st.integers(0, 4 * 24 * 60),
    batch=st.integers(1, 3),
)
def test_just_the_rows_leave_whose_hour_is_over(
    folder: Path, ends: list[tuple[int, bool]], keep_h: int, wait_m: int, batch: int
) -> None:
    """Both ledgers against the rule: the row of a completed item leaves if the hour in which it
    ended lies wholly before now - keep."""
    number = len(list(folder.iterdir()))
    was, retention.BATCH = retention.BATCH, batch
    try:
        for ledger in (MemoryLedger(), SqliteLedger.open(str(folder / f"{number}.db"))):
            clock = VirtualClock()
            start = clock.now()
            ctx = context(ledger, clock, keep=f"{keep_h}h")
            ended: dict[str, int] = {}
            for place, (minute, bad) in enumerate(sorted(ends)):
                clock.advance(max(0, start + minute * 60_000 - clock.now()) / 1000)
                key = f"{'bad' if bad else 'good'}{place}"
                end(ctx, key)
                ended[key] = clock.now()
            clock.advance(wait_m * 60)
            until_done(ctx)
            young = {
                key
                for key, at in ended.items()
                if at // HOUR >= (clock.now() - keep_h * HOUR) // HOUR
            }
            stay = young | {key for key in ended if key.startswith("bad")}
            assert rows(ctx, *ended) == stay
            assert all(ledger.peek("parcels", list(ended)))
            ledger.close()
    finally:
        retention.BATCH = was
