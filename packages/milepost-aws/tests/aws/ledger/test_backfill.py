"""A paced back-fill on AWS: finished rows stand in no index, so it walks along the table and
remembers how far it came."""

from __future__ import annotations

from typing import Any

import pytest
from tests.aws.ledger.synchronous_ledger import SynchronousLedger

from milepost.core.errors import LedgerReadOnly
from milepost.core.outcome import Done
from milepost.core.routes.route import Route
from milepost.core.status import Status
from milepost.core.values.durations import iso
from milepost.engine.context import Context
from milepost.engine.evidence import evidence_of
from milepost.engine.resend import Resender
from milepost.engine.routes import backfill
from milepost.engine.routes.backfill import view
from milepost.engine.routes.versions import apply_route, register
from milepost.engine.views.items import show
from milepost_testing.contract.world import World, sample_route

KEYS = [f"p{number}" for number in range(7)]
SIGNED: dict[str, Any] = {"by": "ops", "reason": "everything is filed from now on"}


def route(*, longer: bool = False) -> Route:
    made = sample_route()
    made.keep = {Status.COMPLETED: 86_400_000}
    if longer:
        made.stage("filed")(lambda item: Done())
    return made


def assets(*stages: str) -> Route:
    """Somebody else's stages: each is offered what the one before gave, the first what was handed
    over."""
    made = Route("parcels")
    made.keep, made.evidence = {Status.COMPLETED: 0}, True
    for stage in stages:
        made.external(stage)
    return made


def context(world: World) -> Context:
    blobs = world.ledger.ledger.store.blobs  # type: ignore[attr-defined]
    return Context(world.ledger, {"parcels": world.plan}, world.clock, world.chance, blobs)


def let_go(ledger: SynchronousLedger, *keys: str) -> None:
    """As DynamoDB does when a row's time to live is over."""
    store = ledger.ledger.store
    layout = store.layout("parcels")
    assert layout is not None
    for key in keys:
        store.requests.call(
            "dynamodb", "delete_item", TableName=layout.table, Key=layout.key_image(key)
        )
    ledger.follower.follow()


def run(ctx: Context, clock: Any, turns: int) -> list[int]:
    counts = []
    for _ in range(turns):
        counts.append(Resender(ctx).run_once().back_filled)
        clock.advance("1s")
    return counts


def test_finished_rows_are_sent_on_once_each_and_stay_until_they_are_through(
    ledger: SynchronousLedger,
) -> None:
    world = World(ledger, route())  # type: ignore[arg-type]
    register(world.ledger, world.plan, world.now, "ops")
    world.bring(*KEYS, to="COMPLETED")
    world.clock.advance("1m")
    newer = World(ledger, route(longer=True), clock=world.clock)  # type: ignore[arg-type]
    ctx = context(newer)
    preview = apply_route(
        ctx, newer.plan, mapping={}, back_fill="filed", pace=3.0, dry_run=True, **SIGNED
    ).back_fill
    assert preview is not None
    assert (preview.items, preview.sealed) == (7, 0), (
        "they are sealed, and their rows are still there"
    )
    apply_route(ctx, newer.plan, mapping={}, back_fill="filed", pace=3.0, **SIGNED)
    newer.plan = ctx.plan("parcels")
    assert run(ctx, newer.clock, 5) == [1, 3, 3, 0, 0]
    told = view(ctx, "parcels")
    assert told is not None
    assert (told["state"], told["done"], told["passed_over"]) == ("finished", 7, 0)
    assert [newer.reasons(key).count("back-fill") for key in KEYS] == [1] * 7
    assert {newer.row(key).stage for key in KEYS} == {"filed"}
    store = ledger.ledger.store
    assert [key for key, image in store.images("parcels", KEYS).items() if "ttl" in image] == [], (
        "no row may leave on its way"
    )
    while items := newer.claim("filed").items:
        for item in items:
            newer.settle(item, Done())
    Resender(ctx).run_once()
    assert {newer.row(key).status.value for key in KEYS} == {"COMPLETED"}
    assert [newer.reasons(key).count("back-fill") for key in KEYS] == [1] * 7
    newer.audit()


