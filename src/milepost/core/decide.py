"""What the row becomes: the rules of intake, of outcomes and of moving on. Time and chance are passed in."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

from msgspec import UNSET

from milepost.core.change import FREE, Change, change
from milepost.core.durations import span_ms
from milepost.core.history import GENESIS, Attempt, Line, encode_line, link
from milepost.core.item import Failure, Item, Put, Row, digest_of, work_id
from milepost.core.outcome import Done, HandedOver, NotYet, Outcome, Reject, Retry, outcome_from_builtins, outcome_to_builtins
from milepost.core.route import Plan, Stage
from milepost.core.status import Reason, Status

MAX_LOSSES = 10
MESSAGE_LIMIT = 2_000

# What a stage starts with: nothing of the stage before counts here.
_FRESH: dict[str, Any] = {
    **FREE,
    "attempts": 0,
    "looks": 0,
    "losses": 0,
    "unknown": False,
    "alone": False,
    "handed_over": False,
    "note": None,
    "error": None,
    "undecided": None,
}


def accept(
    plan: Plan,
    key: str,
    content: Any,
    now: int,
    *,
    correlation_id: str,
    digest: bytes,
    list_id: str | None = None,
    by: str | None = None,
) -> Change:
    """A new item at the route's first stage. `before` is the row that never was: version 0, an empty chain."""
    stage = plan.first
    status, look_at = offer(stage, now)
    offered = work_id(plan.name, key, stage.name, 1) if stage.external and status is Status.QUEUED else None
    line = Line(1, now, Reason.ACCEPTED, stage.name, status, None, by, None, None, None, None, None, offered)
    body = encode_line(line)
    after = Row(
        plan.name,
        key,
        stage.name,
        status,
        1,
        link(GENESIS, body),
        now,
        now,
        now,
        correlation_id,
        digest,
        stage.lane_of(content) if stage.lane is not None else "",
        look_at,
        None if stage.overdue_ms is None else now + stage.overdue_ms,
        list_id=list_id,
    )
    return Change(NOTHING, after, line, body)


NOTHING = Row("", "", "", Status.PENDING, 0, GENESIS, 0, 0, 0, "", b"")


def offer(stage: Stage, now: int) -> tuple[Status, int]:
    """The status and next look of an item that has just come to a stage. Without grace the offer is part of the same write."""
    if stage.grace_ms:
        return Status.PENDING, now + stage.grace_ms
    return Status.QUEUED, now + stage.offer_life_ms


def enter(item: Item, stage: Stage, now: int, *, pass_no: int | None = None) -> tuple[Status, dict[str, Any]]:
    """The fields of a row that comes to `stage` (with its offer), fresh of all counts."""
    row = item.row
    status, look_at = offer(stage, now)
    fields = dict(
        _FRESH,
        stage=stage.name,
        lane=stage.lane_of(item.input) if stage.lane is not None else "",
        look_at=now if stage.name in row.kept else look_at,
        overdue_at=None if stage.overdue_ms is None else now + stage.overdue_ms,
        entered_at=now,
        round=1,
    )
    if pass_no is not None:
        fields["pass_no"] = pass_no
    if stage.external and status is Status.QUEUED:
        fields["offered"] = work_id(row.route, row.key, stage.name, pass_no or row.pass_no)
    return status, fields


def end(status: Status, now: int) -> dict[str, Any]:
    """The fields of a row that has ended: nothing is due any more."""
    return dict(FREE, look_at=None, overdue_at=None, entered_at=now, handed_over=False, undecided=None)


def decide(
    item: Item,
    outcome: Outcome,
    plan: Plan,
    now: int,
    jitter: float,
    *,
    by: str | None = None,
    why: str | None = None,
    act: str | None = None,
    response_ms: int | None = None,
    outside: bool = False,
) -> Change:
    """The one rule for every outcome, a handler's or an outsider's.

    A kept outside outcome for the item's stage beats the worker's. `jitter` is a number in [-1, 1].
    """
    row = item.row
    if not outside and row.stage in row.kept:
        outcome, outside = outcome_from_builtins(row.kept[row.stage]), True
        by, why = "kept", None
    stage = plan.by_name[row.stage]
    teller: dict[str, Any] = {"by": by or row.holder, "since": row.claimed_at, "why": why, "act": act}
    if type(outcome) is Done:
        return pass_on(item, outcome, plan, now, Reason.CONFIRMED if outside else Reason.ADVANCED, **teller)
    kept: dict[str, Any] = {"kept": without(row.kept, row.stage)} if row.stage in row.kept else {}
    if type(outcome) is NotYet:
        return _not_yet(row, stage, outcome, now, teller, kept)
    if type(outcome) is HandedOver:
        within = span_ms(outcome.within, "within")
        fields = dict(FREE, look_at=now + within, handed_over=True, unknown=False, undecided=None, note=outcome.note, **kept)
        return change(row, Reason.HANDED_OVER, now, Status.WAITING, note=outcome.note, **teller, **fields)
    assert isinstance(outcome, (Retry, Reject))
    return fail(row, stage, outcome, now, jitter, response_ms=response_ms, **teller, **kept)


