"""Delivery to subscribers: at least once, in order per item, by one process at a time, and never
past an outage."""

from __future__ import annotations

import pytest
from tests.engine.events.recording_subscribers import (
    Envelope,
    Raises,
    RecordingSubscriber,
    cursor,
    refuses,
)
from tests.engine.world import Interrupted, World, dies

from milepost.core.errors import EventRefused, UsageError
from milepost.core.outcome import Done
from milepost.engine.act_log import all_acts
from milepost.engine.events import deliver as relay_module
from milepost.engine.events.cursors import delivered, forget_subscriber, silent
from milepost.engine.events.deliver import EventRelay
from milepost.engine.routes.versions import apply_route
from milepost.ports.documents import CURSOR, PARKED
from milepost.ports.retention import DeliveredLines

SIGNED = {"by": "ops", "reason": "they have moved"}


def test_everything_from_the_beginning_in_order_per_item(world: World) -> None:
    world.add("a", "b")
    world.work("weigh")
    world.work("stamp")
    ear = RecordingSubscriber()
    summary = EventRelay(world.ctx, ear, "p1").run_once()
    assert ear.of("a") == ear.of("b") == ["accepted", "advanced", "advanced", "offered"]
    assert (summary.delivered, summary.parked, summary.waiting, summary.standing_by) == (
        8,
        0,
        0,
        None,
    )
    offered = ear.heard[-1]
    assert offered["data"]["payload"] == {"id": "b"}
    assert offered["data"]["work_id"] == world.item("b").work_id
    assert max(ear.calls) == 2, "no two events of one item in one call"


def test_nothing_new_writes_nothing(world: World) -> None:
    world.add("a")
    relay = EventRelay(world.ctx, RecordingSubscriber(), "p1")
    relay.run_once()
    before = world.ledger.change_counter()
    assert relay.run_once().delivered == 0
    assert world.ledger.change_counter() == before
    assert 0 < relay.turn() <= 1


def test_from_now_on(world: World) -> None:
    world.add("old")
    ear = RecordingSubscriber()
    relay = EventRelay(world.ctx, ear, "p1", from_now=True)
    relay.run_once()
    world.add("new")
    relay.run_once()
    assert ear.ids == ["parcels/new/1/accepted"]


def test_goes_on_where_it_stopped_and_pages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "PAGE", 3)
    world.add(*(f"k{n}" for n in range(7)))
    ear = RecordingSubscriber()
    relay = EventRelay(world.ctx, ear, "p1")
    first = relay.run_once()
    assert (first.delivered, first.waiting) == (3, 4)
    assert relay.turn() == 0.0
    # A process that ends with the lease in hand holds up the next one only until the lease runs
    # out.
    other = EventRelay(world.beside().registered().ctx, ear, "p2")
    assert other.run_once().standing_by == "another process delivers to it"
    world.clock.advance("31s")
    other.run_once()
    assert ear.ids == [f"parcels/k{n}/1/accepted" for n in range(7)]


def test_dies_between_tell_and_cursor_and_tells_again_with_the_same_ids(faulty: World) -> None:
    faulty.add("a", "b")
    ear = RecordingSubscriber()
    relay = EventRelay(faulty.ctx, ear, "p1")
    faulty.ledger.before(
        "write", dies, lambda kind, name, value, expect=None: kind == CURSOR and value.seq > 0
    )  # type: ignore[attr-defined]
    with pytest.raises(Interrupted):
        relay.run_once()
    told_once = list(ear.ids)
    assert len(told_once) == 2
    again = EventRelay(faulty.ctx, ear, "p2")
    assert again.run_once().standing_by == "another process delivers to it"
    faulty.clock.advance("31s")
    again.run_once()
    assert ear.ids == told_once * 2


def test_two_relays_never_tell_at_once(world: World) -> None:
    """The second has its turn in the middle of the first one's telling."""
    world.add("a", "b", "c")
    other = world.beside().registered()
    second_ear = RecordingSubscriber()
    second = EventRelay(other.ctx, second_ear, "p2")
    ear = RecordingSubscriber(batch=1)

    def interleave(envelope: Envelope) -> None:
        assert second.run_once().standing_by == "another process delivers to it"

    ear.takes = interleave
    EventRelay(world.ctx, ear, "p1").run_once()
    assert len(ear.heard) == 3
    assert second_ear.heard == []
    second.run_once()
    assert second_ear.heard == []


