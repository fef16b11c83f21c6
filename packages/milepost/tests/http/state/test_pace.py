"""Ended items by hour and by minute: pure functions of counters and snapshots."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from milepost.core.counters import HOUR
from milepost.core.status import Status
from milepost.http.dashboard.charts import Bar, bars, brief, hours_chart, minutes_chart, nice_top
from milepost.http.state.pace import (
    EVERY,
    HOURS,
    MINUTE,
    Sample,
    Samples,
    UnwatchedGap,
    by_hour,
    by_minute,
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
    seen = [
        Sample(NOW - 40 * MINUTE, 0, 0),
        Sample(NOW - 39 * MINUTE, 4, 0),
        Sample(NOW - 9 * MINUTE, 7, 1),
        Sample(NOW, 7, 1),
    ]
    found, gaps = by_minute(seen, NOW)
    assert gaps == [UnwatchedGap(NOW - 39 * MINUTE, NOW - 9 * MINUTE, 3, 1)]
    assert [place for place, ended in enumerate(found) if ended is not None] == [19, 20, 50, 59]
    assert found[20] == (4, 0)
    chart = minutes_chart(found, gaps, seen[0].at, NOW)
    assert chart.rows == [
        (NOW - 39 * MINUTE, 3, 1, NOW - 9 * MINUTE),
        (NOW - 39 * MINUTE, 4, 0, None),
    ]
    assert chart.unknown
    shaded = [
        place
        for place, column in enumerate(chart.picture.split('class="hit')[1:])
        if column.startswith(" unknown")
    ]
    assert shaded == list(range(21, 50)), (
        "those of the gap, but for its first minute, which has a bar"
    )
    assert (
        "07:50 UTC: no data by minute; 3 completed, 1 failed from 07:41 to 08:11" in chart.picture
    )
    assert "08:15 UTC: no data by minute<" in chart.picture
    assert (
        "by minute: 4 completed in all; and 3 completed, 1 failed without data by minute"
        in chart.picture
    )


def test_a_while_in_which_nothing_ended_is_not_shaded() -> None:
    seen = [Sample(NOW - 39 * MINUTE, 4, 0), Sample(NOW - 9 * MINUTE, 4, 0), Sample(NOW, 4, 0)]
    chart = minutes_chart(*by_minute(seen, NOW), seen[0].at, NOW)
    assert not chart.unknown
    assert "unknown" not in chart.picture


def test_what_was_retried_or_pruned_is_no_step_back() -> None:
    found, gaps = by_minute([Sample(NOW - MINUTE, 9, 9), Sample(NOW, 4, 0)], NOW)
    assert (found[-1], gaps) == ((0, 0), [])


def test_an_axis_ends_with_a_round_number() -> None:
    assert [nice_top(n) for n in (0, 0.2, 1, 3, 12, 51, 1_234_567)] == [
        1,
        1,
        1,
        5,
        20,
        100,
        2_000_000,
    ]
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


def test_charts_are_in_the_time_zone_of_the_viewer() -> None:
    chart = hours_chart([*QUIET[:-1], (3, 0)], NOW, ZoneInfo("America/New_York"))
    assert ">EST</text>" in chart.picture
    assert "03:00 to 04:00 EST: 3 completed" in chart.picture
    india = hours_chart([*QUIET[:-1], (3, 0)], NOW, ZoneInfo("Asia/Kolkata"))
    assert "13:30 to 14:30 IST: 3 completed" in india.picture
    found, gaps = by_minute([Sample(NOW - MINUTE, 0, 0), Sample(NOW, 4, 0)], NOW)
    minutes = minutes_chart(found, gaps, NOW, NOW, ZoneInfo("America/New_York"))
    assert "03:20 EST: 4 completed" in minutes.picture
    assert "UTC" not in minutes.picture


def test_what_is_said_of_a_bar_stays_text() -> None:
    made = bars([Bar("<b>", (("done", 1.0),), "<i>")], 'a "word"')
    assert "<b>" not in made
    assert "<i>" not in made
    assert "a &#34;word&#34;" in made
