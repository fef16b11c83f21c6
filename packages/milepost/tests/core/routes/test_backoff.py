"""Delays: within bounds for every number of failures, spread by chance, and never overflowing."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.errors import UsageError
from milepost.core.routes.backoff import Backoff, Checks
from milepost.core.values.durations import span_ms

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
def test_a_delay_is_never_above_the_cap_nor_below_the_first_delay(
    backoff: Backoff, failures: int, chance: float
) -> None:
    delay = backoff.delay(failures, chance)
    cap, base = span_ms(backoff.cap, "cap"), span_ms(backoff.base, "base")
    assert min(base, cap) * (1 - backoff.jitter) - 1e-6 <= delay.ms <= cap
    assert delay.ms == pytest.approx(delay.exponential_ms + delay.jitter_ms, abs=2)


@given(st.integers(0, 64), st.randoms(use_true_random=False))
def test_delays_of_every_number_of_failures_span_their_range_and_a_seed_repeats_them(
    failures: int, random: Random
) -> None:
    backoff, seed = Backoff(base=1, factor=2, cap=60, jitter=0.25), random.random()
    low, high = backoff.delay(failures, -1.0).ms, backoff.delay(failures, 1.0).ms
    assert 750 <= low < high <= 60_000

    def sequence() -> list[int]:
        chance = Random(seed)
        return [backoff.delay(failures, chance.uniform(-1, 1)).ms for _ in range(1000)]

    found = sequence()
    assert found == sequence()
    assert low <= min(found) < max(found) <= high
    assert max(found) - min(found) > 0.8 * (high - low)


@given(backoffs, st.integers(0, 1000))
def test_the_exponential_part_never_shrinks_with_failures(backoff: Backoff, failures: int) -> None:
    assert backoff.exponential_ms(failures) <= backoff.exponential_ms(failures + 1) * (1 + 1e-9)


def test_base_times_factor_to_the_number_of_failures_before() -> None:
    backoff = Backoff(attempts=9, base=1, factor=2, cap=60, jitter=0)
    assert [backoff.delay(n, 0.7).ms for n in range(8)] == [
        1000,
        2000,
        4000,
        8000,
        16000,
        32000,
        60000,
        60000,
    ]


@pytest.mark.parametrize("factor", [1, 1.0000001, 2, 10, 1e300])
def test_ten_thousand_failures_do_not_overflow(factor: float) -> None:
    backoff = Backoff(base=1, factor=factor, cap="1h", jitter=0.25)
    assert 1000 * 0.75 - 1 <= backoff.delay(10_000, -1.0).ms <= 3_600_000


def test_capped_delays_still_spread() -> None:
    backoff = Backoff(base=1, factor=2, cap=60, jitter=0.25)
    low, middle, high = (backoff.delay(10_000, chance).ms for chance in (-1.0, 0.0, 1.0))
    assert (low, middle, high) == (36_000, 48_000, 60_000)
    assert len({backoff.delay(50, chance / 100).ms for chance in range(-100, 101)}) == 201


def test_a_cap_below_the_base_is_spread_below_itself() -> None:
    backoff = Backoff(base=100, cap=60, jitter=0.25)
    assert [backoff.delay(3, chance).ms for chance in (-1.0, 1.0)] == [45_000, 60_000]


def test_listed_delays_hold_in_their_order_and_the_last_one_for_the_rest() -> None:
    backoff = Backoff(attempts=8, delays=("5s", "5m", "30m"), jitter=0.2)
    assert [backoff.delay(n, 0.0).ms for n in (0, 1, 2, 3, 90)] == [
        5_000,
        300_000,
        1_800_000,
        1_800_000,
        1_800_000,
    ]
    assert [backoff.delay(1, chance).ms for chance in (-1.0, 1.0)] == [240_000, 360_000]


@given(backoffs, st.integers(0, 100), chances, st.integers(0, 10**9))
def test_a_floor_is_only_added_to(
    backoff: Backoff, failures: int, chance: float, floor: int
) -> None:
    assert backoff.delay(failures, chance, floor).ms >= floor


@given(chances)
def test_a_floor_is_spread_upwards_so_that_those_told_the_same_do_not_come_together(
    chance: float,
) -> None:
    delay = Backoff(base=1, jitter=0.25).delay(0, chance, 60_000)
    assert 60_000 <= delay.ms <= 75_001
    assert delay.jitter_ms == pytest.approx(60_000 * 0.25 * abs(chance), abs=1)


@given(backoffs, st.integers(0, 50), chances)
def test_a_floor_below_the_delay_changes_nothing(
    backoff: Backoff, failures: int, chance: float
) -> None:
    assert backoff.delay(failures, chance, 0) == backoff.delay(failures, chance)


@pytest.mark.parametrize(
    ("options", "subject"),
    [({"attempts": 0}, "attempts"), ({"attempts": True}, "attempts"), ({"attempts": 1.5}, "attempts"), ({"factor": 0.5}, "factor"),
     ({"factor": float("inf")}, "factor"), ({"jitter": 2}, "jitter"), ({"jitter": -0.1}, "jitter"), ({"base": "soon"}, "base"), ({"cap": -1}, "cap"),
     ({"delays": "5s"}, "delays"), ({"delays": ("soon",)}, "delays")],
)  # fmt: skip
def test_a_wrong_backoff_names_the_option(options: dict[str, object], subject: str) -> None:
    with pytest.raises(UsageError, match=subject):
        Backoff(**options)  # type: ignore[arg-type]


@given(st.integers(0, 100_000))
def test_checks_double_from_every_to_up_to(looks: int) -> None:
    checks = Checks(every="10s", up_to="1h")
    assert checks.after_ms(looks) == min(3_600_000, 10_000 * 2 ** min(looks, 50))


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        ({"every": 0}, "every"),
        ({"every": "2h", "up_to": "1h"}, "up_to"),
        ({"overdue": "x"}, "overdue"),
    ],
)
def test_wrong_checks_name_the_option(options: dict[str, object], subject: str) -> None:
    with pytest.raises(UsageError, match=subject):
        Checks(**options)  # type: ignore[arg-type]
