"""Operations on items from a program or an application: list, act on one or many, pause and
resume."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import milepost as mp
from milepost.ports.upkeep import ScanCost
from milepost.subscribers import CallSubscriber
from milepost_testing import VirtualClock, drain

SIGNED = {"by": "ops", "reason": "a test"}


def sorted_route() -> mp.Route:
    route = mp.Route("parcels", key="id")

    @route.stage(
        "weigh", retry=mp.Backoff(attempts=1), lane=lambda content: content.get("depot", "")
    )
    def weigh(item: mp.Item) -> mp.Outcome:
        return mp.Retry("the scale is away") if item.input.get("heavy") else mp.Done()

    return route


@pytest.fixture
def desk() -> Iterator[mp.Milepost]:
    with mp.open("memory:", routes=[sorted_route()]) as opened:
        opened.submit(
            "parcels",
            {"id": "a"},
            {"id": "b", "heavy": True},
            {"id": "c", "heavy": True, "depot": "north"},
        )
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


def test_a_lane_shows_its_pause_its_limits_and_how_many_wait(desk: mp.Milepost) -> None:
    desk.pause(
        "parcels", "weigh", "north", until="2h", drain="5/s", by="ops", reason="the depot is closed"
    )
    desk.run(until_idle=0)
    usual, north = desk.lanes("parcels", "weigh", ["", "north"])
    assert (usual.paused, usual.waiting, usual.breaker, usual.rate) == (None, 0, None, None)
    assert north.paused is not None
    assert (north.paused.reason, north.paused.by, north.paused.drain, north.waiting) == (
        "the depot is closed",
        "ops",
        "5/s",
        1,
    )
    assert north.paused.until is not None
    assert north.paused.until > str(north.paused.since)
    assert desk.resume("parcels", "weigh", "north", **SIGNED)
    [north] = desk.lanes("parcels", "weigh", ["north"])
    assert (north.paused, north.draining, north.rate) == (None, True, 5.0)
    with pytest.raises(mp.UsageError, match="no stage 'wash'"):
        desk.lanes("parcels", "wash")


def test_an_open_breaker_is_shown_and_closed() -> None:
    route = mp.Route("calls", key="id")

    @route.stage(
        "call", breaker=mp.Breaker(failures=1, cooldown="1h"), retry=mp.Backoff(attempts=9)
    )
    def call(item: mp.Item) -> mp.Outcome:
        return mp.Retry("no answer")

    with mp.open("memory:", routes=[route]) as desk:
        desk.submit("calls", {"id": "a"})
        desk.run(until_idle=0)
        [lane] = desk.lanes("calls", "call", [""])
        assert lane.breaker is not None
        assert (lane.breaker.state, lane.breaker.error) == ("open", "ERROR: no answer")
        assert desk.close_breakers("calls", "call", **SIGNED) == ["calls/call/"]
        assert desk.lanes("calls", "call", [""])[0].breaker is None


def test_items_are_listed_by_part_of_the_key_and_by_time() -> None:
    route = mp.Route("assets", key=("asset", "batch"))
    route.stage("weigh")(lambda item: mp.Done())
    clock = VirtualClock()
    with mp.open("memory:", routes=[route], clock=clock) as desk:
        desk.submit("assets", {"asset": "a", "batch": "1"}, {"asset": "b", "batch": "2"})
        clock.advance("1h")
        later = clock.now()
        desk.submit("assets", {"asset": "c", "batch": "2"})
        at = datetime.fromtimestamp(later / 1000, UTC)
        assert keys(desk.items("assets", parts=["batch=2"])) == ["b#2", "c#2"]
        assert keys(desk.items("assets", parts=["batch=2"], created_before=at)) == ["b#2"]
        assert keys(desk.items("assets", created_from=at)) == ["c#2"]
        assert desk.act("cancel", "assets", parts=["batch=2"], **SIGNED).done == 2


def test_the_feed_has_every_line_in_order_and_goes_on_where_it_ended(desk: mp.Milepost) -> None:
    desk.run(until_idle=0)
    first = desk.feed(limit=2)
    assert [(entry.line.reason, entry.key) for entry in first] == [
        ("accepted", "a"),
        ("accepted", "b"),
    ]
    rest = desk.feed(first[-1].seq)
    assert sorted((entry.line.reason, entry.key) for entry in rest) == [
        ("accepted", "c"),
        ("completed", "a"),
        ("exhausted", "b"),
        ("exhausted", "c"),
    ]
    assert {entry.route for entry in rest} == {"parcels"}
    public = rest[0].public()
    assert (public["seq"], public["route"], public["key"]) == (rest[0].seq, "parcels", rest[0].key)
    assert desk.feed(rest[-1].seq) == []


def test_a_search_that_no_index_serves_reads_every_row_only_if_asked(
    desk: mp.Milepost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk.context.ledger, "cost_of", lambda query: ScanCost(5_000, 5_000, None))
    assert keys(desk.items("parcels", statuses=["live"])) == ["a", "b", "c"]
    with pytest.raises(mp.CostlyQuery, match="all 5,000 rows of parcels are read"):
        desk.items("parcels", statuses=["live"], scan=False)
    assert len(desk.items("parcels", limit=2, scan=False)) == 2, (
        "without a condition, reading ends with the page"
    )
    [lane] = desk.lanes("parcels", "weigh", [""])
    assert (lane.waiting, lane.in_progress) == (None, None), (
        "it is not counted by reading every row"
    )


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_note_is_a_signed_line_that_changes_nothing_else(kind: str, tmp_path: Path) -> None:
    url = "memory:" if kind == "memory" else f"sqlite:///{tmp_path}/ledger.db"
    with mp.open(url, routes=[sorted_route()]) as desk:
        desk.submit("parcels", {"id": "b", "heavy": True})
        desk.run(until_idle=0)
        before = desk.show("parcels", "b")
        assert before is not None
        desk.note(
            "parcels",
            "b",
            "claimed by Ann",
            by="ann",
            data={"claim": "Ann"},
            version=before["version"],
        )
        after = desk.show("parcels", "b")
        assert after is not None
        line = after["history"][-1]
        assert (line["reason"], line["by"], line["note"]) == (
            "noted",
            "ann",
            {"text": "claimed by Ann", "data": {"claim": "Ann"}},
        )
        assert after["verified"], "the line is part of the chain"
        assert {name for name in before if before[name] != after[name]} <= {
            "version",
            "updated_at",
            "history",
            "chain",
        }
        with pytest.raises(mp.ActRefused, match="it has changed since") as refused:
            desk.note("parcels", "b", "claimed by Bob", by="bob", version=before["version"])
        assert refused.value.kind == "changed-since"
        with pytest.raises(mp.ActRefused, match="no item with this key"):
            desk.note("parcels", "z", "claimed by Bob", by="bob")
        with pytest.raises(mp.UsageError, match="name of its author"):
            desk.note("parcels", "b", "claimed by Bob", by=" ")
        with pytest.raises(mp.UsageError, match="bytes"):
            desk.note("parcels", "b", "x" * 5_000, by="bob")


def test_the_pauses_of_a_route_are_listed_with_their_authors(desk: mp.Milepost) -> None:
    desk.pause("parcels", "weigh", by="ann", reason="the scale is broken", until="1h")
    [held] = desk.pauses("parcels")
    assert (held.scope, held.by, held.reason) == ("parcels/weigh", "ann", "the scale is broken")
    assert held.until is not None
    with pytest.raises(mp.UsageError, match="letters"):
        desk.pauses("letters")


def test_a_claim_is_asked_for_in_the_ledger_unless_it_is_young() -> None:
    """The first worker is stopped in its handler, until its lease has run out and another worker
    has the item."""
    clock, route, left = VirtualClock(), mp.Route("calls", key="id"), list[float]()

    @route.stage("call")
    def call(item: mp.Item) -> mp.Outcome:
        if not left:
            left.append(desk.claim_left(item, trust="5s"))
            left.append(desk.claim_left(item))
            clock.advance("2h")
            drain(desk, clock)
            left.append(desk.claim_left(item, trust="5s"))
            left.append(desk.claim_left(item, trust="3h"))
        return mp.Done()

    with mp.open("memory:", routes=[route], clock=clock) as desk:
        desk.submit("calls", {"id": "1"})
        drain(desk, clock)
    young, held, lost, believed = left
    assert young == held > 0
    assert (lost, believed) == (0, 0)


def test_only_a_confirmation_can_be_forced_not_another_outcome(desk: mp.Milepost) -> None:
    with pytest.raises(
        mp.UsageError, match="only a confirmation that a stage is done can be forced"
    ):
        desk.confirm(
            "parcels",
            "a",
            "weigh",
            by="ops",
            reason="it is lost",
            outcome=mp.Reject("lost"),
            force=True,
        )
    found = desk.show("parcels", "a")
    assert found is not None
    assert found["stage"] == "weigh"
    assert len(found["history"]) == 1


def test_two_subscribers_of_one_name_are_a_mistake() -> None:
    """They would share a cursor: each event would come to one of them alone."""
    ears = [CallSubscriber(lambda event: None, name="ear") for _ in range(2)]
    with pytest.raises(mp.UsageError, match="two subscribers are called 'ear'"):
        mp.open("memory:", routes=[sorted_route()], subscribers=ears)


def test_a_follow_up_of_a_follow_up_need_not_be_named_either() -> None:
    first, second, third = (mp.Route(name, key="id") for name in ("first", "second", "third"))
    for route, following in ((first, second), (second, third), (third, first)):
        route.stage("work")(lambda item: mp.Done())
        route.then(following, lambda item, at: {"id": item.key})
    with mp.open("memory:", routes=[first]) as desk:
        desk.submit("first", {"id": "a"})
        desk.run(until_idle=0)
        ended = {name: route["statuses"] for name, route in desk.status()["routes"].items()}
        assert ended == {name: {"COMPLETED": 1} for name in ("first", "second", "third")}


@pytest.mark.parametrize(
    "filters", [{"stages": "weigh"}, {"statuses": "failed"}, {"parts": "id=a"}, {"keys": "a"}]
)
def test_one_text_where_a_list_is_meant_is_a_mistake(
    desk: mp.Milepost, filters: dict[str, str]
) -> None:
    """Its characters would be taken for names, which mostly match nothing."""
    [(name, value)] = filters.items()
    with pytest.raises(mp.UsageError, match=f"{name} is '{value}'; give a list"):
        desk.act("cancel", "parcels", **SIGNED, **filters)  # type: ignore[arg-type]
    if name != "keys":
        with pytest.raises(mp.UsageError, match=f"{name} is '{value}'; give a list"):
            desk.items("parcels", **filters)  # type: ignore[arg-type]
    assert keys(desk.items("parcels", statuses=["live"])) == ["a", "b", "c"]
