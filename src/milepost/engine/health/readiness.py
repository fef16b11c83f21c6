"""Readiness: whether this process can take calls. A load balancer asks every few seconds: the check is cheap and reveals no names."""

from __future__ import annotations

import logging

from msgspec import Struct

from milepost.core.errors import LedgerBusy, LedgerFull, LedgerMoved, LedgerReadOnly, MilepostError
from milepost.engine.context import Context
from milepost.engine.health.checks import READY, CheckRun, run_checks
from milepost.ports.documents import PROBE

log = logging.getLogger(__name__)

TROUBLES: tuple[tuple[type[Exception], str], ...] = (
    (LedgerBusy, "it is busy"),
    (LedgerFull, "it is full"),
    (LedgerReadOnly, "it cannot be written to"),
    (LedgerMoved, "it has been moved"),
)


class Unready(Struct, frozen=True):
    """A part that is not ready. Without names of routes, keys, files or hosts: any caller may read it."""

    part: str
    why: str


def unready(ctx: Context) -> list[Unready]:
    """The parts that are not ready: the ledger, if it cannot be written, and those that the health checks name. Empty: all are ready."""
    try:
        ctx.ledger.write(PROBE, "ready", {"at": ctx.clock.now()})
        # Without snapshots of routes: nothing here is counted.
        results = run_checks(CheckRun(ctx, routes=(), thorough=False), READY)
    except Exception as error:
        if not isinstance(error, MilepostError):
            log.exception("the readiness of the ledger could not be checked")
        why = next((text for kind, text in TROUBLES if isinstance(error, kind)), "it cannot be reached")
        return [Unready("ledger", f"{why}; see the log and 'milepost doctor'")]
    return [Unready(result.part, result.unready) for result in results if result.unready]
