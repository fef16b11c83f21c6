"""Parked events: one item waits for one subscriber, is retried with backoff, or released by an
operator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.engine.events.recording_subscribers import Envelope, RecordingSubscriber, cursor, refuses
from tests.engine.world import Faulty, Interrupted, World, dies

from milepost.core.errors import EventRefused, LedgerReadOnly, UsageError
from milepost.core.outcome import Done
from milepost.engine.events.deliver import REFUSALS, EventRelay
from milepost.engine.events.parked_events import RETRY, note_change, parked_for, release
from milepost.ports.documents import (
    ACT,
    CURSOR,
    MOVER,
    PARKED,
    PARKED_CHANGE,
    Act,
    Cursor,
    Parked,
    read_as,
)


def parked(world: World, key: str = "b") -> Parked:
    return read_as(Parked, world.ledger.read(PARKED)[f"ear/parcels/{key}"].value)


def failing(
    world: World, *keys: str, error: type[Exception] = ConnectionError
) -> tuple[RecordingSubscriber, EventRelay]:
    ear = RecordingSubscriber()
    ear.takes = refuses(*keys, error=error)
    relay = EventRelay(world.ctx, ear, "p1")
    relay.run_once()
    return ear, relay


def test_backs_off_and_says_why(world: World) -> None:
    world.add("a", "b")
    _, relay = failing(world, "b")
    assert (parked(world).tries, parked(world).version, parked(world).error) == (
        1,
        1,
        "ConnectionError: not now",
    )
    waits = []
    for _ in range(16):
        waits.append(parked(world).retry_at - world.clock.now())
        assert relay.run_once().delivered == 0
        world.clock.advance_to(parked(world).retry_at)
        relay.run_once()
    assert parked(world).tries == 17
    for n, wait in enumerate(waits):
        exact = RETRY.exponential_ms(n)
        # At the cap jitter only shortens.
        assert (0.74 if exact < 2_880_000 else 0.59) * exact <= wait <= min(1.26 * exact, 3_600_000)
    assert waits[-1] > 2_000_000


def test_the_turn_comes_when_the_retry_is_due(world: World) -> None:
    world.add("b")
    _, relay = failing(world, "b")
    world.clock.advance_to(parked(world).retry_at - 100)
    assert relay.turn() == pytest.approx(0.1)


def test_later_events_wait_behind_in_order(world: World) -> None:
    world.add("a", "b")
    ear, relay = failing(world, "b")
    world.work("weigh")
    relay.run_once()
    assert (ear.of("a"), ear.of("b")) == (["accepted", "advanced"], [])
    # The first is taken now, the second is not: the item stays parked at the second.
    ear.takes = lambda envelope: (
        ConnectionError("no") if envelope["data"]["reason"] == "advanced" else None
    )
    world.clock.advance("1h")
    relay.run_once()
    assert ear.of("b") == ["accepted"]
    assert (parked(world).version, parked(world).tries) == (2, 1)
    ear.takes = lambda envelope: None
    world.work("stamp")
    world.clock.advance("1h")
    relay.run_once()
    assert ear.of("b") == ["accepted", "advanced", "advanced", "offered"]
    assert relay.run_once().parked == 0


def test_refused_waits_for_an_operator(world: World) -> None:
    world.add("a", "b")
    ear, relay = failing(world, "b", error=EventRefused)
    ear.takes = lambda envelope: None
    world.clock.advance("30d")
    assert relay.run_once().delivered == 0
    assert relay.turn() <= 1
    assert (
        release(world.ctx, "ear", "parcels", "b", by="ops", reason="the address was set right") == 1
    )
    assert relay.run_once().delivered == 1
    assert world.ledger.read(PARKED) == {}
    [act] = [read_as(Act, document.value) for document in world.ledger.read(ACT).values()]
    assert (act.verb, act.by, act.reason, act.done) == (
        "release",
        "ops",
        "the address was set right",
        1,
    )


def test_released_and_refused_again(world: World) -> None:
    world.add("b")
    _, relay = failing(world, "b", error=EventRefused)
    release(world.ctx, "ear", by="ops", reason="try")
    relay.run_once()
    assert (parked(world).retry_at, parked(world).tries) == (0, 1)


def test_release_by_route_and_for_one_subscriber_only(world: World) -> None:
    world.add("a", "b")
    failing(world, "a", "b", error=EventRefused)
    other = RecordingSubscriber("other")
    other.takes = refuses("a", error=EventRefused)
    EventRelay(world.ctx, other, "p1").run_once()
    assert release(world.ctx, "ear", "letters", by="ops", reason="r") == 0
    assert release(world.ctx, "ear", "parcels", by="ops", reason="r") == 2
    assert parked_for(world.ctx, "other")["parcels", "a"][0].retry_at == 0


def test_release_ends_the_wait_of_an_outage(world: World) -> None:
    world.add(*(f"k{n}" for n in range(5)))
    ear, relay = failing(world, *(f"k{n}" for n in range(5)))
    assert cursor(world).failures == 1
    ear.takes = lambda envelope: None
    release(world.ctx, "ear", by="ops", reason="it is back")
    assert relay.run_once().delivered == 5


def test_release_is_signed_and_names_who_there_is(world: World) -> None:
    with pytest.raises(UsageError, match="a name and a reason"):
        release(world.ctx, "ear", by="", reason="r")
    EventRelay(world.ctx, RecordingSubscriber(), "p1").run_once()
    with pytest.raises(UsageError, match="no subscriber 'eye'; there are ear"):
        release(world.ctx, "eye", by="ops", reason="r")


def test_dies_after_telling_a_parked_item_and_tells_it_again(faulty: World) -> None:
    faulty.add("a", "b")
    ear, relay = failing(faulty, "b")
    ear.takes = lambda envelope: None
    faulty.clock.advance("2s")
    faulty.ledger.before("write", dies, lambda kind, name, value, expect=None: kind == PARKED)  # type: ignore[attr-defined]
    with pytest.raises(Interrupted):
        relay.run_once()
    faulty.clock.advance("31s")
    EventRelay(faulty.ctx, ear, "p2").run_once()
    assert ear.of("b") == ["accepted", "accepted"]
    assert faulty.ledger.read(PARKED) == {}


def test_dies_after_parking_and_before_the_cursor(faulty: World) -> None:
    """The item is parked and the cursor still stands before it: nothing of it is told twice or out
    of turn."""
    faulty.add("a", "b", "c")
    ear = RecordingSubscriber()
    ear.takes = refuses("b")
    faulty.ledger.before(
        "write", dies, lambda kind, name, value, expect=None: kind == CURSOR and value.seq > 0
    )  # type: ignore[attr-defined]
    with pytest.raises(Interrupted):
        EventRelay(faulty.ctx, ear, "p1").run_once()
    ear.takes = lambda envelope: None
    faulty.clock.advance("31s")
    faulty.work("weigh")
    EventRelay(faulty.ctx, ear, "p2").run_once()
    assert ear.of("b") == ["accepted", "advanced"]
    assert ear.of("a") == ["accepted", "accepted", "advanced"]
    assert faulty.ledger.read(PARKED) == {}


def test_several_parked_items_failing_again_leave_the_rest_for_the_next_run(world: World) -> None:
    keys = [f"k{n}" for n in range(12)]
    ear, relay = RecordingSubscriber(), None
    ear.takes = refuses(*keys)
    relay = EventRelay(world.ctx, ear, "p1")
    for n, key in enumerate(keys):
        world.add(key, f"good{n}")
        relay.run_once()
    assert relay.run_once().parked == 12
    world.clock.advance("1h")
    calls = len(ear.calls)
    relay.run_once()
    assert len(ear.calls) - calls == 5
    ear.takes = lambda envelope: None
    world.clock.advance("1h")
    relay.run_once()
    assert world.ledger.read(PARKED) == {}
    assert all(ear.of(key) == ["accepted"] for key in keys)


def test_a_parked_item_that_is_gone_is_let_go(world: World) -> None:
    world.add("b")
    ear, relay = failing(world, "b")
    world.ledger.write(
        PARKED, "ear/parcels/ghost", Parked("ear", "parcels", "ghost", 1, 0, 1, 1, "?")
    )
    note_change(world.ctx, "ear")
    world.clock.advance("2s")
    ear.takes = lambda envelope: None
    assert relay.run_once().delivered == 1
    assert world.ledger.read(PARKED) == {}


def slow_retry(
    world: World, meanwhile: Callable[[EventRelay, RecordingSubscriber], None]
) -> tuple[RecordingSubscriber, EventRelay]:
    """Item "a" is parked at "accepted". While one process retries it, its call takes longer than
    its lease, and `meanwhile` happens at a second process. Returns what the subscriber heard in
    all, and the second process's relay."""
    ear = RecordingSubscriber(batch=1)
    first, second = (
        EventRelay(world.ctx, ear, "p1"),
        EventRelay(world.beside().registered().ctx, ear, "p2"),
    )
    world.add("a", "b")
    ear.takes = refuses("a")
    first.run_once()
    world.clock.advance("10s")

    def slow(envelope: Envelope) -> None:
        ear.takes = refuses()
        world.clock.advance("40s")
        meanwhile(second, ear)

    ear.takes = slow
    first.run_once()
    ear.takes = refuses()
    for _ in range(3):
        world.clock.advance("2h")
        second.run_once()
    return ear, second


