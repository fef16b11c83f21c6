"""An item's story: its stage, why it waits, its history, its next step, and possible acts."""

from __future__ import annotations

import pytest
from tests.engine.views.viewed_ledger import World

from milepost.core.admission.controls import Hold
from milepost.core.change import Change
from milepost.core.history import SENTENCES
from milepost.core.operators import cancel
from milepost.core.outcome import Done, HandedOver, NotYet, Reject, Retry
from milepost.core.status import TERMINAL, Reason
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act, confirm_outside
from milepost.engine.acts.verbs import CancelVerb
from milepost.engine.intake import submit
from milepost.engine.views.story import Story, story
from milepost.ports.documents import HOLD
from milepost.ports.retention import DeliveredLines, PruneCriteria


@pytest.fixture
def world() -> World:
    made = World()
    made.process()
    return made


def _told(world: World, key: str = "A") -> Story:
    found = story(world.ctx, "parcels", key)
    assert found is not None
    return found


def test_every_reason_has_its_sentence() -> None:
    assert set(SENTENCES) == set(Reason)


def test_a_new_item_waits_for_a_worker(world: World) -> None:
    world.add("A")
    told = _told(world)
    assert "At 'weigh' (stage 1 of 3): QUEUED" in told.where
    assert told.why == ["Waiting for a worker."]
    assert told.next == ["It runs as soon as a worker is free."]
    assert [entry.text for entry in told.happened] == ["accepted at 'weigh'"]


def test_without_a_worker_it_says_how_to_start_one(world: World) -> None:
    world.add("A")
    world.clock.advance("5m")
    assert any("No worker is running now" in text for text in _told(world).next)


def test_a_failed_try_says_why_and_when_the_next_one_is(world: World) -> None:
    world.add("A")
    world.settle("weigh", Retry("scale is busy", category="BUSY"), response_ms=250)
    told = _told(world)
    assert told.why == ["Attempt 1 of 3 failed: BUSY: scale is busy"]
    assert told.next[0].startswith("Retried in 60 s (") or told.next[0].startswith(
        "Retried in 1 min ("
    )
    assert told.next[0].endswith("attempt 2 of 3.")
    assert (
        "attempt 1 at 'weigh' failed after 250 ms: BUSY: scale is busy; retry in 1 min"
        in told.happened[1].text
    )


def test_a_worker_that_holds_it_is_named_and_so_is_an_ended_lease(world: World) -> None:
    world.add("A")
    world.claim("weigh")
    told = _told(world)
    assert told.why[0].startswith("Worker host-a:1 holds it since ")
    assert not any("retry" in command for command in told.can)
    world.clock.advance("10m")
    assert _told(world).next[0].startswith("Its lease expired 10 min ago")


def test_a_worker_that_died_with_it_is_said_to_be_dead(world: World) -> None:
    world.add("A")
    world.ledger.sign_on("host-a:1")
    world.claim("weigh")
    assert "died" not in str(_told(world))
    world.ledger.kill("host-a:1")
    told = _told(world)
    assert (told.why[0].startswith("Worker host-a:1 holds it since "), told.why[1]) == (
        True,
        "That worker has died.",
    )
    assert [sentence.split(";")[0] for sentence in told.next] == [
        "Another process on this machine takes it back at once",
        "No worker is running now",
    ]


def test_not_yet_and_the_overdue_mark(world: World) -> None:
    world.add("A")
    world.settle("weigh", Done())
    world.settle("stamp", NotYet(note="no stamps left"))
    told = _told(world)
    assert "Checked once, not ready yet (no stamps left)" in told.why[0]
    assert told.next[0].startswith("The next check is in 10 min (")
    assert "it is reported as overdue" in told.next[1]


def test_a_late_item_says_so_first_and_by_when_it_was_expected(world: World) -> None:
    world.add("A")
    world.settle("weigh", Done())
    world.settle("stamp", NotYet(note="no stamps left"))
    world.clock.advance("14d")
    assert _told(world).why[0].startswith("Overdue: expected by "), "to the moment"
    world.clock.advance("36h")
    [late] = world.claim("stamp")
    assert late.row.overdue_at is None, "people have been told"
    for told in (_told(world), story(world.ctx, "parcels", "A", lambda ms, now: f"<{now - ms}>")):
        assert told is not None
        assert told.why[0].endswith(", 36 h ago.")
        assert "Worker host-a:1 holds it" in told.why[1]
        assert not any("reported as overdue" in text for text in told.next)
    assert told.why[0] == "Overdue: expected by <129600000>, 36 h ago."


def test_before_its_mark_an_item_is_not_late(world: World) -> None:
    world.add("A")
    world.settle("weigh", Done())
    world.settle("stamp", NotYet())
    world.clock.advance(14 * 86_400 - 1)
    assert not any("Overdue: expected" in text for text in _told(world).why)


def test_a_failed_item_says_what_a_person_can_decide(world: World) -> None:
    world.add("A", "B")
    world.settle("weigh", Reject("no such parcel"))
    start, skip = "restart it (retry)", "skip the stage (skip)"
    assert _told(world).next == [
        f"Nothing automatically; an operator decides: {start}, {skip}, replace its content (replace), or leave it."
    ]
    world.settle("weigh", Done())
    world.settle("stamp", Done())
    confirm_outside(
        world.ctx, "parcels", "B", "delivered", Reject("refused at the door"), by="van 7"
    )
    done = "confirm the stage (confirm)"
    assert _told(world, "B").next == [
        f"Nothing automatically; an operator decides: {start}, {done}, {skip}, replace its content (replace), or leave it."
    ]


