"""Health panel of the overview: "all is well" in one line, or each problem with a link to the page where an operator can act."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from milepost.engine.context import Context
from milepost.engine.health.checks import OK, OVERVIEW, CheckResult, CheckRun, run_checks
from milepost.engine.views.caches import TtlCache
from milepost.engine.views.snapshot import Snapshot


class HealthPanel(Struct, frozen=True):
    """The problems, the worst first; and the line that is shown if there are none."""

    notices: list[CheckResult]
    calm: str


def health(ctx: Context, routes: Iterable[Snapshot], *, all_seen: bool, ttl_cache: TtlCache) -> HealthPanel:
    """Health of these routes. Problems that belong to no route are only for callers who see all routes."""
    look = CheckRun(ctx, routes=routes, everything=all_seen, thorough=False, once=ttl_cache.once)
    shown = [result for result in run_checks(look, OVERVIEW) if result.headline]
    notices = [one for one in shown if one.finding.level != OK]
    calm = ", ".join(one.headline for one in shown if one.finding.level == OK)
    return HealthPanel(sorted(notices, key=lambda notice: notice.finding.level), f"All is well: {calm}.")