def test_a_late_unparking_does_not_remove_a_newer_parking(world: World) -> None:
    def meanwhile(second: EventRelay, ear: RecordingSubscriber) -> None:
        second.run_once()
        world.work("weigh")
        ear.takes = lambda envelope: (
            ConnectionError("busy") if envelope["data"]["reason"] == "advanced" else None
        )
        second.run_once()

    ear, _ = slow_retry(world, meanwhile)
    assert "advanced" in ear.of("a")
    assert world.ledger.read(PARKED) == {}


def test_a_late_unparking_does_not_pass_over_what_came_to_wait_behind_it(world: World) -> None:
    def meanwhile(second: EventRelay, ear: RecordingSubscriber) -> None:
        world.work("weigh")
        for key in ("b", "c", "d", "e", "f"):
            # Retried before "a" by the second process, so that it gives up before it comes to "a".
            world.ledger.write(
                PARKED, f"ear/parcels/{key}", Parked("ear", "parcels", key, 1, 0, 1, 1, "?")
            )
        world.add("c", "d", "e", "f")
        ear.takes = refuses("b", "c", "d", "e", "f")
        second.run_once()

    ear, _ = slow_retry(world, meanwhile)
    assert ear.of("a")[-1] == "advanced"
    assert all("accepted" in ear.of(key) for key in "bcdef")
    assert world.ledger.read(PARKED) == {}


