"""Resender function: called every minute, it resends quiet items, delivers late events and reports
metrics; once a day it runs the repair scan and the daily head."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit
from msgspec.structs import asdict

from milepost.core.errors import LedgerError, RouteChanged
from milepost.core.routes.plan import Plan
from milepost.core.status import LIVE
from milepost.engine.context import Context
from milepost.engine.events.cursors import lag_of, live_cursors
from milepost.engine.events.records import parked_items
from milepost.engine.heads.daily import HeadKeeper
from milepost.engine.heads.route import ROUTE as HEADS
from milepost.engine.resend import Resender
from milepost.ports.feed import Count
from milepost_aws.lambdas.start import LambdaContext, Opened, called, deliver, forget, log, opened
from milepost_aws.ledger.claim.paused_lanes import HeldLanes
from milepost_aws.ledger.repair.repair import Repair

RESERVE_MS = 30_000
"""Time reserved for the end of a run; in a short one, a quarter."""
MINUTE_MS = 45_000
"""Maximum duration of the run of every minute: then the next one comes."""
RESENT, RESUMED, DELIVERED = 0.4, 0.75, 0.9
"""Shares of that time after which resending, resuming and delivering end, each beginning when the
one before it has ended."""
PAGES = 2
SUMS = 6
"""Steps of the daily head in one run: a hundred thousand lines. The rest is left to later runs."""
LONGEST_PAUSE_MS = 5_000
"""A repair whose next step is later than this is left to another run."""
NAMESPACE = "Milepost"
HOUR_MS = 3_600_000


class ResenderParts:
    """Parts that keep state between calls: positions of interrupted scans, and the repair runs that
    this container holds."""

    def __init__(self, ready: Opened) -> None:
        self.opened = ready
        self.resender = Resender(ready.ctx)
        self.lanes = HeldLanes(ready.store)
        # Unsigned: anyone who can read the functions' settings could sign with a key stored there.
        self.heads = HeadKeeper(ready.ctx, None) if HEADS in ready.ctx.plans else None
        self.repairs = {
            name: Repair(ready.store, plan, ready.ctx.chance.jitter)
            for name, plan in ready.ctx.plans.items()
        }


def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Every minute: {}. Once a day, or by hand: {"repair": true}. An error in one step stops no
    other; the first one is raised at the end, and the run does not count as successful."""
    with called(context) as trace:
        trace.annotate(repair=bool(event.get("repair")))
        ready = opened()
        done: dict[str, Any] = {}
        errors: list[LedgerError] = []
        undone: dict[str, str] = {}
        changed = False
        for name, step in _steps(
            ready.part(ResenderParts), context, bool(event.get("repair")), undone
        ).items():
            try:
                done[name] = step()
            except RouteChanged as error:
                log.warning("%s: %s", name, error)
                undone[name] = str(error)
                changed = True
            except LedgerError as error:
                log.error("%s: %s", name, error)
                undone[name] = str(error)
                errors.append(error)
        prefix = ready.store.names.prefix
        if changed:
            forget()
        if errors:
            raise errors[0]
        log.info("resent", extra=done)
        trace.note(done=done)
        if not ready.part(ResenderParts).resender.stands_still:
            report_run(prefix)
        return done


