"""What became of the items of an act."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.engine.world import ROUTE, World

from milepost.core.errors import UsageError
from milepost.core.outcome import Done, Reject
from milepost.core.status import Status
from milepost.engine.act_log import ActReport, recorded, select
from milepost.engine.acts import outcome as outcome_module
from milepost.engine.acts.bulk import act, confirm_outside
from milepost.engine.acts.outcome import ActOutcome, outcome_of, whole_outcome_of
from milepost.engine.acts.verbs import CancelVerb, RetryVerb
from milepost.engine.retention import prune
from milepost.ports.documents import ACT
from milepost.ports.feed import HistoryEntry
from milepost.ports.items import Query

SIGNED: dict[str, Any] = {"by": "ops", "reason": "checked by hand"}
FAILED = Query(route=ROUTE, statuses=frozenset({Status.REJECTED}))


def retried(world: World, n: int) -> ActReport:
    """An act that has retried so many failed items, while other items came."""
    world.add(*(f"k{number}" for number in range(n)))
    world.work("weigh", Reject("no such parcel"), want=n)
    world.clock.advance("1m")
    world.add("before")
    report = act(world.ctx, select(world.ctx, ROUTE, query=FAILED), RetryVerb(), **SIGNED)
    world.add("after")
    return report


def outcome(world: World, report: ActReport) -> ActOutcome | None:
    return outcome_of(world.ctx, recorded(world.ctx, report.id))


def test_items_that_failed_again_are_counted_as_such(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome_module, "PAGE", 3)
    report = retried(world, 5)
    assert outcome(world, report) == ActOutcome(in_progress=5, counted=5, total=5)
    world.work("weigh", Reject("no such parcel"), want=20)
    found = outcome(world, report)
    assert found == ActOutcome(failed=5, counted=5, total=5)
    assert found.words("retry") == "0 completed, 5 failed again"


def test_each_item_counts_as_it_is_now(world: World) -> None:
    report = retried(world, 3)
    for stage in ("weigh", "stamp"):
        world.settle([item for item in world.claim(stage) if item.key == "k0"], Done())
    confirm_outside(world.ctx, ROUTE, "k0", "Delivered", Done(True), by="p")
    act(world.ctx, select(world.ctx, ROUTE, keys=["k1"]), CancelVerb(), **SIGNED)
    found = outcome(world, report)
    assert found == ActOutcome(completed=1, cancelled=1, in_progress=1, counted=3, total=3)
    assert found.words("retry") == "1 completed, 0 failed again, 1 in progress, 1 cancelled"
    world.clock.advance("1h")
    prune(world.ctx, ROUTE, 60_000, by="ops", reason="a test")
    found = outcome(world, report)
    assert found is not None
    assert found.completed + found.unknown == 1, (
        "a seal still says that it completed; without its lines it is not known"
    )


def test_an_act_of_an_earlier_version_has_no_known_outcome(world: World) -> None:
    report = retried(world, 1)
    world.ledger.write(ACT, report.id, replace(recorded(world.ctx, report.id), from_seq=None))
    assert outcome(world, report) is None


@pytest.fixture
def small_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome_module, "PAGE", 3)
    monkeypatch.setattr(outcome_module, "LOOK_LINES", 9)


def lines_read(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of lines of each page of the feed that is read from now on."""
    feed, read = world.ledger.feed, list[int]()

    def counted(after: int, limit: int) -> list[HistoryEntry]:
        page = feed(after, limit)
        read.append(len(page))
        return page

    monkeypatch.setattr(world.ledger, "feed", counted)
    return read


def test_one_look_reads_a_bounded_number_of_lines_and_says_how_many_items_it_has_counted(
    world: World, monkeypatch: pytest.MonkeyPatch, small_looks: None
) -> None:
    report = retried(world, 20)
    read = lines_read(world, monkeypatch)
    first = outcome(world, report)
    assert first is not None
    assert sum(read) == 9
    assert (first.in_progress, first.unknown, first.counted, first.total) == (9, 0, 9, 20)
    assert (
        first.words("retry")
        == "0 completed, 0 failed again, 9 in progress (counted 9 of 20 so far)"
    )
    second = outcome_of(world.ctx, recorded(world.ctx, report.id), first.next)
    assert second is not None
    assert (second.in_progress, second.counted, second.total) == (9, 9, 20)
    assert sum(read) == 18
    whole = whole_outcome_of(world.ctx, recorded(world.ctx, report.id))
    assert whole == ActOutcome(in_progress=20, counted=20, total=20)
    assert whole.words("retry") == "0 completed, 0 failed again, 20 in progress"


def test_lines_after_the_end_of_an_act_are_not_read_for_items_whose_lines_have_left(
    world: World, monkeypatch: pytest.MonkeyPatch, small_looks: None
) -> None:
    report = retried(world, 4)
    world.work("weigh", Reject("no such parcel"), want=4)
    act(world.ctx, select(world.ctx, ROUTE, query=FAILED), CancelVerb(), **SIGNED)
    world.clock.advance("1h")
    prune(world.ctx, ROUTE, 60_000, by="ops", reason="a test")
    world.add(*(f"later{number}" for number in range(50)))
    read = lines_read(world, monkeypatch)
    found = outcome(world, report)
    assert found is not None
    assert (found.counted, found.total, found.next) == (4, 4, None)
    assert sum(read) <= 9


def test_an_act_whose_lines_are_far_apart_is_counted_over_several_looks(
    world: World, small_looks: None
) -> None:
    """As on a ledger that does not know where the lines of an act end, and beside much other
    work."""
    report = retried(world, 2)
    record = replace(recorded(world.ctx, report.id), from_seq=0, to_seq=None, done=3)
    world.add(*(f"later{number}" for number in range(30)))
    first = outcome_of(world.ctx, record)
    assert first is not None
    assert (first.counted, first.total, first.unknown) == (2, 3, 0)
    whole = whole_outcome_of(world.ctx, record)
    assert whole == ActOutcome(in_progress=2, unknown=1, counted=3, total=3), (
        "what was not found is not known"
    )


def test_a_look_continues_only_where_one_of_the_same_act_ended(
    world: World, small_looks: None
) -> None:
    report = retried(world, 20)
    other = act(world.ctx, select(world.ctx, ROUTE, keys=["k0", "k1"]), CancelVerb(), **SIGNED)
    first = outcome(world, report)
    assert first is not None
    for token in (first.next, "nonsense"):
        with pytest.raises(UsageError, match="belongs to another act"):
            outcome_of(world.ctx, recorded(world.ctx, other.id), token)