def test_a_parking_that_is_removed_while_a_page_is_read_does_not_hide_its_events(
    faulty: World,
) -> None:
    world = faulty
    world.add("a", "b")
    ear, relay = failing(world, "a")
    world.work("weigh")
    # Another process tells the item and unparks it just after this one has read what is parked.
    ledger = world.ledger
    assert isinstance(ledger, Faulty)
    ledger.after(
        "read_one",
        lambda: ledger.write(PARKED, "ear/parcels/a", None) and None,
        lambda kind, name: kind == PARKED_CHANGE,
    )
    ear.takes = refuses()
    relay.run_once()
    assert "advanced" in ear.of("a")


# Refusals -----------------------------------------------------------------------------------------
def refusing(
    world: World, takes: Callable[[Envelope], Exception | None]
) -> tuple[RecordingSubscriber, EventRelay]:
    ear = RecordingSubscriber(batch=1)
    ear.takes = takes
    return ear, EventRelay(world.ctx, ear, "p1")


def test_many_items_refused_in_a_row_with_one_answer_are_an_outage(world: World) -> None:
    """They are bounded: neither one parked document for each, nor one try for each."""
    keys = [f"k{number:04}" for number in range(300)]
    world.add(*keys)
    ear, relay = refusing(world, lambda envelope: EventRefused("404"))
    for _ in range(50):
        assert relay.run_once().delivered == 0
        world.clock.advance("1s")
    assert world.ledger.read(PARKED) == {}
    assert (cursor(world).seq, cursor(world).failures > 3, cursor(world).refused >= REFUSALS) == (
        0,
        True,
        True,
    )
    assert len(ear.calls) <= REFUSALS + 4 * cursor(world).failures
    ear.takes = lambda envelope: None
    world.clock.advance("5m")
    relay.run_once()
    assert all(ear.of(key) == ["accepted"] for key in keys)
    assert (cursor(world).failures, cursor(world).refused, cursor(world).refusal) == (0, 0, "")


