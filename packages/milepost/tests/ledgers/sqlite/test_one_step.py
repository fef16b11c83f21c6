"""Settle and claim in one step: the same result as `apply` and then `claim`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.seeds import seeds

import milepost as mp
from milepost.composition import open_context
from milepost.core.admission.controls import scope
from milepost.core.change import Change
from milepost.core.confirmations import confirm
from milepost.core.decide import decide
from milepost.core.due import Lease
from milepost.core.item import Item
from milepost.core.status import Status
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost.ledgers.sqlite import apply as apply_module
from milepost.ledgers.sqlite import ledger as ledger_module
from milepost.ledgers.sqlite.rows import changes as writing
from milepost.ledgers.sqlite.rows import fence
from milepost.ports.documents import HOLD, LIMIT, ROUTE
from milepost.ports.items import ClaimRequest, Conflict, Query, Refused
from milepost_testing.clock import VirtualClock

STAGES = ("a", "b", "c")
KEYS = [f"k{n:02}" for n in range(16)]
OUTCOMES: list[mp.Outcome] = [
    *([mp.Done()] * 8),
    mp.Done({"n": 1}),
    mp.Done(payload=[1]),
    mp.NotYet("1s"),
    mp.Retry("busy"),
    mp.Reject("no"),
    mp.HandedOver("1m"),
]


def make_context(url: str, chance: random.Random) -> Context:
    route = mp.Route("r", key="id")
    for name in STAGES:
        more: dict[str, Any] = {}
        kind = chance.choice(
            ["plain"] * 6 + ["rate", "lanes", "overdue", "cap", "breaker", "breaker"]
        )
        if kind == "rate":
            more["rate"] = "100/s"
        elif kind == "lanes":
            more["lane"] = lambda content: content["id"][-1]
        elif kind == "overdue":
            more["checks"] = mp.Checks(overdue=chance.choice(["300ms", "1h"]))
        elif kind == "breaker":
            more["breaker"] = mp.Breaker(failures=2, within="1h", cooldown="500ms", probes=2)
        elif kind == "cap":
            more["lanes"] = {"": mp.Limits(concurrency=2)}
        route.stage(name, **more)(lambda item: mp.Done())
    return open_context(url, [route], clock=VirtualClock(2_000_000_000_000))


def control(ctx: Context, chance: random.Random, now: int) -> None:
    """What operators do meanwhile: pauses, limits, confirmations that come early, another version
    of the route."""
    stage = chance.choice(STAGES)
    kind = chance.random()
    if kind < 0.10:
        ctx.ledger.write(HOLD, scope("r", stage), {"by": "x", "at": now, "reason": "r"})
    elif kind < 0.25:
        ctx.ledger.write(HOLD, scope("r", stage), None)
    elif kind < 0.30:
        ctx.ledger.write(LIMIT, scope("r", stage), {"rate": "50/s", "concurrency": 3})
    elif kind < 0.40:
        key, done = chance.choice(KEYS), chance.choice(STAGES)
        [item] = ctx.ledger.get([("r", key)])
        if isinstance(item, Item):
            change = confirm(item, done, mp.Done(), ctx.plan("r"), now, 0.0, by="outside")
            if isinstance(change, Change):
                ctx.ledger.apply([change], now)
    elif kind < 0.42:
        ctx.ledger.write(ROUTE, "r", {"version": 2})
    elif kind < 0.60:
        ctx.ledger.write(ROUTE, "r", None)


def shown(answer: Conflict | Refused | None) -> Any:
    return (
        replace(answer.current, handle=None)
        if isinstance(answer, Conflict) and answer.current is not None
        else answer
    )


def play(url: str, seed: int, *, one_step: bool) -> Any:
    chance = random.Random(seed)
    ctx = make_context(url, chance)
    plan, clock = ctx.plan("r"), ctx.clock
    assert isinstance(clock, VirtualClock)
    submit(ctx, "r", [{"id": key} for key in KEYS], correlation_id="c")
    held: dict[str, Item] = {}
    seen: list[Any] = []
    for step in range(20):
        clock.advance_to(clock.now() + chance.choice([1, 20, 400, 400, 31_000]))
        now = clock.now()
        control(ctx, chance, now)
        # In the order of their rows: among items that are due at one moment that is the order in
        # which they are claimed.
        mine = [
            held.pop(key)
            for key in sorted(chance.sample(sorted(held), chance.randint(0, len(held))))
        ]
        changes = [decide(item, chance.choice(OUTCOMES), plan, now, 0.0) for item in mine]
        lease = Lease(f"g{step}", "h", now + 30_000)
        asks = [
            ClaimRequest(plan, stage, chance.randint(1, 12), lease)
            for stage in STAGES
            if chance.random() < 0.8
        ]
        versions = {"r": plan.version}
        if one_step:
            answers, claims = ctx.ledger.apply_and_claim(changes, now, versions, asks, 0.0)
        else:
            answers, claims = (
                ctx.ledger.apply(changes, now, versions),
                ctx.ledger.claim(asks, now, 0.0),
            )
        for claim in claims:
            held |= {item.key: item for item in claim.items}
        seen.append([shown(answer) for answer in answers])
        seen += [
            (sorted((item.key, item.row.lease, repr(item.content)) for item in claim.items), claim.moved, claim.next_at, claim.outdated,
             claim.fragile, claim.lost)
            for claim in claims
        ]  # fmt: skip
    rows = [
        replace(item.row, handle=None)
        for item in ctx.ledger.get([("r", key) for key in KEYS])
        if isinstance(item, Item)
    ]
    lines = [[written.line for written in ctx.ledger.history("r", key)] for key in KEYS]
    counts = sorted((c.stage, c.status, c.hour, c.n) for c in ctx.ledger.counts("r") if c.n)
    ctx.ledger.close()
    return seen, rows, lines, counts


@pytest.mark.parametrize("seed", seeds(150, quick=20))
def test_one_step_is_apply_and_then_claim(seed: int, tmp_path: Path) -> None:
    one = play(f"sqlite:///{tmp_path}/one.db", seed, one_step=True)
    two = play(f"sqlite:///{tmp_path}/two.db", seed, one_step=False)
    for got, wanted in zip(one, two, strict=True):
        assert got == wanted


@pytest.mark.parametrize("seed", seeds(40, quick=8))
@pytest.mark.parametrize("few", [0, 1_000])
def test_groups_of_like_rows_are_written_as_single_rows_are(
    few: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = play(f"sqlite:///{tmp_path}/usual.db", seed, one_step=True)
    monkeypatch.setattr(fence, "FEW", few)
    monkeypatch.setattr(writing, "FEW", few)
    assert play(f"sqlite:///{tmp_path}/other.db", seed, one_step=True) == usual


def plain_context(path: Path) -> Context:
    route = mp.Route("r", key="id")
    for name in STAGES:
        route.stage(name)(lambda item: mp.Done())
    return open_context(
        f"sqlite:///{path}/plain.db", [route], clock=VirtualClock(2_000_000_000_000)
    )


def claim_all(ctx: Context, stage: str, token: str, want: int = 100) -> list[Item]:
    now = ctx.clock.now()
    return ctx.ledger.claim(
        [ClaimRequest(ctx.plan("r"), stage, want, Lease(token, "h", now + 30_000))], now, 0.0
    )[0].items


def step(
    ctx: Context, items: list[Item], stage: str, token: str, want: int = 100
) -> tuple[list[Any], list[Item], list[Refused]]:
    plan, now = ctx.plan("r"), ctx.clock.now()
    changes = [decide(item, mp.Done(), plan, now, 0.0) for item in items]
    asks = [ClaimRequest(plan, stage, want, Lease(token, "h", now + 30_000))]
    answers, [claimed] = ctx.ledger.apply_and_claim(changes, now, {"r": plan.version}, asks, 0.0)
    return answers, claimed.items, claimed.refused


def test_an_item_that_goes_on_is_written_once(tmp_path: Path) -> None:
    ctx = plain_context(tmp_path)
    submit(ctx, "r", [{"id": key} for key in KEYS])
    items = claim_all(ctx, "a", "first")
    statements: list[str] = []
    ledger: Any = ctx.ledger
    ledger._store._writer.set_trace_callback(statements.append)
    answers, claimed, _ = step(ctx, items, "b", "second")
    assert answers == [None] * len(KEYS)
    assert [(item.key, item.stage, item.status, item.row.lease) for item in claimed] == [
        (key, "b", "PROCESSING", "second") for key in KEYS
    ]
    assert len([sql for sql in statements if sql.startswith("UPDATE item")]) == 1


def test_items_that_were_due_before_come_first(tmp_path: Path) -> None:
    ctx = plain_context(tmp_path)
    submit(ctx, "r", [{"id": key} for key in KEYS])
    items = claim_all(ctx, "a", "first")
    early, late = items[:5], items[5:]
    step(ctx, early, "c", "none here")
    _, claimed, _ = step(ctx, late, "b", "second", want=8)
    assert [item.key for item in claimed] == [
        *(item.key for item in early),
        *(item.key for item in late[:3]),
    ]


def test_the_fence_holds_for_an_item_that_would_go_on(tmp_path: Path) -> None:
    ctx = plain_context(tmp_path)
    submit(ctx, "r", [{"id": key} for key in KEYS])
    items = claim_all(ctx, "a", "first")
    lost = items[3]
    ctx.ledger.apply(
        [decide(lost, mp.Reject("no"), ctx.plan("r"), ctx.clock.now(), 0.0)], ctx.clock.now()
    )
    answers, claimed, _ = step(ctx, items, "b", "second")
    assert [index for index, answer in enumerate(answers) if answer is not None] == [3]
    assert lost.key not in {item.key for item in claimed}
    # The same outcomes once more, as after a lost answer: they end nothing at the next stage.
    again, _, _ = step(ctx, items, "c", "third")
    assert all(isinstance(answer, Conflict) for answer in again)
    assert {item.key for item in claimed} == {
        item.key
        for item in ctx.ledger.get([("r", key) for key in KEYS])
        if isinstance(item, Item) and item.row.lease == "second"
    }


def test_an_item_that_goes_on_and_cannot_be_read_is_refused_alone(tmp_path: Path) -> None:
    ctx = plain_context(tmp_path)
    submit(ctx, "r", [{"id": key} for key in KEYS])
    items = claim_all(ctx, "a", "first")
    ledger: Any = ctx.ledger
    ledger._store.write(
        lambda connection: connection.execute(
            "UPDATE content SET body = '{' WHERE item = ?", (items[2].row.handle,)
        )
    )
    answers, claimed, refused = step(ctx, items, "b", "second")
    assert answers == [None] * len(KEYS)
    assert [one.key for one in refused] == [items[2].key]
    assert {item.key for item in claimed} == set(KEYS) - {items[2].key}
    [hurt] = ctx.ledger.find(
        Query(route="r", statuses=frozenset({Status.REJECTED}), with_content=False)
    ).items
    assert (hurt.key, hurt.row.lease) == (items[2].key, None)


def test_a_write_that_fails_as_a_whole_is_logged_and_made_row_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = plain_context(tmp_path)
    submit(ctx, "r", [{"id": key} for key in KEYS])
    items = claim_all(ctx, "a", "first")
    real = apply_module.write_changes

    def for_one_row(tx: Any, changes: Any, tally: Any) -> None:
        if len(changes) > 1:
            raise TypeError("a fault of the statement for many rows")
        real(tx, changes, tally)

    monkeypatch.setattr(apply_module, "write_changes", for_one_row)
    answers, _, _ = step(ctx, items, "b", "second")
    assert answers == [None] * len(KEYS)
    [said] = [
        record.getMessage() for record in caplog.records if record.name == ledger_module.__name__
    ]
    assert "TypeError: a fault of the statement for many rows" in said
    assert "one by one" in said