def test_rows_that_have_left_are_brought_back_and_their_history_goes_on(
    ledger: SynchronousLedger,
) -> None:
    world = World(ledger, assets("CC", "Scout"))  # type: ignore[arg-type]
    register(world.ledger, world.plan, world.now, "ops")
    world.add("a", "b", "c", files=3)
    for key in "abc":
        world.confirm(key, "CC", Done({"on": "disk"}))
        world.confirm(key, "Scout", Done({"tape": ["L1"]}))
    before = {key: (world.item(key), world.lines(key)) for key in "abc"}
    ledger.follower.follow(world.now)
    let_go(ledger, "a", "b")
    assert world.ledger.get([("parcels", "a")]) == [None]
    world.clock.advance("1d")
    newer = World(ledger, assets("CC", "Scout", "Offsite"), clock=world.clock)  # type: ignore[arg-type]
    ctx = context(newer)
    preview = apply_route(
        ctx, newer.plan, mapping={}, back_fill="Offsite", pace=1.0, dry_run=True, **SIGNED
    ).back_fill
    assert preview is not None
    assert (preview.items, preview.sealed, preview.brings_back, preview.takes_ms) == (
        1,
        2,
        True,
        3000,
    )
    apply_route(ctx, newer.plan, mapping={}, back_fill="Offsite", pace=1.0, **SIGNED)
    newer.plan = ctx.plan("parcels")
    ledger.follower.load_route(newer.plan)
    assert run(ctx, newer.clock, 5) == [1, 1, 1, 0, 0]
    told = view(ctx, "parcels")
    assert told is not None
    assert (told["state"], told["done"], told["passed_over"], told["left"]) == ("finished", 3, 0, 0)
    for key, (was, lines) in before.items():
        item = newer.item(key)
        assert (item.stage, item.input, item.results, item.correlation_id) == (
            "Offsite",
            was.input,
            was.results,
            was.correlation_id,
        )
        assert newer.lines(key)[: len(lines)] == lines
        assert newer.reasons(key)[len(lines)] == "back-fill"
        shown = show(ctx, "parcels", key)
        assert shown is not None
        assert (shown["verified"], shown["created_at"]) == (True, iso(was.row.created_at))
        newer.confirm(key, "Offsite")
        assert newer.lines(key)[-1].note == {"completed": "again"}
    ledger.follower.follow(newer.now)
    let_go(ledger, "a", "b", "c")
    found = evidence_of(ctx, "parcels", "a")
    assert found is not None
    assert (found.faults, [entry["stage"] for entry in found.record["stages"]]) == (
        [],
        ["CC", "Scout", "Offsite"],
    )
    assert run(ctx, newer.clock, 2) == [0, 0]


def test_a_row_that_was_brought_back_and_not_sent_on_is_sent_on_by_the_next(
    ledger: SynchronousLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(ledger, assets("CC"))  # type: ignore[arg-type]
    register(world.ledger, world.plan, world.now, "ops")
    world.add("a")
    world.confirm("a", "CC")
    ledger.follower.follow(world.now)
    let_go(ledger, "a")
    world.clock.advance("1m")
    newer = World(ledger, assets("CC", "Offsite"), clock=world.clock)  # type: ignore[arg-type]
    ctx = context(newer)
    apply_route(ctx, newer.plan, mapping={}, back_fill="Offsite", pace=1.0, **SIGNED)
    newer.plan = ctx.plan("parcels")
    assert run(ctx, newer.clock, 1) == [0], "no row is left"

    def dies(*args: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(backfill, "_send", dies)
        with pytest.raises(KeyboardInterrupt):
            Resender(ctx).run_once()
    assert newer.row("a").status.value == "COMPLETED"
    newer.clock.advance("3m")
    assert sum(run(ctx, newer.clock, 2)) == 1
    assert newer.reasons("a").count("back-fill") == 1


def test_one_whose_input_is_not_on_record_stays_away(
    ledger: SynchronousLedger, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(ledger, route())  # type: ignore[arg-type]
    register(world.ledger, world.plan, world.now, "ops")
    world.bring("a", to="COMPLETED")
    ledger.follower.follow(world.now)
    let_go(ledger, "a")
    world.clock.advance("1m")
    newer = World(ledger, route(longer=True), clock=world.clock)  # type: ignore[arg-type]
    ctx = context(newer)
    apply_route(ctx, newer.plan, mapping={}, back_fill="filed", pace=1.0, **SIGNED)
    newer.plan = ctx.plan("parcels")
    assert run(ctx, newer.clock, 3) == [0, 0, 0]
    told = view(ctx, "parcels")
    assert told is not None
    assert (told["state"], told["done"], told["passed_over"]) == ("finished", 0, 1)
    assert "parcels/a cannot be sent: " in caplog.text
    assert newer.ledger.get([("parcels", "a")]) == [None]


def test_a_resender_that_may_not_bring_rows_back_does_all_else(
    ledger: SynchronousLedger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(ledger, assets("CC"))  # type: ignore[arg-type]
    register(world.ledger, world.plan, world.now, "ops")
    world.add("a", "b")
    for key in "ab":
        world.confirm(key, "CC")
    ledger.follower.follow(world.now)
    let_go(ledger, "b")
    world.clock.advance("1m")
    newer = World(ledger, assets("CC", "Offsite"), clock=world.clock)  # type: ignore[arg-type]
    ctx = context(newer)
    apply_route(ctx, newer.plan, mapping={}, back_fill="Offsite", pace=1.0, **SIGNED)
    newer.plan = ctx.plan("parcels")

    def denied(*args: Any) -> Any:
        raise LedgerReadOnly("dynamodb scan of seen: AccessDeniedException")

    with monkeypatch.context() as patched:
        patched.setattr(ledger.ledger, "sealed", denied)
        assert run(ctx, newer.clock, 3) == [1, 0, 0]
    assert (
        "this process cannot continue the back-fill of parcels: dynamodb scan of seen"
        in caplog.text
    )
    assert sum(run(ctx, newer.clock, 2)) == 1, "one that may goes on at once"
    assert newer.row("b").stage == "Offsite"
