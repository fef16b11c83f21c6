"""Rows from the future: when they are due, if they were dated by a clock that was ahead and has
been set right since."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from milepost.core.change import Author, Change, Fields, change
from milepost.core.clocks import FOLLOWED_MS
from milepost.core.item import Row
from milepost.core.status import Reason, Status
from milepost.core.values.durations import iso
from milepost.core.values.refusal import Refusal, RefusalKind, impossible

REDATED = "redated"
"""The name, in a line's note, of the times that the item had before."""


def dated_at(row: Row) -> int:
    """When the row was last changed or claimed: its due time was counted from then."""
    return max(row.updated_at, row.claimed_at or 0)


def from_future(row: Row, now: int) -> bool:
    """Whether the row is dated further ahead than the clocks of processes may differ."""
    return dated_at(row) > now + FOLLOWED_MS


def due_at_once(row: Row, now: int) -> Change | None:
    """Make a row from the future due now: its rule, counted from now, could not have given a time
    as late as the one it has.

    None: the row has the due time that was meant. It is not from the future; or its due time has
    been set since; or it was submitted for a later date. A partner to whom work was handed over
    keeps its time, counted from now, because its silence would count as an attempt.
    """
    if (
        row.terminal
        or row.look_at is None
        or not from_future(row, now)
        or row.later_than(now)
        or row.look_at < dated_at(row)
    ):
        return None
    if row.handed_over:
        return change(
            row,
            Reason.NOTED,
            now,
            row.status,
            _times(row, now),
            Author("resender"),
            note=_earlier_times(row),
        )
    return Change(row, replace(row, look_at=now))


def redate(row: Row, now: int, **author: Any) -> Change | Refusal:
    """Date a row from the future as of now. Its history keeps the times that it had, and a line
    says who did this and why."""
    if not from_future(row, now):
        return Refusal(RefusalKind.UNCHANGED, "it is not dated in the future; nothing was changed")
    if row.status is Status.PROCESSING:
        return impossible("a worker has claimed it; wait for its outcome")
    return change(
        row,
        Reason.NOTED,
        now,
        row.status,
        _times(row, now),
        Author(**author),
        note=_earlier_times(row),
    )


def _times(row: Row, now: int) -> Fields:
    """The row's times with `now` in place of its last change. A date for which the item was
    submitted stays."""
    back = dated_at(row) - now
    fields: Fields = {
        "entered_at": row.entered_at if row.later_than(now) else min(row.entered_at, now)
    }
    if row.look_at is not None and row.look_at >= dated_at(row):
        fields["look_at"] = row.look_at - back if row.handed_over else row.not_earlier(now)
    if row.overdue_at is not None:
        fields["overdue_at"] = row.overdue_at - (row.entered_at - fields["entered_at"])
    return fields


def _earlier_times(row: Row) -> dict[str, Any]:
    return {
        REDATED: {
            "updated_at": iso(row.updated_at),
            "entered_at": iso(row.entered_at),
            "due_at": iso(row.due_at),
        }
    }
