"""Failed attempts: how they are counted, the delay of the next one, and groups of similar
errors."""

from __future__ import annotations

import re
from hashlib import sha256

from msgspec.structs import replace

from milepost.core.change import (
    FREE,
    NO_AUTHOR,
    Author,
    Change,
    Fields,
    also,
    change,
    end,
    worker_of,
)
from milepost.core.history import Attempt
from milepost.core.item import Failure, Row
from milepost.core.outcome import Reject, Retry, bounded_traceback
from milepost.core.routes.route import Stage
from milepost.core.status import Reason, Status
from milepost.core.values.durations import span_ms
from milepost.core.values.redaction import redacted, redacted_text

MESSAGE_LIMIT = 2_000
CANNOT_BE_STORED = "CANNOT_BE_STORED"
"""Category of an attempt whose outcome the ledger's storage refused."""
CANNOT_BE_READ = "CANNOT_BE_READ"
"""Category of an item whose row or content the ledger cannot read any more."""


def fail(
    row: Row,
    stage: Stage,
    outcome: Retry | Reject,
    now: int,
    jitter: float,
    fields: Fields,
    author: Author = NO_AUTHOR,
    response_ms: int | None = None,
) -> Change:
    """Count a failed attempt: schedule the next one, or end the item (MAX_RETRIES_EXCEEDED at the
    stage's threshold). The lane's breaker counts it too, except a rejected item, an outcome that
    the storage refuses, and one that says so: these say nothing about whether the stage's partner
    is there."""
    number, retry = row.attempts + 1, stage.retry_of(row.lane)
    message = message_of(outcome)
    details = redacted(outcome.details)
    failure = Failure(
        outcome.category,
        message,
        now,
        group_of(stage.name, outcome.category, message),
        details,
        outcome.http_status,
    )
    # Kept at an end too: after an operator's retry, `verify` must run first as well.
    unknown = isinstance(outcome, Retry) and outcome.unknown
    fields |= {"attempts": number, "total_attempts": row.total_attempts + 1, "unknown": unknown}
    facts = (number, outcome.category, message, details, response_ms, outcome.http_status)
    # The traceback goes into the line only, because every write carries the whole row.
    trace = None if outcome.traceback is None else bounded_traceback(outcome.traceback)
    if isinstance(outcome, Reject):
        return also(
            end(
                row,
                Reason.REJECTED,
                now,
                Status.REJECTED,
                author,
                failure,
                attempt=Attempt(*facts, traceback=trace),
            ),
            **fields,
        )
    if number >= retry.attempts:
        attempt = Attempt(*facts, traceback=trace)
        failed = also(
            end(
                row,
                Reason.EXHAUSTED,
                now,
                Status.MAX_RETRIES_EXCEEDED,
                author,
                failure,
                attempt=attempt,
            ),
            **fields,
        )
    else:
        floor = None if outcome.after is None else span_ms(outcome.after, "after")
        delay = retry.delay(row.attempts, jitter, floor)
        next_at = row.not_earlier(now + delay.ms)
        fields |= FREE
        fields |= {"look_at": next_at, "error": failure, "handed_over": False, "undecided": None}
        attempt = Attempt(*facts, delay.ms, delay.exponential_ms, delay.jitter_ms, next_at, trace)
        failed = change(
            row, Reason.RETRY, now, Status.RETRY_SCHEDULED, fields, author, attempt=attempt
        )
    breaker = (
        None
        if outcome.category == CANNOT_BE_STORED or not outcome.breaker
        else stage.breaker_of(row.lane)
    )
    return (
        failed
        if breaker is None
        else replace(failed, breaker=breaker, party=stage.party_of(row.key))
    )


def unstorable(
    row: Row, stage: Stage, reason: str, now: int, jitter: float, response_ms: int | None = None
) -> Change:
    """Count a failed attempt in place of a write that the storage refuses. It is as small as
    possible: the row's note is removed."""
    outcome = Retry(
        f"this outcome cannot be stored: {reason[:300]}", category=CANNOT_BE_STORED, unknown=True
    )
    return fail(row, stage, outcome, now, jitter, {"note": None}, worker_of(row), response_ms)


def unreadable(row: Row, stage: Stage, reason: str, now: int) -> Change:
    """End an item whose content cannot be read: another attempt would not help, an operator has to
    correct it."""
    outcome = Reject(f"its content cannot be read: {reason[:300]}", category=CANNOT_BE_READ)
    return fail(row, stage, outcome, now, 0.0, {}, worker_of(row))


def message_of(outcome: Retry | Reject) -> str:
    """The stored message of an error: redacted first and then cut, since a cut secret is not always
    recognised."""
    return redacted_text(outcome.error[: 2 * MESSAGE_LIMIT])[:MESSAGE_LIMIT]


_VARYING = re.compile(r"[0-9a-f]{8,}(?:-[0-9a-f]{4,})*|\d+|'[^']*'|\"[^\"]*\"", re.IGNORECASE)


def group_of(stage: str, category: str, message: str) -> str:
    """The group name of similar errors: numbers, ids and quoted words are ignored."""
    pattern = _VARYING.sub("#", message[:300])
    return sha256(f"{stage}\x1f{category}\x1f{pattern}".encode()).hexdigest()[:10]