def test_refusals_that_come_one_at_a_time_are_counted_over_runs(world: World) -> None:
    ear, relay = refusing(world, lambda envelope: EventRefused("404"))
    for number in range(100):
        world.add(f"k{number:04}")
        relay.run_once()
        world.clock.advance("1m")
    assert len(world.ledger.read(PARKED)) == REFUSALS - 1
    assert cursor(world).failures > 0
    ear.takes = lambda envelope: None
    world.clock.advance("10m")
    assert relay.run_once().waiting == 0
    assert len(ear.heard) == 100 - (REFUSALS - 1)
    assert release(world.ctx, "ear", by="ops", reason="corrected") == REFUSALS - 1
    relay.run_once()
    assert len(ear.heard) == 100
    assert world.ledger.read(PARKED) == {}


@pytest.mark.parametrize("bad", [REFUSALS + 5, 700])
def test_a_batch_of_bad_items_parks_those_items_only(world: World, bad: int) -> None:
    """Items that come later, even beyond the page, are accepted: so it is no outage."""
    keys = [f"k{number:04}" for number in range(bad)]
    world.add(*keys)
    world.add("good-1", "good-2")
    ear, relay = refusing(
        world,
        lambda envelope: None if envelope["subject"].startswith("good") else EventRefused("404"),
    )
    for _ in range(5):
        relay.run_once()
        world.clock.advance("5m")
    assert {ref[1] for ref in parked_for(world.ctx, "ear")} == set(keys)
    assert set(ear.of("good-1")) == set(ear.of("good-2")) == {"accepted"}


def test_bad_items_hold_up_good_ones_that_come_after_an_outage_for_minutes_at_most(
    world: World,
) -> None:
    keys = [f"k{number:04}" for number in range(REFUSALS)]
    world.add(*keys)
    ear, relay = refusing(
        world, lambda envelope: None if envelope["subject"] == "good" else EventRefused("404")
    )
    for _ in range(200):
        relay.run_once()
        world.clock.advance("5s")
    assert cursor(world).failures > 5
    world.add("good")
    world.clock.advance("5m")
    relay.run_once()
    assert ear.of("good") == ["accepted"]
    assert {ref[1] for ref in parked_for(world.ctx, "ear")} == set(keys)


def test_items_refused_with_different_answers_are_parked_one_by_one(world: World) -> None:
    keys = [f"k{number:04}" for number in range(2 * REFUSALS)]
    world.add(*keys)
    _, relay = refusing(world, lambda envelope: EventRefused(f"{envelope['subject']} is unknown"))
    relay.run_once()
    assert {ref[1] for ref in parked_for(world.ctx, "ear")} == set(keys)
    assert cursor(world).failures == 0


def test_a_turn_reads_no_parked_item_that_it_does_not_need(faulty: World) -> None:
    world = faulty
    for number in range(200):
        parked = Parked("ear", "parcels", f"k{number}", 1, 0, 1, 0, "404")
        world.ledger.write(PARKED, f"ear/parcels/k{number}", parked)
    relay = EventRelay(world.ctx, RecordingSubscriber(), "p1")
    relay.run_once()
    ledger = world.ledger
    assert isinstance(ledger, Faulty)
    reads: list[str] = []
    for _ in range(100):
        ledger.after("read", lambda: reads.append("all"), lambda kind: kind == PARKED)
    world.add("a")
    for _ in range(10):
        assert relay.run_once().parked == 200
        world.clock.advance("1s")
    assert reads == []


