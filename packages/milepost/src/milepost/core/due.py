"""Due items: one rule for claims, expired leases, resends and overdue marks."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.change import FREE, Author, Change, Fields, also, change, end, worker_of
from milepost.core.decide import MAX_LOSSES, decide
from milepost.core.failures import fail
from milepost.core.history import Attempt
from milepost.core.item import Failure, Item, Row, work_id_of
from milepost.core.outcome import Done, Retry, outcome_from_builtins
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Stage
from milepost.core.status import Reason, Status

_PENDING, _QUEUED, _PROCESSING = Status.PENDING, Status.QUEUED, Status.PROCESSING

FRAGILE = 2
"""After this many losses an item runs alone in its process."""


def fragile(row: Row) -> bool:
    """Whether the item has `FRAGILE` losses, including the one that claiming it now would
    record."""
    return row.losses + (row.status is Status.PROCESSING) >= FRAGILE


class Lease(Struct, frozen=True):
    """A worker's claim: holder, fresh token, expiry."""

    token: str
    holder: str
    until: int


def has_new_look(before: Row, after: Row) -> bool:
    """Whether this change sets another time at which a worker must check the item. If messages call
    workers, a message for that time follows."""
    if after.status is _PENDING:
        return (
            before.status is not _PENDING
            or before.stage != after.stage
            or before.version == 0
            or before.not_before != after.not_before
            or before.pass_no != after.pass_no
        )
    return after.status in (Status.WAITING, Status.RETRY_SCHEDULED) and after.look_at not in (
        None,
        before.look_at,
    )


def look(
    item: Item, plan: Plan, now: int, jitter: float, lease: Lease | None, *, called: bool = False
) -> Change | None:
    """The change for a due item. With a `lease` the item is claimed if it is ready for work;
    without one (the resender) only changes that need no worker are made. None: nothing to do for
    this caller.

    `called`: a message brought the worker here. Then an offered item is ready before its due time
    (at that time it would be offered again), and an item with a lease is left alone: the resender
    writes its loss.
    """
    row = item.row
    stage = plan.by_name.get(row.stage)
    if stage is None or row.terminal:
        return None
    status = row.status
    held = status is _PROCESSING
    expired = row.look_at is not None and row.look_at <= now and not row.later_than(now)
    if (
        row.look_at == now
        and stage.external
        and status is _QUEUED
        and plan.route.dialect == "today"
    ):
        expired = False  # as in today's resender, an offer exactly as old as its queue's retention is not sent again yet
    if row.undecided is not None and held:
        return decide(item, outcome_from_builtins(row.undecided), plan, now, jitter, by=row.holder)
    if called:
        if held:
            return None
        expired = expired or (status in (_PENDING, _QUEUED) and not row.later_than(now))
    if row.stage in row.kept and (not held or expired):
        confirmed = decide(item, Done(), plan, now, jitter, expired=held)
        return replace(confirmed, expired_at=row.look_at) if held else confirmed
    overdue = row.overdue_at is not None and row.overdue_at <= now
    if not expired:
        return _report_overdue(row, now) if overdue else None
    if held:
        return replace(
            _lost(row, stage, now, lease),
            expired_at=row.look_at,
            breaker=stage.breaker_of(row.lane),
            party=stage.party_of(row.key),
        )
    if row.handed_over:
        silence = Retry(
            "no answer came in time after the work was handed over",
            category="NO_ANSWER",
            unknown=True,
        )
        return fail(row, stage, silence, now, jitter, {}, Author("resender"))
    if status is _PENDING and (stage.external or lease is None):
        return offered(row, stage, now)
    if stage.external:
        return _report_overdue(row, now) if overdue else resent(row, stage, now, by="resender")
    if lease is None:
        if overdue:
            return _report_overdue(row, now)
        # If the row itself is the queue, there is nothing to offer: a worker will find it.
        return offered(row, stage, now) if stage.offer_life_ms else None
    if overdue:
        return change(
            row, Reason.OVERDUE, now, _PROCESSING, {**_claim_fields(lease, now), "overdue_at": None}
        )
    return Change(row, _claimed(row, lease, now))


def claimed_on_arrival(change: Change, now: int, lease: Lease) -> Change | None:
    """The change with its item claimed at its next stage, in the same write; None if the item is
    not simply ready there, and `look` must decide. A claim makes no line, so the history is that of
    the change alone."""
    row = change.after
    if row.status is not Status.QUEUED or row.look_at is None or row.look_at > now:
        return None
    if (
        row.kept
        or row.undecided is not None
        or row.handed_over
        or (row.overdue_at is not None and row.overdue_at <= now)
    ):
        return None
    return Change(
        change.before,
        _claimed(row, lease, now),
        change.line,
        change.body,
        change.puts,
        change.expired_at,
    )


def _claimed(row: Row, lease: Lease, now: int) -> Row:
    return replace(
        row,
        status=_PROCESSING,
        lease=lease.token,
        holder=lease.holder,
        claimed_at=now,
        look_at=lease.until,
    )


def _claim_fields(lease: Lease, now: int) -> Fields:
    return {"lease": lease.token, "holder": lease.holder, "claimed_at": now, "look_at": lease.until}


def _report_overdue(row: Row, now: int) -> Change:
    return change(row, Reason.OVERDUE, now, row.status, {"overdue_at": None})


def _lost(row: Row, stage: Stage, now: int, lease: Lease | None) -> Change:
    """Record a loss: the lease has expired, and the result of that try is unknown. A loss is not an
    attempt."""
    losses = row.losses + 1
    author = worker_of(row)
    if losses >= MAX_LOSSES:
        message = f"{losses} workers were lost while they held this item"
        failure = Failure("WORKER_LOST", message, now, "worker-lost")
        attempt = Attempt(row.attempts + 1, "WORKER_LOST", message)
        lost = end(
            row,
            Reason.EXHAUSTED,
            now,
            Status.MAX_RETRIES_EXCEEDED,
            author,
            failure,
            attempt=attempt,
        )
        return also(lost, losses=losses, unknown=True)
    fields = {"losses": losses, "unknown": True}
    if lease is None:
        fields |= {**FREE, "look_at": now + stage.offer_life_ms}
        return change(row, Reason.LOST, now, Status.QUEUED, fields, author)
    return change(
        row, Reason.LOST, now, Status.PROCESSING, {**fields, **_claim_fields(lease, now)}, author
    )


def offered(row: Row, stage: Stage, now: int) -> Change:
    """Offer the stage. Only the offer of an external stage makes a history line, because it is an
    event for the partner."""
    look_at = now + stage.offer_life_ms
    if not stage.external:
        return Change(row, replace(row, status=Status.QUEUED, look_at=look_at, updated_at=now))
    work = work_id_of(row)
    return change(
        row, Reason.OFFERED, now, Status.QUEUED, {"look_at": look_at}, Author("relay"), offered=work
    )


def resent(
    row: Row, stage: Stage, now: int, *, by: str, why: str | None = None, act: str | None = None
) -> Change:
    """Offer a stage again, with a new line: at an external stage that is a new event with the same
    work_id. Whether work that was handed over has been done is then unknown."""
    fields = {
        **FREE,
        "look_at": now + stage.offer_life_ms,
        "handed_over": False,
        "unknown": row.unknown or row.handed_over,
    }
    offered = work_id_of(row) if stage.external else None
    return change(
        row, Reason.RESENT, now, Status.QUEUED, fields, Author(by, None, why, act), offered=offered
    )
