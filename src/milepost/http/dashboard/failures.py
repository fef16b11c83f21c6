"""Failures by cause: how many items have failed with each error, as exactly as is cheap to find out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from milepost.core.counters import HOUR
from milepost.core.status import FAILED
from milepost.engine.context import Context
from milepost.engine.views.snapshot import Snapshot
from milepost.ports.feed import Group
from milepost.ports.items import Query

CAUSES = 8
LOOK = 500
"""Maximum rows of a stage that are read, if the counters cannot say which have failed."""
FRESH = 24 * HOUR
"""How long a cause without items stays on the page: causes that come and go with every attempt must not make the page jump."""


class FailureCause(Struct, frozen=True):
    """A cause at a stage. At least `least` and at most `most` of the items with this error have failed; the others are retried
    automatically, or were cancelled. `filter` finds the failed ones."""

    of: Group
    least: int
    most: int
    filter: dict[str, Any]

    @property
    def failed(self) -> str:
        return f"{self.most:,}" if self.least == self.most else f"up to {self.most:,}"


def causes(ctx: Context, seen: Snapshot, groups: Sequence[Group], free: Callable[[], bool]) -> list[FailureCause]:
    """The causes with the most failures first. `free`: reading rows costs nothing."""
    bounds = failed_by_group({stage.name: stage.among(*FAILED) for stage in seen.stages}, groups)
    present = [group for group in groups if group.now > 0 or seen.at - group.last_at < FRESH]
    shown = sorted(present, key=lambda group: (-bounds[_key(group)][1], -group.now, -group.total, _key(group)))[:CAUSES]
    for stage in sorted({group.stage for group in shown if bounds[_key(group)][0] < bounds[_key(group)][1]}):
        if free():
            bounds |= _looked_at(ctx, seen.route, stage, {key: bound for key, bound in bounds.items() if key[0] == stage})
    # Sorted by the total, not by the present number: that changes with every attempt.
    shown.sort(key=lambda group: (-bounds[_key(group)][1], -group.total, _key(group)))
    return [
        FailureCause(group, *bounds[_key(group)], {"group": group.group, "stage": [group.stage], "status": ["failed"]}) for group in shown
    ]


def failed_by_group(failed: dict[str, int], groups: Sequence[Group]) -> dict[tuple[str, str], tuple[int, int]]:
    """Minimum and maximum number of failed items with each error, by (stage, group): derived from the number of failed items of each
    stage, and the number of items with each error there. Every failed item has an error."""
    having: Counter[str] = Counter()
    for group in groups:
        having[group.stage] += max(0, group.now)
    found = {}
    for group in groups:
        now, here = max(0, group.now), failed.get(group.stage, 0)
        most = min(now, here)
        found[_key(group)] = (min(most, max(0, here - (having[group.stage] - now))), most)
    return found


def _key(group: Group) -> tuple[str, str]:
    return group.stage, group.group


def _looked_at(
    ctx: Context, route: str, stage: str, bounds: dict[tuple[str, str], tuple[int, int]]
) -> dict[tuple[str, str], tuple[int, int]]:
    """The same after reading the failed rows of a stage; if there are many, the first of them."""
    page = ctx.ledger.find(Query(route=route, stages=frozenset({stage}), statuses=FAILED, limit=LOOK))
    seen = Counter((stage, item.row.error.group) for item in page.items if item.row.error is not None)
    if page.next is None:
        return {key: (seen[key], seen[key]) for key in bounds}
    return {key: (max(least, min(most, seen[key])), most) for key, (least, most) in bounds.items()}
