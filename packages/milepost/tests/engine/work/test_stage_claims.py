"""The life cycle of claimed items: the lanes in use follow from what is in hand, and every kind of
worker leaves the same record."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from milepost.blobs.memory import MemoryBlobs
from milepost.core.decide import accept
from milepost.core.due import Lease
from milepost.core.item import Content, Item, digest_of
from milepost.core.outcome import Done, NotYet, Outcome, Reject, Retry
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost.engine.work.remote import (
    Remote,
    RemoteClaim,
    RemoteClaimRequest,
    RemoteStageClaims,
    ShownLease,
)
from milepost.engine.work.slots import StageSlots, settle_finished
from milepost.engine.work.stage_claims import StageClaims, claim_ref
from milepost.ledgers.memory import MemoryLedger
from milepost.ports.runner import JobResult
from milepost_testing.audit import audit
from milepost_testing.clock import SeededChance, VirtualClock

LANES = ["north", "south"]


def route(*, remote: bool = False) -> Route:
    made = Route("parcels", key="id")
    stage = made.stage("weigh", lane=lambda content: content["lane"], remote=remote)
    if not remote:
        stage(lambda item: Done())
    return made


def an_item(plan: Plan, number: int, lease: str) -> Item:
    content = {"id": str(number), "lane": LANES[number % 2]}
    row = accept(plan, str(number), content, 0, correlation_id="c", digest=digest_of(content)).after
    return Item(replace(row, lease=lease), Content(content))


steps = st.lists(
    st.tuples(
        st.sampled_from(["hold", "release", "expire", "end"]), st.integers(0, 5), st.integers(0, 10)
    ),
    max_size=30,
)


@given(steps)
def test_lanes_in_use_are_those_of_the_items_in_hand(what: list[tuple[str, int, int]]) -> None:
    plan = Plan(route())
    held, hand = StageClaims(plan, plan.first), RemoteStageClaims(plan, plan.first)
    until: dict[int, int] = {}
    for verb, number, time in what:
        item = an_item(plan, number, "lease")
        if verb == "hold":
            if claim_ref(item) not in held.in_hand:
                held.add([item])
            hand.add_until([item], time)
            until[number] = time
        elif verb == "release":
            held.release([item])
        elif verb == "expire":
            hand.expire(time)
        elif number in until:
            hand.end(claim_ref(item))
            del until[number]
        for one in (held, hand):
            asked = one.ask(Lease("t", "w", 1), 1).held
            assert {lane: n for lane, n in asked.items() if n} == Counter(
                item.lane for item in one.in_hand.values()
            )
        assert {str(number) for number in until} == {
            key for key, _ in {**hand.in_hand, **hand.late}
        }, "in hand or late, and not both"
        assert not hand.in_hand.keys() & hand.late.keys()
        if verb == "expire":
            assert all(until[int(key)] > time for key, _ in hand.in_hand)


class Pool:
    """Runs no call; a test says how each ended."""

    def __init__(self) -> None:
        self.jobs: list[Any] = []
        self.results: list[JobResult] = []

    def put(self, jobs: Any, caps: Any, joint_caps: Any) -> None:
        self.jobs += jobs

    def take(self) -> list[JobResult]:
        results, self.results = self.results, []
        return results


outcomes = st.one_of(
    st.builds(Done, st.integers(0, 3)),
    st.just(NotYet(after=60)),
    st.just(Retry("busy")),
    st.just(Reject("no")),
    st.none(),  # given back
)


@given(st.lists(outcomes, min_size=1, max_size=6))
def test_a_process_and_a_remote_worker_leave_the_same_record(said: list[Outcome | None]) -> None:
    """The same items with the same outcomes, run by a handler pool and reported over HTTP."""
    records = [_by_a_process(said), _by_a_remote_worker(said)]
    assert records[0] == records[1]


def _context(*, remote: bool) -> tuple[Context, Plan]:
    ctx = Context(MemoryLedger(), {}, VirtualClock(), SeededChance(0), MemoryBlobs())
    return ctx, ctx.take(Plan(route(remote=remote)))


def _by_a_process(said: list[Outcome | None]) -> Any:
    ctx, plan = _context(remote=False)
    pool: Any = Pool()
    slots = StageSlots(plan, plan.first, pool)
    submit(ctx, "parcels", [{"id": str(n), "lane": LANES[n % 2]} for n in range(len(said))])
    now = ctx.clock.now()
    [answer] = ctx.ledger.claim([slots.ask(Lease("token", "w", now + 30_000), 100)], now, 0.0)
    slots.start(ctx, answer.items)
    assert [item for job in pool.jobs for item in job] == answer.items
    by_key = {int(item.key): item for item in answer.items}
    pool.results = [
        JobResult(by_key[n], outcome, 0) for n, outcome in enumerate(said) if outcome is not None
    ]
    slots.collect()
    settle_finished(ctx, [slots])
    slots.give_back(ctx, [by_key[n] for n, outcome in enumerate(said) if outcome is None], "why")
    assert not slots.in_hand
    assert not any(slots.lanes.values())
    return _record(ctx)


def test_a_worker_that_claims_in_several_calls_at_once_gets_no_more_than_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ctx, plan = _context(remote=True)
    submit(ctx, "parcels", [{"id": str(n), "lane": "north"} for n in range(20)])
    remote, width = Remote(ctx), plan.first.concurrency
    wish = RemoteClaimRequest(plan, plan.first, "w", width, 30_000)
    claim, beside = ctx.ledger.claim, list[RemoteClaim]()

    def claim_meanwhile(*asked: Any) -> Any:
        if not beside:
            beside.append(RemoteClaim([]))
            beside.append(remote.claim(wish))
        return claim(*asked)

    monkeypatch.setattr(ctx.ledger, "claim", claim_meanwhile)
    items = [*remote.claim(wish).items, *beside[1].items]
    assert len(items) == width
    assert not beside[1].empty_handed
    remote.give_back(
        plan, plan.first, [ShownLease(item.key, item.row.lease or "") for item in items], "why"
    )
    assert len(remote.claim(wish).items) == width


def _by_a_remote_worker(said: list[Outcome | None]) -> Any:
    ctx, plan = _context(remote=True)
    submit(ctx, "parcels", [{"id": str(n), "lane": LANES[n % 2]} for n in range(len(said))])
    remote = Remote(ctx)
    items = remote.claim(RemoteClaimRequest(plan, plan.first, "w", 100, 30_000)).items
    shown = {int(item.key): ShownLease(item.key, item.row.lease or "") for item in items}
    told = [(shown[n], outcome) for n, outcome in enumerate(said) if outcome is not None]
    assert remote.settle(plan, plan.first, told) == [True] * len(told)
    remote.give_back(
        plan, plan.first, [shown[n] for n, outcome in enumerate(said) if outcome is None], "why"
    )
    return _record(ctx)


def _record(ctx: Context) -> Any:
    audit(ctx.ledger, "parcels")
    lines = [written.line for n in range(6) for written in ctx.ledger.history("parcels", str(n))]
    rows = [
        item.row
        for item in ctx.ledger.get([("parcels", str(n)) for n in range(6)])
        if isinstance(item, Item)
    ]
    return (
        [
            (line.reason, line.stage, line.by, line.why, line.attempt and line.attempt.category)
            for line in lines
        ],
        [
            (
                row.key,
                row.status,
                row.stage,
                row.attempts,
                row.total_attempts,
                row.lease,
                row.unknown,
            )
            for row in rows
        ],
    )
