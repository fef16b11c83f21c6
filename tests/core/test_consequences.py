"""What must follow from a change, where offers are messages and where the row itself is the queue."""

from __future__ import annotations

from life import START, claimed, make_plan, new_item

from milepost.core.change import Change
from milepost.core.consequences import HOUR, Offer, consequences, count, count_all
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


def test_a_new_item_is_counted_told_and_where_offers_are_messages_offered() -> None:
    here, there = consequences(accepted(HERE), HERE), consequences(accepted(ELSEWHERE), ELSEWHERE)
    assert here.offers == ()
    assert there.offers == (Offer("weigh"),)
    assert [event.kind for event in there.events] == ["accepted"]
    assert here.counters == {(HERE.name, "weigh", Status.QUEUED, START // HOUR): 1}
    assert there.counters == {(HERE.name, "weigh", Status.PENDING, START // HOUR): 1}


def test_an_advance_offers_the_next_stage_and_moves_the_count() -> None:
    held = claimed(new_item(HERE), HERE)
    after = consequences(decide(held, Done(), ELSEWHERE, START + HOUR, 0.0), ELSEWHERE)
    assert after.offers == (Offer("stamp"),)
    assert [event.kind for event in after.events] == ["advanced"]
    assert after.counters == {
        (HERE.name, "weigh", Status.PROCESSING, START // HOUR): -1,
        (HERE.name, "stamp", Status.PENDING, START // HOUR + 1): 1,
    }


def test_a_later_look_is_an_offer_with_a_delay() -> None:
    held = claimed(new_item(HERE), HERE)
    waits = decide(held, NotYet(after="5m"), ELSEWHERE, START, 0.0)
    assert consequences(waits, ELSEWHERE).offers == (Offer("weigh", 300_000),)
    failed = decide(held, Retry("busy"), ELSEWHERE, START, 0.0)
    told = consequences(failed, ELSEWHERE)
    assert told.offers[0].delay_ms == (failed.after.look_at or 0) - START
    assert failed.after.error is not None
    assert told.groups == {(HERE.name, "weigh", failed.after.error.group): 1}


def test_a_claim_moves_a_count_and_tells_nobody() -> None:
    item = new_item(HERE)
    told = consequences(Change(item.row, claimed(item, HERE).row), HERE)
    assert (told.offers, told.events) == ((), ())
    assert sum(told.counters.values()) == 0


def test_many_changes_are_counted_as_each_of_them() -> None:
    held = claimed(new_item(HERE), HERE)
    changes = [accepted(HERE), *(decide(held, outcome, HERE, START, 0.0) for outcome in (Done(), Done(), NotYet(), Retry("a"), Retry("b")))]
    one: tuple[dict[object, int], dict[object, int]] = ({}, {})
    for change in changes:
        count(change.before, change.after, *one)  # type: ignore[arg-type]
    many: tuple[dict[object, int], dict[object, int]] = ({}, {})
    count_all(changes, *many)  # type: ignore[arg-type]
    assert [{key: n for key, n in sums.items() if n} for sums in many] == [{key: n for key, n in sums.items() if n} for sums in one]
