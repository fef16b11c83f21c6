"""The chart of an item's time at each stage, from its history lines."""

from __future__ import annotations

import re
from typing import Any

import pytest

from milepost.core.history import Attempt, Line
from milepost.core.status import Reason, Status
from milepost.http.dashboard.stage_times import STEPS, Span, spans, way

MINUTE = 60_000


def lines(*told: tuple[int, Reason, str, Status, dict[str, Any]]) -> list[Line]:
    """Each with the minute when it was written."""
    return [
        Line(number, minute * MINUTE, reason, stage, status, **more)
        for number, (minute, reason, stage, status, more) in enumerate(told, 1)
    ]


FAILED = lines(
    (0, Reason.ACCEPTED, "fetch", Status.QUEUED, {}),
    (
        3,
        Reason.RETRY,
        "fetch",
        Status.RETRY_SCHEDULED,
        {"since": 2 * MINUTE, "attempt": Attempt(1, "HTTP_5XX", "<b>down</b>")},
    ),
    (10, Reason.ADVANCED, "fetch", Status.QUEUED, {"since": 9 * MINUTE, "to": "disk"}),
    (12, Reason.OVERDUE, "disk", Status.QUEUED, {}),
    (
        20,
        Reason.REJECTED,
        "disk",
        Status.REJECTED,
        {"attempt": Attempt(1, "REJECTED", "no such disk")},
    ),
)


def minutes(found: list[Span]) -> list[tuple[str, str, float, float]]:
    return [(span.stage, span.kind, span.start / MINUTE, span.end / MINUTE) for span in found]


def test_waits_work_and_tries_are_told_apart() -> None:
    assert minutes(spans(FAILED, now=99 * MINUTE)) == [
        ("fetch", "todo", 0, 2),
        ("fetch", "work", 2, 3),
        ("fetch", "retry", 3, 9),
        ("fetch", "work", 9, 10),
        ("disk", "todo", 10, 20),
    ]


def test_what_a_worker_holds_now_is_in_work_until_now() -> None:
    found = spans(FAILED[:1], now=5 * MINUTE, claimed_at=4 * MINUTE)
    assert minutes(found) == [("fetch", "todo", 0, 4), ("fetch", "work", 4, 5)]


def test_a_failed_item_waited_for_somebody_if_it_was_started_again_and_else_for_nobody() -> None:
    noted = FAILED + lines((25, Reason.NOTED, "disk", Status.REJECTED, {}))
    assert spans(noted, now=99 * MINUTE) == spans(FAILED, now=99 * MINUTE)
    again = FAILED + lines((30, Reason.OPERATOR_RETRY, "disk", Status.QUEUED, {"to": "fetch"}))
    assert minutes(spans(again, now=31 * MINUTE))[-2:] == [
        ("disk", "fail", 20, 30),
        ("fetch", "todo", 30, 31),
    ]


@pytest.mark.parametrize(
    "off", [(Reason.CANCELLED, Status.CANCELLED), (Reason.COMPLETED, Status.COMPLETED)]
)
def test_nothing_is_drawn_while_it_was_off_the_route(off: tuple[Reason, Status]) -> None:
    told = lines(
        (0, Reason.ACCEPTED, "fetch", Status.QUEUED, {}),
        (1, off[0], "fetch", off[1], {}),
        (5, Reason.BACK_FILL, "fetch", Status.QUEUED, {}),
    )
    assert minutes(spans(told, now=6 * MINUTE)) == [
        ("fetch", "todo", 0, 1),
        ("fetch", "todo", 5, 6),
    ]


def test_the_picture_has_a_track_for_each_stage_in_the_routes_order_and_says_how_long() -> None:
    drawn = way(FAILED, ["fetch", "check", "disk"], now=99 * MINUTE)
    assert drawn is not None
    assert [(track.stage, track.took) for track in drawn.tracks] == [
        ("fetch", "10 min"),
        ("disk", "10 min"),
    ]
    assert (drawn.start, drawn.end) == (0, 20 * MINUTE)
    assert re.findall(r">([^<]+)</text>", drawn.axis) == [
        "0",
        "5 min",
        "10 min",
        "15 min",
        "20 min",
    ]
    assert "waiting for the next attempt: 6 min, from 3 min on" in drawn.tracks[0].bar
    under_way = way(FAILED[:3], ["fetch", "disk"], now=11 * MINUTE)
    assert under_way is not None
    assert under_way.tracks[1].took == "1 min so far"


def test_nothing_in_the_picture_is_markup_of_others() -> None:
    drawn = way(FAILED, ["fetch", "disk"], now=0)
    assert drawn is not None
    assert "<b>" not in drawn.tracks[0].bar
    assert "&lt;b&gt;down&lt;/b&gt;" in drawn.tracks[0].bar


@pytest.mark.parametrize("length", [0, 1, 7, 999, 61_000, 86_400_000, 40 * 365 * 86_400_000])
def test_every_length_of_time_has_an_axis_and_every_part_lies_within_it(length: int) -> None:
    told = lines(
        (0, Reason.ACCEPTED, "fetch", Status.QUEUED, {}),
        (0, Reason.RETRY, "fetch", Status.RETRY_SCHEDULED, {"attempt": Attempt(1, "E", "")}),
    )
    drawn = way(told, ["fetch"], now=length)
    if length == 0:
        assert drawn is None, "there is nothing to draw yet"
        return
    assert drawn is not None
    assert 2 <= drawn.axis.count("<text") <= 5
    parts = re.findall(
        r'<rect class="\w+" x="([\d.]+)%" y="3" width="([\d.]+)%"', drawn.tracks[0].bar
    )
    assert len(parts) == 1
    assert all(float(left) + float(wide) <= 100 for left, wide in parts)


def test_a_line_that_cannot_be_read_spoils_no_picture() -> None:
    spoilt = [
        FAILED[0],
        Line(0, 0, Reason.NOTED, "", Status.PENDING, note={"unreadable": "x"}),
        *FAILED[1:],
    ]
    assert way(spoilt, ["fetch", "disk"], now=0) == way(FAILED, ["fetch", "disk"], now=0)


def test_the_steps_of_an_axis_only_rise() -> None:
    assert list(STEPS) == sorted(set(STEPS))
