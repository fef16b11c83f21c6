"""Rerun of an item whose row has left, replacement of large content, and items for later, on
DynamoDB and SQS."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.aws.ledger.synchronous_ledger import SynchronousLedger
from tests.aws.ledger.test_backfill import assets, context, let_go

from milepost.core.errors import ActConflict
from milepost.core.outcome import Done
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.verbs import CancelVerb, ReplaceVerb, RerunVerb
from milepost.engine.intake import submit
from milepost.engine.routes.versions import register
from milepost.engine.views.items import show
from milepost.ports.items import Query
from milepost_testing.contract.world import World

SIGNED: dict[str, Any] = {"by": "ops", "reason": "the tape is torn"}


def test_a_finished_item_whose_row_has_left_is_brought_back_and_run_again(
    ledger: SynchronousLedger,
) -> None:
    world = World(ledger, assets("CC", "Scout"))  # type: ignore[arg-type]
    register(world.ledger, world.plan, world.now, "ops")
    ctx = context(world)
    world.add("a", "b", files=3)
    for key in "ab":
        world.confirm(key, "CC", Done({"on": "disk"}))
        world.confirm(key, "Scout", Done({"tape": ["L1"]}))
    was, work_id = world.item("a"), world.item("a").work_id
    act(
        ctx,
        select(ctx, "parcels", keys=["a"]),
        ReplaceVerb({"id": "a", "files": 4}, rerun=True),
        **SIGNED,
    )
    world.confirm("a", "CC", Done({"on": "another disk"}))
    world.confirm("a", "Scout", Done({"tape": ["L2"]}))
    for passed in (2, 3):
        world.clock.advance("1d")
        ledger.follower.follow(world.now)
        let_go(ledger, "a")
        assert world.ledger.get([("parcels", "a")]) == [None]
        assert (
            act(
                ctx, select(ctx, "parcels", keys=["a"]), RerunVerb(), dry_run=True, by="", reason=""
            ).done
            == 1
        )
        assert world.ledger.get([("parcels", "a")]) == [None], "a preview brings nothing back"
        report = act(ctx, select(ctx, "parcels", keys=["a"]), RerunVerb("Scout"), **SIGNED)
        assert (report.done, report.refused) == (1, [])
        item = world.item("a")
        assert (item.stage, item.input, item.results["CC"]) == (
            "Scout",
            {"id": "a", "files": 4},
            {"on": "another disk"},
        )
        assert (item.row.input_digest, item.row.pass_no >= passed) == (was.row.input_digest, True)
        assert item.work_id != work_id, "no work_id is given out twice"
        view = show(ctx, "parcels", "a")
        assert view is not None
        assert (view["verified"], view["replaced"][0]["content"]) == (True, {"id": "a", "files": 3})
        world.confirm("a", "Scout", Done({"tape": [f"L{passed + 1}"]}))
    world.audit()


def test_an_act_id_is_for_one_act_and_its_repeat_gets_the_first_answer(
    ledger: SynchronousLedger,
) -> None:
    world = World(ledger)  # type: ignore[arg-type]
    register(world.ledger, world.plan, world.now, "ops")
    ctx = context(world)
    world.add("a-1", "a-2", "b-1")
    world.clock.advance("1m")
    first = act(
        ctx,
        select(ctx, "parcels", query=Query(route="parcels", prefix="a-")),
        CancelVerb(),
        act_id="same",
        **SIGNED,
    )
    assert (first.matched, first.done) == (2, 2)
    world.clock.advance("1m")
    assert (
        act(
            ctx,
            select(ctx, "parcels", query=Query(route="parcels", prefix="a-")),
            CancelVerb(),
            act_id="same",
            **SIGNED,
        )
        == first
    )
    with pytest.raises(ActConflict, match="other items or options"):
        act(
            ctx,
            select(ctx, "parcels", query=Query(route="parcels", prefix="b-")),
            CancelVerb(),
            act_id="same",
            **SIGNED,
        )
    assert [world.row(key).status.value for key in ("a-1", "b-1")] == ["CANCELLED", "QUEUED"]


def test_a_sealed_item_without_evidence_is_refused_with_its_seal(ledger: SynchronousLedger) -> None:
    made = assets("CC")
    made.evidence = False
    world = World(ledger, made)  # type: ignore[arg-type]
    register(world.ledger, world.plan, world.now, "ops")
    world.add("a")
    world.confirm("a", "CC")
    world.clock.advance("1d")
    ledger.follower.follow(world.now)
    let_go(ledger, "a")
    ctx = context(world)
    [(key, why)] = act(ctx, select(ctx, "parcels", keys=["a"]), RerunVerb(), **SIGNED).refused
    assert key == "a"
    assert why.startswith("it has ended (COMPLETED on 20")
    assert "is no longer recorded" in why


def test_large_content_is_replaced_by_large_content(ledger: SynchronousLedger) -> None:
    world = World(ledger, assets("CC"))  # type: ignore[arg-type]
    register(world.ledger, world.plan, world.now, "ops")
    ctx = context(world)
    world.add("a", text="x" * 9_000)
    new = {"id": "a", "text": "y" * 9_000}
    assert act(ctx, select(ctx, "parcels", keys=["a"]), ReplaceVerb(new), **SIGNED).done == 1
    item = world.item("a")
    assert (item.input, item.payload) == (new, new)
    view = show(ctx, "parcels", "a")
    assert view is not None
    assert view["replaced"][0]["content"] == {"id": "a", "text": "x" * 9_000}
    assert [
        receipt.answer
        for receipt in submit(ctx, "parcels", [new, {"id": "a", "text": "x" * 9_000}])
    ] == ["known", "changed"]


def test_no_message_is_sent_before_its_time(ledger: SynchronousLedger) -> None:
    """What is near is a message that is held back until then; what is further off the resender
    sends when its time has come."""
    store = ledger.ledger.store
    store.settings = replace(store.settings, longest_delay_s=900)
    world = World(ledger)  # type: ignore[arg-type]
    register(world.ledger, world.plan, world.now, "ops")
    world.add("near", not_before=world.now + 600_000)
    url = store.queues.url("parcels", "weigh")
    waits, _, held_back = store.queues.depth(url)
    assert (waits, held_back) == (0, 1)
    world.add("far", not_before=world.now + 3_600_000)
    assert store.queues.depth(url)[2] == 1, "there is no message for it yet"
    assert world.claim().items == []
    world.clock.advance("1h")
    ledger.follower.resend(world.now)
    assert "far" in {item.key for item in world.claim().items}


def test_a_row_that_somebody_put_waits_for_the_time_that_its_input_names(
    ledger: SynchronousLedger,
) -> None:
    made = assets("CC")
    made.not_before = "embargo"
    world = World(ledger, made)  # type: ignore[arg-type]
    register(world.ledger, world.plan, world.now, "ops")
    world.add("known")
    store = ledger.ledger.store
    layout = store.layout("parcels")
    assert layout is not None
    for key, embargo in (("a", "2999-01-01"), ("b", "")):
        content = {"S": f'{{"id": "{key}", "embargo": "{embargo}"}}'}
        store.requests.call(
            "dynamodb",
            "put_item",
            TableName=layout.table,
            Item={**layout.naming(key), "input": content},
        )
    ledger.follower.follow(world.now)
    assert (world.row("a").status.value, world.row("a").due_at == world.row("a").not_before) == (
        "PENDING",
        True,
    )
    assert world.row("b").status.value == "QUEUED"
