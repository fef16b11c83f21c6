"""What became of the items of an act."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.engine.world import ROUTE, World

from milepost.core.outcome import Done, Reject
from milepost.core.status import Status
from milepost.engine.act_log import ActReport, recorded
from milepost.engine.acts import outcome as outcome_module
from milepost.engine.acts.bulk import act, confirm_outside
from milepost.engine.acts.outcome import ActOutcome, outcome_of
from milepost.engine.retention import prune
from milepost.ports.documents import ACT
from milepost.ports.items import Query

SIGNED: dict[str, Any] = {"by": "ops", "reason": "checked by hand"}
FAILED = Query(route=ROUTE, statuses=frozenset({Status.REJECTED}))


def retried(world: World, n: int) -> ActReport:
    """An act that has retried so many failed items, while other items came."""
    world.add(*(f"k{number}" for number in range(n)))
    world.work("weigh", Reject("no such parcel"), want=n)
    world.clock.advance("1m")
    world.add("before")
    report = act(world.ctx, "retry", ROUTE, query=FAILED, **SIGNED)
    world.add("after")
    return report


def outcome(world: World, report: ActReport) -> ActOutcome | None:
    return outcome_of(world.ctx, recorded(world.ctx, report.id))


def test_items_that_failed_again_are_counted_as_such(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome_module, "PAGE", 3)
    report = retried(world, 5)
    assert outcome(world, report) == ActOutcome(in_progress=5)
    world.work("weigh", Reject("no such parcel"), want=20)
    found = outcome(world, report)
    assert found == ActOutcome(failed=5)
    assert found.words("retry") == "0 completed, 5 failed again"


def test_each_item_counts_as_it_is_now(world: World) -> None:
    report = retried(world, 3)
    for stage in ("weigh", "stamp"):
        world.settle([item for item in world.claim(stage) if item.key == "k0"], Done())
    confirm_outside(world.ctx, ROUTE, "k0", "Delivered", Done(True), by="p")
    act(world.ctx, "cancel", ROUTE, keys=["k1"], **SIGNED)
    found = outcome(world, report)
    assert found == ActOutcome(completed=1, cancelled=1, in_progress=1)
    assert found.words("retry") == "1 completed, 0 failed again, 1 in progress, 1 cancelled"
    world.clock.advance("1h")
    prune(world.ctx, ROUTE, 60_000, by="ops", reason="a test")
    found = outcome(world, report)
    assert found is not None
    assert found.completed + found.unknown == 1, "a seal still says that it completed; without its lines it is not known"


def test_an_act_of_an_earlier_version_has_no_known_outcome(world: World) -> None:
    report = retried(world, 1)
    world.ledger.write(ACT, report.id, replace(recorded(world.ctx, report.id), from_seq=None))
    assert outcome(world, report) is None
