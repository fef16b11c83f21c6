"""How many failed items of a route have left the ledger: what status, overview and API say beside
the counts of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from msgspec import Struct

from milepost.core.values.durations import iso
from milepost.engine.context import Context
from milepost.engine.ledger_pages import left_failures
from milepost.ports.items import Query

Once = Callable[[tuple[str, ...], Callable[[], Any]], Any]
"""A cache of answers, such as `TtlCache.once`."""

LEFT = "left failures"
MOST = 1_000
"""Seals that are counted; above it the count says "at least"."""


class LeftCount(Struct, frozen=True):
    """Failed items of a route whose rows have left, by their seals. `more`: there are more than
    that. `known` is false while the ledger has not read all its old seals: then there may be more,
    too."""

    count: int
    more: bool
    known: bool
    as_of: str | None

    @property
    def any(self) -> bool:
        """Whether there is something to say."""
        return self.count > 0 or not self.known

    @property
    def text(self) -> str:
        """One sentence without an end."""
        if not self.known and not self.count:
            return "it is not known yet how many failed items have left the ledger: its old seals are being read"
        least = "at least " if self.more or not self.known else ""
        many = "1 failed item has" if self.count == 1 else f"{self.count:,} failed items have"
        return f"{least}{many} left the ledger; {'its seal says' if self.count == 1 else 'their seals say'} so"


def count_left(ctx: Context, route: str) -> LeftCount:
    """Count them. On every ledger an index or a note leads to them, so that a route without any
    costs one lookup."""
    now = ctx.clock.now()
    first = ctx.ledger.left_failures(route, "", None, 1)
    if not first.seals and first.next is None:
        return LeftCount(0, False, first.complete, iso(now))
    count = sum(
        1
        for _ in zip(
            range(MOST + 1), left_failures(ctx.ledger, Query(route=route), MOST + 1), strict=False
        )
    )
    return LeftCount(min(count, MOST), count > MOST, first.complete, iso(now))


def left_counts(
    ctx: Context, routes: Iterable[str], once: Once | None = None
) -> dict[str, LeftCount]:
    """By route; routes with nothing to say are left out. `once`: a cache, for views that are shown
    often."""
    counts = {}
    for route in routes:
        count = partial(count_left, ctx, route)
        counts[route] = count() if once is None else once((LEFT, route), count)
    return {route: count for route, count in counts.items() if count.any}
