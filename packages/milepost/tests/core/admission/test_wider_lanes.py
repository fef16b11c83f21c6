"""Limits of wider lanes: the lanes named `A@B` lie within the lane `B`, and share its rate and its
concurrency."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.admission.controls import Controls, LaneItems, Limit, by_wider_lane, lanes_above
from milepost.core.outcome import Done
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Limits, Route, Stage

LANES = ("", "north", "south", "amy@north", "bob@north", "amy@south", "amy@bob@north")
NORTH = {"north", "amy@north", "bob@north", "amy@bob@north"}
counts = st.dictionaries(st.sampled_from(LANES), st.integers(0, 9))


def stage(lanes: Mapping[str, Limits] | None = None) -> Stage:
    route = Route("parcels")
    route.stage("weigh", lane=lambda content: content["lane"], lanes=lanes)(lambda item: Done())
    return Plan(route).stages[0]


def controls(**limits: Limit) -> Controls:
    return Controls((), {f"parcels/weigh/{lane}": limit for lane, limit in limits.items()}, {})


class EveryName(Mapping[str, Limits]):
    """Limits for every lane, of which none is named, as of a registry of partners."""

    def __getitem__(self, lane: str) -> Limits:
        return Limits(rate="5/s", concurrency=2)

    def __contains__(self, lane: object) -> bool:
        return False

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@given(counts, st.lists(st.tuples(st.sampled_from(LANES), st.integers(0, 5)), max_size=9))
def test_items_are_counted_by_lane_and_within_wider_lanes(
    by_lane: dict[str, int], more: list[tuple[str, int]]
) -> None:
    items, expected = LaneItems(by_lane), Counter(by_lane)
    for lane, number in more:
        items.add(lane, number)
        expected[lane] += number
    for lane in LANES:
        assert items.by_lane.get(lane, 0) == expected[lane]
        assert items.within(lane) == sum(
            number for other, number in expected.items() if lane in lanes_above(other)
        )


@given(counts, counts, st.integers(1, 4), st.integers(1, 9), st.none() | st.integers(1, 9))
def test_no_claim_takes_more_than_the_concurrency_of_any_lane_above(
    held: dict[str, int], ahead: dict[str, int], batch: int, joint: int, own: int | None
) -> None:
    limits = {"north": Limit(concurrency=joint)} | (
        {} if own is None else {"amy@north": Limit(concurrency=own)}
    )
    rules, items = controls(**limits), LaneItems(held)
    for lane in LANES * 2:
        room = rules.room("parcels", stage(), lane, batch, items, LaneItems(ahead))
        assert (room is not None) is (lane in NORTH), (
            "lanes that do not lie within it have no limit"
        )
        items.add(lane, max(0, room or 0))
    taken = items.within("north") - sum(number for lane, number in held.items() if lane in NORTH)
    most = joint * batch + sum(number for lane, number in ahead.items() if lane in NORTH)
    assert not taken or items.within("north") <= most
    if own is not None and items.by_lane.get("amy@north", 0) > held.get("amy@north", 0):
        assert items.by_lane.get("amy@north", 0) <= own * batch + ahead.get("amy@north", 0)


def test_a_call_uses_up_the_rates_of_its_stage_its_wider_lane_and_its_own() -> None:
    rules = controls(**{"north": Limit(rate="2/s"), "amy@north": Limit(rate="1/s")})
    named = {
        lane: [(name, rate.per_second) for name, rate in rules.rates("parcels", stage(), lane)]
        for lane in ("north", "amy@north", "south")
    }
    assert named == {
        "north": [("parcels/weigh/north", 2.0)],
        "amy@north": [("parcels/weigh/amy@north", 1.0), ("parcels/weigh/north", 2.0)],
        "south": [],
    }


def test_limits_for_every_name_are_each_lanes_own() -> None:
    rules, registry = controls(), stage(EveryName())
    assert [name for name, _ in rules.rates("parcels", registry, "amy@north")] == [
        "parcels/weigh/amy@north"
    ]
    assert rules.joint_caps("parcels", registry, ["amy@north"]) == {"north": None}
    assert (
        rules.room("parcels", registry, "amy@north", 1, LaneItems({"bob@north": 9}), LaneItems({}))
        == 2
    )


@pytest.mark.parametrize(
    ("drain", "normal", "expected"),
    [("1/s", None, 1.0), ("9/s", None, 5.0), ("9/s", "3/s", 3.0), ("2/s", "3/s", 2.0)],
)
def test_a_drain_slows_down_and_speeds_up_nothing(
    drain: str, normal: str | None, expected: float
) -> None:
    rules = controls(north=Limit(rate=drain, drains=1, normal_rate=normal))
    rate = rules.rate("parcels", stage({"north": Limits(rate="5/s")}), "north")
    assert rate is not None
    assert rate.per_second == expected


def test_lanes_are_grouped_by_the_wider_lane_within_which_they_lie() -> None:
    assert by_wider_lane(LANES) == {
        "north": ["amy@north", "bob@north", "amy@bob@north"],
        "south": ["amy@south"],
    }
