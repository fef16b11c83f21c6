"""Replay for a subscriber: from a time or place, with the same event ids, in order."""

from __future__ import annotations

import pytest
from tests.engine.events.recording_subscribers import Envelope, RecordingSubscriber, cursor, refuses
from tests.engine.world import ROUTE, World

from milepost.core.errors import EventRefused, UsageError
from milepost.core.outcome import Reject
from milepost.core.status import FAILED
from milepost.core.values.durations import iso
from milepost.engine.act_log import act_view, all_acts
from milepost.engine.events.cursors import forget_subscriber, subscribers
from milepost.engine.events.deliver import EventRelay
from milepost.engine.events.parked_events import parked_for, release
from milepost.engine.events.replay import moment_ms, place_before, replay
from milepost.engine.retention import prune
from milepost.ports.feed import HistoryEntry

SIGNED = {"by": "ops", "reason": "they lost a day"}


def told(world: World, *keys: str, apart: str = "1h") -> tuple[RecordingSubscriber, EventRelay]:
    """An ear that has been told of these, each accepted so long after the one before."""
    ear = RecordingSubscriber()
    relay = EventRelay(world.ctx, ear, "p1")
    for key in keys:
        world.add(key)
        world.clock.advance(apart)
    relay.run_once()
    return ear, relay


def versions(ear: RecordingSubscriber, key: str) -> list[int]:
    """The item's versions in the order in which they were taken, each once."""
    return list(
        dict.fromkeys(
            int(envelope["sequence"]) for envelope in ear.heard if envelope["subject"] == key
        )
    )


# From where on ------------------------------------------------------------------------------------
def test_everything_since_a_moment_is_told_again_with_the_same_ids(world: World) -> None:
    began = world.clock.now()
    ear, relay = told(world, "a", "b", "c")
    first = list(ear.ids)
    report = replay(world.ctx, "ear", since=began + 1, **SIGNED)
    assert (report.lines, report.since, report.after, report.was, report.pruned) == (
        2,
        iso(began + 3_600_000),
        1,
        3,
        0,
    )
    assert relay.run_once().delivered == 2
    assert ear.ids == [*first, *first[1:]]
    assert relay.run_once().delivered == 0
    [view] = [act_view(act) for act in all_acts(world.ctx)]
    assert (view["verb"], view["by"], view["reason"], view["done"]) == (
        "replay",
        "ops",
        "they lost a day",
        2,
    )
    assert view["about"] == {"subscriber": "ear", "after": 1, "was": 3, "since": iso(began + 1)}


def test_the_moment_of_a_line_itself_counts(world: World) -> None:
    began = world.clock.now()
    told(world, "a", "b")
    assert replay(world.ctx, "ear", since=began, **SIGNED).lines == 2


def test_everything_behind_a_place_is_told_again(world: World) -> None:
    ear, relay = told(world, "a", "b", "c")
    assert replay(world.ctx, "ear", after=0, **SIGNED).lines == 3
    relay.run_once()
    assert ear.ids == ear.ids[:3] * 2


def test_nobody_is_ever_set_forward(world: World) -> None:
    told(world, "a")
    world.add("b", "c")
    for place in (2, -1):
        with pytest.raises(
            UsageError,
            match="from 0 to 1, the position of 'ear': a cursor set forward would skip events",
        ):
            replay(world.ctx, "ear", after=place, **SIGNED)
    # What was written since that moment has not been told at all yet.
    report = replay(world.ctx, "ear", since=world.clock.now(), **SIGNED)
    assert (report.lines, report.since, cursor(world).seq, all_acts(world.ctx)) == (0, None, 1, [])


def test_a_preview_changes_nothing_and_need_not_be_signed(world: World) -> None:
    told(world, "a", "b")
    before = world.ledger.change_counter()
    report = replay(world.ctx, "ear", after=0, by="", reason="", dry_run=True)
    assert (report.lines, report.dry_run, world.ledger.change_counter()) == (2, True, before)
    with pytest.raises(UsageError, match="a name and a reason"):
        replay(world.ctx, "ear", after=0, by="", reason="")


def test_only_who_is_told_is_told_again_and_one_start_is_given(world: World) -> None:
    told(world, "a")
    with pytest.raises(UsageError, match="no subscriber 'eye'; there are ear"):
        replay(world.ctx, "eye", after=0, **SIGNED)
    for start in ({}, {"after": 0, "since": 0}):
        with pytest.raises(UsageError, match="either a time"):
            replay(world.ctx, "ear", **start, **SIGNED)  # type: ignore[arg-type]
    forget_subscriber(world.ctx, "ear", **SIGNED)
    with pytest.raises(UsageError, match="there are none yet: name them"):
        replay(world.ctx, "ear", after=0, **SIGNED)