def test_a_process_whose_role_does_not_know_the_change_number_reads_what_is_parked_each_time(
    faulty: World,
) -> None:
    """As the roles of a stack that an earlier version has deployed."""
    world = faulty
    ledger = world.ledger
    assert isinstance(ledger, Faulty)

    def denied() -> None:
        raise LedgerReadOnly("this role has no permission")

    for _ in range(100):
        ledger.before("read_one", denied, lambda kind, name: kind == PARKED_CHANGE)
        ledger.before("write", denied, lambda kind, *more, **options: kind == PARKED_CHANGE)
    world.add("a", "b")
    ear, relay = failing(world, "b", error=EventRefused)
    assert relay.run_once().parked == 1
    ear.takes = lambda envelope: None
    assert release(world.ctx, "ear", by="ops", reason="corrected") == 1
    relay.run_once()
    assert ear.of("b") == ["accepted"]


def test_a_relay_that_takes_over_knows_what_another_has_parked(world: World) -> None:
    world.add("a")
    ear = RecordingSubscriber(batch=1)
    first, second = (
        EventRelay(world.ctx, ear, "p1"),
        EventRelay(world.beside().registered().ctx, ear, "p2"),
    )
    first.run_once()
    world.clock.advance("1m")
    second.run_once()
    world.add("b")
    ear.takes = refuses("b", error=EventRefused)
    first.run_once()
    world.clock.advance("1m")
    ear.takes = lambda envelope: None
    for item in world.claim("weigh"):
        world.settle([item], Done())
    assert second.run_once().parked == 1
    assert (ear.of("a"), ear.of("b")) == (["accepted", "advanced"], [])


# A clock that was ahead ---------------------------------------------------------------------------
def test_what_a_clock_ahead_has_put_off_is_delivered_at_the_true_time(world: World) -> None:
    """The lease of a relay that has died, the pause of a subscriber, and the retry of a parked
    item."""
    world.add("a", "b")
    world.clock.advance("3d")
    failing(world, "b")
    assert parked(world).retry_at > world.clock.now()
    world.ledger.write(
        CURSOR, "ear", replace(cursor(world), lease="gone/1", until=world.clock.now() + 30_000)
    )
    world.clock.set_back("3d")
    ear = RecordingSubscriber()
    assert EventRelay(world.ctx, ear, "p2").run_once().standing_by is None
    assert ear.of("b") == ["accepted"]
    world.ledger.write(
        CURSOR,
        "ear",
        replace(cursor(world), failures=3, retry_at=world.clock.now() + 3 * 86_400_000, error="?"),
    )
    world.add("c")
    assert EventRelay(world.ctx, ear, "p3").run_once().standing_by is None
    assert ear.of("c") == ["accepted"]


def test_nothing_is_delivered_while_a_route_is_moved_here(world: World) -> None:
    world.add("a")
    world.ledger.write(
        CURSOR, "ear", Cursor(0, 0, lease=MOVER, until=world.clock.now() + 6 * 86_400_000)
    )
    assert (
        EventRelay(world.ctx, RecordingSubscriber(), "p1").run_once().standing_by
        == "another process delivers to it"
    )


def test_a_relay_whose_own_lease_is_ahead_takes_it_anew(world: World) -> None:
    world.clock.advance("3d")
    relay = EventRelay(world.ctx, RecordingSubscriber(batch=1), "p1")
    world.add(*[f"k{number}" for number in range(3)])
    relay.run_once()
    world.ledger.write(CURSOR, "ear", replace(cursor(world), until=world.clock.now() + 30_000))
    world.clock.set_back("3d")
    world.add("late")
    assert relay.run_once().standing_by is None
    assert cursor(world).until <= world.clock.now() + 30_000
