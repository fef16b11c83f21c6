"""How fast items end and when they will be through: pure functions of what was counted and seen."""

from __future__ import annotations

import pytest

from milepost.core.consequences import HOUR
from milepost.core.durations import iso
from milepost.core.status import Status
from milepost.http.dashboard.charts import Bar, bars, brief, nice_top
from milepost.http.dashboard.pace import EVERY, HOURS, MINUTE, Pace, Sample, Samples, by_hour, by_minute, forecast, pace
from milepost.ports.ledger import Count

NOW = 473_000 * HOUR + 20 * MINUTE
QUIET = [(0, 0)] * HOURS


def test_what_ended_is_found_in_its_hour() -> None:
    counts = [
        Count("parcels", "deliver", Status.COMPLETED, NOW // HOUR, 7),
        Count("parcels", "weigh", Status.REJECTED, NOW // HOUR - 1, 2),
        Count("parcels", "weigh", Status.QUEUED, NOW // HOUR, 9),
        Count("parcels", "deliver", Status.COMPLETED, NOW // HOUR - HOURS, 5),
    ]
    assert by_hour(counts, NOW)[-2:] == [(0, 2), (7, 0)]
    assert sum(done + failed for done, failed in by_hour(counts, NOW)) == 9


def test_samples_are_bounded_however_often_somebody_looks() -> None:
    samples = Samples()
    for second in range(2 * 3600):
        found = samples.seen("parcels", Sample(NOW + second * 1000, second, 0))
    assert len(found) <= HOUR // EVERY + 3
    assert (found[-1].done, found[0].at) == (2 * 3600 - 1, NOW + HOUR - EVERY)
    assert samples.seen("letters", Sample(NOW, 1, 0)) == [Sample(NOW, 1, 0)]


def test_a_clock_that_is_set_back_begins_anew() -> None:
    samples = Samples()
    samples.seen("parcels", Sample(NOW, 10, 0))
    assert samples.seen("parcels", Sample(NOW - HOUR, 3, 0)) == [Sample(NOW - HOUR, 3, 0)]


def test_what_ended_between_two_looks_is_spread_evenly_and_what_nobody_saw_is_unknown() -> None:
    seen = [Sample(NOW - 3 * MINUTE, 100, 5), Sample(NOW - MINUTE, 120, 5), Sample(NOW, 120, 6)]
    found = by_minute(seen, NOW)
    assert found[-4:] == [(10.0, 0.0), (10.0, 0.0), (0.0, 1.0), (0.0, 0.0)]
    assert found[:-4] == [None] * 56


def test_what_was_retried_or_pruned_is_no_step_back() -> None:
    assert by_minute([Sample(NOW - MINUTE, 9, 9), Sample(NOW, 4, 0)], NOW)[-2] == (0.0, 0.0)


def test_the_pace_is_what_was_seen_lately_before_it_is_what_the_hours_say() -> None:
    hours = [*QUIET[:-2], (40, 0), (10, 0)]
    assert pace(hours, [Sample(NOW, 50, 0)], NOW) == Pace(50 * 60 / 80, "the last 80 min")
    watched = [Sample(NOW - 40 * MINUTE, 0, 0), Sample(NOW - 10 * MINUTE, 40, 0), Sample(NOW, 49, 1)]
    assert pace(hours, watched, NOW) == Pace(60.0, "the last 10 min")
    assert pace(QUIET, [Sample(NOW, 50, 0)], NOW) is None


def test_a_forecast_says_a_span_a_time_and_what_it_is_based_on() -> None:
    told = forecast(90, Pace(30.0, "the last 10 min"), [], NOW)
    assert told.told == "90 are on the way. At the pace of the last 10 min (30 an hour) they are through in about 3 h"
    assert told.at == iso(NOW + 3 * HOUR)


def test_what_is_through_in_a_moment_is_not_told_to_the_millisecond() -> None:
    told = forecast(1, Pace(3_600.0, "the last 10 min"), [], NOW)
    assert told.told == "1 is on the way. At the pace of the last 10 min (3,600 an hour) it is through in less than a minute."
    assert told.at is None


def test_where_all_that_ended_has_failed_nothing_is_foretold() -> None:
    hours = [*QUIET[:-1], (0, 9)]
    found = pace(hours, [Sample(NOW - 5 * MINUTE, 0, 0), Sample(NOW, 0, 9)], NOW)
    assert found is not None
    told = forecast(20, found, [], NOW)
    assert told.told == "Whatever ended in the last 5 min has failed, so nobody can say when the 20 on the way will be through."
    assert told.at is None
    assert pace(hours, [], NOW).through is False  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("live", "stuck", "told"),
    [
        (0, [("weigh", 0)], "Nothing is on the way."),
        (5, [("weigh", 5)], "5 wait at weigh, which is paused. Nothing new is begun until that is resumed."),
        (5, [("weigh", 1)], "1 waits at weigh, which is paused. Nothing has ended in the last 6 hours"),
        (5, [], "Nothing has ended in the last 6 hours, so nobody can say when they will be through."),
    ],
)
def test_where_nothing_moves_it_says_why(live: int, stuck: list[tuple[str, int]], told: str) -> None:
    found = forecast(live, None, stuck, NOW)
    assert found.told.startswith(told)
    assert found.at is None


def test_an_axis_ends_with_a_round_number() -> None:
    assert [nice_top(n) for n in (0, 0.2, 1, 3, 12, 51, 1_234_567)] == [1, 1, 1, 5, 20, 100, 2_000_000]
    assert [brief(n) for n in (0, 950, 12_000, 3_400_000)] == ["0", "950", "12k", "3.4M"]


def test_what_is_said_of_a_bar_stays_text() -> None:
    made = bars([Bar("<b>", (("done", 1.0),), "<i>")], 'a "word"')
    assert "<b>" not in made
    assert "<i>" not in made
    assert "a &#34;word&#34;" in made
