"""Acts on record: who did what to which items, and why; and how a bulk act that was cut off goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import UsageError
from milepost.core.item import Item, Row
from milepost.engine.context import Context
from milepost.ports.documents import ACT, Act, read_as
from milepost.ports.ledger import Query

BATCH = 1000
SHOWN = 100


class ActReport(Struct):
    """What an act came to. With `dry_run`, what it would come to."""

    id: str
    verb: str
    route: str
    dry_run: bool = False
    matched: int = 0
    done: int = 0
    refused: list[tuple[str, str]] = []
    """The first hundred that nothing was written for: (key, why)."""
    refused_count: int = 0
    skipped: int = 0
    """Items that this act, in an earlier run, has dealt with already."""
    retried: int = 0
    """Lost races that were decided again."""

    def refuse(self, key: str, why: str) -> None:
        self.refused_count += 1
        if len(self.refused) < SHOWN:
            self.refused.append((key, why))


class Selection(Struct, frozen=True):
    """Which items an act is for: keys, or whatever matches a query."""

    keys: tuple[str, ...] | None = None
    query: Query | None = None

    def to_record(self) -> dict[str, Any]:
        """As kept with the act. A query is kept whole; of keys, only enough to recognise them again."""
        if self.keys is not None:
            return {"keys": len(self.keys), "digest": sha256("\n".join(self.keys).encode()).hexdigest()}
        assert self.query is not None
        given = msgspec.to_builtins(replace(self.query, after=None))
        return {"query": {name: sorted(value) if isinstance(value, list) else value for name, value in given.items() if value is not None}}

    def pages(self, ctx: Context, route: str, started_at: int) -> Iterator[list[tuple[str, Item | None]]]:
        """The items with their content, a batch at a time; None for a key that there is no item for."""
        if self.keys is not None:
            for start in range(0, len(self.keys), BATCH):
                batch = self.keys[start : start + BATCH]
                yield list(zip(batch, ctx.ledger.get([(route, key) for key in batch]), strict=True))
            return
        assert self.query is not None
        # Rows changed in the millisecond in which the act began are let through here; `operate` tells them apart.
        latest = min(started_at + 1, self.query.changed_before or started_at + 1)
        query = replace(self.query, changed_before=latest, with_content=True, limit=BATCH, after=None)
        while True:
            page = ctx.ledger.find(query)
            yield [(item.key, item) for item in page.items]
            if page.next is None:
                return
            query = replace(query, after=page.next)

    def expected(self, ctx: Context) -> int | None:
        """About how many there are, where that is known without looking at each."""
        if self.keys is not None:
            return len(self.keys)
        query = self.query
        assert query is not None
        if any(value is not None for value in (query.lane, query.group, query.list_id, query.entered_before, query.changed_before)):
            return None
        return sum(
            count.n
            for count in ctx.ledger.counts(query.route)
            if (query.statuses is None or count.status in query.statuses) and (query.stages is None or count.stage in query.stages)
        )


def select(route: str, keys: Sequence[str] | None, query: Query | None) -> Selection:
    """One way of saying which, checked."""
    if (keys is None) == (query is None):
        raise UsageError("say which items: by their keys, or by a filter, not both")
    if query is not None and query.route != route:
        raise UsageError(f"the filter is for route {query.route!r}, the act for {route!r}")
    return Selection(None if keys is None else tuple(dict.fromkeys(keys)), query)


def begin(ctx: Context, act: Act, *, dry_run: bool = False) -> Act:
    """Record the act; one that has been recorded under this id before goes on as it began."""
    if not dry_run and ctx.ledger.write(ACT, act.id, act, expect=0):
        return act
    held = ctx.ledger.read(ACT).get(act.id)
    if held is None:
        return act
    begun = read_as(Act, held.value)
    for what, then, now in (("verb", begun.verb, act.verb), ("route", begun.route, act.route)):
        if then != now:
            raise UsageError(f"act {act.id!r} has the {what} {then!r}, not {now!r}; leave the id out to begin a new act")
    # A query may hold a time that was counted back from the moment of the call, so the recorded one is used, not compared.
    if {**begun.filter, "query": None} != {**act.filter, "query": None}:
        raise UsageError(f"act {act.id!r} was begun for other items or with other options; leave the id out to begin a new act")
    return begun


def selection_of(act: Act, given: Selection) -> Selection:
    """The selection that an act was begun with."""
    recorded = act.filter.get("query")
    return given if recorded is None else Selection(query=msgspec.convert(recorded, Query))


def has_line(ctx: Context, row: Row, act_id: str) -> bool:
    """Has this act written to the item already?"""
    return any(written.line.act == act_id for written in reversed(ctx.ledger.history(row.route, row.key)))


def record(ctx: Context, verb: str, route: str, by: str, reason: str, about: dict[str, Any], done: int = 1) -> None:
    """Put an act that touches no item (a pause, a limit, a release) on record."""
    now = ctx.clock.now()
    act = Act(ctx.chance.token(), verb, route, by, reason, now, about, done, finished_at=now)
    ctx.ledger.write(ACT, act.id, act)


def signed(by: str, reason: str) -> None:
    """Every act has a name and a reason."""
    if not (by and by.strip()) or not (reason and reason.strip()):
        raise UsageError("an act needs a name and a reason: --by and --reason")