def test_what_was_pruned_is_not_told_again_and_it_is_said_how_far_back_it_goes(
    world: World,
) -> None:
    began = world.clock.now()
    world.add("gone")
    world.work("weigh", Reject("no"))
    world.clock.advance("1h")
    ear, relay = told(world, "a", "b")
    assert prune(world.ctx, ROUTE, 0, statuses=FAILED, **SIGNED).items == 1
    report = replay(world.ctx, "ear", since=began, **SIGNED)
    assert (report.lines, report.since, report.pruned) == (2, iso(began + 3_600_000), 2)
    heard = len(ear.heard)
    relay.run_once()
    assert [envelope["subject"] for envelope in ear.heard[heard:]] == ["a", "b"]


def test_the_wait_of_an_outage_ends(world: World) -> None:
    ear, relay = told(world, "a")
    ear.takes = lambda envelope: ConnectionError("away")
    world.add(*(f"k{n}" for n in range(5)))
    relay.run_once()
    assert cursor(world).failures == 1
    ear.takes = lambda envelope: None
    replay(world.ctx, "ear", after=0, **SIGNED)
    assert relay.run_once().delivered == 6


# Finding the place --------------------------------------------------------------------------------
def test_the_place_of_a_moment_is_found_by_few_looks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, n = world.clock.now(), 700
    for number in range(n):
        world.add(f"k{number}")
        world.clock.advance("10m")
    looks: list[int] = []
    feed = world.ledger.feed

    def counting(after: int, limit: int) -> list[HistoryEntry]:
        looks.append(after)
        return feed(after, limit)

    monkeypatch.setattr(world.ledger, "feed", counting)
    for number in (0, 1, 99, 100, 350, 601, 698, 699):
        looks.clear()
        assert place_before(world.ctx, began + number * 600_000, n) == number
        assert place_before(world.ctx, began + number * 600_000 - 1, n) == number
        assert len(looks) <= 2 * 16
    assert place_before(world.ctx, world.clock.now(), n) == n


def test_a_line_that_stands_a_little_out_of_time_is_not_missed(world: World) -> None:
    began = world.clock.now()
    late = world.beside().registered()
    late.clock = type(world.clock)(
        began + 30_000
    )  # another process, whose clock is half a minute fast
    late.ctx.clock = late.clock
    world.add("before")
    late.add("fast")
    world.add("after")
    assert place_before(world.ctx, began + 10_000, 3) == 1


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2d", 1_000_000_000_000 - 2 * 86_400_000),
        ("90", 1_000_000_000_000 - 90_000),
        ("2001-09-09", 999_993_600_000),
        ("2001-09-09T01:46:40Z", 1_000_000_000_000),
        ("2001-09-09T03:46:40.5+02:00", 1_000_000_000_500),
        ("1950-01-01", 0),
    ],
)
def test_a_moment_is_written_as_a_span_or_a_time(text: str, moment: int) -> None:
    assert moment_ms(text, 1_000_000_000_000, "since") == moment


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "2001-13-01", "nan", "2d ago"])
def test_what_is_no_moment_is_refused_with_what_would_be_one(text: str) -> None:
    with pytest.raises(UsageError, match="such as '6h' or '2d', or a time such as"):
        moment_ms(text, 1_000_000_000_000, "since")


# Parked items -------------------------------------------------------------------------------------
def test_a_parked_item_stays_parked_where_it_is_and_what_came_before_is_told_again(
    world: World,
) -> None:
    ear = RecordingSubscriber()
    ear.takes = lambda envelope: (
        EventRefused("no") if (envelope["subject"], envelope["sequence"]) == ("b", "2") else None
    )
    relay = EventRelay(world.ctx, ear, "p1")
    world.add("a", "b")
    world.work("weigh")
    world.work("stamp")
    relay.run_once()
    assert (ear.of("b"), parked_for(world.ctx, "ear")[ROUTE, "b"][0].version) == (["accepted"], 2)
    replay(world.ctx, "ear", after=0, **SIGNED)
    relay.run_once()
    assert ear.of("a") == ["accepted", "advanced", "advanced", "offered"] * 2
    assert ear.of("b") == ["accepted"] * 2, "what came after waits behind the parked one"
    ear.takes = lambda envelope: None
    release(world.ctx, "ear", by="ops", reason="they take it now")
    relay.run_once()
    assert ear.of("b") == ["accepted", "accepted", "advanced", "advanced", "offered"]
    assert parked_for(world.ctx, "ear") == {}


