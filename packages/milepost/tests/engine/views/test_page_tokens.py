"""Tokens of pages: they continue the search that made them, on the same kind of ledger, and nothing
else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine.world import ROUTE, World

from milepost.core.errors import UsageError
from milepost.core.outcome import Done
from milepost.core.routes.route import Route
from milepost.engine.views.page_tokens import find_page, make_token, read_token
from milepost.ledgers.memory import MemoryLedger
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ports.items import Query
from milepost.ports.ledger import Ledger
from milepost_testing.clock import VirtualClock


def route() -> Route:
    made = Route(ROUTE, key="id")
    made.stage("weigh")(lambda item: Done())
    return made


def test_a_token_of_another_kind_of_ledger_is_refused(
    ledger: Ledger, clock: VirtualClock, tmp_path: Path
) -> None:
    """A link that was kept over a move: the place means nothing there."""
    other: Ledger = (
        SqliteLedger.open(str(tmp_path / "other.db"))
        if isinstance(ledger, MemoryLedger)
        else MemoryLedger()
    )
    here, there = (
        World(ledger, clock, route()).registered(),
        World(other, clock, route()).registered(),
    )
    for world in (here, there):
        world.add("a", "b", "c")
    page = find_page(here.ctx, Query(route=ROUTE), "all", limit=1)
    assert page.next is not None
    assert [
        item.key
        for item in find_page(here.ctx, Query(route=ROUTE), "all", limit=1, after=page.next).items
    ] == ["b"]
    with pytest.raises(UsageError, match="repeat the search"):
        find_page(there.ctx, Query(route=ROUTE), "all", limit=1, after=page.next)
    other.close()


def test_a_token_pins_times_alone() -> None:
    assert read_token("all", make_token("all", 3, {"created_before": 5})) is not None
    assert read_token("all", make_token("all", 3, {"limit": 5})) is None
