"""Rules of clocks: how far a machine's clock is off, by the dates of a service's answers, and
whether it may be used."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

CORRECTED_MS = 5_000
"""A difference up to this is left alone: a date has whole seconds, and half the round trip is a
guess."""
STEADY_MS = 1_000
"""Measurements differ by up to this; a corrected clock does not follow such differences."""
SILENCE_MS = 60_000
"""After so long without an answer a process neither claims nor resends."""
ENOUGH = 3
"""So many dated answers show how far a clock is off; a single one may have been delayed."""
LONGEST_ROUND_TRIP_MS = 4_000
"""A slower answer, such as that of a long poll, does not show when the service wrote its date."""
STEP_MS = 1_000
"""A wall clock that moves by more than this against the monotonic clock was set, or the machine was
suspended."""
FOLLOWED_MS = 5 * 60_000
"""A clock, or a history line, that is further ahead than this is wrong, and no process follows
it."""


def lead_of(date_ms: int, sent: int, received: int) -> int | None:
    """How far the service's clock is ahead of the monotonic clock (milliseconds), which showed
    `sent` and `received` at the ends of the request; None: the answer took too long to tell. A date
    is cut to its second, so half a second is added."""
    if received - sent > LONGEST_ROUND_TRIP_MS:
        return None
    return date_ms + 500 - (sent + received) // 2


def measured_lead(leads: Sequence[int]) -> int | None:
    """The median of the measurements; None: there are too few."""
    return round(median(leads)) if len(leads) >= ENOUGH else None


def lead_in_use(machine: int, measured: int | None, present: int) -> int:
    """How far ahead of the monotonic clock the time is. It is the lead of the machine's wall clock,
    unless that one differs too much from the measured lead. A corrected clock stays at its
    `present` lead while the measurements differ little from that."""
    if measured is None or abs(measured - machine) <= CORRECTED_MS:
        return machine
    return present if abs(measured - present) <= STEADY_MS else measured


def doubt_about(answers: int, undated: bool, silent_ms: int | None) -> str:
    """Why a process does not know the service's time well enough to claim or to resend; empty: it
    does. `answers` counts the measurements; `undated`: the answers have no usable date, so the
    machine's clock must do; `silent_ms`: the time since the last answer."""
    if silent_ms is None:
        return "it has had no answer yet"
    if silent_ms > SILENCE_MS:
        return f"it has had no answer for {silent_ms // 1000:,} s"
    if answers < ENOUGH and not undated:
        return "it has not compared its clock with enough answers yet"
    return ""


def still_ahead(at: int, now: int, span: int) -> bool:
    """Whether a time that was set at most `span` ahead is still to come. A later one was set by a
    clock that was ahead, and counts as past."""
    return now < at <= now + span