def test_what_is_kept_for_a_failed_item_is_told(world: World) -> None:
    world.add("A")
    world.settle("weigh", Reject("no such parcel"))
    confirm_outside(world.ctx, "parcels", "A", "delivered", Done(True), by="van 7")
    assert (
        _told(world).why[-1]
        == "An answer for 'delivered' has already arrived and is kept until the item gets there."
    )


def test_handed_over_names_the_end_of_patience(world: World) -> None:
    world.add("A")
    world.settle("weigh", HandedOver(within="2d"))
    told = _told(world)
    assert "waiting for the answer" in told.why[0]
    assert "counts as a failed attempt in 2 d" in told.next[0]
    assert any(
        command.startswith("milepost confirm parcels A --stage weigh") for command in told.can
    )


def test_an_external_stage_waits_for_its_confirmation(world: World) -> None:
    world.add("A")
    world.settle("weigh", Done())
    world.settle("stamp", Done())
    told = _told(world)
    assert "waiting for the confirmation" in told.why[0]
    assert "offered again in 14 d" in told.next[0]
    assert [command.split()[1] for command in told.can] == [
        "resend",
        "confirm",
        "skip",
        "cancel",
        "replace",
    ]


def test_a_pause_is_named_with_who_and_why(world: World) -> None:
    world.add("A")
    world.ledger.write(
        HOLD, "parcels/weigh", Hold(world.clock.now(), "ops", "the scale is being mended")
    )
    told = _told(world)
    assert any("parcels/weigh is paused by ops" in text and "mended" in text for text in told.why)
    assert told.next == [
        "Nothing until it is resumed; a pause uses no attempts. To resume: milepost resume parcels --stage weigh --by YOU --reason '…'"
    ]


def test_a_paused_item_is_not_said_to_wait_for_a_worker(world: World) -> None:
    world.add("A")
    assert "Waiting for a worker." in _told(world).why
    world.ledger.write(
        HOLD,
        "parcels/weigh",
        Hold(world.clock.now(), "ops", "a new scale", until=world.clock.now() + 60_000),
    )
    told = _told(world)
    assert "Waiting for a worker." not in told.why
    assert told.next[0].startswith("Nothing until it is resumed or the pause ends;")


def test_the_ends(world: World) -> None:
    world.add("A", "B")
    world.settle("weigh", Reject("no such parcel"))
    told = _told(world)
    assert told.where.startswith("Ended at 'weigh' (stage 1 of 3): REJECTED")
    assert told.why == ["Last error: REJECTED: no such parcel"]
    assert [command.split()[1] for command in told.can] == ["retry", "skip", "replace"]
    [item] = world.ledger.get([("parcels", "B")])
    assert item is not None
    change = cancel(
        item, world.ctx.plan("parcels"), world.clock.now(), by="ops", why="not wanted", act="act-7"
    )
    assert isinstance(change, Change)
    world.ledger.apply([change], world.clock.now())
    assert (
        _told(world, "B").happened[-1].text
        == "cancelled at 'weigh', by ops: not wanted (act act-7)"
    )


def test_a_cancelled_item_for_later_has_ended(world: World) -> None:
    submit(world.ctx, "parcels", [{"id": "L"}], not_before="2h")
    assert _told(world, "L").where.startswith("Scheduled to start at 'weigh'")
    assert (
        act(
            world.ctx,
            select(world.ctx, "parcels", keys=["L"]),
            CancelVerb(),
            by="ops",
            reason="not wanted",
        ).done
        == 1
    )
    told = _told(world, "L")
    assert told.where.startswith(
        "Ended at 'weigh' (stage 1 of 3): CANCELLED, taken off the route by an operator; now"
    )
    assert told.next == [
        "Nothing: it has ended. Its key stays known, so that it is not processed again."
    ]
    assert [command.split()[1] for command in told.can] == ["retry", "skip", "replace"]


def test_a_finished_item_and_its_seal(world: World) -> None:
    world.add("A")
    world.settle("weigh", Done())
    world.ctx.plans["parcels"].following["stamp"] = None
    world.clock.advance("3h")
    world.settle("stamp", Done())
    told = _told(world)
    assert told.where.startswith("COMPLETED now")
    assert "3 h after it was accepted" in told.where
    assert [command.split()[1] for command in told.can] == ["rerun"]
    world.clock.advance("40d")
    world.ledger.prune(
        PruneCriteria(
            "parcels",
            TERMINAL,
            world.clock.now(),
            None,
            DeliveredLines(world.ledger.last_seq()),
            10,
        )
    )
    sealed = _told(world)
    assert "this is from its seal" in sealed.where
    assert story(world.ctx, "parcels", "never") is None


def test_a_stage_that_is_gone_says_what_to_run(world: World) -> None:
    world.add("A")
    world.ctx.plans.pop("parcels")
    world.ledger.write(
        "route", "parcels", {"version": 2, "digest": "x", "shape": [["stamp", "handler"]], "at": 1}
    )
    told = _told(world)
    assert told.why == ["The route no longer has the stage 'weigh'."]
    assert "milepost routes apply parcels --map weigh=STAGE --by YOU --reason '…'" in told.next[0]
    assert told.can == []


def test_a_damaged_chain_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add("A")
    world.settle("weigh", Done())
    lines = world.ledger.history("parcels", "A")
    monkeypatch.setattr(world.ledger, "history", lambda route, key: lines[:1])
    assert "the chain is broken after line 1" in _told(world).warnings[0]
