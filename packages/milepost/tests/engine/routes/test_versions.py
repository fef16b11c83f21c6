"""Versions of routes: a change in flight is never silent and never applied twice, and an
interrupted change is completed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.world import ROUTE, Interrupted, World, dies, parcels

from milepost.core.errors import RouteChanged, UsageError
from milepost.core.outcome import Done, Reject, Retry
from milepost.core.routes.plan import Plan
from milepost.core.status import Reason, Status
from milepost.engine.act_log import all_acts, select
from milepost.engine.acts.bulk import act, confirm_outside
from milepost.engine.acts.verbs import CancelVerb
from milepost.engine.routes import versions
from milepost.engine.routes.versions import (
    Applied,
    apply_route,
    compare,
    exact_census,
    outdated,
    register,
    stranded,
)
from milepost.ports.documents import ROUTE as ROUTES
from milepost.ports.documents import RouteVersion, read_as
from milepost.ports.items import Conflict

SIGNED: dict[str, Any] = {"by": "ops", "reason": "the new year's route"}


def stored(world: World) -> RouteVersion:
    return read_as(RouteVersion, world.ledger.read(ROUTES)[ROUTE].value)


def change_to(
    world: World, *stages: str, mapping: dict[str, str | None] | None = None, **options: Any
) -> tuple[World, Applied]:
    newer = world.beside(*stages)
    return newer, apply_route(newer.ctx, newer.plan, mapping=mapping or {}, **SIGNED, **options)


# Registering --------------------------------------------------------------------------------------
def test_the_first_process_makes_version_one_and_the_next_finds_it(world: World) -> None:
    assert (stored(world).version, stored(world).by, stored(world).shape[2]) == (
        1,
        "test",
        ["Delivered", "external"],
    )
    before = world.ledger.change_counter()
    assert world.beside().registered().plan.version == 1
    assert world.ledger.change_counter() == before


def test_two_first_processes_agree(faulty: World) -> None:
    faulty.ledger.write(ROUTES, ROUTE, None)
    other = faulty.beside()
    faulty.ledger.before("write", lambda: other.registered() and None)  # type: ignore[attr-defined]
    assert register(faulty.ledger, faulty.plan, 5, "late").version == 1
    assert stored(faulty).by == "test"


def test_another_route_is_refused_with_the_difference_and_the_cure(world: World) -> None:
    world.add("a", "b")
    world.work("weigh", want=1)
    with pytest.raises(RouteChanged) as refused:
        world.beside("Weigh2", "stamp", "delivered").registered()
    message = str(refused.value)
    for part in (
        "version 1",
        "added 'Weigh2'",
        "removed 'weigh' (1 item there)",
        "removed 'Delivered'",
        "milepost routes apply parcels --map weigh=STAGE --by YOU --reason '…'",
    ):
        assert part in message
    assert stored(world).version == 1


def test_a_changed_order_or_kind_is_a_difference(world: World) -> None:
    turned = compare(world.ledger, Plan(parcels("stamp", "weigh", "Delivered")))
    assert (turned.reordered, turned.added, turned.removed, str(turned)) == (
        True,
        (),
        (),
        "the order of stages has changed",
    )
    route = parcels("weigh", "stamp")
    route.stage("Delivered")(lambda item: Done())
    kind = compare(world.ledger, Plan(route))
    assert str(kind) == "'Delivered' was external, is handler"
    assert compare(world.ledger, world.plan).same
    assert compare(world.ledger, Plan(routes_named("letters"))).version == 0


def routes_named(name: str) -> Any:
    route = parcels("weigh")
    route.name = name
    return route


# Applying -----------------------------------------------------------------------------------------
def test_an_added_stage_needs_no_mapping_and_old_processes_stand_by(world: World) -> None:
    world.add("a")
    [held] = world.claim("weigh")
    newer, applied = change_to(world, "weigh", "stamp", "Delivered", "filed")
    assert (
        applied.version,
        applied.moved,
        newer.plan.version,
        outdated(world.ctx),
        outdated(newer.ctx),
    ) == (2, 0, 2, [ROUTE], [])
    assert world.claim("weigh") == []
    answer = act(world.ctx, select(world.ctx, ROUTE, keys=["a"]), CancelVerb(), **SIGNED)
    assert answer.refused_count == 1
    assert newer.row("a").lease == held.row.lease
    assert world.beside("weigh", "stamp", "Delivered", "filed").registered().plan.version == 2


def test_items_at_a_removed_stage_must_be_thought_of(world: World) -> None:
    world.add("a", "b")
    newer = world.beside("stamp", "Delivered")
    with pytest.raises(UsageError, match="2 at 'weigh'"):
        apply_route(newer.ctx, newer.plan, mapping={}, **SIGNED)
    with pytest.raises(
        UsageError, match="cannot move to 'nowhere'; stages of route 'parcels' are stamp, Delivered"
    ):
        apply_route(newer.ctx, newer.plan, mapping={"weigh": "nowhere"}, **SIGNED)
    with pytest.raises(
        UsageError, match="'stamp' is not a removed stage of route 'parcels'; removed: weigh"
    ):
        apply_route(newer.ctx, newer.plan, mapping={"weigh": "stamp", "stamp": "weigh"}, **SIGNED)
    with pytest.raises(UsageError, match="a name and a reason"):
        apply_route(newer.ctx, newer.plan, mapping={"weigh": "stamp"}, by="ops", reason=" ")
    assert stored(world).version == 1


def test_a_preview_changes_nothing(world: World) -> None:
    world.add("a")
    before = world.ledger.change_counter()
    newer = world.beside("stamp", "Delivered")
    applied = apply_route(
        newer.ctx, newer.plan, mapping={"weigh": "stamp"}, by="", reason="", dry_run=True
    )
    assert (applied.version, applied.moves, applied.difference.items, applied.left) == (
        2,
        {"weigh": "stamp"},
        {"weigh": 1},
        {"weigh": 1},
    )
    assert world.ledger.change_counter() == before


def test_items_move_to_the_stage_named(world: World) -> None:
    world.add("busy", "waits", "failed", "ended")
    world.settle(
        [item for item in world.claim("weigh") if item.key != "busy"][:1], Done()
    )  # one is past it
    past = next(key for key in ("waits", "failed", "ended") if world.row(key).stage == "stamp")
    others = [key for key in ("waits", "failed", "ended") if key != past]
    world.clock.advance("31s")
    claimed = {item.key: item for item in world.claim("weigh")}
    world.settle([claimed[others[0]]], Retry("scale"))
    world.settle([claimed[others[1]]], Reject("no such"))
    newer, applied = change_to(world, "stamp", "Delivered", mapping={"weigh": "stamp"})
    assert (applied.version, applied.moved, applied.left) == (2, 3, {})
    assert {key: newer.row(key).stage for key in ("busy", *others)} == dict.fromkeys(
        ("busy", *others), "stamp"
    )
    assert newer.row(others[1]).status is Status.REJECTED, (
        "a failed item keeps its end; it can be retried at the new stage"
    )
    line = newer.ledger.history(ROUTE, "busy")[-1].line
    assert (line.reason, line.to, line.by, line.why, line.act) == (
        Reason.MOVED,
        "stamp",
        "ops",
        "the new year's route",
        "parcels-v2",
    )
    late = world.ledger.apply([_settling(world, claimed["busy"])], world.clock.now())[0]
    assert isinstance(late, Conflict), "the worker that held it finds its lease gone"
    assert stored(world).moves == {}
    assert len(newer.claim("stamp")) == 3


def _settling(world: World, item: Any) -> Any:
    from milepost.core.decide import decide

    return decide(item, Done(), world.plan, world.clock.now(), 0.0)


def test_items_may_be_cancelled_with_their_stage(world: World) -> None:
    world.add("a", "b")
    world.work("weigh", Reject("no"), want=1)
    newer, applied = change_to(world, "stamp", "Delivered", mapping={"weigh": None})
    assert (applied.moved, applied.left) == (1, {})
    assert sorted(newer.row(key).status for key in "ab") == [Status.CANCELLED, Status.REJECTED]
    # Ended items at a stage that is gone are nobody's concern at the next change.
    _, again = change_to(newer, "stamp", "Delivered", "filed")
    assert again.version == 3


def test_a_rename_keeps_everything_else(world: World) -> None:
    world.add("a", "b", "c")
    world.work("weigh", Done({"grams": 3}))
    world.work("stamp", Retry("ink"), want=1)
    failed = next(key for key in "abc" if world.row(key).attempts)
    [held] = world.claim("stamp", want=1)
    confirm_outside(world.ctx, ROUTE, failed, "Delivered", Done(True), by="p")
    newer, applied = change_to(world, "weigh", "frank", "Delivered", mapping={"stamp": "frank"})
    assert (applied.moved, applied.moves, applied.left) == (0, {"stamp": "=frank"}, {})
    row = newer.row(failed)
    assert (row.stage, row.attempts, row.status, row.kept) == (
        "frank",
        1,
        Status.RETRY_SCHEDULED,
        {"Delivered": {"type": "done", "output": True, "by": "p"}},
    )
    assert newer.item(failed).payload == {"grams": 3}
    assert newer.row(held.key).lease == held.row.lease
    assert stranded(exact_census(newer.ledger, newer.plan), newer.plan) == {}


def test_to_a_new_stage_of_the_other_kind_items_enter_anew(world: World) -> None:
    world.add("a")
    newer, applied = change_to(world, "Weighed", "stamp", "Delivered", mapping={"weigh": "Weighed"})
    assert (applied.moved, applied.moves) == (1, {"weigh": "Weighed"})
    assert newer.ledger.history(ROUTE, "a")[-1].line.offered == newer.item("a").work_id


def test_a_stage_that_changes_its_kind_is_offered_anew(world: World) -> None:
    world.add("a", "b")
    for stage in ("weigh", "stamp"):
        world.work(stage)
    route = parcels("weigh", "stamp")
    route.stage("Delivered")(lambda item: Done())
    newer = World(world.ledger, world.clock, route)
    applied = apply_route(newer.ctx, newer.plan, mapping={}, **SIGNED)
    assert (applied.moved, applied.moves) == (2, {"Delivered": "Delivered"})
    assert len(newer.claim("Delivered")) == 2, (
        "not in fourteen days, when the partner would have been asked again"
    )


def test_a_confirmation_kept_for_the_target_is_applied_on_arrival(world: World) -> None:
    world.add("a")
    confirm_outside(world.ctx, ROUTE, "a", "stamp", Done(True), by="p")
    newer, _ = change_to(world, "stamp", "Delivered", mapping={"weigh": "stamp"})
    assert newer.row("a").stage == "Delivered"


def test_back_fill_sends_finished_items_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PAGE", 2)
    world.add("a", "b", "c", "d", "e")
    world.add("open")
    for stage in ("weigh", "stamp"):
        world.work(stage)
    for key in "abcde":
        confirm_outside(world.ctx, ROUTE, key, "Delivered", Done(True), by="p")
    seen: list[int] = []
    newer, applied = change_to(
        world, "weigh", "stamp", "Delivered", "filed", back_fill="filed", on_progress=seen.append
    )
    assert (applied.back_filled, seen[-1]) == (5, 5)
    assert {newer.row(key).stage for key in "abcde"} == {"filed"}
    assert newer.reasons("a")[-1] is Reason.BACK_FILL
    assert newer.row("open").stage == "Delivered"
    with pytest.raises(UsageError, match="only be sent to an added stage; added: none"):
        apply_route(newer.ctx, newer.plan, mapping={}, back_fill="filed", **SIGNED)


@pytest.mark.parametrize("at", ["rename_stage", "apply"])
def test_an_interrupted_change_goes_on(
    faulty: World, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    monkeypatch.setattr(versions, "PAGE", 2)
    faulty.add(*(f"k{n}" for n in range(5)))
    faulty.add("done")
    faulty.work("weigh", want=1)
    newer = faulty.beside("frank", "Delivered", "filed")
    mapping: dict[str, str | None] = {"weigh": "frank", "stamp": "Delivered"}
    faulty.ledger.before(at, dies)  # type: ignore[attr-defined]
    with pytest.raises(Interrupted):
        apply_route(newer.ctx, newer.plan, mapping=mapping, back_fill="filed", **SIGNED)
    assert (stored(faulty).version, stored(faulty).moves) == (
        2,
        {"weigh": "=frank", "stamp": "Delivered", "*": "filed"},
    )
    again = faulty.beside("frank", "Delivered", "filed").registered()
    assert again.plan.version == 2
    applied = apply_route(again.ctx, again.plan, mapping={}, **SIGNED)
    assert (applied.version, applied.moved, applied.left) == (2, 1, {})
    assert stored(faulty).moves == {}
    assert (
        sorted(again.row(key).stage for key in ("done", *(f"k{n}" for n in range(5))))
        == ["Delivered"] + ["frank"] * 5
    )
    before = faulty.ledger.change_counter()
    assert apply_route(again.ctx, again.plan, mapping={}, **SIGNED).moved == 0
    assert faulty.ledger.change_counter() == before


def test_an_interrupted_back_fill_sends_each_item_on_once(
    faulty: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "PAGE", 2)
    keys = [f"k{n}" for n in range(5)]
    faulty.add(*keys)
    for stage in ("weigh", "stamp"):
        faulty.work(stage)
    for key in keys:
        confirm_outside(faulty.ctx, ROUTE, key, "Delivered", Done(True), by="p")
    newer = faulty.beside("weigh", "stamp", "Delivered", "filed")
    applied: list[int] = []
    faulty.ledger.after(
        "apply", dies, lambda changes, *more: applied.append(1) or len(applied) == 2
    )  # type: ignore[attr-defined,func-returns-value]
    with pytest.raises(Interrupted):
        apply_route(newer.ctx, newer.plan, mapping={}, back_fill="filed", **SIGNED)
    again = faulty.beside("weigh", "stamp", "Delivered", "filed").registered()
    again.work(
        "filed", want=3
    )  # some have come to the new end of the route meanwhile, in the same millisecond
    apply_route(again.ctx, again.plan, mapping={}, **SIGNED)
    assert [again.reasons(key).count(Reason.BACK_FILL) for key in keys] == [1] * 5
    assert sum(again.row(key).status is Status.COMPLETED for key in keys) == 3


def test_two_changes_at_the_same_time_follow_one_another(faulty: World) -> None:
    other = faulty.beside("weigh", "stamp", "Delivered", "filed")
    newer = faulty.beside("weigh", "stamp", "sealed", "Delivered", "filed")

    def apply_other() -> None:
        apply_route(other.ctx, other.plan, mapping={}, **SIGNED)

    faulty.ledger.before("write", apply_other)  # type: ignore[attr-defined]
    applied = apply_route(newer.ctx, newer.plan, mapping={}, **SIGNED)
    assert (applied.version, applied.difference.added) == (3, ("sealed",))
    assert stored(faulty).version == 3


def test_the_same_change_at_the_same_time_is_made_once(faulty: World) -> None:
    other = faulty.beside("weigh", "stamp", "Delivered", "filed")
    newer = faulty.beside("weigh", "stamp", "Delivered", "filed")

    def apply_other() -> None:
        apply_route(other.ctx, other.plan, mapping={}, **SIGNED)

    faulty.ledger.before("write", apply_other)  # type: ignore[attr-defined]
    applied = apply_route(newer.ctx, newer.plan, mapping={}, **SIGNED)
    assert (applied.version, applied.difference.same) == (2, True)
    assert stored(faulty).version == 2


def test_a_worker_that_settles_during_the_move_is_no_hindrance(faulty: World) -> None:
    faulty.add("a", "b")
    held = faulty.claim("weigh")
    newer = faulty.beside("stamp", "Delivered")

    def meanwhile() -> None:
        from milepost.core.decide import undecided

        changes = [undecided(item.row, Done(), faulty.clock.now(), by="host:1") for item in held]
        assert faulty.ledger.apply(changes, faulty.clock.now()) == [None, None]

    faulty.ledger.before("apply", meanwhile)  # type: ignore[attr-defined]
    applied = apply_route(newer.ctx, newer.plan, mapping={"weigh": "stamp"}, **SIGNED)
    assert (applied.moved, applied.left) == (2, {})
    assert {newer.row(key).stage for key in "ab"} == {"stamp"}


def test_items_that_slipped_in_are_shown_and_can_be_moved_afterwards(faulty: World) -> None:
    """An old process adds an item between our look at the counts and the new version."""
    newer = faulty.beside("stamp", "Delivered")
    faulty.ledger.before("write", lambda: faulty.add("late"))  # type: ignore[attr-defined]
    applied = apply_route(newer.ctx, newer.plan, mapping={}, **SIGNED)
    assert applied.left == {"weigh": 1}
    with pytest.raises(UsageError, match="1 at 'weigh'"):
        apply_route(newer.ctx, newer.plan, mapping={}, **SIGNED)
    assert apply_route(newer.ctx, newer.plan, mapping={"weigh": "stamp"}, **SIGNED).left == {}
    assert newer.row("late").stage == "stamp"


def test_a_change_is_on_record_and_says_who_came_along(world: World) -> None:
    world.add("a", "b", "c")
    world.work("weigh", want=1)
    newer = world.beside("scale", "stamp", "Delivered")
    preview = apply_route(
        newer.ctx, newer.plan, mapping={"weigh": "scale"}, by="", reason="", dry_run=True
    )
    assert (preview.renamed, preview.moves) == ({"weigh": 2}, {"weigh": "=scale"})
    assert all_acts(world.ctx) == []
    with pytest.raises(UsageError, match="a name and a reason"):
        apply_route(newer.ctx, newer.plan, mapping={"weigh": "scale"}, by="ops", reason=" ")
    applied = apply_route(newer.ctx, newer.plan, mapping={"weigh": "scale"}, **SIGNED)
    assert (applied.renamed, applied.moved) == ({"weigh": 2}, 0)
    [act] = all_acts(world.ctx)
    assert (act.id, act.verb, act.by, act.done, act.finished_at) == (
        "parcels-v2",
        "apply",
        "ops",
        2,
        world.clock.now(),
    )
    apply_route(newer.ctx, newer.plan, mapping={}, by="slots", reason="once more")
    assert [act.by for act in all_acts(world.ctx)] == ["ops"], "nothing was to be done"


def test_a_route_that_nobody_knows_is_simply_registered(world: World) -> None:
    plan = Plan(routes_named("letters"))
    assert apply_route(world.ctx, plan, mapping={}, **SIGNED).version == 1
    assert register(world.ledger, plan, 1, "x").version == 1


def test_a_stage_with_items_is_not_removed_and_the_items_are_named(world: World) -> None:
    world.add("a", "b", "c", "d")
    world.work("weigh", want=1)
    with pytest.raises(UsageError, match=r"3 at 'weigh' \(b, c, d\)"):
        change_to(world, "stamp", "Delivered")
    world.add("e")
    with pytest.raises(UsageError, match=r"4 at 'weigh' \(b, c, d, …\)"):
        change_to(world, "stamp", "Delivered")
    assert stored(world).version == 1
