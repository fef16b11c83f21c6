"""Counter deltas, where offers are messages and where the row itself is the queue."""

from __future__ import annotations

from tests.core.item_lives import START, claimed, make_plan, new_item

from milepost.core.change import Change
from milepost.core.counters import HOUR, CounterKey, GroupKey, count, count_all
from milepost.core.decide import accept, decide
from milepost.core.item import digest_of
from milepost.core.outcome import Done, NotYet, Retry
from milepost.core.routes.plan import Plan
from milepost.core.status import Status

HERE = make_plan()
ELSEWHERE = Plan(HERE.route, grace_ms=600_000, offer_life_ms=14 * 86_400_000)
"""The same route where an offer is a message: made after the write, within ten minutes."""


def accepted(plan: Plan) -> Change:
    return accept(plan, "k", {"id": "k"}, START, correlation_id="c", digest=digest_of({"id": "k"}))


def deltas(change: Change) -> tuple[dict[CounterKey, int], dict[GroupKey, int]]:
    counters: dict[CounterKey, int] = {}
    groups: dict[GroupKey, int] = {}
    count(change.before, change.after, counters, groups)
    return counters, groups


def test_a_new_item_is_counted_where_it_is() -> None:
    assert deltas(accepted(HERE)) == ({(HERE.name, "weigh", Status.QUEUED, START // HOUR): 1}, {})
    assert deltas(accepted(ELSEWHERE)) == (
        {(HERE.name, "weigh", Status.PENDING, START // HOUR): 1},
        {},
    )


def test_an_advance_moves_the_count() -> None:
    held = claimed(new_item(HERE), HERE)
    assert deltas(decide(held, Done(), ELSEWHERE, START + HOUR, 0.0))[0] == {
        (HERE.name, "weigh", Status.PROCESSING, START // HOUR): -1,
        (HERE.name, "stamp", Status.PENDING, START // HOUR + 1): 1,
    }


def test_a_failure_is_counted_in_its_group() -> None:
    failed = decide(claimed(new_item(HERE), HERE), Retry("busy"), ELSEWHERE, START, 0.0)
    assert failed.after.error is not None
    assert deltas(failed)[1] == {(HERE.name, "weigh", failed.after.error.group): 1}


def test_a_claim_moves_a_count() -> None:
    item = new_item(HERE)
    assert sum(deltas(Change(item.row, claimed(item, HERE).row))[0].values()) == 0


def test_many_changes_are_counted_as_each_of_them() -> None:
    held = claimed(new_item(HERE), HERE)
    changes = [
        accepted(HERE),
        *(
            decide(held, outcome, HERE, START, 0.0)
            for outcome in (Done(), Done(), NotYet(), Retry("a"), Retry("b"))
        ),
    ]
    one: tuple[dict[object, int], dict[object, int]] = ({}, {})
    for change in changes:
        count(change.before, change.after, *one)  # type: ignore[arg-type]
    many: tuple[dict[object, int], dict[object, int]] = ({}, {})
    count_all(changes, *many)  # type: ignore[arg-type]
    assert [{key: n for key, n in sums.items() if n} for sums in many] == [
        {key: n for key, n in sums.items() if n} for sums in one
    ]
