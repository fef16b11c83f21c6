"""Forecast: what moves at the pace of completions, and what waits is named apart and not
promised."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from milepost.core.counters import HOUR
from milepost.core.forecast import (
    Forecast,
    LaneCount,
    StageLoad,
    StagePace,
    Wait,
    WaitFor,
    counted_load,
    forecast,
    stage_load,
)

MINUTE = 60_000
NOW = 473_000 * HOUR
STEADY = StagePace(5, 10 * MINUTE)
"""30 an hour."""


def words(found: Forecast) -> list[str]:
    return [one.text for one in found.sentences]


def load(stage: str = "ship", **numbers: int) -> StageLoad:
    return stage_load(stage, [LaneCount(stage, "", **numbers)])


def test_what_moves_has_a_span_a_time_and_a_base() -> None:
    found = forecast([load(ready=80, claimed=10)], {"ship": STEADY}, NOW)
    assert words(found) == [
        "90 move. At the pace of the last 10 min (ship: 30 an hour) they are completed in about 3 h, at about"
    ]
    assert (found.sentences[0].at, found.completed_at, found.moving, found.waiting) == (
        NOW + 3 * HOUR,
        NOW + 3 * HOUR,
        90,
        0,
    )


def test_items_that_wait_for_a_date_are_not_promised() -> None:
    """12,500 are checked again in 52 minutes, and 7,500 are behind pauses; the rest has been
    completed quickly."""
    lanes = [
        LaneCount("ship", f"partner-{n:02}", later=2_500, next_at=NOW + (52 + n) * MINUTE)
        for n in range(5)
    ]
    lanes += [LaneCount("ship", name, ready=2_500) for name in ("north", "south", "west")]
    found = forecast(
        [stage_load("ship", lanes, paused_lanes={"north", "south", "west"})],
        {"ship": StagePace(78_400, 8 * MINUTE)},
        NOW,
    )
    assert words(found) == [
        "7,500 wait in lanes north, south and west of ship, which are paused",
        "12,500 wait at ship for a date, none before",
        "Nothing else is in progress",
    ]
    assert found.sentences[1].at == NOW + 52 * MINUTE
    assert (found.moving, found.waiting, found.completed_at) == (0, 20_000, None)


def test_failures_are_no_progress() -> None:
    found = forecast([load(ready=102)], {"ship": StagePace(0, 13 * MINUTE)}, NOW)
    assert words(found) == [
        "102 move. There is no forecast: nothing has completed ship in the last 13 min"
    ]
    assert found.completed_at is None


def test_a_pace_that_was_not_measured_is_not_invented() -> None:
    found = forecast([load(ready=1)], {}, NOW)
    assert words(found) == [
        "1 moves. There is no forecast: the pace of ship has not been measured yet"
    ]


def test_items_behind_an_open_breaker_wait() -> None:
    found = forecast(
        [
            stage_load(
                "deliver",
                [
                    LaneCount("deliver", "a:443", ready=100, claimed=1),
                    LaneCount("deliver", "b:443", ready=2),
                ],
                open_lanes={"a:443"},
            )
        ],
        {"deliver": StagePace(600, 10 * MINUTE)},
        NOW,
    )
    assert words(found) == [
        "100 wait in lane a:443 of deliver, whose breaker is open",
        "3 move. At the pace of the last 10 min (deliver: 3,600 an hour) they are completed in less than a minute",
    ]
    many = stage_load(
        "deliver",
        [LaneCount("deliver", str(n), ready=1) for n in range(430)],
        open_lanes={str(n) for n in range(430)},
    )
    assert (
        words(forecast([many], {}, NOW))[0]
        == "430 wait in 430 lanes of deliver, whose breakers are open"
    )


def test_items_that_a_partner_has_wait_for_it() -> None:
    loads = [
        load("weigh", ready=30, with_partner=4),
        stage_load("deliver", [LaneCount("deliver", "", later=7, ready=1)], external=True),
    ]
    found = forecast(loads, {"weigh": STEADY, "deliver": STEADY}, NOW)
    assert words(found) == [
        "4 wait for a partner at weigh",
        "8 wait for a partner at deliver",
        "30 move; then they wait at deliver, which a partner confirms. At the pace of the last 10 min (weigh: 30 an hour) they are there in"
        " about 1 h, at about",
    ]
    assert found.completed_at is None, "a partner's confirmation is not promised"


def test_items_come_to_a_paused_stage_and_no_further() -> None:
    loads = [
        load("weigh", ready=60),
        stage_load("stamp", [LaneCount("stamp", "", ready=10, claimed=1)], paused=True),
        load("send", ready=5),
    ]
    found = forecast(loads, {"weigh": STEADY, "stamp": STEADY, "send": STEADY}, NOW)
    assert words(found) == [
        "10 wait at stamp, which is paused",
        "60 move; then they wait at stamp, which is paused. At the pace of the last 10 min (weigh: 30 an hour) they are there in about 2 h,"
        " at about",
        "6 move. At the pace of the last 10 min (send: 30 an hour) they are completed in about 12 min, at about",
    ]
    assert found.completed_at is None


def test_the_slowest_stage_on_the_way_decides() -> None:
    loads = [load("weigh", ready=60), load("stamp", ready=30)]
    found = forecast(loads, {"weigh": StagePace(600, 10 * MINUTE), "stamp": STEADY}, NOW)
    assert words(found) == [
        "90 move. At the pace of the last 10 min (stamp: 30 an hour) they are completed in about 3 h, at about"
    ]
    assert [stage.through_at for stage in found.stages] == [NOW + MINUTE, NOW + HOUR]
    stopped = forecast(loads, {"weigh": STEADY, "stamp": StagePace(0, 10 * MINUTE)}, NOW)
    assert words(stopped) == [
        "90 move. There is no forecast: nothing has completed stamp in the last 10 min"
    ]


def test_other_items_need_their_turn_too() -> None:
    found = forecast([load(ready=10)], {"ship": STEADY}, NOW, others={"ship": 50})
    assert words(found) == [
        "10 move. At the pace of the last 10 min (ship: 30 an hour) they are completed in about 2 h, at about"
    ]


def test_items_at_earlier_stages_do_not_come_before_those_of_a_list() -> None:
    loads, paces = [load("weigh"), load("stamp", ready=10)], {"weigh": STEADY, "stamp": STEADY}
    found = forecast(loads, paces, NOW, others={"weigh": 50})
    assert words(found) == [
        "10 move. At the pace of the last 10 min (stamp: 30 an hour) they are completed in about 20 min, at about"
    ]
    assert [stage.through_at for stage in found.stages] == [None, found.completed_at]


def test_a_paused_route_is_one_sentence() -> None:
    loads = [
        stage_load(stage, [LaneCount(stage, "", ready=2)], paused=True)
        for stage in ("weigh", "stamp")
    ]
    assert words(forecast(loads, {}, NOW, whole_route_paused=True)) == [
        "4 wait for the route, which is paused",
        "Nothing else is in progress",
    ]


def test_nothing_in_progress_is_said() -> None:
    assert words(forecast([load()], {}, NOW)) == ["No items are in progress"]


def test_counters_alone_do_not_tell_how_many_wait_in_a_paused_lane() -> None:
    counted = counted_load(
        "ship", claimed=1, queued=9, waiting=3, retrying=2, paused_lanes={"north"}
    )
    found = forecast([counted], {"ship": STEADY}, NOW)
    assert words(found) == [
        "3 wait at ship for a date or for a partner",
        "2 wait at ship for a date",
        "An unknown number waits in lane north of ship, which is paused",
        "10 move. There is no forecast: how many of them are in lanes of ship that are paused is not known",
    ]
    assert (found.waiting, found.completed_at) == (None, None)
    plain = counted_load("ship", claimed=1, queued=9, waiting=0, retrying=0)
    assert forecast([plain], {"ship": STEADY}, NOW).completed_at == NOW + 20 * MINUTE


# Properties ---------------------------------------------------------------------------------------
numbers = st.integers(0, 10_000)
lanes_of = st.lists(
    st.builds(
        LaneCount,
        stage=st.just("s"),
        lane=st.sampled_from(["", "a", "b", "c", "d", "e"]),
        claimed=numbers,
        with_partner=numbers,
        ready=numbers,
        later=numbers,
        next_at=st.none() | st.integers(NOW + 1, NOW + HOUR),
    ),
    max_size=6,
    unique_by=lambda one: one.lane,
)
some_lanes = st.sets(st.sampled_from(["", "a", "b", "c", "d", "e"]))


@given(lanes_of, st.booleans(), st.booleans(), some_lanes, some_lanes)
def test_every_item_either_moves_or_waits(
    counts: list[LaneCount],
    external: bool,
    paused: bool,
    paused_lanes: set[str],
    open_lanes: set[str],
) -> None:
    made = stage_load(
        "s",
        counts,
        external=external,
        paused=paused,
        paused_lanes=paused_lanes,
        open_lanes=open_lanes,
    )
    live = sum(one.claimed + one.waiting for one in counts)
    assert made.moving + sum(wait.n or 0 for wait in made.waits) == live
    held = sum(
        one.waiting for one in counts if one.lane in paused_lanes | open_lanes or paused or external
    )
    assert made.moving <= live - held


loads_of = st.lists(
    st.builds(
        StageLoad,
        stage=st.just(""),
        moving=numbers,
        waits=st.sampled_from(
            [(), (Wait(WaitFor.DATE, "s", 3),), (Wait(WaitFor.PAUSE, "s", None, ("x",)),)]
        ),
        closed=st.sampled_from([None, None, WaitFor.PAUSE, WaitFor.PARTNER]),
    ),
    min_size=1,
    max_size=5,
).map(
    lambda made: [
        StageLoad(f"s{n}", one.moving, one.waits, one.closed) for n, one in enumerate(made)
    ]
)
paces_of = st.dictionaries(
    st.sampled_from([f"s{n}" for n in range(5)]),
    st.builds(StagePace, st.integers(0, 1000), st.integers(MINUTE, 15 * MINUTE)),
)


@given(loads_of, paces_of)
def test_completion_is_foretold_only_where_every_stage_on_the_way_completes_items(
    loads: list[StageLoad], paces: dict[str, StagePace]
) -> None:
    found = forecast(loads, paces, NOW)
    first = next((number for number, one in enumerate(loads) if one.moving), None)
    way = [] if first is None else loads[first:]
    sure = bool(way) and all(
        paces.get(one.stage)
        and paces[one.stage].completed
        and all(w.n is not None for w in one.waits)
        for one in way
    )
    sure = sure and not any(one.closed for one in way[1:])
    assert (found.completed_at is not None) == sure
    if found.completed_at is not None:
        slowest = min(paces[one.stage].per_hour for one in way)
        assert (
            found.completed_at
            >= NOW + found.moving / max(paces[one.stage].per_hour for one in way) * HOUR - 1
        )
        assert found.completed_at <= NOW + found.moving / slowest * HOUR + MINUTE + 1


@given(loads_of, paces_of, st.integers(1, 1000))
def test_a_faster_pace_or_fewer_items_never_end_later(
    loads: list[StageLoad], paces: dict[str, StagePace], more: int
) -> None:
    before = forecast(loads, paces, NOW).completed_at
    faster = {
        stage: StagePace(pace.completed + more, pace.span_ms) if pace.completed else pace
        for stage, pace in paces.items()
    }
    after = forecast(loads, faster, NOW).completed_at
    assert (before is None) == (after is None)
    assert before is None or after is None or after <= before
    burdened = forecast(loads, paces, NOW, others={one.stage: more for one in loads}).completed_at
    assert before is None or burdened is None or burdened >= before
