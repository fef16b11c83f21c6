"""Durations and rates as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from time import tzset
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.errors import UsageError
from milepost.core.values.durations import (
    LONGEST,
    UNSCHEDULED,
    full_time,
    iso,
    local_zone,
    moment_ms,
    rate_per_second,
    retry_time,
    short_span,
    span_ms,
    zone_of,
)


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        (0, 0), (1, 1000), (0.5, 500), ("30s", 30_000), ("10m", 600_000), ("6h", 21_600_000), ("14d", 1_209_600_000), ("2w", 1_209_600_000),
        ("1h30m", 5_400_000), ("1h 30m", 5_400_000), ("250ms", 250), ("1.5h", 5_400_000), ("5", 5000), (" 10M ", 600_000),
        (timedelta(minutes=2), 120_000),
    ],
)  # fmt: skip
def test_spans_are_read_as_people_write_them(written: object, ms: int) -> None:
    assert span_ms(written, "x") == ms  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "soon",
        "10 minutes",
        "-5s",
        -1,
        "1h-30m",
        None,
        True,
        [],
        float("nan"),
        float("inf"),
        4e12,
        "5x",
    ],
)
def test_a_wrong_span_is_refused_with_its_subject_and_what_would_be_right(wrong: object) -> None:
    with pytest.raises(UsageError, match="timeout") as caught:
        span_ms(wrong, "timeout")  # type: ignore[arg-type]
    assert "'10m'" in str(caught.value)


@given(st.integers(0, LONGEST // 1000))
def test_whole_seconds_are_exact(seconds: int) -> None:
    assert span_ms(seconds, "x") == span_ms(f"{seconds}s", "x") == seconds * 1000


@pytest.mark.parametrize(
    ("written", "rate"),
    [
        ("50/s", 50.0),
        ("60/m", 1.0),
        ("3600/h", 1.0),
        ("1/10s", 0.1),
        (2, 2.0),
        (0.5, 0.5),
        (" 10 / S ", 10.0),
        ("86400/d", 1.0),
    ],
)
def test_rates_are_calls_a_second(written: str | float, rate: float) -> None:
    assert rate_per_second(written, "x") == pytest.approx(rate)


@pytest.mark.parametrize(
    "wrong", ["", "fast", "50", "50/x", "0/s", 0, -1, "1/0s", True, 2_000_000, "-1/s"]
)
def test_a_wrong_rate_is_refused_with_its_subject_and_what_would_be_right(
    wrong: str | float,
) -> None:
    with pytest.raises(UsageError, match="rate of weigh") as caught:
        rate_per_second(wrong, "rate of weigh")
    assert "'50/s'" in str(caught.value)


@given(st.integers(0, 4_000_000_000_000), st.integers(0, 4_000_000_000_000))
def test_iso_text_sorts_like_time_and_reads_back(one: int, other: int) -> None:
    first, second = iso(one), iso(other)
    assert first is not None
    assert second is not None
    assert (first < second) == (one < other)
    assert len(first) == len(second) == 24
    moment = datetime.strptime(first, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    assert (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) == one


def test_no_moment_has_no_text() -> None:
    assert iso(None) is None


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (850, "850 ms"),
        (12_000, "12 s"),
        (300_000, "5 min"),
        (10_800_000, "3 h"),
        (1_209_600_000, "14 d"),
    ],
)
def test_spans_for_people(ms: int, text: str) -> None:
    assert short_span(ms) == text


def test_a_delay_of_years_is_no_time_for_people() -> None:
    assert retry_time(300_000) == "in 5 min"
    assert retry_time(UNSCHEDULED - 1).startswith("in ")
    assert retry_time(UNSCHEDULED) == "at the next round"


BERLIN = zone_of("Europe/Berlin", "zone")
NOON = datetime(2027, 1, 31, 12, 30, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("text", "next_one", "last_one"),
    [
        ("18:00", "2027-01-31T18:00:00+01:00", "2027-01-30T18:00:00+01:00"),
        ("8:15", "2027-02-01T08:15:00+01:00", "2027-01-31T08:15:00+01:00"),
        ("12:30", "2027-02-01T12:30:00+01:00", "2027-01-30T12:30:00+01:00"),
        ("12:30:01", "2027-01-31T12:30:01+01:00", "2027-01-30T12:30:01+01:00"),
        ("2h", "2027-01-31T14:30:00+01:00", "2027-01-31T10:30:00+01:00"),
        ("2027-07-01 09:00", "2027-07-01T09:00:00+02:00", "2027-07-01T09:00:00+02:00"),
        ("2027-02-01T09:00Z", "2027-02-01T10:00:00+01:00", "2027-02-01T10:00:00+01:00"),
    ],
)
def test_a_moment_is_the_next_or_the_last_such_time_in_its_zone(
    text: str, next_one: str, last_one: str
) -> None:
    now = round(NOON.timestamp() * 1000)
    for past, expected in ((False, next_one), (True, last_one)):
        assert (
            moment_ms(text, now, "until", BERLIN, past=past)
            == datetime.fromisoformat(expected).timestamp() * 1000
        )


@given(st.integers(0, 366 * 86_400), st.times())
def test_a_time_of_day_is_always_near(second: int, clock: time) -> None:
    now = round(datetime(2027, 1, 1, tzinfo=BERLIN).timestamp() + second) * 1000
    text = f"{clock:%H:%M}"
    assert 0 < moment_ms(text, now, "until", BERLIN) - now <= 25 * 3_600_000
    assert 0 < now - moment_ms(text, now, "since", BERLIN, past=True) <= 25 * 3_600_000


@pytest.mark.parametrize("wrong", ["24:00", "7:5", "18:00:61", "tomorrow"])
def test_a_wrong_moment_is_refused_with_what_would_be_right(wrong: str) -> None:
    with pytest.raises(UsageError, match=r"until is .* or '18:00', or a span such as '2h'"):
        moment_ms(wrong, 0, "until")


@pytest.mark.parametrize(
    ("zone", "text"),
    [("Europe/Berlin", "12:30 +01:00 (CET)"), ("UTC", "11:30 UTC"), ("-03:30", "08:00 -03:30")],
)
def test_a_full_time_names_its_zone(zone: str, text: str) -> None:
    assert full_time(round(NOON.timestamp() * 1000), zone_of(zone, "zone")) == f"2027-01-31 {text}"


@pytest.mark.parametrize("wrong", ["Mars/One", "+99:00", "../etc/passwd", ""])
def test_a_wrong_zone_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match=r"zone is .*; it must be the name of a time zone"):
        zone_of(wrong, "zone")


def test_the_local_zone_follows_summer_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time in the other half of the year, and one in the night of the change, by the machine's
    own rules."""
    monkeypatch.setenv("TZ", "Europe/London")
    tzset()
    try:
        zone, utc = local_zone(), UTC

        def at(text: str, now: str) -> datetime:
            begun = round(datetime.fromisoformat(now).timestamp() * 1000)
            return datetime.fromtimestamp(moment_ms(text, begun, "until", zone) / 1000, utc)

        for now in ("2026-01-15T12:00:00Z", "2026-07-15T12:00:00Z"):
            assert at("2027-07-01T08:00", now).isoformat() == "2027-07-01T07:00:00+00:00"
            assert at("2027-01-31T08:00", now).isoformat() == "2027-01-31T08:00:00+00:00"
        assert at("08:00", "2026-10-24T20:00:00Z").isoformat() == "2026-10-25T08:00:00+00:00"
        assert at("08:00", "2026-03-28T20:00:00Z").isoformat() == "2026-03-29T07:00:00+00:00"
        london = ZoneInfo("Europe/London")
        for day in range(0, 365, 3):
            moment = datetime(2026, 1, 1, 12, tzinfo=utc) + timedelta(days=day)
            assert moment.astimezone(zone).isoformat() == moment.astimezone(london).isoformat()
            assert full_time(round(moment.timestamp() * 1000), zone) == full_time(
                round(moment.timestamp() * 1000), london
            )
        # The hour that comes twice.
        for text in ("2026-10-25T00:30:00+00:00", "2026-10-25T01:30:00+00:00"):
            moment = datetime.fromisoformat(text)
            assert moment.astimezone(zone).astimezone(utc) == moment
    finally:
        monkeypatch.undo()
        tzset()
