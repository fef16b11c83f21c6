"""Breakers: when they open, which probes pass, when they close, and that none stays open for
ever."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.admission.breakers import (
    BreakerRecord,
    BreakerState,
    Probe,
    after_failure,
    after_silence,
    after_success,
    ask_again_at,
    at_clock,
    room_for,
    transition,
    with_leases,
    with_probes,
)
from milepost.core.errors import UsageError
from milepost.core.routes.breaker import Breaker
from milepost.core.values.durations import iso

START = 1_700_000_000_000
BREAKER = Breaker(failures=3, within="1m", cooldown="30s", probes=2)
LEASE = 10_000


def failed(times: int, at: int = START, step: int = 1, breaker: Breaker = BREAKER) -> BreakerRecord:
    record: BreakerRecord | None = None
    for number in range(times):
        record = after_failure(record, breaker, f"k{number}", "partner is down", at + number * step)
    assert record is not None
    return record


def opened() -> BreakerRecord:
    return failed(3, START - 2)


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    assert room_for(None, BREAKER, START) is None
    assert failed(2).closed
    assert room_for(failed(2), BREAKER, START) is None
    record = opened()
    assert (record.opened_at, record.retry_at, record.trips) == (START, START + 30_000, 1)
    assert record.error == "partner is down"
    assert record.state(START) is BreakerState.OPEN
    assert room_for(record, BREAKER, START) == 0
    assert ask_again_at(record, BREAKER, START) == START + 30_000


def test_failures_count_only_within_the_span() -> None:
    assert failed(50, step=30_001).closed
    assert not failed(3, step=29_999).closed


def test_a_success_starts_the_count_anew() -> None:
    assert after_success(failed(2), "k9") is None


def test_a_try_that_began_before_it_opened_says_nothing_new() -> None:
    record = opened()
    assert after_failure(record, BREAKER, "other", "late", START + 5) is record
    assert after_success(record, "other") is record
    assert after_silence(record, "other") is record


def test_after_the_cooldown_it_lets_its_probes_through_and_closes_when_all_succeed() -> None:
    now = START + 30_000
    record = opened()
    assert record.state(now) is BreakerState.HALF_OPEN
    assert room_for(record, BREAKER, now) == 2
    assert ask_again_at(record, BREAKER, now) is None
    record = with_probes(record, BREAKER, ["a", "b"], now, now + LEASE)
    assert room_for(record, BREAKER, now) == 0
    assert ask_again_at(record, BREAKER, now) == now + LEASE
    half = after_success(record, "a")
    assert half is not None
    assert room_for(half, BREAKER, now) == 0, (
        "one has passed, one is under way: no third one is let through"
    )
    assert after_success(half, "b") is None


def test_a_probe_that_fails_opens_it_for_another_cooldown() -> None:
    now = START + 40_000
    record = with_probes(opened(), BREAKER, ["a", "b"], now, now + LEASE)
    record = after_failure(record, BREAKER, "a", "still down", now + 5)
    assert (record.opened_at, record.retry_at, record.trips) == (START, now + 30_005, 2)
    assert record.probes == []
    assert after_success(record, "b") is record, "it was let through before the other one failed"


def test_a_probe_that_says_nothing_makes_room_for_another() -> None:
    now = START + 30_000
    record = with_probes(opened(), BREAKER, ["a", "b"], now, now + LEASE)
    assert room_for(after_silence(record, "a"), BREAKER, now) == 1


def test_a_probe_that_died_with_its_process_makes_room_when_its_lease_has_run_out() -> None:
    now = START + 30_000
    record = with_probes(opened(), BREAKER, ["a", "b"], now, now + LEASE)
    assert room_for(record, BREAKER, now + LEASE - 1) == 0
    assert room_for(record, BREAKER, now + LEASE) == 2
    again = with_probes(record, BREAKER, ["c"], now + LEASE, now + 2 * LEASE)
    assert [probe.key for probe in again.probes] == ["c"]


def test_a_probe_whose_worker_extends_its_lease_keeps_its_slot() -> None:
    now = START + 30_000
    record = with_probes(opened(), BREAKER, ["a", "b"], now, now + LEASE)
    kept = with_leases(record, {"a": now + 3 * LEASE})
    assert room_for(kept, BREAKER, now + 2 * LEASE) == 1
    assert with_leases(record, {"z": now + 3 * LEASE}) is record


def test_a_clock_set_back_does_not_keep_it_open_for_long() -> None:
    record = with_probes(opened(), BREAKER, ["a"], START + 30_000, START + 30_000 + LEASE)
    back = START - 3_600_000
    right = at_clock(record, BREAKER, back)
    assert right.retry_at == back + 30_000
    assert right.probes == [Probe("a", back, back + LEASE)]
    assert at_clock(right, BREAKER, back + 1) is right
    assert at_clock(record, BREAKER, START + 21_000) is record, (
        "another machine's clock is only a little behind"
    )


def test_failures_noted_by_a_clock_that_was_set_back_do_not_count() -> None:
    assert after_failure(failed(2), BREAKER, "k", "x", START - 3_600_000).closed


@pytest.mark.parametrize(
    "settings",
    [
        {"failures": 0},
        {"probes": 0},
        {"failures": 1.5},
        {"within": 0},
        {"cooldown": "0s"},
        {"cooldown": "soon"},
        {"probes": None},
    ],
)
def test_a_mistake_is_reported(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Breaker(**settings)


steps = st.lists(
    st.tuples(
        st.integers(0, 90_000),
        st.sampled_from(["fail", "succeed", "silent", "claim"]),
        st.integers(0, 5),
    ),
    min_size=1,
    max_size=60,
)
breakers = st.builds(
    Breaker,
    failures=st.integers(1, 4),
    within=st.floats(0.001, 100),
    cooldown=st.floats(0.001, 100),
    probes=st.integers(1, 3),
)


@given(breakers, steps)
def test_whatever_happens_probes_stay_bounded_and_it_lets_items_through_in_the_end(
    breaker: Breaker, steps: list[tuple[int, str, int]]
) -> None:
    record: BreakerRecord | None = None
    now = START
    for wait, step, number in steps:
        now += wait
        key = f"k{number}"
        if step == "claim":
            room = room_for(record, breaker, now)
            if record is not None and room:
                record = with_probes(record, breaker, [key], now, now + LEASE)
        elif step == "fail":
            record = after_failure(record, breaker, key, "x", now)
        elif record is not None:
            record = after_success(record, key) if step == "succeed" else after_silence(record, key)
        if record is None:
            continue
        assert len(record.failures) < breaker.failures, (
            "a closed breaker keeps no more than it needs"
        )
        assert sum(now < probe.until for probe in record.probes) + record.passed <= breaker.probes
        room = room_for(record, breaker, now)
        assert (ask_again_at(record, breaker, now) is None) == (room is None or room > 0)
        later = room_for(
            record, breaker, max(now, record.retry_at, *(probe.until for probe in record.probes), 0)
        )
        assert later is None or later > 0, "when all is quiet, it lets an item through"


@given(breakers, st.integers(0, 10**9), st.integers(0, 10**9))
def test_no_clock_keeps_it_open_beyond_a_cooldown(
    breaker: Breaker, opened_ago: int, back: int
) -> None:
    record = failed(breaker.failures, START - opened_ago, 0, breaker)
    now = START - opened_ago - back
    right = at_clock(record, breaker, now)
    assert right.retry_at - now <= breaker.cooldown_ms + 10_000


def test_the_log_says_that_it_has_opened_and_closed_and_nothing_else() -> None:
    counting, record = failed(2), opened()
    half = with_probes(record, BREAKER, ["a"], START + 30_000, START + 40_000)
    assert (
        transition("calls/b", counting, record)
        == f"the breaker of calls/b has opened after 3 failures in a row; nothing is started until {iso(record.retry_at)};"
        " the last failure: partner is down"
    )
    assert transition("calls/b", half, None) == "the breaker of calls/b has closed"
    assert [
        transition("calls/b", *pair)
        for pair in ((None, counting), (counting, None), (record, half))
    ] == [None] * 3