def test_slow_tells_extend_the_lease(world: World) -> None:
    world.add(*(f"k{n}" for n in range(6)))
    ear = RecordingSubscriber(batch=1)
    second = EventRelay(world.beside().registered().ctx, ear, "p2")

    def slow(envelope: Envelope) -> None:
        world.clock.advance("20s")
        assert second.run_once().standing_by is not None

    ear.takes = slow
    assert EventRelay(world.ctx, ear, "p1").run_once().delivered == 6
    assert len(set(ear.ids)) == len(ear.ids) == 6


def test_a_lost_lease_saves_nothing(world: World) -> None:
    world.add("a", "b")
    second_ear = RecordingSubscriber()
    second = EventRelay(world.beside().registered().ctx, second_ear, "p2")
    ear = RecordingSubscriber(batch=10)

    def asleep(envelope: Envelope) -> None:
        if envelope["subject"] == "a":
            world.clock.advance("40s")
            assert second.run_once().delivered == 2

    ear.takes = asleep
    assert (
        EventRelay(world.ctx, ear, "p1").run_once().standing_by == "another process delivers to it"
    )
    assert cursor(world).seq == world.ledger.last_seq()


def test_one_item_that_fails_waits_and_the_others_go_on(world: World) -> None:
    world.add("a", "b", "c")
    world.work("weigh")
    ear = RecordingSubscriber()
    ear.takes = refuses("b")
    relay = EventRelay(world.ctx, ear, "p1")
    summary = relay.run_once()
    assert (summary.delivered, summary.parked, summary.waiting) == (4, 1, 0)
    assert ear.of("b") == []
    world.work("stamp")
    ear.takes = lambda envelope: None
    world.clock.advance("2s")
    relay.run_once()
    assert ear.of("b") == ["accepted", "advanced", "advanced", "offered"]
    assert next(e for e in ear.heard if e["data"]["reason"] == "offered" and e["subject"] == "b")[
        "data"
    ]["payload"] == {"id": "b"}
    assert world.ledger.read(PARKED) == {}


@pytest.mark.parametrize("kind", [RecordingSubscriber, Raises])
def test_outage_passes_over_nothing_and_parks_nothing(
    world: World, kind: type[RecordingSubscriber]
) -> None:
    world.add(*(f"k{n}" for n in range(8)))
    ear = kind(batch=4)
    ear.takes = lambda envelope: (
        None if envelope["subject"] in ("k0", "k1") else TimeoutError("gone")
    )
    relay = EventRelay(world.ctx, ear, "p1")
    summary = relay.run_once()
    assert summary.standing_by == "it is unavailable (TimeoutError: gone)"
    assert (summary.parked, summary.waiting) == (0, 6)
    assert (cursor(world).failures, cursor(world).seq) == (1, 2)
    tells = len(ear.calls)
    assert relay.run_once().standing_by == "it is unavailable (TimeoutError: gone)"
    assert len(ear.calls) == tells, "it is left in peace while it is backed off"
    world.clock.advance("2s")
    assert relay.run_once().delivered == 0
    assert cursor(world).failures == 2
    assert cursor(world).retry_at - world.clock.now() >= 1_500
    ear.takes = lambda envelope: None
    world.clock.advance("10s")
    assert relay.run_once().delivered == 6
    assert (cursor(world).failures, cursor(world).error) == (0, "")
    assert ear.ids == [f"parcels/k{n}/1/accepted" for n in range(8)]


def test_an_outage_with_a_bad_first_item_ends_all_the_same(world: World) -> None:
    world.add(*(f"k{n}" for n in range(6)))
    ear = RecordingSubscriber(batch=1)
    ear.takes = lambda envelope: TimeoutError("gone")
    relay = EventRelay(world.ctx, ear, "p1")
    relay.run_once()
    ear.takes = refuses("k0")
    world.clock.advance("2s")
    summary = relay.run_once()
    assert (summary.delivered, summary.parked, summary.waiting) == (5, 1, 0)


