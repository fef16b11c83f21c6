"""Is this process ready to be given calls? Asked by whoever sends them, every few seconds: it must cost little and tell no secrets."""

from __future__ import annotations

import logging

from msgspec import Struct

from milepost.core.errors import LedgerBusy, LedgerFull, LedgerMoved, LedgerReadOnly, MilepostError
from milepost.core.values.durations import short_span
from milepost.engine.context import Context
from milepost.engine.presence import HEARD_MS, last_runs
from milepost.engine.routes.versions import outdated
from milepost.engine.views.items import live_processes
from milepost.ports.documents import PROBE

log = logging.getLogger(__name__)

TROUBLES: tuple[tuple[type[Exception], str], ...] = (
    (LedgerBusy, "it is busy"),
    (LedgerFull, "it is full"),
    (LedgerReadOnly, "it cannot be written to"),
    (LedgerMoved, "it has been moved"),
)


class Unready(Struct, frozen=True):
    """A part that is not as it should be. No names of routes, keys, files or hosts: anybody may ask."""

    part: str
    why: str


def unready(ctx: Context) -> list[Unready]:
    """The parts that are not ready: the ledger, the routes, the station, the resender. None: all are."""
    try:
        ctx.ledger.write(PROBE, "ready", {"at": ctx.clock.now()})
        return [*_routes(ctx), *_station(ctx), *_resender(ctx)]
    except Exception as error:
        if not isinstance(error, MilepostError):
            log.exception("the ledger could not be asked whether it is ready")
        why = next((text for kind, text in TROUBLES if isinstance(error, kind)), "it cannot be reached")
        return [Unready("ledger", f"{why}; the log and 'milepost doctor' say more")]


def _routes(ctx: Context) -> list[Unready]:
    old = len(outdated(ctx))
    return [Unready("routes", f"{old} of {len(ctx.plans)} are of another version than the ledger's; restart this process")] if old else []


def _station(ctx: Context) -> list[Unready]:
    """Functions on AWS say less often than a process that they live."""
    at, _ = last_runs(ctx).get("worker", (0, ""))
    if live_processes(ctx) or (ctx.ledger.timing.offer_life_ms and ctx.clock.now() - at <= HEARD_MS):
        return []
    return [Unready("station", "nobody is at work; start 'milepost up'")]


def _resender(ctx: Context) -> list[Unready]:
    at, _ = last_runs(ctx).get("resender", (0, ""))
    silent = ctx.clock.now() - at
    if at and silent <= HEARD_MS:
        return []
    since = f"has had no good run for {short_span(silent)}" if at else "has had no good run yet"
    return [Unready("resender", f"it {since}; start 'milepost up'")]
