"""Reads of a file in which another program has written wrong values: the others are read
nevertheless."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost.composition import open_context
from milepost.core.due import Lease
from milepost.core.item import KeyPart
from milepost.core.outcome import Done
from milepost.core.routes.route import Route
from milepost.core.status import TERMINAL, Status
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.verbs import CancelVerb
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost.ledgers.sqlite.ledger import SqliteLedger
from milepost.ports.items import ClaimRequest, Query
from milepost.ports.retention import DeliveredLines, PruneCriteria
from milepost_testing import VirtualClock


@pytest.fixture
def ctx(tmp_path: Path) -> Iterator[Context]:
    """Three items; p0 and p1 have left, p2 has a row."""
    route = Route("parcels", key="id")
    route.stage("weigh")(lambda item: Done())
    found = open_context(f"sqlite:///{tmp_path}/ledger.db", [route], clock=VirtualClock())
    submit(found, "parcels", [{"id": f"p{number}"} for number in range(3)])
    act(found, select(found, "parcels", keys=["p0", "p1"]), CancelVerb(), by="ops", reason="test")
    found.ledger.prune(
        PruneCriteria("parcels", TERMINAL, found.clock.now() + 1, None, DeliveredLines(0), 10)
    )
    yield found
    found.ledger.close()


def damage(ctx: Context, statement: str) -> None:
    assert isinstance(ctx.ledger, SqliteLedger)
    assert ctx.ledger._store.write(lambda connection: connection.execute(statement).rowcount) == 1


@pytest.mark.parametrize("wrong", ["status = 'cancelled'", "status = 99", "stage = 99"])
def test_a_key_with_a_damaged_seal_is_known(ctx: Context, wrong: str) -> None:
    damage(ctx, f"UPDATE seal SET {wrong} WHERE key = 'p0'")
    assert [
        receipt.answer
        for receipt in submit(ctx, "parcels", [{"id": f"p{number}"} for number in range(4)])
    ] == ["known"] * 3 + ["new"]
    damaged, sound = ctx.ledger.peek("parcels", ["p0", "p1"])
    assert damaged is not None
    assert damaged.sealed
    assert sound is not None
    assert sound.status is Status.CANCELLED
    assert [seal.key for seal in ctx.ledger.sealed("parcels", None, 10)[0]] == ["p0", "p1"]


def test_a_due_time_that_is_no_number_is_not_the_next(ctx: Context) -> None:
    plan = ctx.plans["parcels"]
    assert ctx.ledger.next_due([plan]) == ctx.clock.now()
    damage(ctx, "UPDATE item SET due_at = 'tomorrow' WHERE key = 'p2'")
    assert ctx.ledger.next_due([plan]) is None
    [claimed] = ctx.ledger.claim(
        [ClaimRequest(plan, "weigh", 1, Lease("token", "w1", ctx.clock.now() + 1000))],
        ctx.clock.now(),
        0.0,
    )
    assert (claimed.items, claimed.next_at) == ([], None)


def test_a_search_by_a_part_of_the_key_passes_a_key_that_is_no_text(ctx: Context) -> None:
    submit(ctx, "parcels", [{"id": "p3"}])
    damage(ctx, "UPDATE item SET key = x'ff' WHERE key = 'p3'")
    assert [
        item.key
        for item in ctx.ledger.find(Query(route="parcels", parts=(KeyPart(0, "p2"),))).items
    ] == ["p2"]