def test_refusals_are_no_outage(world: World) -> None:
    world.add(*(f"k{n}" for n in range(9)))
    ear = RecordingSubscriber()
    ear.takes = lambda envelope: EventRefused("never") if envelope["subject"] != "k8" else None
    summary = EventRelay(world.ctx, ear, "p1").run_once()
    assert (summary.delivered, summary.parked, summary.waiting) == (1, 8, 0)


def test_a_call_that_raises_is_taken_apart(world: World) -> None:
    world.add("a", "b", "c")
    ear = Raises(batch=10)
    ear.takes = refuses("b")
    summary = EventRelay(world.ctx, ear, "p1").run_once()
    assert (summary.delivered, summary.parked) == (2, 1)
    assert ear.calls == [3, 1, 1, 1]


def test_an_answer_of_the_wrong_length_is_an_error(world: World) -> None:
    world.add("a")
    ear = RecordingSubscriber()
    ear.tell = lambda envelopes: [None, None]  # type: ignore[method-assign]
    assert EventRelay(world.ctx, ear, "p1").run_once().parked == 1
    [parked] = world.ledger.read(PARKED).values()
    assert "received 1 events and returned 2 results" in parked.value["error"]


def test_a_route_form_that_fails_hurts_only_its_item(world: World) -> None:
    def form(envelope: Envelope) -> Envelope:
        return {"only": envelope["subject"]} if envelope["subject"] != "b" else {}["missing"]

    world.plan.route.form = form
    world.add("a", "b", "c")
    ear = RecordingSubscriber()
    assert EventRelay(world.ctx, ear, "p1").run_once().parked == 1
    assert ear.heard == [{"only": "a"}, {"only": "c"}]


def test_an_outdated_process_tells_nothing(world: World) -> None:
    world.add("a")
    newer = world.beside("weigh", "stamp", "Delivered", "filed")
    apply_route(newer.ctx, newer.plan, mapping={}, by="ops", reason="a fourth stage")
    old_ear, new_ear = RecordingSubscriber(), RecordingSubscriber()
    assert EventRelay(world.ctx, old_ear, "p1").run_once().standing_by == (
        "the ledger holds a newer version of parcels; restart it with the present route file"
    )
    assert old_ear.heard == []
    assert EventRelay(newer.ctx, new_ear, "p2").run_once().delivered == 1


def test_one_subscriber_does_not_hold_up_another(world: World) -> None:
    world.add(*(f"k{n}" for n in range(6)))
    broken, well = RecordingSubscriber("broken"), RecordingSubscriber("well")
    broken.takes = lambda envelope: TimeoutError("gone")
    EventRelay(world.ctx, broken, "p1").run_once()
    assert EventRelay(world.ctx, well, "p1").run_once().delivered == 6
    assert (cursor(world, "broken").seq, cursor(world, "well").seq) == (0, 6)


def test_what_all_have_been_told_is_known_by_place_and_by_parked_item(world: World) -> None:
    assert delivered(world.ctx) == DeliveredLines(0)
    world.add("a", "b", "c")
    assert delivered(world.ctx) == DeliveredLines(3), "there is no subscriber"
    slow, ear = RecordingSubscriber("slow"), RecordingSubscriber()
    EventRelay(world.ctx, slow, "p1").run_once()
    ear.takes = refuses("b", error=EventRefused)
    EventRelay(world.ctx, ear, "p1").run_once()
    world.add("d")
    EventRelay(world.ctx, ear, "p1").run_once()
    assert delivered(world.ctx) == DeliveredLines(3, frozenset({("parcels", "b")})), (
        "slow has not been told of d, ear does not take b"
    )
    assert forget_subscriber(world.ctx, "ear", **SIGNED)
    assert delivered(world.ctx) == DeliveredLines(3)
    assert forget_subscriber(world.ctx, "slow", **SIGNED)
    assert delivered(world.ctx) == DeliveredLines(4)
    assert not forget_subscriber(world.ctx, "nobody", **SIGNED)


