"""Operations on items from a program or an application: list, act on one or many, pause and resume."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import milepost as mp

SIGNED = {"by": "ops", "reason": "a test"}


def sorted_route() -> mp.Route:
    route = mp.Route("parcels", key="id")

    @route.stage("weigh", retry=mp.Backoff(attempts=1), lane=lambda content: content.get("depot", ""))
    def weigh(item: mp.Item) -> mp.Outcome:
        return mp.Retry("the scale is away") if item.input.get("heavy") else mp.Done()

    return route


@pytest.fixture
def desk() -> Iterator[mp.Milepost]:
    with mp.open("memory:", routes=[sorted_route()]) as opened:
        opened.submit("parcels", {"id": "a"}, {"id": "b", "heavy": True}, {"id": "c", "heavy": True, "depot": "north"})
        yield opened


def keys(found: list[dict[str, object]]) -> list[object]:
    return sorted(str(one["key"]) for one in found)


def test_items_are_listed_by_status_stage_lane_and_key(desk: mp.Milepost) -> None:
    assert keys(desk.items("parcels", statuses=["live"])) == ["a", "b", "c"]
    desk.run(until_idle=0)
    assert keys(desk.items("parcels", statuses=["failed"])) == ["b", "c"]
    assert keys(desk.items("parcels", stages=["weigh"], lane="north")) == ["c"]
    assert keys(desk.items("parcels", prefix="a")) == ["a"]
    assert len(desk.items("parcels", limit=2)) == 2
    with pytest.raises(mp.UsageError, match="there is no route 'letters'"):
        desk.items("letters")


def test_an_act_is_previewed_then_done_to_all_that_match(desk: mp.Milepost) -> None:
    desk.run(until_idle=0)
    preview = desk.act("retry", "parcels", statuses=["failed"], dry_run=True, **SIGNED)
    assert (preview.dry_run, preview.matched) == (True, 2)
    assert keys(desk.items("parcels", statuses=["failed"])) == ["b", "c"]
    report = desk.act("retry", "parcels", statuses=["failed"], **SIGNED)
    assert (report.done, report.refused) == (2, [])
    assert keys(desk.items("parcels", statuses=["live"])) == ["b", "c"]
    refused = desk.act("retry", "parcels", keys=["a"], **SIGNED)
    assert (refused.done, [key for key, _ in refused.refused]) == (0, ["a"])


def test_a_paused_lane_waits_and_the_others_go_on(desk: mp.Milepost) -> None:
    desk.pause("parcels", "weigh", "north", **SIGNED)
    desk.run(until_idle=0)
    assert desk.show("parcels", "c")["attempts"] == 0  # type: ignore[index]
    assert desk.show("parcels", "b")["status"] == "MAX_RETRIES_EXCEEDED"  # type: ignore[index]
    assert desk.resume("parcels", "weigh", "north", **SIGNED)
    assert not desk.resume("parcels", "weigh", "north", **SIGNED)
    desk.run(until_idle=0)
    assert desk.show("parcels", "c")["status"] == "MAX_RETRIES_EXCEEDED"  # type: ignore[index]
