"""`milepost doctor`: the findings of every health check, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from milepost.core.values.durations import iso
from milepost.engine.context import Context
from milepost.engine.health.checks import BAD, DOCTOR, OK, WARN, CheckRun, Finding, run_checks
from milepost.engine.views.items import clock_time
from milepost.engine.views.timestamps import Watch


class Health(Struct, frozen=True):
    """`level` is the worst level of all findings. `ledger`: facts about it."""

    at: str | None
    level: str
    ledger: dict[str, Any]
    findings: list[Finding]


def doctor(ctx: Context, format_time: Callable[[int, int], str] = clock_time) -> Health:
    """Run every check once; each is cheap for any number of items. `format_time` formats the times in the findings."""
    run = CheckRun(ctx, Watch(ctx.clock.now(), format_time))
    facts = {**run.facts, "lacks": sorted(ctx.ledger.missing_capabilities)}
    findings = [result.finding for result in run_checks(run, DOCTOR) if result.finding.what]
    level = next((one for one in (BAD, WARN) if any(finding.level == one for finding in findings)), OK)
    return Health(iso(run.now), level, facts, findings)
