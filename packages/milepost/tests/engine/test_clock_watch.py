"""After the machine's clock was ahead: what it dated in the future is worked on, counted, named,
and dated anew."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engine.world import World, parcels

import milepost as mp
from milepost.composition import open_context
from milepost.core.outcome import HandedOver, Retry
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.redate import redate_rows
from milepost.engine.acts.verbs import CancelVerb, RetryVerb
from milepost.engine.clock_watch import ClockWatch, make_due
from milepost.engine.health.doctor import doctor
from milepost.engine.views.items import status
from milepost.engine.views.queries import statuses_of
from milepost.engine.views.story import story
from milepost.ports.clock import ClockState
from milepost.ports.documents import PROCESS, Process
from milepost.ports.items import Query
from milepost.ports.ledger import Ledger
from milepost_testing.clock import VirtualClock

ITEMS = 300
DAY = 86_400_000

weighing = mp.Route("parcels", key="id")


@weighing.stage("weigh")
def weigh(item: mp.Item) -> mp.Outcome:
    return mp.Done()


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the machine's clock ahead of the true time by so many milliseconds."""
    true_time = time.time_ns
    offset = 0

    def set_ahead(ms: int) -> None:
        nonlocal offset
        offset = ms * 1_000_000

    monkeypatch.setattr(time, "time_ns", lambda: true_time() + offset)
    return set_ahead


@pytest.fixture
def world(ledger: Ledger, clock: VirtualClock) -> World:
    return World(ledger, clock, parcels()).registered()


def findings(world: World, about: str) -> list[str]:
    return [finding.what for finding in doctor(world.ctx).findings if finding.about == about]


def test_items_submitted_three_days_ahead_complete_at_the_true_time(
    tmp_path: Path, ahead: Callable[[int], None]
) -> None:
    url = f"sqlite:///{tmp_path}/m.db"
    ahead(3 * DAY)
    with mp.open(url, [weighing]) as post:
        post.submit("parcels", *({"id": str(number)} for number in range(ITEMS)))
    ahead(0)
    with mp.open(url, [weighing]) as post:
        post.run(until_idle=0)
        assert status(post.context, "parcels")["routes"]["parcels"]["statuses"] == {
            "COMPLETED": ITEMS
        }


