"""Accepting: submits that come together share a commit, and are counted for as long as they wait,
however they end."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.http.live_server import LiveServer, running_server
from tests.polling import wait_until

from milepost.core.errors import LedgerFull
from milepost.engine.intake import Receipt
from milepost.engine.time_share import Accepts
from milepost.http.state import submit_batches
from milepost.http.state.submit_batches import Submitting
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ledgers.sqlite.file.store import SqliteFile

ITEMS = "/api/v1/routes/parcels/items"
TIMEOUT = 60


def store_of(visitor: LiveServer) -> SqliteFile:
    assert isinstance(visitor.ctx.ledger, SqliteLedger)
    return visitor.ctx.ledger._store


@contextmanager
def item_commits(store: SqliteFile) -> Iterator[list[int]]:
    """For each commit meanwhile that adds items: how many INSERT statements it has. The server's
    own notes (last use of a key, figures) are written by the clock, so their commits do not
    count."""
    commits: list[int] = []
    inserts = 0

    def trace(sql: str) -> None:
        nonlocal inserts
        if sql.startswith("INSERT INTO item "):
            inserts += 1
        elif sql == "COMMIT":
            if inserts:
                commits.append(inserts)
            inserts = 0

    store._writer.set_trace_callback(trace)
    yield commits
    store._writer.set_trace_callback(None)


@contextmanager
def written_to(store: SqliteFile) -> Iterator[None]:
    """Another write is under way, and ends when this ends."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> None:
        inside.set()
        assert go_on.wait(TIMEOUT)

    writer = threading.Thread(target=store.write, args=(slow,))
    writer.start()
    assert inside.wait(TIMEOUT)
    try:
        yield
    finally:
        go_on.set()
        writer.join()


def test_items_that_come_while_another_write_is_under_way_share_one_commit(tmp_path: Path) -> None:
    with (
        running_server(tmp_path) as visitor,
        ThreadPoolExecutor(20) as clients,
        item_commits(store_of(visitor)) as commits,
    ):
        with written_to(store_of(visitor)):
            calls = [
                clients.submit(visitor.call, "POST", ITEMS, {"id": f"p{number}"})
                for number in range(20)
            ]
            wait_until(lambda: visitor.ctx.accepts.waiting == 20)
            assert not any(call.done() for call in calls), "what is answered is on disk"
        assert {call.result().status for call in calls} == {201}
        # The batch of the first that came; all others.
        assert 1 <= len(commits) <= 2
    assert visitor.ctx.accepts.waiting == 0


def test_batches_that_come_together_share_one_commit_and_a_batch_alone_needs_one(
    tmp_path: Path,
) -> None:
    def batch(name: str) -> list[dict[str, str]]:
        return [{"id": f"{name}-{number}"} for number in range(500)]

    with (
        running_server(tmp_path) as visitor,
        ThreadPoolExecutor(5) as clients,
        item_commits(store_of(visitor)) as commits,
    ):
        assert visitor.call("POST", ITEMS, batch("alone")).status == 200
        assert len(commits) == 1
        with written_to(store_of(visitor)):
            calls = [
                clients.submit(visitor.call, "POST", ITEMS, batch(f"b{number}"))
                for number in range(5)
            ]
            wait_until(lambda: len(store_of(visitor)._queue) == 6)  # the other write is in it, too
            assert visitor.ctx.accepts.waiting == 5
        for call in calls:
            assert {receipt["answer"] for receipt in call.result().body["receipts"]} == {"new"}
        assert len(commits) == 2
    assert visitor.ctx.accepts.waiting == 0


@pytest.mark.parametrize("many", [False, True], ids=["one", "batch"])
def test_a_call_that_fails_or_whose_client_goes_away_is_not_counted_as_waiting(
    many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepts, gate = Accepts(), threading.Event()

    def take(*_: object, **__: object) -> list[Receipt]:
        assert gate.wait(TIMEOUT)
        raise LedgerFull("the disk is full")

    for name in ("submit", "take_in"):
        monkeypatch.setattr(submit_batches, name, take)
    ctx: Any = SimpleNamespace(accepts=accepts, plan=lambda route: None)

    async def calls() -> None:
        with ThreadPoolExecutor(2) as pool:
            submitting = Submitting(ctx, pool)

            async def call() -> Any:
                return await (
                    submitting.submit_many("parcels", [{}], "me")
                    if many
                    else submitting.submit("parcels", {}, "me")
                )

            gone, failing = asyncio.create_task(call()), asyncio.create_task(call())
            await asyncio.sleep(0)
            assert accepts.waiting == 2
            gone.cancel()
            await asyncio.wait([gone])
            assert accepts.waiting == 1
            gate.set()
            with pytest.raises(LedgerFull):
                await failing

    asyncio.run(calls())
    assert (accepts.came, accepts.waiting) == (2, 0)
