"""A running back-fill: operators see, stop and continue it; pauses and changed routes hold it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.engine.routes.backfill_scene import (
    LONGER,
    SIGNED,
    changed,
    finished,
    held,
    names,
    sent_on,
)
from tests.engine.world import ROUTE, World

from milepost.core.errors import UsageError
from milepost.engine.act_log import act_view, all_acts
from milepost.engine.acts.controls import pause, resume
from milepost.engine.health.doctor import doctor
from milepost.engine.resend import Resender
from milepost.engine.retention import prune
from milepost.engine.routes import backfill
from milepost.engine.routes.backfill import back_fill_waits, change_pace, stop, view
from milepost.engine.routes.versions import apply_route
from milepost.ports.documents import BACK_FILL


def test_it_can_be_stopped_goes_on_and_changes_its_pace(world: World) -> None:
    keys = names(6)
    finished(world, *keys)
    newer, _ = changed(world, 1.0)
    resender = Resender(newer.ctx)
    assert resender.run_once().back_filled == 1
    stop(newer.ctx, ROUTE, by="ops", reason="the shelf is full")
    newer.clock.advance("1m")
    assert (resender.run_once().back_filled, back_fill_waits(newer.ctx)) == (0, False)
    told = view(newer.ctx, ROUTE)
    assert told is not None
    assert (told["state"], told["done"], told["left"], told["eta"], told["stopped_why"]) == (
        "stopped",
        1,
        5,
        None,
        "the shelf is full",
    )
    change_pace(newer.ctx, ROUTE, 2.0, by="ops", reason="there is a second shelf")
    assert back_fill_waits(newer.ctx)
    assert resender.run_once().back_filled == 1, "what was not used while it was stopped is lost"
    newer.clock.advance("1s")
    assert resender.run_once().back_filled == 2
    assert [
        one.filter.get("what")
        for one in all_acts(newer.ctx)
        if one.verb == "back-fill" and "what" in one.filter
    ] == ["pace", "stop"]
    with pytest.raises(UsageError, match="a name and a reason"):
        stop(newer.ctx, ROUTE, by="", reason="")


def test_one_that_is_stopped_while_a_portion_is_in_hand_lays_it_down(faulty: World) -> None:
    finished(faulty, "a", "b", "c")
    newer, _ = changed(faulty, 1.0)
    faulty.ledger.before(
        "apply", lambda: stop(newer.ctx, ROUTE, by="ops", reason="enough") and None
    )  # type: ignore[attr-defined]
    assert Resender(newer.ctx).run_once().back_filled == 1
    assert (held(newer).done, held(newer).in_hand, held(newer).stopped_by) == (1, [], "ops")


def test_a_pause_holds_it_and_old_processes_leave_it_alone(world: World) -> None:
    finished(world, "a", "b")
    newer, _ = changed(world, 1.0)
    assert Resender(world.ctx).run_once().back_filled == 0, "it has the old stages"
    pause(newer.ctx, ROUTE, "filed", by="ops", reason="the shelf is moved")
    assert (Resender(newer.ctx).run_once().back_filled, back_fill_waits(newer.ctx)) == (0, False)
    told = view(newer.ctx, ROUTE)
    assert told is not None
    assert told["waits"] == "parcels/filed is paused"
    resume(newer.ctx, ROUTE, "filed", by="ops", reason="it stands")
    assert Resender(newer.ctx).run_once().back_filled == 1


def test_there_is_one_at_a_time_and_a_stopped_one_gives_way(world: World) -> None:
    finished(world, "a", "b")
    first, _ = changed(world, 1.0)
    with pytest.raises(UsageError, match="are being sent to 'filed', 2 left"):
        changed(first, 1.0, *LONGER, "shelved", to="shelved")
    stop(first.ctx, ROUTE, by="ops", reason="both at once, then")
    second, _ = changed(first, 1.0, *LONGER, "shelved", to="shelved")
    assert (held(second).stage, held(second).act) == ("shelved", "parcels-v3-back-fill")
    assert [one.id for one in all_acts(second.ctx) if act_view(one)["go_on"]] == [
        "parcels-v3-back-fill"
    ]


def test_a_renamed_stage_takes_its_back_fill_along_and_a_removed_one_ends_it(world: World) -> None:
    finished(world, "a", "b", "c")
    newer, _ = changed(world, 1.0)
    Resender(newer.ctx).run_once()
    renamed = newer.beside("weigh", "stamp", "Delivered", "shelved")
    apply_route(renamed.ctx, renamed.plan, mapping={"filed": "shelved"}, **SIGNED)
    renamed.clock.advance("1s")
    assert Resender(renamed.ctx).run_once().back_filled == 1
    assert {renamed.row(key).stage for key in "ab"} == {"shelved"}
    bare = renamed.beside("weigh", "stamp", "Delivered")
    apply_route(bare.ctx, bare.plan, mapping={"shelved": None}, **SIGNED)
    bare.clock.advance("1s")
    assert (Resender(bare.ctx).run_once().back_filled, back_fill_waits(bare.ctx)) == (0, False)
    told = view(bare.ctx, ROUTE)
    assert told is not None
    assert told["waits"] == "the route no longer has the stage 'shelved'"


def test_one_that_cannot_be_sent_on_keeps_nobody_waiting(faulty: World) -> None:
    finished(faulty, "a", "b", "c")
    newer, _ = changed(faulty, 100.0)
    newer.clock.advance("1s")

    def spoilt() -> None:
        raise ValueError("its content cannot be read")

    for _ in range(2):  # among the others, and by itself
        faulty.ledger.before(
            "apply", spoilt, lambda changes, *more: "b" in [one.before.key for one in changes]
        )  # type: ignore[attr-defined]
    assert Resender(newer.ctx).run_once().back_filled == 2
    assert (held(newer).done, held(newer).passed, sent_on(newer, ["a", "b", "c"])) == (
        2,
        1,
        [1, 0, 1],
    )


def test_the_doctor_says_what_keeps_it(world: World) -> None:
    finished(world, "a", "b")
    newer, _ = changed(world, 1.0)
    Resender(newer.ctx).run_once()

    def told() -> tuple[str, str, str]:
        [finding] = [
            finding for finding in doctor(newer.ctx).findings if finding.about == "back-fill"
        ]
        return finding.level, finding.what, finding.next

    still = "1 completed item of parcels still to be sent to filed"
    assert told() == ("ok", still, "")
    newer.clock.advance("6m")
    assert told()[0] == "warn"
    assert told()[1].startswith(f"{still}; no process has continued it since 6 min ago")
    pause(newer.ctx, ROUTE, by="ops", reason="stocktaking")
    assert told()[1] == f"{still}; it waits: parcels is paused"
    stop(newer.ctx, ROUTE, by="ops", reason="the shelf is full")
    assert told()[1:] == (
        f"{still}; stopped by ops: the shelf is full",
        "milepost routes back-fill parcels --pace RATE --by YOU --reason '…'",
    )
    resume(newer.ctx, ROUTE, by="ops", reason="counted")
    change_pace(newer.ctx, ROUTE, 1.0, by="ops", reason="there is room")
    Resender(newer.ctx).run_once()
    assert [finding for finding in doctor(newer.ctx).findings if finding.about == "back-fill"] == []


def test_a_preview_says_how_many_how_long_and_what_cannot_be_done(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(world, *names(4))
    prune(world.ctx, ROUTE, 0, **SIGNED)
    gone = 4 - sum(count.n for count in world.ledger.counts(ROUTE))
    assert gone, "some rows have left"
    finished(world, "a", "b")
    before = world.ledger.change_counter()
    newer = world.beside("weigh", "stamp", "filed", "Delivered")
    given: dict[str, Any] = {
        "mapping": {},
        "by": "",
        "reason": "",
        "dry_run": True,
        "back_fill": "filed",
    }
    coming = apply_route(newer.ctx, newer.plan, pace=0.5, **given).back_fill
    assert coming is not None
    rows = 6 - gone
    assert (coming.items, coming.takes_ms, coming.again, coming.sealed, coming.sealed_more) == (
        rows,
        rows * 2000,
        ("Delivered",),
        gone,
        False,
    )
    at_once = apply_route(newer.ctx, newer.plan, **given).back_fill
    assert at_once is not None
    assert (at_once.pace, at_once.takes_ms) == (None, None)
    monkeypatch.setattr(backfill, "SEALS", 1)
    monkeypatch.setattr(backfill, "COUNTED", 1)
    some = apply_route(newer.ctx, newer.plan, **given).back_fill
    assert some is not None
    assert (some.sealed, some.sealed_more) == (1, True)
    assert world.ledger.change_counter() == before


def test_a_portion_and_a_pace_of_a_clock_that_was_ahead_do_not_hold_it_up(world: World) -> None:
    finished(world, *names(4))
    newer, _ = changed(world, 100.0)
    ahead = world.clock.now() + 3 * 86_400_000
    world.ledger.write(BACK_FILL, ROUTE, replace(held(world), held_until=ahead, spent_to=ahead))
    resender = Resender(newer.ctx)
    for _ in range(20):
        resender.run_once()
        world.clock.advance("1s")
    assert sent_on(world, names(4)) == [1] * 4
