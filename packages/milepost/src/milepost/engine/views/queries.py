"""Conditions of item queries, such as parts of a composite key; the cost of a query that no index
serves, and the progress of the items that a query finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import LedgerBusy, UsageError
from milepost.core.item import Item, KeyPart
from milepost.core.routes.parsed_input import key_fields as fields_of
from milepost.core.status import FAILED, LIVE, Status
from milepost.core.values.key_text import SEPARATOR, escape_part
from milepost.engine.context import Context
from milepost.engine.ledger_pages import left_failures, matching_seals
from milepost.engine.views.items import each, lists
from milepost.ports.handler import attach_of
from milepost.ports.items import KnownKey, Query
from milepost.ports.upkeep import ScanCost

LISTS = 5
SEALS = 5_000
"""Seals read at a time."""
WARN_ROWS, CONFIRM_ROWS = 1_000, 100_000
"""Rows read without an index: warn from the first number on, ask for confirmation above the
second."""
WORDS = {"failed": FAILED, "live": LIVE}
"""Names for sets of statuses."""


def cost_text(route: str, cost: ScanCost) -> str:
    """The cost of a query without an index, in words."""
    price = (
        ""
        if cost.dollars is None
        else ", less than a cent"
        if cost.dollars < 0.01
        else f", ${cost.dollars:,.2f}"
    )
    return f"no index serves this: all {cost.rows:,} rows of {route} are read, about {cost.units:,} read units{price}"


def count_of_matches(ctx: Context, query: Query) -> int | None:
    """Approximate number of items that match, if the counters can tell: they know statuses and
    stages."""
    known = Query(
        route=query.route,
        statuses=query.statuses,
        stages=query.stages,
        with_content=query.with_content,
        limit=query.limit,
    )
    if query != known:
        return None
    statuses, stages = query.statuses, query.stages
    counts = [
        count
        for count in ctx.ledger.counts(query.route)
        if statuses is None or count.status in statuses
    ]
    return sum(count.n for count in counts if stages is None or count.stage in stages)


def statuses_of(words: Iterable[str]) -> frozenset[Status] | None:
    """The statuses that these words name; None if there are no words."""
    found: set[Status] = set()
    for word in words:
        if word.lower() in WORDS:
            found |= WORDS[word.lower()]
        elif word.upper() in Status.__members__:
            found.add(Status[word.upper()])
        else:
            raise UsageError(
                f"there is no status {word!r}; use {', '.join(Status)}, failed or live"
            )
    return frozenset(found) or None


def list_ids(ctx: Context, route: str, name: str) -> frozenset[str]:
    """The list with that id, or all with that name."""
    records = lists(ctx, route)
    found = frozenset(record.id for record in records if record.id == name)
    found = found or frozenset(record.id for record in records if record.name == name)
    if found:
        return found
    known = (
        ", ".join(list(dict.fromkeys(record.name for record in reversed(records)))[:LISTS])
        or "none"
    )
    raise UsageError(
        f"route {route!r} has no list {name!r}; the latest are: {known}; see 'milepost lists {route}'"
    )


def attach_all(ctx: Context) -> None:
    """Give each handler with an `attach` method the function `present_and_failed` for its route."""
    for plan in ctx.plans.values():
        for stage in plan.stages:
            attach = attach_of(stage.handler)
            if attach is not None:
                attach(partial(present_and_failed, ctx, plan.name))


def present_and_failed(ctx: Context, route: str, prefix: str) -> list[Item | KnownKey]:
    """The items of the route whose keys have this prefix, without content, and the seals of failed
    ones whose rows have left. Raises LedgerError while the ledger does not know all of the
    latter."""
    query = Query(route=route, prefix=prefix)
    # A row that leaves meanwhile is found by its seal.
    rows: dict[str, Item | KnownKey] = {item.key: item for item in each(ctx, query)}
    if not ctx.ledger.left_failures(route, prefix, None, 1).complete:
        raise LedgerBusy(
            "it is not known yet which failed items have left: the old seals are read by the repair, which runs by itself"
        )
    left: dict[str, Item | KnownKey] = {
        seal.key: seal for seal in left_failures(ctx.ledger, query, SEALS)
    }
    return list((left | rows).values())


class PartSummary(Struct, frozen=True):
    """Progress of items that share a part of their key. `left`: items known only by their seals,
    because their rows were removed; `overdue`: items past their stage's overdue mark."""

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
    """The fields of the route's key; none if a function makes it. Only the route file knows
    them."""
    if route not in ctx.plans:
        raise UsageError(
            f"the key fields of {route!r} are only in its route file: give --routes file.py"
        )
    return tuple(fields_of(ctx.plan(route).route.key))


def read_parts(ctx: Context, route: str, parts: Iterable[str]) -> tuple[KeyPart, ...]:
    """Parse conditions such as "batchId=B-7" on the fields of the route's key."""
    given = list(parts)
    if not given:
        return ()
    fields = key_fields(ctx, route)
    return tuple(
        KeyPart(fields.index(field), escape_part(text))
        for field, text in named_parts(ctx, route, given)
    )


def named_parts(ctx: Context, route: str, given: Iterable[str]) -> list[tuple[str, str]]:
    """Fields of the route's key and their texts, each as in a key (see `Route.key_forms`)."""
    fields, forms = key_fields(ctx, route), ctx.plan(route).route.key_forms
    if len(fields) < 2:
        raise UsageError(
            f"the key of route {route!r} has a single field; filter by the key itself, or by its prefix"
        )
    found = []
    for part in given:
        field, _, value = part.partition("=")
        if field.strip() not in fields or not value.strip():
            raise UsageError(
                f"invalid key part {part!r}; write FIELD=VALUE, with a key field of {route!r}: {', '.join(fields)}"
            )
        name, text = field.strip(), value.strip()
        found.append((name, forms[name](text) if name in forms else text))
    return found


def keys_with_first_part(ctx: Context, route: str, text: str, limit: int) -> list[str]:
    """Keys of rows whose first part is this text, such as all batches of an asset; none if the key
    has one field."""
    if route not in ctx.plans or len(key_fields(ctx, route)) < 2:
        return []
    query = Query(route=route, prefix=escape_part(text) + SEPARATOR)
    return [item.key for item in each(ctx, query, limit)]


def summary(
    ctx: Context, query: Query, on_progress: Callable[[int], None] | None = None
) -> PartSummary:
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
    for seal in matching_seals(ctx.ledger, query, SEALS):
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
