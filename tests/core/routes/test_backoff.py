"""Delays: within bounds for every number of failures, spread by chance, and never overflowing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.errors import UsageError
from milepost.core.routes.backoff import Backoff, Checks

chances = st.floats(-1, 1)
backoffs = st.builds(
    Backoff,
    attempts=st.integers(1, 20),
    base=st.floats(0, 10_000),
    factor=st.floats(1, 100),
    cap=st.floats(0, 1_000_000),
    jitter=st.floats(0, 1),
)


@given(backoffs, st.integers(0, 100_000), chances)
def test_a_delay_is_never_below_zero_nor_beyond_the_spread_cap(backoff: Backoff, failures: int, chance: float) -> None:
    delay = backoff.delay(failures, chance)
    assert 0 <= delay.ms <= float(backoff.cap) * 1000 * (1 + backoff.jitter) + 2
    assert abs(delay.jitter_ms) <= delay.exponential_ms * backoff.jitter + 1


@given(backoffs, st.integers(0, 1000))
def test_the_exponential_part_never_shrinks_with_failures(backoff: Backoff, failures: int) -> None:
    assert backoff.exponential_ms(failures) <= backoff.exponential_ms(failures + 1) * (1 + 1e-9)


def test_base_times_factor_to_the_number_of_failures_before() -> None:
    backoff = Backoff(attempts=9, base=1, factor=2, cap=60, jitter=0)
    assert [backoff.delay(n, 0.7).ms for n in range(8)] == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]


@pytest.mark.parametrize("factor", [1, 1.0000001, 2, 10, 1e300])
def test_ten_thousand_failures_do_not_overflow(factor: float) -> None:
    backoff = Backoff(base=1, factor=factor, cap="1h", jitter=0.25)
    assert 1000 * 0.75 - 1 <= backoff.delay(10_000, -1.0).ms <= 3_600_000


def test_capped_delays_still_spread() -> None:
    backoff = Backoff(base=1, factor=2, cap=60, jitter=0.25)
    low, middle, high = (backoff.delay(10_000, chance).ms for chance in (-1.0, 0.0, 1.0))
    assert (low, middle, high) == (45_000, 60_000, 75_000)
    assert len({backoff.delay(50, chance / 100).ms for chance in range(-100, 101)}) == 201


@given(backoffs, st.integers(0, 100), chances, st.integers(0, 10**9))
def test_a_floor_is_only_added_to(backoff: Backoff, failures: int, chance: float, floor: int) -> None:
    assert backoff.delay(failures, chance, floor).ms >= floor


@given(chances)
def test_a_floor_is_spread_upwards_so_that_those_told_the_same_do_not_come_together(chance: float) -> None:
    delay = Backoff(base=1, jitter=0.25).delay(0, chance, 60_000)
    assert 60_000 <= delay.ms <= 75_001
    assert delay.jitter_ms == pytest.approx(60_000 * 0.25 * abs(chance), abs=1)


@given(backoffs, st.integers(0, 50), chances)
def test_a_floor_below_the_delay_changes_nothing(backoff: Backoff, failures: int, chance: float) -> None:
    assert backoff.delay(failures, chance, 0) == backoff.delay(failures, chance)


@pytest.mark.parametrize(
    ("options", "subject"),
    [({"attempts": 0}, "attempts"), ({"attempts": True}, "attempts"), ({"attempts": 1.5}, "attempts"), ({"factor": 0.5}, "factor"),
     ({"factor": float("inf")}, "factor"), ({"jitter": 2}, "jitter"), ({"jitter": -0.1}, "jitter"), ({"base": "soon"}, "base"), ({"cap": -1}, "cap")],
)  # fmt: skip
def test_a_wrong_backoff_names_the_option(options: dict[str, object], subject: str) -> None:
    with pytest.raises(UsageError, match=subject):
        Backoff(**options)  # type: ignore[arg-type]


@given(st.integers(0, 100_000))
def test_checks_double_from_every_to_up_to(looks: int) -> None:
    checks = Checks(every="10s", up_to="1h")
    assert checks.after_ms(looks) == min(3_600_000, 10_000 * 2 ** min(looks, 50))


@pytest.mark.parametrize(
    ("options", "subject"), [({"every": 0}, "every"), ({"every": "2h", "up_to": "1h"}, "up_to"), ({"overdue": "x"}, "overdue")]
)
def test_wrong_checks_name_the_option(options: dict[str, object], subject: str) -> None:
    with pytest.raises(UsageError, match=subject):
        Checks(**options)  # type: ignore[arg-type]
