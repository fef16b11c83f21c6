"""Counter deltas of changes: items by stage, status and hour, and items by group of similar
errors."""

from __future__ import annotations

from collections.abc import Sequence

from milepost.core.change import Change
from milepost.core.item import Row
from milepost.core.status import Status

HOUR = 3_600_000

CounterKey = tuple[str, str, Status, int]
"""(route, stage, status, hour in which the item entered)."""
GroupKey = tuple[str, str, str]
"""(route, stage, error group)."""


def count_all(
    changes: Sequence[Change], counters: dict[CounterKey, int], groups: dict[GroupKey, int]
) -> None:
    """Add the deltas of many changes. Most changes of a batch are alike, so equal ones are added up
    first and counted once."""
    moves: dict[tuple[str, Status, int, str, str, Status, int, bool], int] = {}
    for change in changes:
        before, after = change.before, change.after
        if before.error is not None or after.error is not None:
            count(before, after, counters, groups)
            continue
        move = (
            before.stage,
            before.status,
            before.entered_at // HOUR,
            after.route,
            after.stage,
            after.status,
            after.entered_at // HOUR,
            before.version == 0,
        )
        moves[move] = moves.get(move, 0) + 1
    for (from_stage, from_status, from_hour, route, stage, status, hour, new), n in moves.items():
        at, to = (route, from_stage, from_status, from_hour), (route, stage, status, hour)
        if not new:
            counters[at] = counters.get(at, 0) - n
        counters[to] = counters.get(to, 0) + n


def count(
    before: Row, after: Row, counters: dict[CounterKey, int], groups: dict[GroupKey, int]
) -> None:
    """Add one change's deltas to running sums. A row of version 0 did not exist, so nothing is
    subtracted for it."""
    to = (after.route, after.stage, after.status, after.entered_at // HOUR)
    if before.version:
        at = (before.route, before.stage, before.status, before.entered_at // HOUR)
        if at == to:
            if before.error is after.error:
                return
        else:
            counters[at] = counters.get(at, 0) - 1
            counters[to] = counters.get(to, 0) + 1
    else:
        counters[to] = counters.get(to, 0) + 1
    # The error of an item that moves to another stage is counted there from now on.
    if before.error is not after.error or (
        before.error is not None and before.stage != after.stage
    ):
        if before.error is not None:
            left = (before.route, before.stage, before.error.group)
            groups[left] = groups.get(left, 0) - 1
        if after.error is not None:
            entered = (after.route, after.stage, after.error.group)
            groups[entered] = groups.get(entered, 0) + 1
