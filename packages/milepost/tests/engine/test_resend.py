"""The resender: acts on every due item without a message, and two resenders at once do no harm."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.world import ROUTE, Faulty, World

from milepost.core.decide import undecided
from milepost.core.item import Row
from milepost.core.outcome import Done, HandedOver, NotYet, Retry
from milepost.core.routes.route import Route
from milepost.core.status import Reason, Status
from milepost.engine import resend as resend_module
from milepost.engine.acts.bulk import confirm_outside
from milepost.engine.acts.controls import pause, resume
from milepost.engine.resend import Resender, ResendSummary
from milepost.engine.routes.versions import apply_route
from milepost.ports.items import Query, QueryPage
from milepost.ports.ledger import Ledger
from milepost_testing.clock import VirtualClock


def at_delivered(world: World, *keys: str) -> None:
    world.add(*keys)
    world.work("weigh")
    world.work("stamp")


def counts(summary: ResendSummary) -> dict[str, int]:
    names = ("resent", "lost", "overdue", "no_answer", "confirmed", "decided")
    return {name: getattr(summary, name) for name in names if getattr(summary, name)}


def test_nothing_due_is_nothing_done(world: World) -> None:
    at_delivered(world, "a")
    resender = Resender(world.ctx)
    assert resender.run_once() == ResendSummary()
    assert resender.turn() == 5.0


def test_an_external_stage_is_offered_again_with_the_same_work_id(world: World) -> None:
    at_delivered(world, "a", "b")
    work_id = world.item("a").work_id
    world.clock.advance("14d")
    assert counts(Resender(world.ctx).run_once()) == {"resent": 2}
    lines = [written.line for written in world.ledger.history(ROUTE, "a")]
    assert (lines[-1].reason, lines[-1].offered, lines[-1].by) == (
        Reason.RESENT,
        work_id,
        "resender",
    )
    assert counts(Resender(world.ctx).run_once()) == {}
    world.clock.advance("14d")
    assert counts(Resender(world.ctx).run_once()) == {"resent": 2}


def test_an_unexpected_error_of_a_batch_is_logged_and_each_item_written_alone(
    faulty: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(faulty.ledger, Faulty)

    def broken() -> None:
        raise TypeError("a ledger with a defect")

    at_delivered(faulty, "a", "b")
    faulty.clock.advance("14d")
    faulty.ledger.before("apply", broken)
    assert counts(Resender(faulty.ctx).run_once()) == {"resent": 2}
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "2 due items cannot be written at once" in record.getMessage()
    assert "a ledger with a defect" in caplog.text, "with its traceback"


def test_the_resender_rests_when_an_offer_is_just_as_old_as_its_life_today(
    ledger: Ledger, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is due by the ledger's index, and nothing is written for it before the next
    millisecond."""
    monkeypatch.setattr(resend_module, "PAGE", 1)
    route = Route(ROUTE, key="id", dialect="today")
    route.external("Delivered", resend_after="14d")
    world = World(ledger, clock, route).registered()
    world.add("a", "b", "c")
    resender = Resender(world.ctx)
    world.clock.advance("14d")
    summary = resender.run_once()
    assert (counts(summary), summary.looked, summary.more) == ({}, 3, False)
    assert resender.turn() == 5.0
    world.clock.advance_to(world.clock.now() + 1)
    assert counts(resender.run_once()) == {"resent": 3}


def test_a_lost_worker_is_written_as_a_loss(world: World) -> None:
    world.add("a", "b")
    world.claim("weigh")
    assert counts(Resender(world.ctx).run_once()) == {}
    world.clock.advance("31s")
    assert counts(Resender(world.ctx).run_once()) == {"lost": 2}
    row = world.row("a")
    assert (row.status, row.losses, row.attempts, row.unknown, row.lease) == (
        Status.QUEUED,
        1,
        0,
        True,
        None,
    )
    assert world.claim("weigh")


