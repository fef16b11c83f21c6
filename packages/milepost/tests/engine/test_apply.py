"""apply: confirmations, kept confirmations that follow, and lost races that are decided again."""

from __future__ import annotations

from typing import Any

from tests.engine.world import ROUTE, World

from milepost.core.operators import cancel, skip
from milepost.core.outcome import Done, Reject, Retry
from milepost.core.status import TERMINAL, Reason, Status
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act, confirm_outside
from milepost.engine.acts.verbs import RetryVerb, SkipVerb
from milepost.engine.apply import CHANGES_TOO_OFTEN, GONE, OUTDATED, apply_all
from milepost.engine.routes.versions import apply_route
from milepost.ports.retention import DeliveredLines, PruneCriteria

SIGNED: dict[str, Any] = {"by": "ops", "reason": "checked by hand"}


# From outside -------------------------------------------------------------------------------------
def test_confirmations_for_later_stages_follow_at_once(world: World) -> None:
    world.add("a")
    for stage in ("Delivered", "stamp"):
        row = confirm_outside(world.ctx, ROUTE, "a", stage, Done({"at": stage}), by="partner")
        assert not isinstance(row, str)
    row = confirm_outside(
        world.ctx, ROUTE, "a", "weigh", Done(True), by="partner", why="weighed there"
    )
    assert not isinstance(row, str)
    assert row.status is Status.COMPLETED, "the two that were kept were applied by the same call"
    assert world.reasons("a")[-3:] == [Reason.CONFIRMED] * 3
    assert world.item("a").results == {
        "weigh": True,
        "stamp": {"at": "stamp"},
        "Delivered": {"at": "Delivered"},
    }


def test_a_skip_that_meets_a_kept_confirmation_applies_it(world: World) -> None:
    world.add("a")
    confirm_outside(world.ctx, ROUTE, "a", "stamp", Done(True), by="partner")
    act(world.ctx, select(world.ctx, ROUTE, keys=["a"]), SkipVerb(), **SIGNED)
    assert world.row("a").stage == "Delivered"


def test_while_a_worker_holds_it_a_confirmation_is_kept(world: World) -> None:
    world.add("a")
    [item] = world.claim("weigh")
    row = confirm_outside(world.ctx, ROUTE, "a", "weigh", Done({"grams": 7}), by="partner")
    assert not isinstance(row, str)
    assert (row.status, row.lease) == (Status.PROCESSING, item.row.lease)
    assert (
        str(confirm_outside(world.ctx, ROUTE, "a", "weigh", Done({"grams": 7}), by="partner"))
        == "known: the same confirmation was given before"
    )


def test_an_outside_retry_is_a_counted_try(world: World) -> None:
    world.add("a")
    row = confirm_outside(world.ctx, ROUTE, "a", "weigh", Retry("scale broken"), by="partner")
    assert not isinstance(row, str)
    assert (row.status, row.attempts) == (Status.RETRY_SCHEDULED, 1)


def test_a_confirmation_that_loses_its_race_is_decided_again(faulty: World) -> None:
    faulty.add("a")
    faulty.ledger.before("apply", lambda: faulty.work("weigh"))  # type: ignore[attr-defined]
    answer = confirm_outside(faulty.ctx, ROUTE, "a", "weigh", Done(True), by="partner")
    assert str(answer) == "known: the item has completed this stage"


def test_unknown_items_and_worthless_words(world: World) -> None:
    world.add("a")
    assert (
        str(confirm_outside(world.ctx, ROUTE, "b", "weigh", Done(True), by="p"))
        == "there is no item with this key"
    )
    assert "confirms nothing" in str(
        confirm_outside(world.ctx, ROUTE, "a", "weigh", Done("no"), by="p")
    )


# Writing ------------------------------------------------------------------------------------------
def test_apply_all_gives_up_on_an_item_that_never_rests(world: World) -> None:
    world.add("a", "b")

    def restless(item: Any) -> Any:
        confirm_outside(
            world.ctx, ROUTE, "a", "weigh", Retry("again", after=world.clock.advance(1) % 7), by="p"
        )
        act(world.ctx, select(world.ctx, ROUTE, keys=["a"]), RetryVerb(), **SIGNED)
        return cancel(item, world.plan, world.clock.now(), by="ops", why="test")

    answers = apply_all(
        world.ctx,
        [
            (world.item("a"), restless),
            (world.item("b"), lambda item: cancel(item, world.plan, 1, by="ops", why="test")),
        ],
    )
    assert answers[0] == CHANGES_TOO_OFTEN
    assert not isinstance(answers[1], str)
    assert answers[1].status is Status.CANCELLED


def test_apply_all_says_what_is_gone_outdated_or_needs_nothing(world: World) -> None:
    world.add("gone")
    world.work("weigh", Reject("no such parcel"))
    world.clock.advance("1m")
    world.add("a")
    gone, stays = world.item("gone"), world.item("a")
    world.ledger.prune(
        PruneCriteria(
            ROUTE, TERMINAL, world.clock.now(), None, DeliveredLines(world.ledger.last_seq()), 10
        )
    )

    def past(item: Any) -> Any:
        return skip(item, world.plan, world.clock.now(), by="ops", why="test")

    assert apply_all(
        world.ctx, [(gone, past), (stays, lambda item: None), (stays, lambda item: "no")]
    ) == [GONE, stays.row, "no"]
    newer = world.beside("weigh", "stamp")
    apply_route(newer.ctx, newer.plan, mapping={}, by="ops", reason="shorter")
    assert apply_all(world.ctx, [(stays, past)]) == [OUTDATED]
