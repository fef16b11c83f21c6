"""Durations and rates as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.errors import UsageError
from milepost.core.values.durations import LONGEST, UNSCHEDULED, iso, rate_per_second, retry_time, short_span, span_ms


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


@pytest.mark.parametrize("wrong", ["", "soon", "10 minutes", "-5s", -1, "1h-30m", None, True, [], float("nan"), float("inf"), 4e12, "5x"])
def test_a_wrong_span_is_refused_with_its_subject_and_what_would_be_right(wrong: object) -> None:
    with pytest.raises(UsageError, match="timeout") as caught:
        span_ms(wrong, "timeout")  # type: ignore[arg-type]
    assert "'10m'" in str(caught.value)


@given(st.integers(0, LONGEST // 1000))
def test_whole_seconds_are_exact(seconds: int) -> None:
    assert span_ms(seconds, "x") == span_ms(f"{seconds}s", "x") == seconds * 1000


@pytest.mark.parametrize(
    ("written", "rate"),
    [("50/s", 50.0), ("60/m", 1.0), ("3600/h", 1.0), ("1/10s", 0.1), (2, 2.0), (0.5, 0.5), (" 10 / S ", 10.0), ("86400/d", 1.0)],
)
def test_rates_are_calls_a_second(written: str | float, rate: float) -> None:
    assert rate_per_second(written, "x") == pytest.approx(rate)


@pytest.mark.parametrize("wrong", ["", "fast", "50", "50/x", "0/s", 0, -1, "1/0s", True, 2_000_000, "-1/s"])
def test_a_wrong_rate_is_refused_with_its_subject_and_what_would_be_right(wrong: str | float) -> None:
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
    ("ms", "text"), [(0, "0 ms"), (850, "850 ms"), (12_000, "12 s"), (300_000, "5 min"), (10_800_000, "3 h"), (1_209_600_000, "14 d")]
)
def test_spans_for_people(ms: int, text: str) -> None:
    assert short_span(ms) == text


def test_a_delay_of_years_is_no_time_for_people() -> None:
    assert retry_time(300_000) == "in 5 min"
    assert retry_time(UNSCHEDULED - 1).startswith("in ")
    assert retry_time(UNSCHEDULED) == "when it is sent again"
