"""Pace and estimated end: pure functions of counters and snapshots."""

from __future__ import annotations

import pytest

from milepost.core.counters import HOUR
from milepost.core.status import Status
from milepost.core.values.durations import iso
from milepost.http.dashboard.charts import Bar, bars, brief, hours_chart, minutes_chart, nice_top
from milepost.http.state.pace import (
    EVERY,
    HOURS,
    MINUTE,
    Pace,
    PausedPart,
    Sample,
    Samples,
    UnwatchedGap,
    by_hour,
    by_minute,
    forecast,
    pace,
)
from milepost.ports.feed import Count

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


def test_what_ended_counts_for_the_minute_in_which_that_was_seen() -> None:
    seen = [Sample(NOW - 90_000, 100, 5), Sample(NOW - 30_000, 107, 5), Sample(NOW, 107, 6)]
    found, gaps = by_minute(seen, NOW)
    assert found[-3:] == [(0, 0), (7, 0), (0, 1)]
    assert (found[:-3], gaps) == ([None] * 57, [])


def test_what_ended_while_nobody_watched_is_one_number_for_that_while() -> None:
    seen = [Sample(NOW - 40 * MINUTE, 0, 0), Sample(NOW - 39 * MINUTE, 4, 0), Sample(NOW - 9 * MINUTE, 7, 1), Sample(NOW, 7, 1)]
    found, gaps = by_minute(seen, NOW)
    assert gaps == [UnwatchedGap(NOW - 39 * MINUTE, NOW - 9 * MINUTE, 3, 1)]
    assert [place for place, ended in enumerate(found) if ended is not None] == [19, 20, 50, 59]
    assert found[20] == (4, 0)
    chart = minutes_chart(found, gaps, seen[0].at, NOW)
    assert chart.rows == [(NOW - 39 * MINUTE, 3, 1, NOW - 9 * MINUTE), (NOW - 39 * MINUTE, 4, 0, None)]
    assert chart.unknown
    shaded = [place for place, column in enumerate(chart.picture.split('class="hit')[1:]) if column.startswith(" unknown")]
    assert shaded == list(range(21, 50)), "those of the gap, but for its first minute, which has a bar"
    assert "07:50 UTC: no data by minute; 3 completed, 1 failed from 07:41 to 08:11" in chart.picture
    assert "08:15 UTC: no data by minute<" in chart.picture
    assert "by minute: 4 completed in all; and 3 completed, 1 failed without data by minute" in chart.picture


def test_a_while_in_which_nothing_ended_is_not_shaded() -> None:
    seen = [Sample(NOW - 39 * MINUTE, 4, 0), Sample(NOW - 9 * MINUTE, 4, 0), Sample(NOW, 4, 0)]
    chart = minutes_chart(*by_minute(seen, NOW), seen[0].at, NOW)
    assert not chart.unknown
    assert "unknown" not in chart.picture


def test_what_was_retried_or_pruned_is_no_step_back() -> None:
    found, gaps = by_minute([Sample(NOW - MINUTE, 9, 9), Sample(NOW, 4, 0)], NOW)
    assert (found[-1], gaps) == ((0, 0), [])


def test_the_pace_is_what_was_seen_lately_before_it_is_what_the_hours_say() -> None:
    hours = [*QUIET[:-2], (40, 0), (10, 0)]
    assert pace(hours, [Sample(NOW, 50, 0)], NOW) == Pace(50 * 60 / 80, "the last 80 min")
    watched = [Sample(NOW - 40 * MINUTE, 0, 0), Sample(NOW - 10 * MINUTE, 40, 0), Sample(NOW, 49, 1)]
    assert pace(hours, watched, NOW) == Pace(60.0, "the last 10 min")
    assert pace(QUIET, [Sample(NOW, 50, 0)], NOW) is None


def test_the_hours_are_not_counted_from_before_there_was_anything() -> None:
    hours = [*QUIET[:-1], (28, 2)]
    # The hour has gone on for 20 minutes; the route is 6 minutes old.
    assert pace(hours, [Sample(NOW, 28, 2)], NOW, NOW - 6 * MINUTE) == Pace(300.0, "the last 6 min")
    # At the first look all of them were still to come; at the second some had ended.
    watched = [Sample(NOW - 100_000, 5, 0), Sample(NOW - 90_000, 9, 0), Sample(NOW, 33, 2)]
    assert pace(hours, watched, NOW) == Pace(30 * HOUR / 100_000, "the last 100 s")
    # Brought along from another ledger: they ended before there was a route here.
    assert pace([*QUIET[:-2], (30, 0), (0, 0)], [Sample(NOW, 30, 0)], NOW, NOW - MINUTE) == Pace(30 * 60 / 80, "the last 80 min")