def test_the_tenth_loss_is_the_end(world: World) -> None:
    world.add("a")
    for losses in range(10):
        assert world.claim("weigh", fragile=losses >= 2)
        world.clock.advance("31s")
        assert counts(Resender(world.ctx).run_once()) == {"lost": 1}
    assert world.row("a").status is Status.MAX_RETRIES_EXCEEDED
    assert world.row("a").error.category == "WORKER_LOST"  # type: ignore[union-attr]


def test_silence_after_handing_over_is_a_counted_try_but_not_while_it_is_paused(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.add("a")
    world.work("weigh", HandedOver(within="2h"))
    pause(world.ctx, ROUTE, by="ops", reason="repairs")
    world.clock.advance("1h")
    assert counts(Resender(world.ctx).run_once()) == {}
    world.clock.advance("1h")
    assert counts(Resender(world.ctx).run_once()) == {}
    resume(world.ctx, ROUTE, by="ops", reason="mended")
    assert counts(Resender(world.ctx).run_once()) == {"no_answer": 1}
    row = world.row("a")
    assert (row.status, row.attempts, row.error.category) == (
        Status.RETRY_SCHEDULED,
        1,
        "NO_ANSWER",
    )  # type: ignore[union-attr]
    [told] = [
        record
        for record in caplog.records
        if record.levelname == "WARNING" and "failed:" in record.getMessage()
    ]
    assert f"{ROUTE}/a: attempt 1 at 'weigh' failed: NO_ANSWER" in told.getMessage()
    assert (told.route, told.key, told.stage, told.attempt) == (ROUTE, "a", "weigh", 1)  # type: ignore[attr-defined]


def test_a_try_that_a_partner_reports_as_failed_is_a_warning_too(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.add("a")
    assert isinstance(
        confirm_outside(world.ctx, ROUTE, "a", "weigh", Retry("the scales are broken"), "partner"),
        Row,
    )
    [told] = [record.getMessage() for record in caplog.records if "failed:" in record.getMessage()]
    assert f"{ROUTE}/a: attempt 1 at 'weigh' failed:" in told
    assert "the scales are broken" in told


def test_overdue_is_told_once_at_any_stage(world: World) -> None:
    world.add("waits")
    world.work("weigh", NotYet(after="10d"))
    world.add("held", "fresh")
    world.clock.advance("2d")
    [held] = world.claim("weigh", want=1)
    world.ledger.extend([held.row], world.clock.now() + 86_400_000, world.clock.now())
    summary = Resender(world.ctx).run_once()
    # "held" was claimed when it was due and overdue at once: its mark was told by that claim.
    assert counts(summary) == {"overdue": 2}
    assert [world.reasons(key).count(Reason.OVERDUE) for key in ("waits", "held", "fresh")] == [
        1,
        1,
        1,
    ]
    assert world.row("waits").status is Status.WAITING
    assert counts(Resender(world.ctx).run_once()) == {}


def test_plain_backlogs_of_handler_stages_are_not_gone_through(world: World) -> None:
    world.add(*(f"k{n}" for n in range(50)))
    assert Resender(world.ctx).run_once().looked == 0


def test_a_kept_confirmation_at_an_external_stage_is_applied(world: World) -> None:
    """It was kept for later; the process that brought the item there died before it followed it
    up."""
    world.add("a")
    confirm_outside(world.ctx, ROUTE, "a", "Delivered", Done({"signed": "by hand"}), by="courier")
    world.work("weigh")
    world.work("stamp")
    assert world.row("a").stage == "Delivered"
    assert counts(Resender(world.ctx).run_once()) == {"confirmed": 1}
    assert world.row("a").status is Status.COMPLETED
    assert world.item("a").results["Delivered"] == {"signed": "by hand"}


def test_an_outcome_left_undecided_is_decided(world: World) -> None:
    world.add("a", "b")
    first, second = world.claim("weigh")
    newer = world.beside("weigh", "label", "stamp", "Delivered")
    apply_route(newer.ctx, newer.plan, mapping={}, by="ops", reason="labels")
    now = world.clock.now()
    changes = [
        undecided(first.row, Done({"grams": 5}), now, by="host:1"),
        undecided(second.row, Retry("scale"), now, by="host:1"),
    ]
    assert world.ledger.apply(changes, now) == [None, None]
    assert counts(Resender(world.ctx).run_once()) == {}, "an outdated process decides nothing"
    assert world.row("a").status is Status.PROCESSING
    assert counts(Resender(newer.ctx).run_once()) == {"decided": 2}
    assert (world.row("a").stage, world.item("a").payload) == ("label", {"grams": 5})
    assert (world.row("b").status, world.row("b").attempts) == (Status.RETRY_SCHEDULED, 1)
    assert world.reasons("a") == [Reason.ACCEPTED, Reason.UNDECIDED, Reason.ADVANCED]


def test_what_follows_an_undecided_outcome_follows_at_once(world: World) -> None:
    world.add("a")
    confirm_outside(world.ctx, ROUTE, "a", "stamp", Done(True), by="clerk")
    [item] = world.claim("weigh")
    now = world.clock.now()
    assert world.ledger.apply([undecided(item.row, Done(), now, by="host:1")], now) == [None]
    assert counts(Resender(world.ctx).run_once()) == {"decided": 1}
    assert world.row("a").stage == "Delivered"


def test_a_paused_external_stage_is_not_offered_again(world: World) -> None:
    at_delivered(world, "a")
    pause(world.ctx, ROUTE, "Delivered", by="ops", reason="the partner moves house")
    world.clock.advance("15d")
    assert counts(Resender(world.ctx).run_once()) == {}
    resume(world.ctx, ROUTE, "Delivered", by="ops", reason="moved")
    assert counts(Resender(world.ctx).run_once()) == {"resent": 1}


def test_two_at_once_send_each_item_once(faulty: World) -> None:
    at_delivered(faulty, "a", "b")
    faulty.clock.advance("14d")
    other = Resender(faulty.beside(seed=7).registered().ctx)
    inner: list[ResendSummary] = []
    faulty.ledger.after(
        "find", lambda: inner.append(other.run_once()), lambda query: query.stages == {"Delivered"}
    )  # type: ignore[attr-defined]
    assert counts(Resender(faulty.ctx).run_once()) == {}
    assert counts(inner[0]) == {"resent": 2}
    assert faulty.reasons("a").count(Reason.RESENT) == 1


def test_bounded_and_goes_on_past_what_it_cannot_move(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resend_module, "PAGE", 2)
    world.add(*(f"k{n}" for n in range(6)))
    world.work("weigh", HandedOver(within="1m"))
    world.add("quiet")
    world.work("weigh")
    world.work("stamp", HandedOver(within="1m"))
    pause(
        world.ctx, ROUTE, "weigh", by="ops", reason="the scale is broken"
    )  # while it holds, no silence is counted there
    world.clock.advance("2m")
    resender = Resender(world.ctx)
    first = resender.run_once(pages=2)
    assert (counts(first), first.looked, first.more) == ({}, 4, True)
    second = resender.run_once(pages=2)
    assert (counts(second), second.more) == ({"no_answer": 1}, False)


def test_reads_content_only_where_it_is_needed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_delivered(world, "a")
    world.clock.advance("14d")
    asked: list[bool] = []
    find = world.ledger.find

    def watched(query: Query) -> QueryPage:
        asked.append(query.with_content)
        return find(query)

    monkeypatch.setattr(world.ledger, "find", watched)

    def no_get(refs: Any) -> Any:
        raise AssertionError("content was read")

    monkeypatch.setattr(world.ledger, "get", no_get)
    assert counts(Resender(world.ctx).run_once()) == {"resent": 1}
    assert not any(asked)


def test_the_summary_reads_well() -> None:
    assert (
        str(ResendSummary(resent=1200, no_answer=2, looked=1300))
        == "1,200 resent, 2 no answer (1,300 checked)"
    )
    assert str(ResendSummary(more=True)) == "nothing to do (0 checked, more remain)"