def pass_on(item: Item, done: Done, plan: Plan, now: int, reason: Reason, **teller: Any) -> Change:
    """Through this stage: on to the next, or to the end of the route."""
    row = item.row
    puts: tuple[Put, ...] = ()
    following = plan.following[row.stage]
    output = None
    if done.output is not None:
        output = digest_of(done.output).hex()
        puts = (Put("result", row.stage, done.output),)
    if row.stage in row.kept:
        teller["kept"] = without(row.kept, row.stage)
    if following is None:
        if reason is Reason.ADVANCED:
            reason = Reason.COMPLETED
        fields = end(Status.COMPLETED, now)
        return change(row, reason, now, Status.COMPLETED, output=output, puts=puts, error=None, **teller, **fields)
    payload = done.payload
    if payload is UNSET:
        # A plain "true" from outside only says yes: it is no content for the next stage to work on.
        bare = done.output is None or (done.output is True and reason is Reason.CONFIRMED)
        payload = item.payload if bare else done.output
    # Without a payload of its own a stage works on the input; one left from an earlier pass must not stand in the way.
    if payload is not item.input or following.name in item.content.payloads:
        puts = (*puts, Put("payload", following.name, payload))
    status, fields = enter(item, following, now)
    return change(row, reason, now, status, to=following.name, output=output, puts=puts, **teller, **fields)


def _not_yet(row: Row, stage: Stage, outcome: NotYet, now: int, teller: dict[str, Any], kept: dict[str, Any]) -> Change:
    after = stage.checks.after_ms(row.looks) if outcome.after is None else span_ms(outcome.after, "after")
    fields = dict(
        FREE, look_at=now + after, looks=row.looks + 1, handed_over=False, unknown=False, undecided=None, note=outcome.note, **kept
    )
    told = change(row, Reason.NOT_YET, now, Status.WAITING, note=outcome.note, **teller, **fields)
    if row.looks == 0 or outcome.note != row.note:
        return told
    # Nothing new was said: the row moves, the history does not grow.
    return Change(row, _silent(row, told.after))


def _silent(row: Row, after: Row) -> Row:
    from msgspec.structs import replace

    return replace(after, version=row.version, head=row.head)


def fail(
    row: Row,
    stage: Stage,
    outcome: Retry | Reject,
    now: int,
    jitter: float,
    *,
    response_ms: int | None = None,
    by: str | None = None,
    since: int | None = None,
    why: str | None = None,
    act: str | None = None,
    **fields: Any,
) -> Change:
    """A counted try: another one later, or the end."""
    number = row.attempts + 1
    message = outcome.error[:MESSAGE_LIMIT]
    failure = Failure(outcome.category, message, now, group_of(stage.name, outcome.category, message), outcome.details, outcome.http_status)
    fields = {**fields, **FREE, "attempts": number, "total_attempts": row.total_attempts + 1, "error": failure}
    fields |= {"handed_over": False, "undecided": None}
    teller: dict[str, Any] = {"by": by, "since": since, "why": why, "act": act}
    attempt = Attempt(number, outcome.category, message, outcome.details, response_ms, outcome.http_status)
    if isinstance(outcome, Reject):
        return change(row, Reason.REJECTED, now, Status.REJECTED, attempt=attempt, **teller, **(fields | end(Status.REJECTED, now)))
    if number >= stage.retry.attempts:
        ended = fields | end(Status.MAX_RETRIES_EXCEEDED, now)
        return change(row, Reason.EXHAUSTED, now, Status.MAX_RETRIES_EXCEEDED, attempt=attempt, **teller, **ended)
    floor = None if outcome.after is None else span_ms(outcome.after, "after")
    delay = stage.retry.delay(row.attempts, jitter, floor)
    attempt = Attempt(
        number,
        outcome.category,
        message,
        outcome.details,
        response_ms,
        outcome.http_status,
        delay.ms,
        delay.exponential_ms,
        delay.jitter_ms,
        now + delay.ms,
    )
    fields |= {"look_at": now + delay.ms, "unknown": outcome.unknown}
    return change(row, Reason.RETRY, now, Status.RETRY_SCHEDULED, attempt=attempt, **teller, **fields)


def given_back(row: Row, now: int, *, why: str, unknown: bool = False) -> Change:
    """A worker lets go of an item it has not finished: uncounted, due at once."""
    fields = dict(FREE, look_at=now, unknown=row.unknown or unknown)
    return change(row, Reason.GIVEN_BACK, now, Status.QUEUED, by=row.holder, since=row.claimed_at, why=why, **fields)


def late(row: Row, outcome: Outcome, now: int, *, by: str) -> Change:
    """A note that a worker's outcome came after its lease was gone, and was refused."""
    note = {"refused": type(outcome).__name__}
    if isinstance(outcome, (Retry, Reject)):
        note["error"] = outcome.error[:MESSAGE_LIMIT]
    return change(row, Reason.LATE, now, row.status, by=by, note=note)


def undecided(row: Row, outcome: Outcome, now: int, *, by: str) -> Change:
    """A process whose route is out of date settles what it holds: the outcome is kept as it is, due at once for a newer
    process to decide. `row` is the row as the ledger holds it now (its stage may have been renamed), still under the
    lease of whoever worked on it: the lease ends here, the holder stays on record for the line that decides."""
    told = outcome_to_builtins(outcome)
    return change(row, Reason.UNDECIDED, now, row.status, by=by, since=row.claimed_at, undecided=told, look_at=now, lease=None)


def without(kept: dict[str, Any], stage: str) -> dict[str, Any]:
    return {name: value for name, value in kept.items() if name != stage}


_VARYING = re.compile(r"[0-9a-f]{8,}(?:-[0-9a-f]{4,})*|\d+|'[^']*'|\"[^\"]*\"", re.IGNORECASE)


def group_of(stage: str, category: str, message: str) -> str:
    """A name for all errors that are alike: numbers, ids and quoted words do not make a difference."""
    like = _VARYING.sub("#", message[:300])
    return sha256(f"{stage}\x1f{category}\x1f{like}".encode()).hexdigest()[:10]
