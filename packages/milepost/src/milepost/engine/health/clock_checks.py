"""Health checks of clocks: which clock each process uses, how far a machine's clock is off, and
rows that are dated in the future."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from milepost.core.clocks import CORRECTED_MS, FOLLOWED_MS
from milepost.core.status import FAILED, LIVE, Status
from milepost.core.values.durations import short_span
from milepost.engine.act_log import all_acts
from milepost.engine.context import Context
from milepost.engine.health.findings import OK, WARN, CheckResult, CheckRun, Finding
from milepost.engine.views.items import SIGNED, counted, route_names
from milepost.ports.clock import ClockState
from milepost.ports.items import Query

SAMPLE = 1000
SHOWN_STATUSES = (LIVE, FAILED | {Status.CANCELLED})
"""Completed rows are left out: nothing is due for them, and no index finds them by date."""


def clocks(run: CheckRun) -> Iterator[CheckResult]:
    """The clock of this process, and those of the running processes that are off or not sure of the
    time."""
    yield _clock_of(run, "this process", run.ctx.check_clock(), quiet=False)
    for process in run.alive:
        if process.clock is not None and (process.clock.doubt or process.clock.offset_ms):
            yield _clock_of(run, process.holder, process.clock, quiet=True)
        if process.seen_at > run.now + FOLLOWED_MS:
            ahead = short_span(process.seen_at - run.now)
            what = f"the last heartbeat of {process.holder} is dated {ahead} ahead: the clock of its machine was set back since, or is wrong"
            yield _warn(
                "clock",
                what,
                "set the machine's clock by a time server; then restart that process if it is still named here",
            )


def _clock_of(run: CheckRun, process: str, clock: ClockState, *, quiet: bool) -> CheckResult:
    since = "" if clock.since is None else f", since {run.watch.when(clock.since)}"
    if clock.doubt:
        what = f"{process} is running, but claims and resends nothing: {clock.stops_work}"
        return _warn(
            "clock", what, "check its network and its machine's clock; it continues by itself"
        )
    if abs(clock.offset_ms) > CORRECTED_MS:
        side = "behind" if clock.offset_ms > 0 else "ahead"
        what = f"{process} uses {clock.source}; its machine's clock is {short_span(clock.offset_ms)} {side}{since}"
        return _warn(
            "clock", what, "set the machine's clock by a time server; Milepost corrects for it"
        )
    return CheckResult(
        Finding(OK, "clock", "" if quiet else f"{process} uses {clock.source}{since}")
    )


def future_rows(run: CheckRun) -> Iterator[CheckResult]:
    """Items that are dated in the future, by a clock that was ahead when they were written."""
    for route in route_names(run.ctx):
        if not run.sees(route):
            continue
        if run.ctx.ledger.work_queues:
            yield _counted_future(run, route)
            continue
        n, more = run.once(future_rows_key(route), partial(count_future, run.ctx, route, run.now))
        if n:
            many = future_text(route, n, more)
            what = f"{many}: a clock was ahead when they were written; live ones are due now, but bulk acts leave them all out"
            cure = f"milepost redate {route} {SIGNED} dates them as of now"
            yield _warn(
                "clock", what, cure, headline=f"{many[0].upper()}{many[1:]}.", page="/system#future"
            )


def future_rows_key(route: str) -> tuple[str, ...]:
    """The name of the cached count of these rows."""
    return ("future rows", route)


def future_text(route: str, n: int, more: bool) -> str:
    return f"{'at least ' if more else ''}{counted(n, 'item')} of {route} {'is' if n == 1 else 'are'} dated in the future"


def _counted_future(run: CheckRun, route: str) -> CheckResult:
    """By the daily count of the ledger: a search would read every row."""
    counted_rows = run.once(
        ("counted future", route), partial(run.ctx.ledger.counted_future, route)
    )
    if counted_rows is None:
        what = f"it is not known whether items of {route} are dated in the future: the daily repair has not counted them yet"
        return CheckResult(Finding(OK, "clock", what))
    as_of = f"as of {run.watch.when(counted_rows.as_of)}, when the daily repair began to count"
    if not counted_rows.n:
        return CheckResult(
            Finding(OK, "clock", f"no item of {route} is dated in the future, {as_of}")
        )
    redated_at = run.once(("redated", route), partial(_redated_at, run.ctx, route))
    many = f"{counted(counted_rows.n, 'item')} of {route} {'was' if counted_rows.n == 1 else 'were'} dated in the future"
    if redated_at is not None and redated_at >= counted_rows.as_of:
        what = f"{many}, {as_of}; they were redated at {run.watch.when(redated_at)}, and the next repair counts again"
        return CheckResult(Finding(OK, "clock", what))
    what = f"{many}, {as_of}: a clock was ahead when they were written; what is due for them comes too late, and bulk acts leave them out"
    cure = f"milepost redate {route} {SIGNED} dates them as of now"
    return _warn("clock", what, cure, headline=f"{many[0].upper()}{many[1:]}.")


def _redated_at(ctx: Context, route: str) -> int | None:
    """When the rows of the route were redated last, by an act that has finished."""
    return max(
        (act.finished_at for act in all_acts(ctx, route, "redate") if act.finished_at is not None),
        default=None,
    )


def count_future(ctx: Context, route: str, now: int) -> tuple[int, bool]:
    """The number of live and failed items dated in the future, and whether there are more."""
    n, more = 0, False
    for statuses in SHOWN_STATUSES:
        page = ctx.ledger.find(
            Query(route=route, statuses=statuses, dated_from=now + FOLLOWED_MS + 1, limit=SAMPLE)
        )
        n += len(page.items)
        more |= page.next is not None
    return n, more


def _warn(
    about: str, what: str, cure: str, *, headline: str = "", page: str = "/system"
) -> CheckResult:
    return CheckResult(Finding(WARN, about, what, cure), headline=headline, page=page)
