"""Health panel of the overview: "all is well" in one line, or each problem with a link to the page where an operator can act."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from milepost.engine.context import Context
from milepost.engine.health.checks import OK, OVERVIEW, CheckRun, run_checks
from milepost.engine.views.snapshot import Snapshot
from milepost.http.state.ttl_cache import TtlCache


class Notice(Struct, frozen=True):
    """A problem. `level` is bad or warn; `where` is a page of ours."""

    level: str
    text: str
    where: str


class HealthPanel(Struct, frozen=True):
    """The problems, the worst first; and the line that is shown if there are none."""

    notices: list[Notice]
    calm: str


def health(ctx: Context, routes: Iterable[Snapshot], *, all_seen: bool, ttl_cache: TtlCache) -> HealthPanel:
    """Health of these routes. Problems that belong to no route are only for callers who see all routes."""
    look = CheckRun(ctx, routes=routes, everything=all_seen, thorough=False, once=ttl_cache.once)
    shown = [result for result in run_checks(look, OVERVIEW) if result.headline]
    notices = [Notice(one.finding.level, one.headline, one.page) for one in shown if one.finding.level != OK]
    calm = ", ".join(one.headline for one in shown if one.finding.level == OK)
    return HealthPanel(sorted(notices, key=lambda notice: notice.level), f"All is well: {calm}.")
