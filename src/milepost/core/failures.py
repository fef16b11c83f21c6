"""Failing: a counted try, what the next one's delay is, and which errors are alike."""

from __future__ import annotations

import re
from hashlib import sha256

from msgspec.structs import replace

from milepost.core.change import FREE, NOBODY, Author, Change, Fields, also, change, end
from milepost.core.history import Attempt, claim_digest
from milepost.core.item import Failure, Row
from milepost.core.outcome import Reject, Retry, bounded_traceback
from milepost.core.routes.route import Stage
from milepost.core.status import Reason, Status
from milepost.core.values.durations import span_ms
from milepost.core.values.redaction import redacted, redacted_text

MESSAGE_LIMIT = 2_000
CANNOT_BE_STORED = "CANNOT_BE_STORED"
"""Category of a try whose outcome the ledger's storage could not take."""
CANNOT_BE_READ = "CANNOT_BE_READ"
"""Category of an item whose row or content the ledger's storage cannot read any more."""


def fail(
    row: Row,
    stage: Stage,
    outcome: Retry | Reject,
    now: int,
    jitter: float,
    fields: Fields,
    author: Author = NOBODY,
    response_ms: int | None = None,
) -> Change:
    """A counted try: another one later, or the end. At the threshold the item ends MAX_RETRIES_EXCEEDED. The lane's breaker counts it
    too, unless it says nothing about the stage's partner: a rejected item, an outcome that the ledger's storage cannot take."""
    failed = _fail(row, stage, outcome, now, jitter, fields, author, response_ms)
    breaker = None if isinstance(outcome, Reject) or outcome.category == CANNOT_BE_STORED else stage.breaker_of(row.lane)
    return failed if breaker is None else replace(failed, breaker=breaker)


def _fail(
    row: Row, stage: Stage, outcome: Retry | Reject, now: int, jitter: float, fields: Fields, author: Author, response_ms: int | None
) -> Change:
    number, retry = row.attempts + 1, stage.retry_of(row.lane)
    message = message_of(outcome)
    details = redacted(outcome.details)
    failure = Failure(outcome.category, message, now, group_of(stage.name, outcome.category, message), details, outcome.http_status)
    # Kept at an end too: a person's retry must ask first as well.
    unknown = isinstance(outcome, Retry) and outcome.unknown
    fields |= {"attempts": number, "total_attempts": row.total_attempts + 1, "unknown": unknown}
    facts = (number, outcome.category, message, details, response_ms, outcome.http_status)
    # In the line alone: the row is on every write's way.
    trace = None if outcome.traceback is None else bounded_traceback(outcome.traceback)
    if isinstance(outcome, Reject):
        return also(end(row, Reason.REJECTED, now, Status.REJECTED, author, failure, attempt=Attempt(*facts, traceback=trace)), **fields)
    if number >= retry.attempts:
        attempt = Attempt(*facts, traceback=trace)
        return also(end(row, Reason.EXHAUSTED, now, Status.MAX_RETRIES_EXCEEDED, author, failure, attempt=attempt), **fields)
    floor = None if outcome.after is None else span_ms(outcome.after, "after")
    delay = retry.delay(row.attempts, jitter, floor)
    next_at = row.not_earlier(now + delay.ms)
    fields |= FREE
    fields |= {"look_at": next_at, "error": failure, "handed_over": False, "undecided": None}
    attempt = Attempt(*facts, delay.ms, delay.exponential_ms, delay.jitter_ms, next_at, trace)
    return change(row, Reason.RETRY, now, Status.RETRY_SCHEDULED, fields, author, attempt=attempt)


def unstorable(row: Row, stage: Stage, reason: str, now: int, jitter: float, response_ms: int | None = None) -> Change:
    """A counted try instead of a write that the storage cannot take, in as little room as can be: the row's note goes."""
    outcome = Retry(f"this outcome cannot be stored: {reason[:300]}", category=CANNOT_BE_STORED, unknown=True)
    return fail(row, stage, outcome, now, jitter, {"note": None}, _worker_of(row), response_ms)


def unreadable(row: Row, stage: Stage, reason: str, now: int) -> Change:
    """The end of an item whose content cannot be read any more: trying again would not help, a person has to put it right."""
    outcome = Reject(f"what it carries cannot be read: {reason[:300]}", category=CANNOT_BE_READ)
    return fail(row, stage, outcome, now, 0.0, {}, _worker_of(row))


def _worker_of(row: Row) -> Author:
    """The worker that holds the item, if one does, with its claim."""
    return Author(row.holder, row.claimed_at, claim=None if row.lease is None else claim_digest(row.lease))


def message_of(outcome: Retry | Reject) -> str:
    """What is kept of an error: without secrets, and cut to size only then, since half a secret does not always look like one."""
    return redacted_text(outcome.error[: 2 * MESSAGE_LIMIT])[:MESSAGE_LIMIT]


_VARYING = re.compile(r"[0-9a-f]{8,}(?:-[0-9a-f]{4,})*|\d+|'[^']*'|\"[^\"]*\"", re.IGNORECASE)


def group_of(stage: str, category: str, message: str) -> str:
    """A name for all errors that are alike: numbers, ids and quoted words do not make a difference."""
    like = _VARYING.sub("#", message[:300])
    return sha256(f"{stage}\x1f{category}\x1f{like}".encode()).hexdigest()[:10]
