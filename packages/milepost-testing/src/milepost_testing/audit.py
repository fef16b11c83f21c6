"""Audit: checks that rows, history and counters of a route agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from milepost.core.counters import HOUR
from milepost.core.decide import MAX_LOSSES
from milepost.core.history import Line, origin, verify_chain
from milepost.core.item import Item, Row
from milepost.core.routes.plan import Plan
from milepost.core.status import Reason, Status, allowed
from milepost.ports.items import Query
from milepost.ports.ledger import Ledger

SENT_ELSEWHERE = frozenset(
    {
        Reason.OPERATOR_RETRY,
        Reason.MOVED,
        Reason.BACK_FILL,
        Reason.RERUN,
        Reason.REPLACED,
        Reason.NOTED,
    }
)
"""Reasons with which operators send an item to a stage other than the next."""


def audit(ledger: Ledger, route: str, plan: Plan | None = None) -> int:
    """Check every item of a route; raises AssertionError with all problems. Returns the number of
    items.

    With a `plan`, thresholds and the order of stages are checked too.
    """
    wrong = list(problems(ledger, route, plan))
    assert not wrong, f"route {route!r} does not agree with itself:\n  " + "\n  ".join(wrong)
    return sum(1 for _ in every_item(ledger, route))


def problems(ledger: Ledger, route: str, plan: Plan | None = None) -> Iterator[str]:
    """Everything that does not agree, one sentence each."""
    items = list(every_item(ledger, route))
    rows = [item.row for item in items]
    for key, n in Counter(row.key for row in rows).items():
        if n > 1:
            yield f"{key}: has {n} rows"
    counted = {
        (count.stage, count.status, count.hour): count.n
        for count in ledger.counts(route)
        if count.n
    }
    real = dict(Counter((row.stage, row.status, row.entered_at // HOUR) for row in rows))
    if counted != real:
        yield f"counters say {_shown(counted)}, the rows say {_shown(real)}"
    grouped = {(group.stage, group.group): group.now for group in ledger.groups(route) if group.now}
    failing = dict(Counter((row.stage, row.error.group) for row in rows if row.error is not None))
    if grouped != failing:
        yield f"error groups say {grouped}, the rows say {failing}"
    for row in rows:
        for problem in (*_row_problems(row, plan), *_history_problems(ledger, row, plan)):
            yield f"{row.key}: {problem}"


def every_item(
    ledger: Ledger, route: str, limit: int = 500, *, with_content: bool = False
) -> Iterator[Item]:
    """All items of a route, page by page."""
    after = None
    while True:
        page = ledger.find(Query(route=route, after=after, limit=limit, with_content=with_content))
        yield from page.items
        after = page.next
        if after is None:
            return


def _shown(counts: dict[tuple[str, Status, int], int]) -> dict[str, int]:
    return {f"{stage}/{status}/{hour}": n for (stage, status, hour), n in sorted(counts.items())}


def _row_problems(row: Row, plan: Plan | None) -> Iterator[str]:
    if row.terminal and (row.due_at is not None or row.lease is not None):
        yield f"has ended ({row.status}) but is due at {row.due_at} or leased ({row.lease})"
    if not row.terminal and row.due_at is None:
        yield f"is {row.status} and has no due time, so it is never looked at"
    held = row.status is Status.PROCESSING and row.undecided is None
    if held != (row.lease is not None):
        yield f"is {row.status} with lease {row.lease}"
    if (
        row.claimed_at is not None
        and row.not_before is not None
        and row.claimed_at < row.not_before
    ):
        yield f"was claimed at {row.claimed_at}, and is not to start before {row.not_before}"
    if row.losses > MAX_LOSSES:
        yield f"has {row.losses} losses"
    if row.attempts > row.total_attempts:
        yield f"has {row.attempts} attempts at its stage but only {row.total_attempts} in all"
    stage = None if plan is None else plan.by_name.get(row.stage)
    if plan is not None and stage is None:
        yield f"is at {row.stage!r}, which is no stage of the route"
    if stage is not None and row.attempts > stage.retry_of(row.lane).attempts:
        yield f"has {row.attempts} attempts; the threshold of {stage.name!r} is {stage.retry_of(row.lane).attempts}"


def _history_problems(ledger: Ledger, row: Row, plan: Plan | None) -> Iterator[str]:
    written = ledger.history(row.route, row.key)
    broken = verify_chain(
        ((line.previous, line.body) for line in written),
        origin(row.route, row.key, row.input_digest, row.life),
        row.head,
    )
    if broken is not None:
        yield f"the chain is broken from line {broken} on"
    lines = [line.line for line in written]
    if [line.version for line in lines] != list(range(1, row.version + 1)):
        yield f"is at version {row.version} with lines {[line.version for line in lines]}"
    if [line.seq for line in written] != sorted({line.seq for line in written}):
        yield "its lines are not in the order written"
    if not lines:
        return
    before: Line | None = None
    for line in lines:
        yield from _step_problems(before, line, plan)
        before = line
    if row.status not in _possible(lines[-1].status):
        yield f"is {row.status}, its last line says {lines[-1].status}"
    # A line has the stage's name of its time: a name that is not in the plan has been renamed
    # since.
    if (
        plan is not None
        and row.stage != lines[-1].after_stage
        and lines[-1].after_stage in plan.by_name
    ):
        yield f"is at {row.stage!r}, its last line says {lines[-1].after_stage!r}"


def _possible(status: Status) -> set[Status]:
    """Statuses that a row may have after a line with `status`: an offer to our own stage, a claim,
    and a "not yet" that says nothing new make no line."""
    found = {status}
    if status in (Status.PENDING, Status.WAITING, Status.RETRY_SCHEDULED):
        found.add(Status.QUEUED)
    if allowed(status, Status.PROCESSING, Reason.CLAIMED):
        found.add(Status.PROCESSING)
    if Status.PROCESSING in found:
        found.add(Status.WAITING)
    return found


def _step_problems(before: Line | None, line: Line, plan: Plan | None) -> Iterator[str]:
    what = f"line {line.version} ({line.reason})"
    if before is None:
        if not allowed(None, line.status, line.reason):
            yield f"{what} begins as {line.status}"
        if plan is not None and line.stage in plan.by_name and line.stage != plan.first.name:
            yield f"{what} begins at {line.stage!r}"
        return
    if not any(allowed(status, line.status, line.reason) for status in _possible(before.status)):
        yield f"{what} leads from {before.status} to {line.status}, which no edge allows"
    if (
        plan is None
        or not {before.after_stage, line.stage, line.after_stage} <= plan.by_name.keys()
    ):
        return
    if line.stage != before.after_stage:
        yield f"{what} is at {line.stage!r}, the line before ended at {before.after_stage!r}"
    following = plan.following[line.stage]
    if (
        line.to is not None
        and line.reason not in SENT_ELSEWHERE
        and (following is None or line.to != following.name)
    ):
        yield f"{what} leads from {line.stage!r} to {line.to!r}, out of order"
    stage = plan.by_name[line.stage]
    threshold = max(retry.attempts for retry in (stage.retry, *map(stage.retry_of, stage.lanes)))
    if line.attempt is not None and line.attempt.number > threshold:
        yield f"{what} is attempt {line.attempt.number} of {threshold}"
