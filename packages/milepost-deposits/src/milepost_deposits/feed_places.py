"""Places in the history of all items, found by time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from milepost_deposits.settings import DepositsApp


def place_at(app: DepositsApp, since: datetime) -> int:
    """The place of the last history line that is older than `since`."""
    return place_before(
        since, lambda place: next((entry.public() for entry in app.feed(place, 1)), None)
    )


def place_before(since: datetime, line_after: Callable[[int], Mapping[str, Any] | None]) -> int:
    """The place of the last history line that is older than `since`; 0 if none is. `line_after`
    gives the line after a place. Few lines are read, however long the history is: those of a binary
    search."""

    def older(line: Mapping[str, Any] | None) -> bool:
        return line is not None and datetime.fromisoformat(line["at"]) < since

    first = line_after(0)
    if first is None or not older(first):
        return 0
    last_older, end, step = int(first["seq"]), int(first["seq"]), 1
    while (line := line_after(end)) is not None and older(line):
        last_older, step = int(line["seq"]), 2 * step
        end = last_older + step
    # The last older line is not before `last_older`, and not after `end`.
    while last_older < end:
        middle = (last_older + end) // 2
        line = line_after(middle)
        if line is not None and older(line):
            last_older = int(line["seq"])
        else:
            end = middle
    return last_older
