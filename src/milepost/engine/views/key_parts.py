"""Composite keys: their fields, filters by key part, and the progress of items that share a part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import UsageError
from milepost.core.item import KeyPart
from milepost.core.routes.parsed_input import key_fields as fields_of
from milepost.core.status import FAILED, LIVE, Status
from milepost.core.values.key_text import SEPARATOR, escape_part
from milepost.engine.context import Context
from milepost.engine.ledger_pages import seal_pages
from milepost.engine.views.items import each
from milepost.ports.items import Query

SEALS = 5_000
"""Seals read at a time."""


class PartSummary(Struct, frozen=True):
    """Progress of items that share a part of their key. `left`: items known only by their seals, because their rows were removed; `overdue`:
    items past their stage's overdue mark."""

    route: str
    total: int
    completed: int
    in_progress: int
    failed: int
    cancelled: int
    overdue: int
    left: int
    stages: dict[str, dict[str, int]]
    """Items not completed, by stage and status."""

    @property
    def whole(self) -> bool:
        """Whether there is at least one and all are completed."""
        return self.total > 0 and self.completed == self.total


def key_fields(ctx: Context, route: str) -> tuple[str, ...]:
    """The fields of the route's key; none if a function makes it. Only the route file knows them."""
    if route not in ctx.plans:
        raise UsageError(f"the key fields of {route!r} are only in its route file: give --routes file.py")
    return tuple(fields_of(ctx.plan(route).route.key))


def read_parts(ctx: Context, route: str, parts: Iterable[str]) -> tuple[KeyPart, ...]:
    """Parse conditions such as "batchId=B-7" on the fields of the route's key."""
    given = list(parts)
    if not given:
        return ()
    fields = key_fields(ctx, route)
    if len(fields) < 2:
        raise UsageError(f"the key of route {route!r} has a single field; filter by the key itself, or by its prefix")
    found = []
    for part in given:
        field, _, value = part.partition("=")
        if field.strip() not in fields or not value.strip():
            raise UsageError(f"invalid key part {part!r}; write FIELD=VALUE, with a key field of {route!r}: {', '.join(fields)}")
        found.append(KeyPart(fields.index(field.strip()), escape_part(value.strip())))
    return tuple(found)


def keys_with_first_part(ctx: Context, route: str, text: str, limit: int) -> list[str]:
    """Keys of rows whose first part is this text, such as all batches of an asset; none if the key has one field."""
    if route not in ctx.plans or len(key_fields(ctx, route)) < 2:
        return []
    query = Query(route=route, prefix=escape_part(text) + SEPARATOR)
    return [item.key for item in each(ctx, query, limit)]


def summary(ctx: Context, query: Query, on_progress: Callable[[int], None] | None = None) -> PartSummary:
    """Progress of the matching items: rows, then the seals of removed rows."""
    plan, now = ctx.plan(query.route), ctx.clock.now()
    statuses: Counter[Status] = Counter()
    stages: dict[str, dict[str, int]] = {}
    overdue = left = 0

    def add(status: Status, stage: str) -> None:
        statuses[status] += 1
        if status is not Status.COMPLETED:
            here = stages.setdefault(stage, {})
            here[status.value] = here.get(status.value, 0) + 1

    for number, item in enumerate(each(ctx, replace(query, with_content=False)), 1):
        row, stage = item.row, plan.by_name.get(item.row.stage)
        add(row.status, row.stage)
        late_ms = None if stage is None else stage.overdue_ms
        overdue += late_ms is not None and row.status in LIVE and row.entered_at + late_ms <= now
        if on_progress is not None:
            on_progress(number)
    for seal in chain.from_iterable(seal_pages(ctx.ledger, query.route, SEALS)):
        if seal.key.startswith(query.prefix or "") and all(part.matches(seal.key) for part in query.parts):
            add(seal.status, seal.stage)
            left += 1
    return PartSummary(
        query.route,
        statuses.total(),
        statuses[Status.COMPLETED],
        sum(statuses[status] for status in LIVE),
        sum(statuses[status] for status in FAILED),
        statuses[Status.CANCELLED],
        overdue,
        left,
        {name: stages[name] for name in (*plan.by_name, *stages) if name in stages},
    )