def test_a_parked_item_is_not_told_ahead_of_the_replay(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is released while the cursor is still far before it."""
    monkeypatch.setattr("milepost.engine.events.deliver.PAGE", 1)
    ear = RecordingSubscriber()
    ear.takes = lambda envelope: (
        EventRefused("no") if (envelope["subject"], envelope["sequence"]) == ("b", "2") else None
    )
    relay = EventRelay(world.ctx, ear, "p1")
    world.add("a", "b")
    world.work("weigh")
    for _ in range(4):
        relay.run_once()
    ear.takes = lambda envelope: None
    replay(world.ctx, "ear", after=0, **SIGNED)
    release(world.ctx, "ear", by="ops", reason="they take it now")
    ear.heard.clear()
    for _ in range(4):
        relay.run_once()
    assert ear.of("b") == ["accepted", "advanced"]


def test_an_event_that_fails_when_it_is_told_again_holds_up_the_later_ones(world: World) -> None:
    ear = RecordingSubscriber()
    ear.takes = lambda envelope: (
        EventRefused("no") if (envelope["subject"], envelope["sequence"]) == ("b", "3") else None
    )
    relay = EventRelay(world.ctx, ear, "p1")
    world.add("a", "b")
    world.work("weigh")
    world.work("stamp")
    relay.run_once()
    replay(world.ctx, "ear", after=0, **SIGNED)
    ear.heard.clear()
    ear.takes = refuses("b")
    relay.run_once()
    assert parked_for(world.ctx, "ear")[ROUTE, "b"][0].version == 1
    ear.takes = lambda envelope: None
    world.clock.advance("1h")
    relay.run_once()
    assert ear.of("b") == ["accepted", "advanced", "advanced", "offered"]


# A relay at work meanwhile ------------------------------------------------------------------------
def test_a_relay_at_work_goes_on_from_the_new_place_and_nobody_tells_beside_it(
    world: World,
) -> None:
    ear, relay = told(world, "a", "b")
    other_ear = RecordingSubscriber()
    other = EventRelay(world.beside().registered().ctx, other_ear, "p2")
    world.add("c")
    world.work("weigh")

    def meanwhile(envelope: Envelope) -> None:
        if envelope["id"] == "parcels/c/1/accepted":
            ear.takes = lambda envelope: None
            replay(world.ctx, "ear", after=0, **SIGNED)
            assert other.run_once().standing_by == "another process delivers to it"

    ear.takes = meanwhile
    assert relay.run_once().standing_by == "another process delivers to it"
    assert cursor(world).seq == 0, "what it told meanwhile has not moved the cursor on"
    ear.heard.clear()
    assert relay.run_once().delivered == 6
    assert ear.ids == [
        f"parcels/{key}/{n}/{kind}"
        for n, kind in ((1, "accepted"), (2, "advanced"))
        for key in "abc"
    ]
    assert other_ear.heard == []


def test_an_item_that_is_parked_while_the_cursor_is_set_back_is_told_again_as_well(
    world: World,
) -> None:
    ear, relay = told(world, "a", "b")
    world.work("weigh")

    def meanwhile(envelope: Envelope) -> Exception | None:
        if envelope["subject"] == "a":
            replay(world.ctx, "ear", after=0, **SIGNED)
        return EventRefused("no") if envelope["subject"] == "b" else None

    ear.takes = meanwhile
    relay.run_once()
    assert parked_for(world.ctx, "ear")[ROUTE, "b"][0].version == 2
    ear.takes = lambda envelope: (
        EventRefused("no") if (envelope["subject"], envelope["sequence"]) == ("b", "2") else None
    )
    ear.heard.clear()
    relay.run_once()
    assert ear.of("b") == ["accepted"]
    ear.takes = lambda envelope: None
    release(world.ctx, "ear", by="ops", reason="they take it now")
    relay.run_once()
    assert versions(ear, "b") == [1, 2]


def test_one_view_says_how_far_everybody_is(world: World) -> None:
    began = world.clock.now()
    ear, relay = told(world, "a")
    ear.takes = refuses("b", error=EventRefused)
    world.add("b", "c")
    relay.run_once()
    world.add("d")
    replay(world.ctx, "ear", after=0, **SIGNED)
    [view] = subscribers(world.ctx)
    assert (view.name, view.behind, view.waiting_since, view.failures, view.silent) == (
        "ear",
        4,
        iso(began),
        0,
        False,
    )
    assert [
        (parked.route, parked.key, parked.error, parked.retry_at) for parked in view.parked
    ] == [(ROUTE, "b", "EventRefused: not now", None)]
    [limited] = subscribers(world.ctx, lambda route: False)
    assert (
        limited.parked,
        limited.behind,
        limited.waiting_since,
        limited.last_event_at,
        limited.error,
    ) == ([], None, None, None, None)
