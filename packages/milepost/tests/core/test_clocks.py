"""How far a machine's clock is off, by the dates of answers, and whether it may be used."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from milepost.core.clocks import CORRECTED_MS, doubt_about, lead_in_use, lead_of, measured_lead

TRIPS = st.lists(
    st.tuples(st.integers(0, 10**9), st.integers(0, 4_000), st.floats(0, 1)), min_size=3, max_size=9
)


@given(lead=st.integers(-(10**12), 10**12), trips=TRIPS)
def test_a_measured_clock_is_right_to_half_a_round_trip_and_half_a_second(
    lead: int, trips: list[tuple[int, int, float]]
) -> None:
    leads = []
    for sent, took, share in trips:
        service_time = lead + sent + round(took * share)
        measured = lead_of(service_time // 1000 * 1000, sent, sent + took)
        assert measured is not None
        leads.append(measured)
    found = measured_lead(leads)
    assert found is not None
    assert abs(found - lead) <= 501 + max(took for _, took, _ in trips) / 2


def test_a_slow_answer_does_not_count() -> None:
    assert lead_of(1_000_000, 0, 20_000) is None


def test_one_delayed_answer_of_several_changes_nothing() -> None:
    assert measured_lead([1_000, 1_010, 90_000]) == 1_010


def test_two_answers_are_too_few() -> None:
    assert measured_lead([1_000, 1_010]) is None


@given(
    machine=st.integers(-(10**12), 10**12),
    off=st.integers(-(10**9), 10**9),
    present=st.integers(-(10**12), 10**12),
)
def test_a_clock_is_corrected_beyond_five_seconds_only(
    machine: int, off: int, present: int
) -> None:
    used = lead_in_use(machine, machine + off, present)
    if abs(off) <= CORRECTED_MS:
        assert used == machine
    else:
        assert abs(used - (machine + off)) <= 1_000


def test_a_process_without_an_answer_for_a_minute_is_in_doubt() -> None:
    assert doubt_about(9, False, 60_000) == ""
    assert doubt_about(9, False, 61_000) == "it has had no answer for 61 s"
    assert doubt_about(0, False, None) == "it has had no answer yet"
    assert doubt_about(2, False, 0) == "it has not compared its clock with enough answers yet"


def test_answers_without_a_date_leave_the_machines_clock_in_use() -> None:
    assert doubt_about(0, True, 10) == ""
    assert lead_in_use(7, None, 5) == 7