def test_a_process_whose_clock_is_set_back_goes_on_and_its_later_lines_have_the_true_time(
    tmp_path: Path, ahead: Callable[[int], None]
) -> None:
    url = f"sqlite:///{tmp_path}/m.db"
    ahead(3 * DAY)
    with mp.open(url, [weighing]) as post:
        post.submit("parcels", {"id": "before"})
        ahead(0)
        post.submit("parcels", {"id": "after"})
        post.run(until_idle=0)
        assert status(post.context, "parcels")["routes"]["parcels"]["statuses"] == {"COMPLETED": 2}
        for key in ("before", "after"):
            [line] = post.context.ledger.history("parcels", key)[-1:]
            assert abs(line.line.at - time.time_ns() // 1_000_000) < 60_000


def test_a_line_is_not_dated_before_the_newest_one_that_is_minutes_ahead(
    tmp_path: Path, ahead: Callable[[int], None]
) -> None:
    """Also in a process that was open before that line was written."""
    url = f"sqlite:///{tmp_path}/m.db"
    early = open_context(url, [weighing])
    watch = ClockWatch(early)
    ahead(240_000)
    with mp.open(url, [weighing]) as post:
        post.submit("parcels", {"id": "a"})
    ahead(0)
    watch.turn()
    assert early.clock.now() >= early.ledger.feed(0, 10)[-1].line.at
    early.ledger.close()


def test_rows_from_the_future_are_made_due_and_a_bulk_act_counts_those_it_leaves_out(
    world: World,
) -> None:
    world.clock.advance("3d")
    world.add("a", "b", "c")
    world.clock.set_back("3d")
    assert world.claim("weigh") == []
    ClockWatch(world.ctx).turn()
    assert findings(world, "clock")[1:] == [
        "3 items of parcels are dated in the future: a clock was ahead when they were written; live ones are due now, but bulk acts leave"
        " them all out"
    ]
    report = act(
        world.ctx,
        select(world.ctx, "parcels", query=Query(route="parcels", stages=frozenset({"weigh"}))),
        CancelVerb(),
        by="ops",
        reason="why",
    )
    assert (
        report.matched,
        report.done,
        report.left_out,
        report.from_future,
        report.done_nothing,
    ) == (0, 0, 3, 3, True)
    [first] = world.claim("weigh", want=1)
    world.settle([first], mp.Done())
    assert len(world.claim("weigh")) == 2


def test_the_story_of_an_item_from_the_future_does_not_speak_of_a_message(world: World) -> None:
    world.clock.advance("3d")
    world.add("a")
    world.clock.set_back("3d")
    found = story(world.ctx, "parcels", "a")
    assert found is not None
    assert found.next[0] == (
        "It was dated in the future by a clock that was ahead; the next process that works on the ledger makes it due now."
    )


def test_redate_is_one_act_on_record_and_bulk_acts_find_the_items_again(world: World) -> None:
    world.clock.advance("3d")
    world.add("a", "b")
    world.work("weigh", mp.Reject("no"), want=1)
    world.clock.set_back("3d")
    preview = redate_rows(world.ctx, "parcels", by="", reason="", dry_run=True)
    assert (preview.matched, preview.done) == (2, 2)
    report = redate_rows(world.ctx, "parcels", by="ops", reason="the clock was ahead")
    assert (report.matched, report.done) == (2, 2)
    assert findings(world, "clock")[1:] == []
    world.clock.advance("1s")
    retried = act(
        world.ctx,
        select(
            world.ctx, "parcels", query=Query(route="parcels", statuses=statuses_of(["failed"]))
        ),
        RetryVerb(),
        by="ops",
        reason="why",
    )
    assert (retried.done, retried.left_out) == (1, 0)
    again = redate_rows(world.ctx, "parcels", by="ops", reason="the clock was ahead")
    assert again.matched == 0


def test_an_act_counts_items_that_change_while_it_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.engine.act_log.BATCH", 1)
    world.add("a")
    world.clock.advance("1s")
    world.add("b")
    world.clock.advance("1s")

    def change_b(done: int, whole: int | None) -> None:
        world.clock.advance("1s")
        for item in world.claim("weigh"):
            world.settle([item], Retry("busy"))

    report = act(
        world.ctx,
        select(world.ctx, "parcels", query=Query(route="parcels")),
        CancelVerb(),
        by="ops",
        reason="why",
        on_progress=change_b,
    )
    assert (
        report.matched,
        report.done,
        report.left_out,
        report.from_future,
        report.done_nothing,
    ) == (1, 1, 1, 0, False)


def test_work_that_was_handed_over_is_not_counted_as_silent_because_of_the_clock(
    world: World,
) -> None:
    world.clock.advance("3d")
    world.add("a")
    world.work("weigh", HandedOver(within="2h"))
    world.clock.set_back("3d")
    assert make_due(world.ctx) == 1
    assert world.row("a").due_at == world.clock.now() + 2 * 3_600_000
    assert world.row("a").attempts == 0


def test_a_process_at_work_keeps_its_lease(world: World) -> None:
    """Its death would be proved by other means; it extends its leases by the clock that was set
    right."""
    world.clock.advance("3d")
    world.add("a")
    world.claim("weigh", holder="host:1")
    world.ledger.write(
        PROCESS, "host:1", Process("host:1", "host", 1, world.clock.now(), world.clock.now())
    )
    world.clock.set_back("3d")
    assert make_due(world.ctx) == 0
    world.ledger.write(PROCESS, "host:1", None)
    assert make_due(world.ctx) == 1


def test_the_watch_searches_once_for_one_newest_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    watch = ClockWatch(world.ctx)
    watch.turn()
    world.clock.advance("3d")
    world.add("a")
    world.clock.set_back("3d")
    with caplog.at_level(logging.WARNING, "milepost"):
        watch.turn()
        watch.turn()
    assert [record.getMessage() for record in caplog.records] == [
        "1 item is dated more than 5 min in the future, by a clock that was ahead: due now; 'milepost redate' dates them as of now"
    ]


def test_doctor_names_the_clock_of_each_process_that_is_off_or_in_doubt(world: World) -> None:
    now = world.clock.now()
    for holder, clock in (
        ("h:1", ClockState("the clock of AWS's answers", 300_000, now)),
        ("h:2", ClockState("the clock of AWS's answers", 0, now, "it has had no answer for 75 s")),
        ("h:3", ClockState("the clock of AWS's answers", 0, now)),
    ):
        world.ledger.write(PROCESS, holder, Process(holder, "host", 1, now, now, clock=clock))
    said = findings(world, "clock")
    assert said[0] == "this process uses the program's own clock"
    assert len(said) == 3
    assert (
        "h:1 uses the clock of AWS's answers; its machine's clock is 5 min behind, since now"
        in said[1]
    )
    assert said[2].startswith(
        "h:2 is running, but claims and resends nothing: it is not sure of the time of the clock of AWS's answers"
    )


def test_doctor_does_not_say_that_no_process_is_running_where_a_clock_may_be_behind(
    world: World,
) -> None:
    world.add("a")
    now = world.clock.now()
    world.ledger.write(
        PROCESS,
        "h:1",
        Process("h:1", "host", 1, now - 400_000, now - 300_000, {"worker": now - 300_000}),
    )
    said = " ".join(findings(world, "process"))
    assert "no process is running" not in said
    assert "it is not known whether h:1 is running: last heartbeat 5 min ago" in said
    world.ledger.write(
        PROCESS, "h:1", Process("h:1", "host", 1, now - 400_000, now - 300_000, stopped=True)
    )
    assert "no process is running" in " ".join(findings(world, "process"))


def test_a_heartbeat_that_is_ahead_is_named(world: World) -> None:
    now = world.clock.now()
    world.ledger.write(
        PROCESS, "h:1", Process("h:1", "host", 1, now, now + 3 * DAY, {"worker": now + 3 * DAY})
    )
    assert any(
        "the last heartbeat of h:1 is dated 3 d ahead" in said for said in findings(world, "clock")
    )
