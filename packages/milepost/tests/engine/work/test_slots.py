"""Slots: how many items each stage claims in the write that settles."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace

from milepost.core.admission.controls import Limit
from milepost.core.decide import NOTHING
from milepost.core.due import Lease
from milepost.core.item import Content, Item
from milepost.core.outcome import Done, NotYet, Outcome
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Limits, Route
from milepost.engine.work.slots import MOST_IN_HAND, QUICK_IN_HAND, StageSlots, rooms_after_a_settle
from milepost.ports.runner import JobResult
from milepost.runners.handler_pool import ThreadHandlerPool

QUICK = 1e5
"""Items a second."""


def make_desks(*paces: float, **options: Any) -> list[StageSlots]:
    route = Route("r")
    for number in range(len(paces)):
        route.stage(f"s{number}", **options)(lambda item: Done())
    plan = Plan(route)
    pool: Any = None
    all_slots = [StageSlots(plan, stage, pool) for stage in plan.stages]
    for slots, pace in zip(all_slots, paces, strict=True):
        slots.mean_ms, slots.pace = (0, pace) if pace else (None, None)
    return all_slots


def fill(slots: StageSlots, in_hand: int, finished: int, outcome: Outcome | None = None) -> None:
    item: Any = None
    items: list[Item] = [item] * in_hand
    slots.in_hand = {(str(number), "lease"): one for number, one in enumerate(items)}
    slots.finished = [JobResult(item, outcome or Done(), 0) for _ in range(finished)]


def rooms(all_slots: list[StageSlots]) -> list[int]:
    found = {slots.stage.name: room for slots, room in rooms_after_a_settle(all_slots)}
    return [found.get(slots.stage.name, 0) for slots in all_slots]


def test_what_goes_on_to_a_quick_stage_is_claimed_there_however_full_it_is() -> None:
    all_slots = make_desks(QUICK, QUICK)
    fill(all_slots[0], 1_000, 600)
    fill(all_slots[1], QUICK_IN_HAND, 0)
    assert rooms(all_slots) == [0, 600]


def test_quick_stages_share_one_measure_of_what_is_in_hand() -> None:
    all_slots = make_desks(QUICK, QUICK, QUICK)
    fill(all_slots[0], 500, 0)
    fill(all_slots[1], 300, 0)
    fill(all_slots[2], 900, 900)
    spare = QUICK_IN_HAND - 800
    assert rooms(all_slots) == [spare, spare, spare]
    fill(all_slots[2], 900, 0)
    # 300 more would be a trickle.
    assert rooms(all_slots) == [0, 0, 0]


def test_only_items_that_are_done_count_as_arriving() -> None:
    all_slots = make_desks(QUICK, QUICK)
    fill(all_slots[0], 2_000, 100, NotYet())
    fill(all_slots[1], 0, 0)
    assert rooms(all_slots) == [0, 0]


def test_a_slow_stage_takes_no_more_than_it_gets_through_in_a_second() -> None:
    all_slots = make_desks(QUICK, 4, concurrency=4)
    fill(all_slots[0], 400, 400)
    fill(all_slots[1], 3, 0)
    # Four can be started there: one is free, and it is taken although it is a trickle, since items
    # arrive.
    assert rooms(all_slots)[1] == 1
    fill(all_slots[1], 4, 0)
    assert rooms(all_slots)[1] == 0


def test_a_stage_that_has_not_shown_its_pace_gets_one_item_for_each_hand() -> None:
    all_slots = make_desks(0, concurrency=4)
    assert rooms(all_slots) == [4]


def test_a_stage_never_asks_for_more_than_the_shared_measure() -> None:
    all_slots = make_desks(QUICK, QUICK)
    fill(all_slots[0], 2 * QUICK_IN_HAND, 2 * QUICK_IN_HAND)
    assert max(rooms(all_slots)) <= QUICK_IN_HAND
    assert MOST_IN_HAND < QUICK_IN_HAND


def test_an_ask_counts_the_items_of_a_lane_that_stay_in_hand() -> None:
    """Were finished ones counted, a lane with a limit would look full whenever its items are
    settled, and get none in that turn."""
    slots = make_desks(0, lane=lambda content: content["to"])[0]
    items: list[Any] = [
        SimpleNamespace(lane=lane, row=SimpleNamespace(key=str(number), lease="lease", lane=lane))
        for number, lane in enumerate(["north"] * 3 + ["south"])
    ]
    slots.add(items)
    slots.finished = [JobResult(item, Done(), 0) for item in items[1:]]
    assert slots.ask(Lease("token", "host-1", 1_000), 10).held == {"north": 1, "south": 0}
    slots.release(items[1:])
    slots.finished = []
    assert slots.ask(Lease("token", "host-1", 1_000), 10).held == {"north": 1}


def test_the_pace_is_what_this_process_gets_through_while_it_has_items_in_hand() -> None:
    [slots] = make_desks(0)

    def ran(claimed_at: int, response_ms: int) -> JobResult:
        item: Any = SimpleNamespace(lane="", row=SimpleNamespace(claimed_at=claimed_at))
        return JobResult(item, Done(), response_ms)

    # Handlers that compute share one interpreter: sixteen that took 1 ms of it each, and 16 by the
    # clock.
    slots.learn([ran(1_000, 16)] * 16, 1_256)
    assert slots.pace == 62.5
    assert slots.room() == 62
    # A day without work says nothing about the pace, and nor does a clock that is set back.
    slots.learn([ran(86_400_000, 16)] * 16, 86_400_256)
    assert slots.pace == 62.5
    slots.learn([ran(500, 16)], 600)
    assert slots.pace == 62.5


def test_a_lane_may_hold_ahead_what_it_completed_of_late() -> None:
    limits = {"north": Limits(concurrency=2), "rated": Limits(concurrency=2, rate="100/s")}
    [slots] = make_desks(0, lane=lambda content: content["to"], lanes=limits)

    def ran(lane: str) -> JobResult:
        item: Any = SimpleNamespace(lane=lane, row=SimpleNamespace(claimed_at=1, lane=lane))
        return JobResult(item, Done(), 1)

    def ahead() -> dict[str, int]:
        return slots.ask(Lease("token", "host-1", 1_000), 10, ahead=True).ahead

    slots.learn([ran("north")] * 30 + [ran("rated")] * 10, 61)
    assert ahead() == {}, "not known yet"
    slots.learn([ran("north")] * 30, 101)
    assert ahead() == {"north": 30}, (
        "60 in 100 ms; calls of a lane with a rate are claimed when they may begin"
    )
    assert slots.ask(Lease("token", "host-1", 1_000), 10).ahead == {}
    slots.learn([ran("south")], 301)
    assert ahead() == {"south": 0}, "nothing of the north has ended since"


def test_a_lower_limit_holds_for_items_that_wait_here_already() -> None:
    """Items are claimed ahead of a lane's calls, and the lane is not claimed for while it holds
    more than it may call."""
    [slots] = make_desks(
        0,
        lane=lambda content: content["to"],
        lanes={"north": Limits(concurrency=8)},
        concurrency=20,
    )
    pool: Any = ThreadHandlerPool(slots.stage, 20, lambda *_: [], lambda: None)
    slots.pool = pool
    jobs = pool._jobs
    items = [
        Item(replace(NOTHING, key=str(n), lane="north", lease="x", claimed_at=1), Content())
        for n in range(20)
    ]
    slots.add(items)
    jobs.put(slots.jobs(items), {"north": 8})
    running = [jobs.take(20) for _ in range(8)]
    assert jobs.take(20) is None
    slots.set_width({"r/s0/north": Limit(concurrency=2)})
    for _, portion in running[:6]:
        jobs.done(portion)
        assert jobs.take(20) is None
    jobs.done(running[6][1])
    assert jobs.take(20) is not None
    assert jobs.take(20) is None
    pool.close()
    slots.release(items)
    assert slots.lanes == {}


def test_items_that_wait_too_long_are_given_back_with_their_lane_alone() -> None:
    waiting = {
        name: Item(replace(NOTHING, key=name, lane=name[0], claimed_at=at), Content())
        for name, at in WAITING.items()
    }
    recalled: list[str] = []

    def recall(unwanted: Any) -> list[Item]:
        recalled.extend(name for name, item in waiting.items() if unwanted(item))
        return []

    [slots] = make_desks(0, lane=lambda content: content["to"])
    slots.pool = cast("Any", SimpleNamespace(oldest=lambda: waiting["a1"], recall=recall))
    ctx: Any = None
    slots.recall_late(ctx, 1_000)
    assert recalled == []
    slots.recall_late(ctx, 1_001)
    assert recalled == ["a1", "a2"]


WAITING = {"a1": 1_000, "a2": 3_000, "b1": 2_000}


def test_calls_that_end_one_right_after_the_other_do_not_look_quick() -> None:
    [slots] = make_desks(0, concurrency=4)
    item: Any = SimpleNamespace(lane="", row=SimpleNamespace(claimed_at=0))
    for now in (2_500, 2_501, 2_502, 2_503):
        slots.learn([JobResult(item, Done(), 2_500)], now)
    assert slots.room() == 4
