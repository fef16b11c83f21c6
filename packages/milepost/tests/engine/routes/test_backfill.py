"""Back-fill: the resender sends finished items to an added stage at a set pace, each once."""

from __future__ import annotations

import pytest
from tests.engine.routes.backfill_scene import (
    LONGER,
    SIGNED,
    changed,
    finished,
    held,
    names,
    sent_on,
)
from tests.engine.world import ROUTE, Faulty, Interrupted, World, dies

from milepost.core.outcome import Done
from milepost.core.status import Reason, Status
from milepost.engine.act_log import all_acts, select
from milepost.engine.acts.bulk import act, confirm_outside
from milepost.engine.acts.verbs import ConfirmVerb
from milepost.engine.resend import Resender
from milepost.engine.routes import backfill
from milepost.engine.routes.backfill import view
from milepost.engine.routes.versions import apply_route
from milepost.ports.documents import BACK_FILL
from milepost.ports.documents import ROUTE as ROUTES


def test_the_pace_is_kept_and_each_item_is_sent_on_once(world: World) -> None:
    keys = names(10)
    finished(world, *keys)
    newer, applied = changed(world)
    assert (
        applied.version,
        applied.back_filled,
        applied.back_fill and applied.back_fill.items,
    ) == (2, 0, 10)
    assert sum(sent_on(world, keys)) == 0, "nobody waits for it"
    resender = Resender(newer.ctx)
    pace = []
    for _ in range(6):
        summary = resender.run_once()
        pace.append(summary.back_filled)
        newer.clock.advance("1s")
    assert pace == [1, 2, 2, 2, 2, 1]
    assert sent_on(world, keys) == [1] * 10
    line = newer.ledger.history(ROUTE, "k000")[-1].line
    assert (line.reason, line.to, line.by, line.why, line.act) == (
        Reason.BACK_FILL,
        "filed",
        "ops",
        SIGNED["reason"],
        "parcels-v2-back-fill",
    )
    assert (held(newer).done, held(newer).passed, held(newer).finished_at is not None) == (
        10,
        0,
        True,
    )
    [record] = [one for one in all_acts(newer.ctx) if one.verb == "back-fill"]
    assert (record.done, record.finished_at is not None) == (10, True)


