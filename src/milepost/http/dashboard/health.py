"""The overview's view of the health checks: one calm line, or each thing that is wrong with the page where an operator can act on it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from milepost.engine.context import Context
from milepost.engine.health.checks import OK, OVERVIEW, Look, run_checks
from milepost.engine.views.snapshot import Snapshot
from milepost.http.state.ttl_cache import TtlCache


class Notice(Struct, frozen=True):
    """Something that is not well. `level` is bad or warn; `where` is a page of ours."""

    level: str
    told: str
    where: str


class HealthPanel(Struct, frozen=True):
    """What is not well, the worst first; and the calm line, for when there is nothing."""

    notices: list[Notice]
    calm: str


def health(ctx: Context, routes: Iterable[Snapshot], *, all_seen: bool, ttl_cache: TtlCache) -> HealthPanel:
    """How these routes stand, and what they need. What belongs to no route is for those alone who see all of them."""
    look = Look(ctx, routes=routes, everything=all_seen, thorough=False, once=ttl_cache.once)
    shown = [result for result in run_checks(look, OVERVIEW) if result.headline]
    notices = [Notice(one.finding.level, one.headline, one.page) for one in shown if one.finding.level != OK]
    calm = ", ".join(one.headline for one in shown if one.finding.level == OK)
    return HealthPanel(sorted(notices, key=lambda notice: notice.level), f"All is well: {calm}.")