def test_forgotten_while_it_runs_stands_by_and_goes_on_after_a_restart(world: World) -> None:
    world.add("a")
    ear = RecordingSubscriber()
    relay = EventRelay(world.ctx, ear, "p1")
    relay.run_once()
    forget_subscriber(world.ctx, "ear", **SIGNED)
    world.add("b")
    assert relay.run_once().standing_by == "it has been removed; restart to deliver to it again"
    assert EventRelay(world.ctx, ear, "p1").run_once().delivered == 1
    assert not cursor(world).removed


def test_silent_for_thirty_days(world: World) -> None:
    ear, deaf = RecordingSubscriber(), RecordingSubscriber("deaf")
    world.add("a")
    EventRelay(world.ctx, ear, "p1").run_once()
    EventRelay(world.ctx, deaf, "p1").run_once()
    world.add("b")
    EventRelay(world.ctx, ear, "p1").run_once()
    world.clock.advance("29d")
    assert silent(world.ctx) == []
    world.clock.advance("2d")
    assert silent(world.ctx) == ["deaf"]
    world.add("c")
    assert silent(world.ctx) == ["deaf"], "what has just come has kept nobody waiting"
    forget_subscriber(world.ctx, "deaf", **SIGNED)
    assert silent(world.ctx) == []


def test_done_is_told_once_more_only_if_it_happened_again(world: World) -> None:
    """Many small runs tell exactly what one big run tells."""
    ear = RecordingSubscriber()
    relay = EventRelay(world.ctx, ear, "p1")
    for key in ("a", "b"):
        world.add(key)
        relay.run_once()
        world.work("weigh", Done({"grams": 1}))
        relay.run_once()
    everything = RecordingSubscriber("late")
    EventRelay(world.ctx, everything, "p1").run_once()
    assert ear.heard == everything.heard


def test_letting_one_go_is_signed_and_on_record(world: World) -> None:
    world.add("a")
    EventRelay(world.ctx, RecordingSubscriber(), "p1").run_once()
    with pytest.raises(UsageError, match="a name and a reason"):
        forget_subscriber(world.ctx, "ear", by="ops", reason="")
    assert not cursor(world, "ear").removed
    forget_subscriber(world.ctx, "ear", **SIGNED)
    [act] = all_acts(world.ctx)
    assert (act.verb, act.by, act.reason, act.filter) == (
        "forget",
        "ops",
        "they have moved",
        {"subscriber": "ear"},
    )


def test_two_events_of_each_line_are_told_in_full_calls(world: World) -> None:
    """To an external stage each item comes with two events; for many items that is not a call
    each."""
    keys = [f"k{n:02}" for n in range(25)]
    world.add(*keys)
    world.work("weigh")
    world.work("stamp")
    everything = RecordingSubscriber("everything")
    EventRelay(world.ctx, everything, "p1").run_once()
    assert all(
        everything.of(key) == ["accepted", "advanced", "advanced", "offered"] for key in keys
    )
    # 100 events; a call is cut short only where the next line is of an item that is in it already.
    assert len(everything.calls) <= 13


@pytest.mark.parametrize("kind", [RecordingSubscriber, Raises])
def test_an_outage_between_two_events_of_a_line_forgets_neither(
    world: World, kind: type[RecordingSubscriber]
) -> None:
    keys = [f"k{n}" for n in range(8)]
    world.add(*keys)
    world.work("weigh")
    ear = kind()
    relay = EventRelay(world.ctx, ear, "p1")
    relay.run_once()
    world.work("stamp")
    ear.takes = lambda envelope: (
        ConnectionError("not now") if envelope["data"]["reason"] == "offered" else None
    )
    assert relay.run_once().standing_by is not None
    ear.takes = lambda envelope: None
    for _ in range(5):
        world.clock.advance("1h")
        relay.run_once()
    for key in keys:
        told = list(dict.fromkeys(ear.of(key)))
        assert told == ["accepted", "advanced", "offered"], (
            "told again perhaps, but none left out, and in order"
        )
    assert relay.run_once().parked == 0
