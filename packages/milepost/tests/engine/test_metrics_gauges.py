"""Gauges read from the ledger, and their text format."""

from __future__ import annotations

from tests.engine.events.recording_subscribers import RecordingSubscriber
from tests.engine.world import ROUTE, World
from tests.http.api.exposition_reader import Exposition

from milepost.core.errors import EventRefused
from milepost.core.values.histogram import Histogram
from milepost.engine.events.deliver import EventRelay
from milepost.engine.metrics import Family, exposition, ledger_families


def read(world: World) -> Exposition:
    return Exposition(exposition(ledger_families(world.ctx)))


def test_a_subscriber_that_lags_is_seen_in_lines_and_seconds(world: World) -> None:
    ear = RecordingSubscriber()
    world.add("a")
    EventRelay(world.ctx, ear, "host:1").run_once()
    found = read(world)
    assert found.value("milepost_subscriber_lag_lines", subscriber="ear") == 0
    assert found.value("milepost_subscriber_lag_seconds", subscriber="ear") == 0
    world.add("b")
    world.clock.advance("2m")
    world.add("c")
    world.clock.advance("1m")
    found = read(world)
    assert found.value("milepost_subscriber_lag_lines", subscriber="ear") == 2
    assert found.value("milepost_subscriber_lag_seconds", subscriber="ear") == 180


def test_what_a_subscriber_refused_is_counted(world: World) -> None:
    ear = RecordingSubscriber()
    ear.takes = lambda envelope: EventRefused("not for me") if envelope["subject"] == "a" else None
    world.add("a", "b")
    EventRelay(world.ctx, ear, "host:1").run_once()
    assert read(world).value("milepost_subscriber_parked", subscriber="ear") == 1


def test_the_oldest_item_of_each_stage_has_its_age(world: World) -> None:
    world.add("a")
    world.clock.advance("10m")
    world.add("b")
    world.work("weigh", want=1)
    found = read(world)
    assert found.value("milepost_stage_oldest_seconds", route=ROUTE, stage="weigh") == 0
    assert found.value("milepost_items", route=ROUTE, stage="stamp", status="QUEUED") == 1
    world.clock.advance("3h")
    assert read(world).value("milepost_stage_oldest_seconds", route=ROUTE, stage="stamp") >= 7_200


def test_odd_names_are_written_so_that_they_can_be_read_again() -> None:
    odd = 'a"b\\c\nd,e="f"}'
    family = Family("x", "gauge", "back\\slash,\nand a new line", ("who",), {(odd,): 0.5, ("",): 3})
    for openmetrics in (False, True):
        found = Exposition(exposition([family], openmetrics=openmetrics), openmetrics=openmetrics)
        assert (found.value("x", who=odd), found.value("x", who="")) == (0.5, 3)


def test_a_family_without_samples_is_left_out() -> None:
    assert exposition([Family("x", "counter", "nothing yet")]) == ""


def test_a_histogram_counts_what_is_at_most_each_bound() -> None:
    histogram = Histogram.empty((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.add(value)
    found = Exposition(exposition([Family("x", "histogram", "times", (), {(): histogram})]))
    assert [found.value("x_bucket", le=bound) for bound in ("0.1", "1.0", "+Inf")] == [2, 3, 4]
    assert (found.value("x_sum"), found.value("x_count")) == (7.65, 4)
