"""Damaged text in the file: who reads it gets an error that says so and what to do; what is about
something else goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import milepost as mp
from milepost.composition import open_context
from milepost.core.admission.controls import Limit
from milepost.core.due import Lease
from milepost.core.errors import LedgerDamaged
from milepost.core.item import Item, Row
from milepost.core.status import Status
from milepost.engine.acts.controls import limit
from milepost.engine.context import Context
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ledgers.sqlite.file.backup import examine
from milepost.ports.documents import LIMIT, read_all, read_versioned
from milepost.ports.items import ClaimRequest

NO_TEXT = "x'7b228d'"
"""As SQL: bytes that are neither UTF-8 nor JSON."""


def parcels() -> mp.Route:
    route = mp.Route("parcels", key="id")
    route.stage("weigh")(lambda item: mp.Done())
    return route


def claim(ctx: Context) -> object:
    plan = ctx.plan("parcels")
    return ctx.ledger.claim(
        [ClaimRequest(plan, "weigh", 1, Lease("token", "worker", 2**40))], 2**40, 0.0
    )


def rows(ctx: Context) -> list[Row]:
    items = ctx.ledger.get([("parcels", "a1"), ("parcels", "b1")])
    return [item.row for item in items if isinstance(item, Item)]


USES: dict[str, Callable[[Context], object]] = {
    "read": lambda ctx: read_all(ctx.ledger, LIMIT, Limit),
    "read_one": lambda ctx: read_versioned(ctx.ledger, LIMIT, "parcels/weigh/", Limit),
    "claim": claim,
}
READS = [USES["read"], USES["read_one"]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with mp.open(f"sqlite:///{tmp_path}/m.db", routes=[parcels()]) as ledger:
        ledger.submit("parcels", {"id": "p1"})
        assert ledger.context.ledger.write(
            LIMIT, "parcels/weigh/", {"by": "ops", "reason": "test", "at": 1, "concurrency": 2}
        )
    return tmp_path / "m.db"


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


@pytest.mark.parametrize("use", READS)
def test_a_document_that_is_no_text_is_named(path: Path, use: Callable[[Context], object]) -> None:
    change(path, f"UPDATE document SET value = {NO_TEXT} WHERE kind = 'limit'")
    ctx = open_context(f"sqlite:///{path}", [parcels()])
    with (
        closing(ctx.ledger),
        pytest.raises(
            LedgerDamaged,
            match=r"limit 'parcels/weigh/' of the ledger is damaged: .*restore it from a backup",
        ),
    ):
        use(ctx)


@pytest.mark.parametrize("use", READS)
def test_a_document_with_other_fields_is_named(
    path: Path, use: Callable[[Context], object]
) -> None:
    change(path, "UPDATE document SET value = '{\"concurrency\": \"many\"}' WHERE kind = 'limit'")
    ctx = open_context(f"sqlite:///{path}", [parcels()])
    with (
        closing(ctx.ledger),
        pytest.raises(
            LedgerDamaged, match=r"a control document \(Limit\) of the ledger is damaged"
        ),
    ):
        use(ctx)


@pytest.mark.parametrize("value", [NO_TEXT, '\'{"concurrency": "many"}\''])
def test_a_lane_with_a_damaged_limit_is_paused_and_its_neighbours_go_on(
    path: Path, value: str
) -> None:
    route = mp.Route("parcels", key="id")
    route.stage("weigh", lane=lambda item: str(item["id"])[0])(lambda item: mp.Done())
    with mp.open(f"sqlite:///{path.parent}/lanes.db", routes=[route]) as post:
        post.submit("parcels", {"id": "a1"}, {"id": "b1"})
        limit(post.context, "parcels", "weigh", "a", concurrency=2, by="ops", reason="test")
        change(
            path.parent / "lanes.db", f"UPDATE document SET value = {value} WHERE kind = 'limit'"
        )
        post.run(until_idle=0)
        assert [row.status for row in rows(post.context)] == [Status.QUEUED, Status.COMPLETED]
        limit(post.context, "parcels", "weigh", "a", concurrency=2, by="ops", reason="set anew")
        post.run(until_idle=0)
        assert [row.status for row in rows(post.context)] == [Status.COMPLETED, Status.COMPLETED]


@pytest.mark.parametrize("use", [USES["read"], USES["claim"]])
def test_a_column_that_is_no_text_is_damage_of_the_file(
    path: Path, use: Callable[[Context], object]
) -> None:
    ctx = open_context(f"sqlite:///{path}", [parcels()])
    change(path, f"UPDATE document SET name = CAST({NO_TEXT} AS TEXT) WHERE kind = 'limit'")
    with (
        closing(ctx.ledger),
        pytest.raises(
            LedgerDamaged,
            match=r"m\.db: the file is damaged \(a text in it is not UTF-8\); stop all",
        ),
    ):
        use(ctx)


@pytest.mark.parametrize(
    "use", [lambda path: SqliteLedger.open(str(path)), examine], ids=["open", "restore"]
)
def test_a_schema_whose_error_message_is_no_text_is_damage_of_the_file(
    path: Path, use: Callable[[Path], object]
) -> None:
    content = path.read_bytes()
    assert b"CREATE TABLE item " in content
    path.write_bytes(content.replace(b"CREATE TABLE item ", b"CREATE \x8dABLE item ", 1))
    with pytest.raises(LedgerDamaged, match="the file is damaged"):
        use(path)
