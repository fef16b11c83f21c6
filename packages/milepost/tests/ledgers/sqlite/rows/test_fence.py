"""SQLite's fence, which asks in SQL, against the rule: `core.change.holds`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from milepost.core.change import Change, holds
from milepost.core.item import Row
from milepost.core.outcome import NotYet
from milepost.core.status import Status
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ledgers.sqlite.rows.fence import fenced
from milepost_testing.contract.world import World

KEYS = [f"k{n}" for n in range(12)]
"""Four are queued, four wait, four are held by a worker."""
OTHERWISE = {
    "head": lambda row: replace(row, version=row.version + 1, head=row.head[::-1]),
    "lease": lambda row: replace(row, lease="another" if row.lease is None else None),
    "status": lambda row: replace(row, status=Status.RETRY_SCHEDULED),
    "stage": lambda row: replace(row, stage="stamp"),
}
"""How a row that was read earlier differs from the one that the ledger holds."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    path: Path = tmp_path_factory.mktemp("fence") / "ledger.db"
    made = World(SqliteLedger.open(str(path)))
    made.add(*KEYS)
    held = made.claim(want=8).items
    for item in held[:4]:
        made.settle(item, NotYet())
    made.add("gone")
    yield made
    made.ledger.close()


@st.composite
def stale(draw: st.DrawFn, row: Row) -> Change:
    """A change that was decided on this row, or on an earlier state of it."""
    before = row
    for name in draw(st.sets(st.sampled_from(sorted(OTHERWISE)), max_size=1)):
        before = OTHERWISE[name](before)
    expired_at = draw(st.sampled_from([None, None, row.look_at, 5]))
    after = replace(before, lease=before.lease if draw(st.booleans()) else None)
    return Change(before, after, expired_at=expired_at)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_the_fence_lets_through_just_the_changes_that_hold(
    world: World, data: st.DataObject
) -> None:
    rows = [
        world.row(key)
        for key in data.draw(st.lists(st.sampled_from(KEYS), unique=True, min_size=1))
    ]
    changes = [data.draw(stale(row)) for row in rows]
    ledger = world.ledger
    assert isinstance(ledger, SqliteLedger)
    passed = ledger._store.write(lambda tx: fenced(tx, changes))
    assert [change is not None for change in passed] == [
        holds(change, row) for change, row in zip(changes, rows, strict=True)
    ]


def test_a_row_that_has_left_holds_nothing(world: World) -> None:
    row = replace(world.row("gone"), handle=10_000)
    ledger = world.ledger
    assert isinstance(ledger, SqliteLedger)
    assert ledger._store.write(lambda tx: fenced(tx, [Change(row, row)])) == [None]
