"""Consequences of a change: offers, events, counter deltas and the lane's breaker record, as pure functions of the change."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from milepost.core.admission.breakers import BreakerRecord, BreakerVerdict, after_failure, after_silence, after_success
from milepost.core.change import Change
from milepost.core.claims import KEPT_BY
from milepost.core.events import Event, events_of
from milepost.core.failures import CANNOT_BE_READ
from milepost.core.item import Row
from milepost.core.routes.plan import Plan
from milepost.core.status import Reason, Status

HOUR = 3_600_000

CounterKey = tuple[str, str, Status, int]
"""(route, stage, status, hour in which the item entered)."""
GroupKey = tuple[str, str, str]
"""(route, stage, error group)."""


class Offer(Struct, frozen=True):
    """Offer the item to its stage by a message, after a delay; only where the row itself is not the queue."""

    stage: str
    delay_ms: int = 0


class Consequences(Struct, frozen=True):
    offers: tuple[Offer, ...]
    events: tuple[Event, ...]
    counters: dict[CounterKey, int]
    groups: dict[GroupKey, int]


def consequences(change: Change, plan: Plan) -> Consequences:
    """All consequences of this change."""
    before, after = change.before, change.after
    offers: tuple[Offer, ...] = ()
    if after.status is Status.PENDING and (
        before.status is not Status.PENDING
        or before.stage != after.stage
        or before.version == 0
        or before.not_before != after.not_before
        or before.pass_no != after.pass_no
    ):
        offers = (Offer(after.stage, max(0, (after.not_before or 0) - after.updated_at)),)
    elif after.status in (Status.WAITING, Status.RETRY_SCHEDULED) and after.look_at is not None and after.look_at != before.look_at:
        offers = (Offer(after.stage, max(0, after.look_at - after.updated_at)),)
    counters: dict[CounterKey, int] = {}
    groups: dict[GroupKey, int] = {}
    count(before, after, counters, groups)
    events = () if change.line is None else events_of(change.line, after.route, after.key, after.correlation_id)
    return Consequences(offers, events, counters, groups)


def count_all(changes: Sequence[Change], counters: dict[CounterKey, int], groups: dict[GroupKey, int]) -> None:
    """Add the deltas of many changes. Most changes of a batch are alike, so equal ones are added up first and counted once."""
    moves: dict[tuple[str, Status, int, str, str, Status, int, bool], int] = {}
    for change in changes:
        before, after = change.before, change.after
        if before.error is not None or after.error is not None:
            count(before, after, counters, groups)
            continue
        move = (
            before.stage,
            before.status,
            before.entered_at // HOUR,
            after.route,
            after.stage,
            after.status,
            after.entered_at // HOUR,
            before.version == 0,
        )
        moves[move] = moves.get(move, 0) + 1
    for (from_stage, from_status, from_hour, route, stage, status, hour, new), n in moves.items():
        at, to = (route, from_stage, from_status, from_hour), (route, stage, status, hour)
        if not new:
            counters[at] = counters.get(at, 0) - n
        counters[to] = counters.get(to, 0) + n


def count(before: Row, after: Row, counters: dict[CounterKey, int], groups: dict[GroupKey, int]) -> None:
    """Add one change's deltas to running sums. A row of version 0 did not exist, so nothing is subtracted for it."""
    to = (after.route, after.stage, after.status, after.entered_at // HOUR)
    if before.version:
        at = (before.route, before.stage, before.status, before.entered_at // HOUR)
        if at == to:
            if before.error is after.error:
                return
        else:
            counters[at] = counters.get(at, 0) - 1
            counters[to] = counters.get(to, 0) + 1
    else:
        counters[to] = counters.get(to, 0) + 1
    # The error of an item that moves to another stage is counted there from now on.
    if before.error is not after.error or (before.error is not None and before.stage != after.stage):
        if before.error is not None:
            lost = (before.route, before.stage, before.error.group)
            groups[lost] = groups.get(lost, 0) - 1
        if after.error is not None:
            won = (after.route, after.stage, after.error.group)
            groups[won] = groups.get(won, 0) + 1


_ANSWERED = frozenset({Reason.ADVANCED, Reason.COMPLETED, Reason.NOT_YET, Reason.HANDED_OVER, Reason.REJECTED})
"""Outcomes of a worker that show that the stage's partner answers. That it rejects one item says nothing against the partner."""


def verdict_of(change: Change) -> BreakerVerdict | None:
    """What a change says about the partner of the lane that its item was in; None: it ends no claim there."""
    if change.breaker is not None:
        return BreakerVerdict.FAILED
    before, after, line = change.before, change.after, change.line
    if before.claimed_at is None or (after.claimed_at == before.claimed_at and after.lease == before.lease and after.stage == before.stage):
        return None
    if line is None:
        return BreakerVerdict.SUCCEEDED if after.status is Status.WAITING else BreakerVerdict.SILENT
    unreadable = line.attempt is not None and line.attempt.category == CANNOT_BE_READ
    return BreakerVerdict.SUCCEEDED if line.reason in _ANSWERED and line.by != KEPT_BY and not unreadable else BreakerVerdict.SILENT


def breaker_after(record: BreakerRecord | None, change: Change) -> BreakerRecord | None:
    """The record of the lane's breaker after this change; the same object: nothing has changed, None: none is to be kept."""
    verdict, key = verdict_of(change), change.before.key
    if verdict is BreakerVerdict.FAILED:
        assert change.breaker is not None, "that is what makes it a failure"
        attempt = None if change.line is None else change.line.attempt
        error = "the worker was lost" if attempt is None else f"{attempt.category}: {attempt.message}"
        return after_failure(record, change.breaker, key, error, change.after.updated_at)
    if record is None or verdict is None:
        return record
    return after_success(record, key) if verdict is BreakerVerdict.SUCCEEDED else after_silence(record, key)