def test_an_unexpected_error_of_a_portion_is_logged_and_each_item_sent_alone(
    faulty: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(faulty.ledger, Faulty)

    def broken() -> None:
        raise TypeError("a ledger with a defect")

    finished(faulty, "a", "b")
    newer, _ = changed(faulty, 100.0)
    newer.clock.advance("1m")
    faulty.ledger.before("apply", broken)
    assert Resender(newer.ctx).run_once().back_filled == 2
    assert "2 items cannot be sent at once; each is sent alone" in caplog.text
    assert "a ledger with a defect" in caplog.text, "with its traceback"


def test_what_finishes_after_the_change_is_not_sent_on_again(world: World) -> None:
    finished(world, "old")
    world.add("young")
    newer, _ = changed(world, 100.0)
    for stage in ("weigh", "stamp"):
        newer.work(stage)
    confirm_outside(newer.ctx, ROUTE, "young", "Delivered", Done(True), by="p")
    newer.work("filed")
    newer.clock.advance("1m")
    resender = Resender(newer.ctx)
    assert resender.run_once().back_filled == 1
    newer.work("filed")
    newer.clock.advance("1m")
    resender.run_once()
    assert sent_on(newer, ["old", "young"]) == [1, 0]
    assert {newer.row(key).status for key in ("old", "young")} == {Status.COMPLETED}


@pytest.mark.parametrize(("portion", "runs"), [(500, [65, 0]), (50, [50, 15])])
def test_pace_that_nobody_used_is_not_made_up_for(
    world: World, monkeypatch: pytest.MonkeyPatch, portion: int, runs: list[int]
) -> None:
    """No more than what has become free in the last 65 seconds; in small portions."""
    monkeypatch.setattr(backfill, "PORTION", portion)
    keys = names(200)
    world.add(*keys)
    for stage in ("weigh", "stamp"):
        world.work(stage, want=200)
    act(world.ctx, select(world.ctx, ROUTE, keys=keys), ConfirmVerb("Delivered"), **SIGNED)
    world.clock.advance("1s")
    newer, _ = changed(world, 1.0)
    newer.clock.advance("6h")
    first = Resender(newer.ctx).run_once()
    assert ([first.back_filled, Resender(newer.ctx).run_once().back_filled], first.more) == (
        runs,
        runs[1] > 0,
    )


def test_a_pace_slower_than_the_saved_span_still_moves(world: World) -> None:
    finished(world, "a", "b")
    newer, _ = changed(world, 1 / 3600)
    resender = Resender(newer.ctx)
    assert resender.run_once().back_filled == 1
    newer.clock.advance("59m")
    assert resender.run_once().back_filled == 0
    newer.clock.advance("1m")
    assert resender.run_once().back_filled == 1


@pytest.mark.parametrize(("verb", "done"), [("get", 0), ("write", 5)])
def test_a_resender_that_dies_with_a_portion_leaves_it_to_the_next(
    faulty: World, verb: str, done: int
) -> None:
    keys = names(6)
    finished(faulty, *keys)
    newer, _ = changed(faulty, 4.0)
    newer.clock.advance("1s")
    # Between taking and sending on, or between sending on and laying down.
    faulty.ledger.before(verb, dies, lambda *args, **options: verb == "get" or not args[2].in_hand)  # type: ignore[attr-defined]
    with pytest.raises(Interrupted):
        Resender(newer.ctx).run_once()
    assert sum(sent_on(faulty, keys)) == done
    newer.clock.advance("1m")
    assert Resender(newer.ctx).run_once().back_filled == 0, "whoever took it may be alive"
    newer.work("filed")  # what was sent on is through before anybody goes on
    newer.clock.advance("3m")
    for _ in range(3):
        Resender(newer.ctx).run_once()
        newer.clock.advance("1s")
    assert sent_on(faulty, keys) == [1] * 6
    assert (held(newer).done, held(newer).passed, view(newer.ctx, ROUTE)["state"]) == (
        6,
        0,
        "finished",
    )  # type: ignore[index]


def test_two_resenders_share_one_pace(faulty: World) -> None:
    keys = names(9)
    finished(faulty, *keys)
    newer, _ = changed(faulty, 4.0)
    other = faulty.beside(*LONGER).registered()
    newer.clock.advance("1s")
    beside: list[int] = []
    faulty.ledger.before("apply", lambda: beside.append(Resender(other.ctx).run_once().back_filled))  # type: ignore[attr-defined]
    assert (Resender(newer.ctx).run_once().back_filled, beside) == (5, [0])
    assert Resender(other.ctx).run_once().back_filled == 0
    newer.clock.advance("1s")
    assert (
        Resender(other.ctx).run_once().back_filled,
        Resender(newer.ctx).run_once().back_filled,
    ) == (4, 0)
    assert sent_on(faulty, keys) == [1] * 9


def test_a_resender_that_was_taken_to_be_dead_sends_nothing_twice_and_counts_nothing_twice(
    faulty: World,
) -> None:
    keys = names(4)
    finished(faulty, *keys)
    newer, _ = changed(faulty, 1.0)
    newer.clock.advance("1s")
    other = faulty.beside(*LONGER).registered()
    beside: list[int] = []

    def slept() -> None:
        newer.clock.advance("3m")
        beside.append(Resender(other.ctx).run_once().back_filled)

    faulty.ledger.before("apply", slept)  # type: ignore[attr-defined]
    assert (Resender(newer.ctx).run_once().back_filled, beside, held(newer).done) == (0, [2], 2)
    Resender(newer.ctx).run_once()
    assert (sent_on(faulty, keys), held(newer).done, held(newer).passed) == ([1] * 4, 4, 0)


def test_an_apply_that_dies_before_the_back_fill_is_on_record_goes_on_with_it(
    faulty: World,
) -> None:
    finished(faulty, "a")
    newer = faulty.beside(*LONGER)
    faulty.ledger.before("write", dies, lambda kind, *more, **options: kind == BACK_FILL)  # type: ignore[attr-defined]
    with pytest.raises(Interrupted):
        apply_route(newer.ctx, newer.plan, mapping={}, back_fill="filed", pace=5.0, **SIGNED)
    assert ROUTE not in faulty.ledger.read(BACK_FILL)
    again = faulty.beside(*LONGER).registered()
    apply_route(again.ctx, again.plan, mapping={}, **SIGNED)
    assert (
        held(again).pace,
        held(again).stage,
        faulty.ledger.read(ROUTES)[ROUTE].value["moves"],
    ) == (5.0, "filed", {})
    begun = held(again)
    apply_route(again.ctx, again.plan, mapping={}, **SIGNED)
    assert held(again) == begun
