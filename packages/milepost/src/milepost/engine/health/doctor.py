"""Two views of the health checks: `milepost doctor`, which says what to do, and the readiness of a
process to take calls."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from milepost.core.errors import (
    LedgerBusy,
    LedgerFull,
    LedgerMoved,
    LedgerReadOnly,
    MilepostError,
    TooManyOpenFiles,
)
from milepost.core.values.durations import iso
from milepost.engine.context import Context
from milepost.engine.health.checks import run_checks
from milepost.engine.health.findings import BAD, DOCTOR, OK, READY, WARN, CheckRun, Finding
from milepost.engine.views.items import clock_time
from milepost.engine.views.timestamps import Watch
from milepost.ports.documents import PROBE

log = logging.getLogger(__name__)

TROUBLES: tuple[tuple[type[Exception], str], ...] = (
    (LedgerBusy, "it is busy"),
    (LedgerFull, "it is full"),
    (TooManyOpenFiles, "too many files are open"),
    (LedgerReadOnly, "it cannot be written to"),
    (LedgerMoved, "it has been moved"),
)


class Health(Struct, frozen=True):
    """`level` is the worst level of all findings. `ledger`: facts about it."""

    at: str | None
    level: str
    ledger: dict[str, Any]
    findings: list[Finding]


def doctor(ctx: Context, format_time: Callable[[int, int], str] = clock_time) -> Health:
    """Run every check once; each is cheap for any number of items. `format_time` formats the times
    in the findings."""
    ctx.check_clock()
    run = CheckRun(ctx, Watch(ctx.clock.now(), format_time))
    facts = {**run.facts, "lacks": sorted(ctx.ledger.missing_capabilities)}
    findings = [result.finding for result in run_checks(run, DOCTOR) if result.finding.what]
    level = next(
        (one for one in (BAD, WARN) if any(finding.level == one for finding in findings)), OK
    )
    return Health(iso(run.now), level, facts, findings)


class Unready(Struct, frozen=True):
    """A part that is not ready. Without names of routes, keys, files or hosts: any caller may read
    it."""

    part: str
    why: str


def unready(ctx: Context) -> list[Unready]:
    """The parts that are not ready: the ledger, if it cannot be written, and those that the health
    checks name. Empty: all are ready. A load balancer asks every few seconds: this is cheap and
    reveals no names."""
    try:
        ctx.ledger.write(PROBE, "ready", {"at": ctx.clock.now()})
        # Without snapshots of routes: nothing here is counted.
        results = run_checks(CheckRun(ctx, routes=(), thorough=False), READY)
    except Exception as error:
        if not isinstance(error, MilepostError):
            log.exception("the readiness of the ledger could not be checked")
        why = next(
            (text for kind, text in TROUBLES if isinstance(error, kind)), "it cannot be reached"
        )
        return [Unready("ledger", f"{why}; see the log and 'milepost doctor'")]
    return [Unready(result.part, result.unready) for result in results if result.unready]