def _steps(
    parts: ResenderParts, call: LambdaContext, repair: bool, undone: Mapping[str, str]
) -> dict[str, Callable[[], Any]]:
    """In order. The repair comes last: it uses the remaining time. `undone`: the steps that have
    failed so far, with their errors."""
    ready = parts.opened
    total = call.get_remaining_time_in_millis()
    reserve = min(RESERVE_MS, total // 4)
    # All runs except the daily one end before the next begins.
    ends = reserve if repair else max(reserve, total - MINUTE_MS)

    def left(share: float = 1.0) -> int:
        """Milliseconds that a step still has. Under load the first steps could use all the time:
        they end at their share."""
        return call.get_remaining_time_in_millis() - ends - round((1 - share) * shared)

    shared = min(MINUTE_MS, total - ends)
    return {
        "resent": lambda: _resend(parts.resender, lambda: left(RESENT)),
        "resumed": lambda: parts.lanes.resume(ready.ctx.clock, lambda: left(RESUMED) > 0).rows,
        "undelivered": lambda: deliver(ready, call, ends + round((1 - DELIVERED) * shared)),
        "daily head": lambda: _continue_head(parts.heads, left),
        "measured": lambda: _measure(parts),
        "alive": lambda: ready.beat(call, _roles(parts, undone)),
        "repaired": lambda: {
            name: str(_repair(one, ready, left, repair) or "not due")
            for name, one in parts.repairs.items()
        },
    }


def _roles(parts: ResenderParts, undone: Mapping[str, str]) -> dict[str, str]:
    """The roles that had their turn, each with the reason why it did not do its work; empty: it
    did."""
    resender = undone.get("resent", parts.resender.stands_still)
    roles = {"resender": resender, "sweeper": undone.get("resumed", "")}
    return {
        **roles,
        **{
            relay.name: undone.get("undelivered", relay.stands_still)
            for relay in parts.opened.event_relays
        },
    }


def _resend(resender: Resender, left: Callable[[], int]) -> dict[str, int]:
    """A few pages at a time while items are resent and time is left; the next run continues where
    this one stopped."""
    total: Counter[str] = Counter()
    while True:
        summary = asdict(resender.run_once(PAGES))
        more, looked = summary.pop("more"), summary.pop("looked")
        total.update({**summary, "looked": looked})
        if not (more and any(summary.values())) or left() <= 0:
            return {name: n for name, n in total.items() if n}


def _continue_head(heads: HeadKeeper | None, left: Callable[[], int]) -> str:
    """Continue with the daily head, if one is due."""
    if heads is None:
        return "no route keeps evidence"
    try:
        for _ in range(SUMS):
            if left() <= 0:
                break
            if not heads.run_once():
                return "up to date"
    except OSError as error:
        raise LedgerError(f"cannot store the daily head; next try in a minute: {error}") from error
    return "continued in the next run"


def _measure(parts: ResenderParts) -> None:
    """Report the metrics of all routes, and those of the deployment; the first error is raised at
    the end."""
    ready, now = parts.opened, parts.opened.ctx.clock.now()
    errors: list[LedgerError] = []
    try:
        report_waiting(ready.store.names.prefix, ready.ctx, parts.lanes.oldest(now))
    except LedgerError as error:
        errors.append(error)
    for plan in ready.ctx.plans.values():
        if plan.name == HEADS:
            continue  # they come in at their end
        try:
            missing = ready.ledger.missing_messages(plan, now)
            report_stages(
                ready.store.names.prefix, plan, ready.ledger.counts(plan.name), missing, now
            )
        except LedgerError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _repair(repair: Repair, ready: Opened, left: Callable[[], int], begin: bool) -> Any:
    """Continue a run that is in progress or due; with `begin`, start one in any case. It keeps its
    own pace, over several calls."""
    clock = ready.ctx.clock
    if not begin and not repair.due(clock.now()):
        return None
    while True:
        progress = repair.step(clock)
        pause = 0 if progress.next_at is None else progress.next_at - clock.now()
        if (
            progress.done
            or progress.standing_by
            or pause > min(LONGEST_PAUSE_MS, left())
            or left() <= 0
        ):
            return progress
        time.sleep(max(0, pause) / 1000)


# CloudWatch metrics in the function's log ---------------------------------------------------------
def report_stages(
    prefix: str, plan: Plan, counts: list[Count], missing: Mapping[str, int], now: int
) -> None:
    """Report, by stage, its items, the least possible age of the oldest, and the number of items
    without a message in their queue (`missing`). Counters know only the hour, so an alarm on the
    age may be an hour late. It is false only where a function has counted a batch twice after a
    crash (see `Counters`), until the daily repair."""
    for stage in plan.stages:
        live = [
            count
            for count in counts
            if count.stage == stage.name and count.status in LIVE and count.n > 0
        ]
        ages = [now - min(now, (count.hour + 1) * HOUR_MS) for count in live]
        metrics = EphemeralMetrics(namespace=NAMESPACE)
        for name, value in (("Prefix", prefix), ("Route", plan.name), ("Stage", stage.name)):
            metrics.add_dimension(name, value)
        metrics.add_metric("Items", MetricUnit.Count, sum(count.n for count in live))
        metrics.add_metric("OldestAge", MetricUnit.Seconds, max(ages, default=0) // 1000)
        if not stage.external:
            metrics.add_metric("MissingCalls", MetricUnit.Count, missing.get(stage.name, 0))
        metrics.flush_metrics()


def report_waiting(prefix: str, ctx: Context, held_ms: int) -> None:
    """Report the age of the first line that a subscriber has not received, of the subscriber that
    is furthest behind; the number of items with an event that a subscriber refuses; and for how
    long rows of a lane have been held because of a pause or an open breaker."""
    newest, cursors = ctx.ledger.last_seq(), live_cursors(ctx)
    ages = [lag_of(ctx, cursor, newest).age_ms(ctx.clock.now()) for cursor in cursors.values()]
    parked = [one for one in parked_items(ctx) if one.subscriber in cursors]
    metrics = EphemeralMetrics(namespace=NAMESPACE)
    metrics.add_dimension("Prefix", prefix)
    metrics.add_metric("SubscriberLag", MetricUnit.Seconds, max(ages, default=0) // 1000)
    metrics.add_metric("ParkedItems", MetricUnit.Count, len(parked))
    metrics.add_metric("HeldAge", MetricUnit.Seconds, held_ms // 1000)
    metrics.flush_metrics()


def report_run(prefix: str) -> None:
    """Report a complete run of the resender."""
    metrics = EphemeralMetrics(namespace=NAMESPACE)
    metrics.add_dimension("Prefix", prefix)
    metrics.add_metric("ResenderRun", MetricUnit.Count, 1)
    metrics.flush_metrics()