def test_a_forecast_says_a_span_a_time_and_what_it_is_based_on() -> None:
    told = forecast(90, Pace(30.0, "the last 10 min"), [], NOW)
    assert told.text == "90 are in progress. At the pace of the last 10 min (30 an hour) they will be completed in about 3 h"
    assert told.at == iso(NOW + 3 * HOUR)


def test_what_is_through_in_a_moment_is_not_told_to_the_millisecond() -> None:
    told = forecast(1, Pace(3_600.0, "the last 10 min"), [], NOW)
    assert told.text == "1 is in progress. At the pace of the last 10 min (3,600 an hour) it will be completed in less than a minute."
    assert told.at is None


def test_where_all_that_ended_has_failed_nothing_is_foretold() -> None:
    hours = [*QUIET[:-1], (0, 9)]
    found = pace(hours, [Sample(NOW - 5 * MINUTE, 0, 0), Sample(NOW, 0, 9)], NOW)
    assert found is not None
    told = forecast(20, found, [], NOW)
    assert told.text == "All items that ended in the last 5 min have failed, so there is no forecast for the 20 in progress."
    assert told.at is None
    assert pace(hours, [], NOW).through is False  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("live", "stuck", "told"),
    [
        (0, [PausedPart("at weigh", 0)], "No items are in progress."),
        (5, [PausedPart("at weigh", 5)], "5 wait at weigh, which is paused. Nothing new is started until that is resumed."),
        (5, [PausedPart("at weigh", 1)], "1 waits at weigh, which is paused. Nothing has ended in the last 6 hours"),
        (5, [], "Nothing has ended in the last 6 hours, so there is no forecast."),
    ],
)
def test_where_nothing_moves_it_says_why(live: int, stuck: list[PausedPart], told: str) -> None:
    found = forecast(live, None, stuck, NOW)
    assert found.text.startswith(told)
    assert found.at is None


def test_what_is_held_up_is_not_in_the_forecast() -> None:
    steady = Pace(30.0, "the last 10 min")
    told = forecast(100, steady, [PausedPart("at weigh", 10)], NOW, behind=30)
    assert told.text == (
        "10 wait at weigh, which is paused. 30 more come to it. The other 60 are in progress."
        " At the pace of the last 10 min (30 an hour) they will be completed in about 2 h"
    )
    assert told.at == iso(NOW + 2 * HOUR)
    none = forecast(30, steady, [PausedPart("at weigh", 0)], NOW, behind=30)
    assert none.text == "None waits at weigh, which is paused. 30 more come to it. Nothing is completed until that is resumed."
    lane = forecast(91, steady, [PausedPart("in lane north of weigh", 1, more=True)], NOW)
    assert lane.text == (
        "1 waits in lane north of weigh, which is paused. The other 90 are in progress. At the pace of the last 10 min (30 an hour),"
        " not counting items that still reach lane north of weigh, they will be completed in about 3 h"
    )
    unknown = forecast(90, steady, [PausedPart("in lane north of weigh", None, more=True)], NOW)
    assert unknown.text == (
        "90 are in progress. At the pace of the last 10 min (30 an hour), not counting items that wait for the pause of lane north of"
        " weigh, they will be completed at the latest in about 3 h"
    )


def test_an_axis_ends_with_a_round_number() -> None:
    assert [nice_top(n) for n in (0, 0.2, 1, 3, 12, 51, 1_234_567)] == [1, 1, 1, 5, 20, 100, 2_000_000]
    assert [brief(n) for n in (0, 950, 12_000, 3_400_000)] == ["0", "950", "12k", "3.4M"]


def test_no_word_below_the_bars_is_cut_off_at_an_edge() -> None:
    made = bars([Bar("", (), f"at {n}") for n in range(60)], "told", "UTC")
    assert ">UTC</text>" in made
    assert 'x="0.00%" text-anchor="start" y="145">at 0<' in made
    assert 'x="50.83%" text-anchor="middle" y="145">at 30<' in made
    assert 'x="100.00%" text-anchor="end" y="145">at 59<' in made


def test_hours_and_days_are_said_to_be_those_of_utc() -> None:
    chart = hours_chart([*QUIET[:-1], (3, 0)], NOW)
    assert ">UTC</text>" in chart.picture
    assert "08:00 to 09:00 UTC: 3 completed" in chart.picture
    assert ("today" in chart.picture, "yesterday" in chart.picture) == (False, False)


def test_what_is_said_of_a_bar_stays_text() -> None:
    made = bars([Bar("<b>", (("done", 1.0),), "<i>")], 'a "word"')
    assert "<b>" not in made
    assert "<i>" not in made
    assert "a &#34;word&#34;" in made
