"""The rule for due items: claim, rescue, resend, mark as overdue."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.item_lives import (
    LEASE,
    START,
    after,
    at_stage,
    claimed,
    make_plan,
    new_item,
    settled,
    walk,
)

from milepost.core.change import Change
from milepost.core.confirmations import confirm
from milepost.core.decide import MAX_LOSSES, accept, decide, undecided
from milepost.core.due import FRAGILE, Lease, claimed_on_arrival, fragile, has_new_look, look
from milepost.core.item import Content, Item, digest_of
from milepost.core.outcome import Done, HandedOver, NotYet, Reject, Retry
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import Reason, Status, allowed

PLAN = make_plan()
HOUR, DAY = 3_600_000, 86_400_000


def lease(now: int = START, token: str = "t2") -> Lease:
    return Lease(token, "worker-2", now + LEASE)


def seen(item: Item, now: int, by: Lease | None = None) -> Change:
    change = look(item, PLAN, now, 0.0, by)
    assert change is not None
    return change


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_looking_at_a_due_item_until_nothing_is_left_to_do_always_ends(data: st.DataObject) -> None:
    """A claim must never go round in circles: at one moment there are only a few looks at one
    item."""
    lived = walk(data, PLAN, 20)
    item = new_item(PLAN) if not lived else after(lived[-1][2], lived[-1][1])
    due = item.row.due_at
    if due is None:
        return
    for number in range(20):
        if item.row.due_at is None or item.row.due_at > due or item.row.stage not in PLAN.by_name:
            return
        change = look(item, PLAN, due, 0.5, Lease(f"g{number}", "w", due + LEASE))
        if change is None:
            return
        item = after(item, change)
    raise AssertionError(f"still due after 20 looks: {item.row}")


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_a_due_item_is_never_left_alone_by_a_worker(data: st.DataObject) -> None:
    for _, change, _ in walk(data, PLAN, 20):
        row = change.after
        if row.due_at is not None:
            item = Item(row, new_item(PLAN).content)
            assert look(item, PLAN, row.due_at, 0.0, lease(row.due_at)) is not None
            assert (
                row.undecided is not None
                or row.stage in row.kept
                or look(item, PLAN, row.due_at - 1, 0.0, lease()) is None
            )


@pytest.mark.parametrize("outcome", [Retry("busy"), NotYet(after="1s"), HandedOver(within="1s")])
def test_an_outside_outcome_does_not_make_an_item_due_before_its_start(
    outcome: Retry | NotYet | HandedOver,
) -> None:
    content = {"id": "p1", "lane": "north"}
    later = accept(
        PLAN,
        "p1",
        content,
        START,
        correlation_id="c-1",
        digest=digest_of(content),
        not_before=START + DAY,
    )
    change = confirm(
        Item(later.after, Content(content)), "weigh", outcome, PLAN, START, 0.0, by="partner"
    )
    assert isinstance(change, Change)
    assert change.after.due_at == START + DAY


def test_a_ready_item_is_claimed_without_a_line() -> None:
    change = seen(new_item(PLAN), START, lease())
    assert (change.line, change.after.version) == (None, 1)
    assert (change.after.status, change.after.lease, change.after.holder) == (
        Status.PROCESSING,
        "t2",
        "worker-2",
    )


def test_the_resender_leaves_work_for_workers() -> None:
    assert look(new_item(PLAN), PLAN, START + DAY, 0.0, None) is None


def test_ended_items_and_unknown_stages_are_left_alone() -> None:
    ended = settled(claimed(new_item(PLAN), PLAN), Reject("no"), PLAN)
    assert look(ended, PLAN, START + DAY, 0.0, lease()) is None
    elsewhere = new_item(PLAN)
    assert (
        look(
            Item(replace(elsewhere.row, stage="gone"), elsewhere.content), PLAN, START, 0.0, lease()
        )
        is None
    )


def test_an_expired_lease_is_a_loss_and_a_claim_in_one_write() -> None:
    change = seen(claimed(new_item(PLAN), PLAN), START + LEASE, lease(START + LEASE))
    assert change.line is not None
    assert (change.line.reason, change.line.by, change.line.since) == (Reason.LOST, "worker", START)
    row = change.after
    assert (row.status, row.lease, row.losses, row.attempts, row.unknown) == (
        Status.PROCESSING,
        "t2",
        1,
        0,
        True,
    )


def test_without_a_worker_an_expired_lease_goes_back_to_the_queue() -> None:
    row = seen(claimed(new_item(PLAN), PLAN), START + LEASE).after
    assert (row.status, row.lease, row.losses, row.due_at) == (
        Status.QUEUED,
        None,
        1,
        START + LEASE,
    )


def test_a_lease_that_holds_is_respected() -> None:
    assert look(claimed(new_item(PLAN), PLAN), PLAN, START + LEASE - 1, 0.0, lease()) is None


def test_losses_are_bounded() -> None:
    item, now = claimed(new_item(PLAN), PLAN), START
    for losses in range(1, MAX_LOSSES + 1):
        assert fragile(item.row) is (losses >= FRAGILE)
        now += LEASE
        item = after(item, seen(item, now, lease(now)))
        assert item.row.losses == losses
    assert item.row.status is Status.MAX_RETRIES_EXCEEDED
    assert item.row.error is not None
    assert item.row.error.category == "WORKER_LOST"
    assert item.row.attempts == 0


def test_silence_after_handing_over_is_counted_as_no_answer() -> None:
    item = settled(claimed(new_item(PLAN), PLAN), HandedOver("1h"), PLAN)
    assert look(item, PLAN, START + HOUR - 1, 0.0, lease()) is None
    for by in (None, lease(START + HOUR)):
        row = seen(item, START + HOUR, by).after
        assert (row.status, row.attempts, row.unknown, row.handed_over) == (
            Status.RETRY_SCHEDULED,
            1,
            True,
            False,
        )
        assert row.error is not None
        assert row.error.category == "NO_ANSWER"


def test_an_external_stage_is_sent_again_with_the_same_work_id() -> None:
    item = at_stage("delivered", PLAN)
    assert look(item, PLAN, START + DAY - 1, 0.0, None) is None
    for by in (None, lease(START + DAY)):
        change = seen(item, START + DAY, by)
        assert change.line is not None
        assert (change.line.reason, change.line.offered) == (Reason.RESENT, item.work_id)
        assert (change.after.status, change.after.lease, change.after.due_at) == (
            Status.QUEUED,
            None,
            START + 2 * DAY,
        )


def test_an_external_item_whose_offer_was_never_made_takes_an_allowed_edge() -> None:
    """With grace an item is PENDING until its offer is out; if that never happens, the look that
    makes it follows the table."""
    plan = make_plan(grace_ms=600_000)
    item = at_stage_with_grace("delivered")
    due = item.row.due_at
    assert due is not None
    change = look(item, plan, due, 0.0, None)
    assert change is not None
    assert change.line is not None
    assert allowed(item.row.status, change.after.status, change.line.reason), change.line.reason


def at_stage_with_grace(stage: str) -> Item:
    plan = make_plan(grace_ms=600_000)
    item, now = new_item(plan), START
    while item.stage != stage:
        now += 600_000
        item = settled(claimed(item, plan, now), Done(), plan, now)
    assert item.row.status is Status.PENDING
    return item


def test_a_failed_outside_try_is_offered_again_when_it_is_due() -> None:
    item = at_stage("delivered", PLAN)
    failed = confirm(item, "delivered", Retry("lost in the post"), PLAN, START, 0.0, by="partner")
    assert isinstance(failed, Change)
    item = after(item, failed)
    assert item.row.status is Status.RETRY_SCHEDULED
    assert item.row.due_at is not None
    assert seen(item, item.row.due_at).after.status is Status.QUEUED


def test_overdue_is_told_once_whatever_the_status() -> None:
    waiting = settled(claimed(at_stage("stamp", PLAN), PLAN), NotYet("3h"), PLAN)
    change = seen(waiting, START + HOUR)
    assert change.line is not None
    assert (change.line.reason, change.after.status, change.after.overdue_at) == (
        Reason.OVERDUE,
        Status.WAITING,
        None,
    )
    assert look(after(waiting, change), PLAN, START + HOUR, 0.0, None) is None
    held = claimed(at_stage("stamp", PLAN), PLAN)
    held = Item(replace(held.row, look_at=START + 2 * HOUR), held.content)
    told = seen(held, START + HOUR, lease())
    assert (told.after.status, told.after.lease) == (Status.PROCESSING, held.row.lease), (
        "whoever holds it keeps it"
    )


def test_overdue_and_ready_is_told_by_the_claim() -> None:
    change = seen(at_stage("stamp", PLAN), START + HOUR, lease(START + HOUR))
    assert change.line is not None
    assert (change.line.reason, change.after.status, change.after.overdue_at) == (
        Reason.OVERDUE,
        Status.PROCESSING,
        None,
    )


def test_a_kept_confirmation_is_applied_by_whoever_looks() -> None:
    item = new_item(PLAN)
    kept = confirm(item, "stamp", Done({"s": 1}), PLAN, START, 0.0, by="partner")
    assert isinstance(kept, Change)
    item = settled(claimed(after(item, kept), PLAN), Done(), PLAN)
    assert (item.stage, item.row.due_at) == ("stamp", START), "it is due at once"
    for by in (None, lease()):
        change = seen(item, START, by)
        assert (change.after.stage, change.after.kept, change.after.lease) == (
            "delivered",
            {},
            None,
        )


def test_an_undecided_outcome_is_decided_by_whoever_looks() -> None:
    held = claimed(new_item(PLAN), PLAN)
    item = after(held, undecided(held.row, Done({"g": 1}), START, by="old"))
    for by in (None, lease()):
        change = seen(item, START, by)
        assert change.line is not None
        assert (change.after.stage, change.after.undecided, change.line.by) == (
            "stamp",
            None,
            "worker",
        )


@pytest.mark.parametrize(("dialect", "at_once"), [("seed", True), ("today", False)])
def test_an_offer_just_as_old_as_its_life_is_sent_again_by_the_seed_and_not_yet_today(
    dialect: str, at_once: bool
) -> None:
    route = Route("assets", dialect=dialect)
    route.external("CC", resend_after="4d")
    plan, born = Plan(route), 1_000
    item = Item(
        accept(plan, "a", {}, born, correlation_id="c", digest=digest_of({})).after, Content({})
    )
    life = 4 * 86_400_000
    assert look(item, plan, born + life - 1, 0.0, None) is None
    assert (look(item, plan, born + life, 0.0, None) is not None) is at_once
    assert look(item, plan, born + life + 1, 0.0, None) is not None


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_claim_on_arrival_is_the_claim_that_a_look_would_make(data: st.DataObject) -> None:
    for _, change, _ in walk(data, PLAN, 20):
        stage = PLAN.by_name[change.after.stage]
        moment = change.after.updated_at
        by = lease(moment)
        arrived = claimed_on_arrival(change, moment, by)
        looked = (
            look(Item(change.after, new_item(PLAN).content), PLAN, moment, 0.0, by)
            if stage.ours
            else None
        )
        plain = looked is not None and not looked.body and looked.after.lease == by.token
        if arrived is not None and stage.ours:
            assert looked is not None
            assert (arrived.before, arrived.after, arrived.body, arrived.puts) == (
                change.before,
                looked.after,
                change.body,
                change.puts,
            )
        # What came to a stage of ours and is ready there is claimed at once: nothing else of a
        # plain look is left out.
        if plain and change.after.status is Status.QUEUED and not change.after.kept:
            assert arrived is not None


def test_a_message_follows_each_new_moment_to_look() -> None:
    plan = make_plan(grace_ms=600_000, offer_life_ms=86_400_000)
    accepted = accept(plan, "k", {"id": "k", "lane": ""}, START, correlation_id="c", digest=b"d")
    assert has_new_look(accepted.before, accepted.after)
    held = claimed(new_item(PLAN), PLAN)
    assert not has_new_look(new_item(PLAN).row, held.row), "a worker has it"
    for outcome in (Done(), NotYet(after="5m"), Retry("busy")):
        moved = decide(held, outcome, plan, START, 0.0)
        assert has_new_look(moved.before, moved.after)
        assert not has_new_look(
            moved.after, replace(moved.after, version=moved.after.version + 1)
        ), "a note sets no other moment"
    waiting = decide(held, NotYet(after="5m"), plan, START, 0.0).after
    assert has_new_look(waiting, replace(waiting, look_at=START + 1))
    assert not has_new_look(waiting, replace(waiting, status=Status.CANCELLED, look_at=None))
