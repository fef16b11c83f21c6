"""Overdue items with the reason, and the items that will complete next. Everything here only
reads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import UsageError
from milepost.core.item import Item, Row
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Stage
from milepost.core.status import LIVE, Status
from milepost.core.values.durations import iso
from milepost.engine.context import Context
from milepost.engine.views.blocks import BlockedLanes, Blocks
from milepost.engine.views.items import each, row_view
from milepost.ports.items import Query

LOOK = 10_000
"""Most items of a stage that are read to find the first in order."""
_SHARE = re.compile(r"\b(\d[\d,]*) of (\d[\d,]*)\b")


class LateItem(Struct, frozen=True):
    """An item, why it is still at its stage, and since when it is overdue, if it is."""

    item: Item
    why: str
    blocks: Blocks
    late_since: int | None = None


def overdue(ctx: Context, query: Query, limit: int) -> tuple[list[LateItem], bool]:
    """Items past the overdue mark of their stage in the current route, the most overdue first, and
    whether there are more. An event was sent when each passed the mark; these are still there."""
    found = list(each_overdue(ctx, query, LOOK + 1))
    more = any(n > LOOK for n in Counter(late.item.row.stage for late in found).values())
    found.sort(key=lambda late: (late.late_since or 0, late.item.key))
    return found[:limit], more or len(found) > limit


def each_overdue(ctx: Context, query: Query, most: int | None = None) -> Iterator[LateItem]:
    """Overdue items one by one, stage by stage, in constant memory; at most `most` per stage."""
    plan, now = _plan(ctx, query.route), ctx.clock.now()
    lanes = BlockedLanes(ctx, query.route)
    for stage in _stages(plan, query):
        if stage.overdue_ms is None:
            continue
        before = min(now - stage.overdue_ms + 1, query.entered_before or now + 1)
        for item in each(ctx, _at(query, stage, before), most):
            yield _late_item(item, stage, lanes, item.row.entered_at + stage.overdue_ms)


def nearest(ctx: Context, query: Query, limit: int) -> tuple[list[LateItem], bool]:
    """Items that will complete the route next, the nearest first, and whether there are more: from
    the last stage backwards until there are enough."""
    plan = _plan(ctx, query.route)
    lanes = BlockedLanes(ctx, query.route)
    found: list[LateItem] = []
    for stage in reversed(_stages(plan, query)):
        if len(found) > limit:
            break
        items = list(each(ctx, _at(query, stage, query.entered_before), LOOK))
        items.sort(key=lambda item: nearness(item.row, stage))
        found += [_late_item(item, stage, lanes) for item in items]
    return found[:limit], len(found) > limit


def _late_item(
    item: Item, stage: Stage, lanes: BlockedLanes, late_since: int | None = None
) -> LateItem:
    blocks = lanes.of(item.row)
    return LateItem(item, why(item.row, stage, blocks), blocks, late_since)


def nearness(row: Row, stage: Stage) -> tuple[int, float, int, str]:
    """Sort key for how near an item is to completing its stage: running, ready, waiting, failed;
    then by the share that its note reports; then by its next look."""
    if row.status is Status.PROCESSING:
        rank = 0
    elif row.status in (Status.PENDING, Status.QUEUED) and not stage.external:
        rank = 1
    else:
        rank = 3 if row.status is Status.RETRY_SCHEDULED else 2
    return rank, -share(row.note), row.look_at or row.entered_at, row.key


def share(note: str | None) -> float:
    """The share in a note such as '3 of 5 files on tape'; 0 if there is none."""
    found = _SHARE.search(note or "")
    if found is None:
        return 0.0
    part, whole = (int(number.replace(",", "")) for number in found.groups())
    return min(1.0, part / whole) if whole else 0.0


def why(row: Row, stage: Stage, blocks: Blocks) -> str:
    """Why a live item is still at its stage, in short: a pause or an open breaker first, then its
    error, then its note."""
    if blocks.word:
        return blocks.text
    if row.error is not None and row.status is Status.RETRY_SCHEDULED:
        return f"try {row.attempts} failed: {row.error.category}: {row.error.message}"
    if row.status is Status.PROCESSING:
        return f"held by {row.holder}"
    if row.note:
        return row.note
    if row.error is not None:
        return f"{row.error.category}: {row.error.message}"
    if row.handed_over:
        return "handed over; no answer yet"
    if row.status is Status.WAITING:
        return "looked at, and not there yet"
    if row.status is Status.PENDING and row.not_before is not None:
        return f"not to start before {iso(row.not_before)}"
    return "offered; not confirmed yet" if stage.external else "it waits for a worker"


def late_item_view(item: LateItem, now: int) -> dict[str, Any]:
    """One item as JSON."""
    row, late = item.item.row, item.late_since
    return {
        **row_view(item.item, item.blocks),
        "why": item.why,
        "note": row.note,
        "looks": row.looks,
        "next_look_at": iso(row.look_at),
        "here_for_s": max(0, now - row.entered_at) / 1000,
        "overdue_at": iso(late),
        "overdue_for_s": None if late is None else (now - late) / 1000,
    }


def _plan(ctx: Context, route: str) -> Plan:
    if route not in ctx.plans:
        raise UsageError(
            f"the overdue marks and stage order of {route!r} are only in its route file: give --routes file.py"
        )
    return ctx.plan(route)


def _stages(plan: Plan, query: Query) -> list[Stage]:
    return [stage for stage in plan.stages if query.stages is None or stage.name in query.stages]


def _at(query: Query, stage: Stage, before: int | None) -> Query:
    statuses = LIVE if query.statuses is None else LIVE & query.statuses
    return replace(query, stages=frozenset({stage.name}), statuses=statuses, entered_before=before)
