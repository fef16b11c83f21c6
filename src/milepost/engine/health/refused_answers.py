"""Refused answers: items at external stages whose last answer did not confirm them, as a health check."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from milepost.core.confirmations import REFUSED, was_refused
from milepost.core.item import Item
from milepost.core.status import Status
from milepost.engine.context import Context
from milepost.engine.health.overdue import SAMPLE
from milepost.engine.views.items import counted
from milepost.ports.documents import ROUTE, RouteVersion, read_as
from milepost.ports.items import Query

AWAITED = frozenset({Status.WAITING, Status.QUEUED})


class RefusedAnswers(Struct, frozen=True):
    """Number of items of a stage with a refused answer, and one of them with the reason. `more`: only the first items were read."""

    route: str
    stage: str
    n: int
    more: bool
    key: str
    why: str

    def text(self) -> str:
        at_least = "at least " if self.more else ""
        return f"the answers for {at_least}{counted(self.n, 'item')} at {self.route}/{self.stage} confirm nothing, such as {self.key}: {self.why}"


def external_stages(ctx: Context) -> Iterator[tuple[str, str]]:
    """(route, stage) of all external stages."""
    for route, document in sorted(ctx.ledger.read(ROUTE).items()):
        for stage, kind in read_as(RouteVersion, document.value).shape:
            if kind == "external":
                yield route, stage


def refused_at(ctx: Context, route: str, stage: str) -> RefusedAnswers | None:
    """The refused answers of one external stage, among the first items that await an answer; None if there are none."""
    page = ctx.ledger.find(Query(route=route, statuses=AWAITED, stages=frozenset({stage}), limit=SAMPLE))
    found = [item.row for item in page.items if isinstance(item, Item) and was_refused(item.row)]
    if not found:
        return None
    return RefusedAnswers(route, stage, len(found), page.next is not None, found[0].key, (found[0].note or "").removeprefix(REFUSED))
