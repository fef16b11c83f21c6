"""Observer calls of the engine, and the metrics that the collector makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.events.recording_subscribers import RecordingSubscriber
from tests.engine.world import ROUTE, World

from milepost.core.outcome import Done, Reject, Retry
from milepost.core.routes.route import Route
from milepost.engine import metrics as collecting
from milepost.engine.events.deliver import EventRelay
from milepost.engine.intake import submit, take_in
from milepost.engine.metrics import OTHER, BothObservers, Collector
from milepost.engine.resend import Resender
from milepost.engine.work.execute import run_plain
from milepost.engine.work.settle import settle
from milepost.engine.work.worker import Worker
from milepost.ports.observer import ABOUT
from milepost.ports.runner import JobResult
from milepost.runners.threads import ThreadRunner

PLACE = (ROUTE, "weigh")


@pytest.fixture
def collector(world: World) -> Collector:
    """Counts what happens in the world."""
    found = Collector({ROUTE: ["weigh", "stamp", "Delivered"]})
    world.ctx.observer = found
    return found


def counter(collector: Collector, name: str) -> dict[tuple[str, ...], float]:
    return {labels: n for labels, n in collector.figures().counters.get(name, {}).items() if n}


def test_submits_are_counted_by_answer_and_previews_are_not(
    world: World, collector: Collector
) -> None:
    contents: list[Any] = [{"id": "a"}, {"id": "a"}, {"id": "a", "more": 1}, {"none": 1}]
    take_in(world.ctx, world.plan, contents, dry_run=True)
    assert counter(collector, "submits") == {}
    submit(world.ctx, ROUTE, contents)
    assert counter(collector, "submits") == {
        (ROUTE, answer): 1 for answer in ("new", "known", "changed", "malformed")
    }


def test_each_input_keeps_its_own_correlation_id_whatever_cannot_be_taken_in(world: World) -> None:
    submit(
        world.ctx,
        ROUTE,
        [{"id": "a"}, {"none": 1}, {"id": "b"}],
        correlation_id=["of-a", "of-none", "of-b"],
    )
    assert [world.row(key).correlation_id for key in "ab"] == ["of-a", "of-b"]


def test_many_inputs_keep_their_ids_across_batches(world: World) -> None:
    submit(
        world.ctx,
        ROUTE,
        [{"id": f"k{n}"} for n in range(1_001)],
        correlation_id=[f"id-{n}" for n in range(1_001)],
    )
    assert [world.row(f"k{n}").correlation_id for n in (0, 999, 1_000)] == [
        "id-0",
        "id-999",
        "id-1000",
    ]


def test_outcomes_are_counted_with_the_time_they_took(world: World, collector: Collector) -> None:
    world.add("a", "b", "c")
    world.clock.advance("10m")
    a, b, c = world.claim("weigh")
    settle(
        world.ctx,
        [
            JobResult(a, Done(), 20),
            JobResult(b, Retry("no"), 20),
            JobResult(c, Reject("never"), 40_000),
        ],
    )
    assert counter(collector, "attempts") == {
        (*PLACE, "done"): 1,
        (*PLACE, "retry"): 1,
        (*PLACE, "reject"): 1,
    }
    assert counter(collector, "outcomes") == {("written",): 3}
    figures = collector.figures()
    calls = figures.histograms["attempt_duration"][PLACE]
    assert sum(calls.counts) == 3
    assert calls.total == pytest.approx(40.04)
    assert calls.counts[calls.bounds.index(0.025)] == 2
    # Only what is done has been through the stage.
    through = figures.histograms["stage_duration"][PLACE]
    assert (sum(through.counts), through.total) == (1, 600.0)


def test_an_outcome_that_comes_too_late_is_counted_as_refused(
    world: World, collector: Collector
) -> None:
    world.add("a")
    [late] = world.claim("weigh")
    world.clock.advance("31s")
    world.claim("weigh", holder="host:2")
    settle(world.ctx, [JobResult(late, Done(), 1)])
    assert counter(collector, "outcomes") == {("refused",): 1}


def test_a_worker_tells_what_it_claims_and_which_leases_were_lost(
    world: World, collector: Collector
) -> None:
    world.add("a", "b")
    assert len(world.claim("weigh", want=1)) == 1
    world.clock.advance("31s")
    Worker(world.ctx, ThreadRunner(), "host:2").turn()
    assert counter(collector, "claims") == {PLACE: 2}
    assert counter(collector, "leases_lost") == {PLACE: 1}


def test_the_resender_tells_what_it_saw_to(world: World, collector: Collector) -> None:
    world.add("a", "b")
    world.work("weigh", want=1)
    world.claim("weigh", want=1)
    world.clock.advance("31s")
    Resender(world.ctx).run_once()
    assert counter(collector, "resender") == {(*PLACE, "lost"): 1}
    assert counter(collector, "leases_lost") == {PLACE: 1}


def test_a_relay_tells_what_a_subscriber_took_and_what_not(
    world: World, collector: Collector
) -> None:
    world.add("a", "b", "c")
    ear = RecordingSubscriber()
    ear.takes = lambda envelope: ValueError("not this one") if envelope["subject"] == "b" else None
    EventRelay(world.ctx, ear, "host:1").run_once()
    assert counter(collector, "event_deliveries") == {("ear", "delivered"): 2, ("ear", "failed"): 1}


def test_names_that_nobody_knows_are_one_label(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector({"parcels": ["weigh"]})
    for number in range(50):
        collector.claimed(f"route-{number}", "weigh", 1, 0)
        collector.claimed("parcels", f"stage-{number}", 1, 0)
        collector.submitted("parcels", {f"answer-{number}": 1})
        collector.called(f"METHOD-{number}", "/x", 405, 0.1)
    assert counter(collector, "claims") == {(OTHER, OTHER): 50, ("parcels", OTHER): 50}
    assert counter(collector, "submits") == {("parcels", OTHER): 50}
    assert counter(collector, "http_requests") == {(OTHER, "/x", "405"): 50}
    monkeypatch.setattr(collecting, "MOST_SERIES", 4)
    for number in range(50):
        collector.delivered(f"subscriber-{number}", 1, 0)
    assert len(collector.figures().counters["event_deliveries"]) == 5
    assert counter(collector, "event_deliveries")[OTHER, OTHER] == 48


def test_figures_once_taken_stand_still(world: World, collector: Collector) -> None:
    submit(world.ctx, ROUTE, [{"id": "a"}])
    before = collector.figures()
    submit(world.ctx, ROUTE, [{"id": "b"}])
    assert before.counters["submits"] == {(ROUTE, "new"): 1}
    assert collector.figures().counters["submits"] == {(ROUTE, "new"): 2}


def test_two_observers_hear_the_same(world: World, collector: Collector) -> None:
    other = Collector({ROUTE: ["weigh"]})
    world.ctx.observer = BothObservers(collector, other)
    submit(world.ctx, ROUTE, [{"id": "a"}])
    [item] = world.claim("weigh")
    settle(world.ctx, [JobResult(item, Done(), 5)])
    world.ctx.observer.claimed(ROUTE, "weigh", 1, 0)
    world.ctx.observer.resent(ROUTE, [("weigh", "lost")])
    world.ctx.observer.delivered("ear", 1, 0)
    world.ctx.observer.called("GET", "/x", 200, 0.1)
    assert collector.figures() == other.figures()
    assert len(other.figures().counters) == 8


def test_a_handler_knows_which_item_its_log_lines_are_about(world: World) -> None:
    seen: list[Any] = []

    def weigh(items: Any) -> Done:
        seen.append(ABOUT.get())
        return Done()

    route = Route("other", key="id")
    route.stage("weigh")(weigh)
    world.add("a")
    run_plain(route.stages[0], world.claim("weigh"), lambda: 0)
    assert [item.key for item in seen] == ["a"]
