"""Progress of each stage: notes of the resender, and the pace that follows from them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.engine.world import ROUTE, World

from milepost.core.counters import HOUR
from milepost.core.forecast import StagePace
from milepost.core.outcome import Done, Reject
from milepost.core.status import Status
from milepost.engine.acts.bulk import confirm_outside
from milepost.engine.progress import (
    EVERY_MS,
    NAME,
    WINDOW_MS,
    ProgressNotes,
    RouteProgress,
    progress_of,
    read_paces,
    stage_paces,
)
from milepost.engine.resend import Resender
from milepost.engine.retention import prune
from milepost.engine.views.forecast import forecast_view, in_words, route_forecast
from milepost.ports.documents import PROGRESS, read_versioned
from milepost.ports.feed import Count

MINUTE = 60_000
NOW = 473_000 * HOUR + 20 * MINUTE
STAGES = ["weigh", "stamp", "deliver"]


def progress(weigh: int = 0, stamp: int = 0, deliver: int = 0, **hours: int) -> RouteProgress:
    return RouteProgress(
        {"weigh": weigh, "stamp": stamp, "deliver": deliver},
        [(NOW // HOUR, hours.get("completed", 0))],
    )


def test_a_stage_is_completed_by_what_comes_past_it() -> None:
    notes = [(NOW - 10 * MINUTE, progress(90, 10)), (NOW, progress(40, 30, 10, completed=20))]
    assert stage_paces(STAGES, notes) == {
        "weigh": StagePace(50, 10 * MINUTE),
        "stamp": StagePace(30, 10 * MINUTE),
        "deliver": StagePace(20, 10 * MINUTE),
    }


def test_items_that_fail_at_a_stage_have_not_completed_it() -> None:
    counts = [
        Count(ROUTE, "weigh", Status.QUEUED, 1, 40),
        Count(ROUTE, "weigh", Status.REJECTED, NOW // HOUR, 60),
    ]
    notes = [(NOW - 10 * MINUTE, progress(100)), (NOW, progress_of(counts, NOW))]
    assert stage_paces(STAGES, notes)["weigh"].completed == 0


def test_rows_of_completed_items_that_leave_are_no_step_back() -> None:
    counts = [
        Count(ROUTE, "deliver", Status.COMPLETED, NOW // HOUR + hour, n)
        for hour, n in ((-30, 500), (-1, 70), (0, 30))
    ]
    before = progress_of(counts, NOW)
    later = progress_of(
        [*counts[1:2], Count(ROUTE, "deliver", Status.COMPLETED, NOW // HOUR, 45)], NOW + 5 * MINUTE
    )
    assert (
        stage_paces(STAGES, [(NOW, before), (NOW + 5 * MINUTE, later)])["deliver"].completed == 15
    )


def test_the_turn_of_an_hour_makes_no_difference() -> None:
    hour = NOW // HOUR
    notes = [
        (hour * HOUR - MINUTE, RouteProgress({}, [(hour - 2, 9), (hour - 1, 50)])),
        (hour * HOUR + MINUTE, RouteProgress({}, [(hour - 1, 55), (hour, 4)])),
    ]
    assert stage_paces(["deliver"], notes) == {"deliver": StagePace(9, 2 * MINUTE)}


def test_too_short_a_span_gives_no_pace() -> None:
    assert stage_paces(STAGES, [(NOW - EVERY_MS, progress(9)), (NOW, progress(8, 1))]) == {}
    assert stage_paces(STAGES, [(NOW, progress(9))]) == stage_paces(STAGES, []) == {}
    assert stage_paces(STAGES, [(NOW - WINDOW_MS - 1, progress(9)), (NOW, progress(8, 1))]) == {}, (
        "and one from long ago counts for nothing"
    )


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=2, max_size=10))
def test_a_pace_is_never_negative_and_failures_never_raise_it(seen: list[tuple[int, int]]) -> None:
    times = [NOW - (len(seen) - 1 - number) * MINUTE for number in range(len(seen))]
    notes = [
        (at, progress(weigh, completed=done)) for at, (weigh, done) in zip(times, seen, strict=True)
    ]
    with_failures = [
        (at, progress(weigh + 7 * number, completed=done))
        for number, (at, (weigh, done)) in enumerate(zip(times, seen, strict=True))
    ]
    found = stage_paces(STAGES, notes)
    assert all(pace.completed >= 0 for pace in found.values())
    assert found == stage_paces(STAGES, with_failures)


# Notes in the ledger ------------------------------------------------------------------------------
def notes_of(world: World) -> ProgressNotes:
    noted, _ = read_versioned(world.ledger, PROGRESS, NAME, ProgressNotes)
    return noted or ProgressNotes()


def run(world: World, resender: Resender, span: str) -> None:
    world.clock.advance(span)
    resender.run_once()


def test_the_resender_notes_progress_twice_a_minute_while_something_is_in_progress(
    world: World,
) -> None:
    resender = Resender(world.ctx)
    run(world, resender, "1m")
    assert notes_of(world).notes == [], "nothing is in progress"
    world.add("a", "b")
    for _ in range(24):
        run(world, resender, "5s")
        Resender(world.beside().ctx).run_once()
    assert [
        after.at - before.at
        for before, after in zip(notes_of(world).notes, notes_of(world).notes[1:], strict=False)
    ] == [EVERY_MS] * 3
    for _ in range(60):
        run(world, resender, "30s")
    assert len(notes_of(world).notes) == WINDOW_MS // EVERY_MS + 1


def test_every_process_sees_the_same_pace_and_failures_are_none(world: World) -> None:
    resender = Resender(world.ctx)
    keys = [f"k{n:02}" for n in range(20)]
    world.add(*keys)
    for _ in range(4):
        run(world, resender, "30s")
        world.settle(world.claim("weigh", 1), Done())
        world.settle(world.claim("weigh", 2), Reject("too heavy"))
    beside = world.beside()
    paces = read_paces(beside.ctx, ROUTE, list(world.plan.by_name), world.ledger.counts(ROUTE))
    assert paces["weigh"] == StagePace(4, 90_000)
    found = route_forecast(beside.ctx, ROUTE)
    assert found is not None
    assert in_words(found.sentences, str).startswith(
        "12 move; then they wait at Delivered, which a partner confirms."
    )
    assert "nothing has completed stamp" in in_words(found.sentences)
    world.work("stamp")
    found = route_forecast(beside.ctx, ROUTE)
    assert found is not None
    assert "(stamp: 160 an hour) they are there in about 3 min, at about" in in_words(
        found.sentences
    )
    view = forecast_view(ROUTE, found, world.clock.now())
    assert (view["moving"], view["waiting"], view["completed_at"]) == (8, 4, None)


def test_pruned_rows_do_not_lower_the_pace(world: World) -> None:
    resender = Resender(world.ctx)
    old, new = [f"old{n}" for n in range(5)], [f"new{n}" for n in range(3)]
    world.add(*old, *new)
    world.work("weigh", want=5)
    world.work("stamp")
    for key in old:
        confirm_outside(world.ctx, ROUTE, key, "Delivered", Done(True), by="p")
    world.clock.advance("3h")
    resender.run_once()
    world.work("weigh")
    world.work("stamp")
    for key in new:
        confirm_outside(world.ctx, ROUTE, key, "Delivered", Done(True), by="p")
    world.add("last")
    prune(world.ctx, ROUTE, 3_600_000, by="ops", reason="a test")
    run(world, resender, "2m")
    assert (
        read_paces(world.ctx, ROUTE, list(world.plan.by_name), world.ledger.counts(ROUTE))[
            "Delivered"
        ].completed
        == 3
    )
