"""The resender: called every minute it sends again what has gone quiet, tells what could not be told, and measures; once a day it
goes through everything and repairs, and sums up what was written the day before."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import asdict

from milepost.core.errors import LedgerError, RouteChanged
from milepost.engine.heads.daily import HeadKeeper
from milepost.engine.heads.route import ROUTE as HEADS
from milepost.engine.resend import Resender
from milepost.lambdas.events import tell
from milepost.lambdas.metrics import tell_run, tell_standing
from milepost.lambdas.start import LambdaContext, Opened, forget, log, logged, opened
from milepost.lambdas.traces import traced
from milepost.ledgers.aws.claim.paused_lanes import resume
from milepost.ledgers.aws.repair.repair import Repair

RESERVE_MS = 30_000
"""Kept for the end of a run; of a short one, a quarter."""
MINUTE_MS = 45_000
"""How long a run of every minute takes at most: then the next one comes."""
PAGES = 2
SUMS = 6
"""How often a run goes on with the daily head: a hundred thousand lines. The rest is for the runs after it."""
LONGEST_PAUSE_MS = 5_000
"""A repair that is to go on later than this is left to another run."""


class Kept:
    """What lasts as long as the container: where walks were cut short, and whose repair run it is."""

    def __init__(self, ready: Opened) -> None:
        self.opened = ready
        self.resender = Resender(ready.ctx)
        # Unsigned: whoever could read the functions' settings could sign with a key that stands there.
        self.heads = HeadKeeper(ready.ctx, None) if HEADS in ready.ctx.plans else None
        self.repairs = {name: Repair(ready.store, name, plan, ready.ctx.chance.jitter) for name, plan in ready.ctx.plans.items()}


_kept: Kept | None = None


def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Every minute: {}. Once a day, or by hand: {"repair": true}. What goes wrong in one step hinders no other; the first error is
    raised in the end, and the run does not count as one."""
    global _kept
    with logged(context), traced(context) as trace:
        trace.annotate(repair=bool(event.get("repair")))
        ready = opened()
        if _kept is None or _kept.opened is not ready:
            _kept = Kept(ready)
        done: dict[str, Any] = {}
        errors: list[LedgerError] = []
        changed = False
        for name, step in _steps(_kept, context, bool(event.get("repair"))).items():
            try:
                done[name] = step()
            except RouteChanged as error:
                log.warning("%s: %s", name, error)
                changed = True
            except LedgerError as error:
                log.error("%s: %s", name, error)
                errors.append(error)
        prefix = ready.store.names.prefix
        if changed:
            forget()
        if errors:
            raise errors[0]
        log.info("resent", extra=done)
        trace.note(done=done)
        tell_run(prefix)
        return done


def _steps(kept: Kept, call: LambdaContext, repair: bool) -> dict[str, Callable[[], Any]]:
    """In order. The repair comes last: it takes what time is left."""
    ready = kept.opened
    total = call.get_remaining_time_in_millis()
    reserve = min(RESERVE_MS, total // 4)
    # All but the daily run end before the next one begins.
    ends = reserve if repair else max(reserve, total - MINUTE_MS)

    def left() -> int:
        return call.get_remaining_time_in_millis() - ends

    return {
        "resent": lambda: _resend(kept.resender, left),
        "resumed": lambda: resume(ready.store, ready.ctx.clock.now()),
        "untold": lambda: tell(ready, call, ends),
        "summed up": lambda: _sum_up(kept.heads, left),
        "measured": lambda: _measure(ready),
        "alive": lambda: ready.beat(call, "resender", "sweeper", *(author.name for author in ready.tellers())),
        "repaired": lambda: {name: str(_repair(one, ready, left, repair) or "not due") for name, one in kept.repairs.items()},
    }


def _resend(resender: Resender, left: Callable[[], int]) -> dict[str, int]:
    """A few pages at a time while that moves anything and the time lasts; the next run goes on where this one stopped."""
    total: Counter[str] = Counter()
    while True:
        summary = asdict(resender.run_once(PAGES))
        more, looked = summary.pop("more"), summary.pop("looked")
        total.update({**summary, "looked": looked})
        if not (more and any(summary.values())) or left() <= 0:
            return {name: n for name, n in total.items() if n}


def _sum_up(heads: HeadKeeper | None, left: Callable[[], int]) -> str:
    """Go on with the daily head, if one is due."""
    if heads is None:
        return "no route keeps evidence"
    try:
        for _ in range(SUMS):
            if left() <= 0:
                break
            if not heads.run_once():
                return "up to date"
    except OSError as error:
        raise LedgerError(f"the daily head cannot be kept, and is tried again in a minute: {error}") from error
    return "to be gone on with"


def _measure(ready: Opened) -> None:
    """The measures of all routes; the first error is raised after the last route."""
    now = ready.ctx.clock.now()
    errors: list[LedgerError] = []
    for plan in ready.ctx.plans.values():
        if plan.name == HEADS:
            continue  # they come in at their end
        try:
            missing = ready.ledger.missing_calls(plan, now)
            tell_standing(ready.store.names.prefix, plan, ready.ledger.counts(plan.name), missing, now)
        except LedgerError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _repair(repair: Repair, ready: Opened, left: Callable[[], int], begin: bool) -> Any:
    """Go on with a run that is under way, or due; `begin` one in any case. It keeps its own pace, over as many calls as it takes."""
    clock = ready.ctx.clock
    if not begin and not repair.due(clock.now()):
        return None
    while True:
        progress = repair.step(clock.now())
        pause = 0 if progress.next_at is None else progress.next_at - clock.now()
        if progress.done or progress.standing_by or pause > min(LONGEST_PAUSE_MS, left()) or left() <= 0:
            return progress
        time.sleep(max(0, pause) / 1000)
