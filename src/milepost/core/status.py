"""Statuses, reasons and allowed edges: the one table that the code, the tests and the diagram in the docs share."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Status(StrEnum):
    # The hash of plain text: an Enum's is written in Python, and statuses are dictionary keys for every item.
    __hash__ = str.__hash__
    PENDING = "PENDING"
    QUEUED = "QUEUED"
    PROCESSING = "PROCESSING"
    WAITING = "WAITING"
    RETRY_SCHEDULED = "RETRY_SCHEDULED"
    COMPLETED = "COMPLETED"
    MAX_RETRIES_EXCEEDED = "MAX_RETRIES_EXCEEDED"
    REJECTED = "REJECTED"
    CANCELLED = "CANCELLED"


class Reason(StrEnum):
    __hash__ = str.__hash__
    ACCEPTED = "accepted"
    OFFERED = "offered"
    CLAIMED = "claimed"
    ADVANCED = "advanced"
    COMPLETED = "completed"
    NOT_YET = "not-yet"
    HANDED_OVER = "handed-over"
    RETRY = "retry"
    EXHAUSTED = "exhausted"
    REJECTED = "rejected"
    LOST = "lost"
    GIVEN_BACK = "given-back"
    RESENT = "resent"
    CONFIRMED = "confirmed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    OPERATOR_RETRY = "operator-retry"
    MOVED = "moved"
    BACK_FILL = "back-fill"
    RERUN = "rerun"
    REPLACED = "replaced"
    RESCHEDULED = "rescheduled"
    # Lines that change no status: facts to keep with the item.
    OVERDUE = "overdue"
    KEPT = "kept"
    NOTED = "noted"
    LATE = "late"
    UNDECIDED = "undecided"


S, R = Status, Reason

TERMINAL = frozenset({S.COMPLETED, S.MAX_RETRIES_EXCEEDED, S.REJECTED, S.CANCELLED})
FAILED = frozenset({S.MAX_RETRIES_EXCEEDED, S.REJECTED})
LIVE = frozenset(Status) - TERMINAL
NOTES = frozenset({R.OVERDUE, R.KEPT, R.NOTED, R.LATE, R.UNDECIDED})

STATUS_MEANING: dict[Status, str] = {
    S.PENDING: "recorded at its stage; not yet offered",
    S.QUEUED: "offered to its stage",
    S.PROCESSING: "a worker holds the lease",
    S.WAITING: "checked and not there yet, or handed over",
    S.RETRY_SCHEDULED: "failed; next attempt at its due time",
    S.COMPLETED: "completed the last stage",
    S.MAX_RETRIES_EXCEEDED: "failed after too many attempts",
    S.REJECTED: "failed permanently",
    S.CANCELLED: "taken off the route by an operator",
}

REASON_MEANING: dict[Reason, str] = {
    R.ACCEPTED: "the item was recorded at its first stage",
    R.OFFERED: "its stage was offered the work",
    R.CLAIMED: "a worker claimed it (makes no line)",
    R.ADVANCED: "the stage is done; the item moves to the next",
    R.COMPLETED: "the last stage is done",
    R.NOT_YET: "checked, and it is not there yet",
    R.HANDED_OVER: "the work was given to a partner whose answer comes later",
    R.RETRY: "an attempt failed and counts; another follows",
    R.EXHAUSTED: "an attempt failed, and no attempts are left",
    R.REJECTED: "failed permanently",
    R.LOST: "a worker's lease expired",
    R.GIVEN_BACK: "a worker gave it back unfinished; not counted",
    R.RESENT: "its stage was offered again",
    R.CONFIRMED: "a partner or an operator confirmed the stage",
    R.SKIPPED: "an operator skipped the stage",
    R.CANCELLED: "an operator took it off the route",
    R.OPERATOR_RETRY: "an operator started it again",
    R.MOVED: "its stage was removed; `routes apply` moved it to another",
    R.BACK_FILL: "it had completed, and was sent to an added stage",
    R.RERUN: "it had completed, and an operator ran it again from a stage",
    R.REPLACED: "an operator gave it other content, and it started again",
    R.RESCHEDULED: "an operator moved the time before which it does not start",
    R.OVERDUE: "it is overdue at its stage; reported once",
    R.KEPT: "an answer came early and is kept until the item is ready for it",
    R.NOTED: "a fact was recorded that changes nothing",
    R.LATE: "an outcome came after its lease had expired, and was refused",
    R.UNDECIDED: "a process with an older route left its outcome to a newer one",
}


class Edge(NamedTuple):
    """From any of `sources` to `target`; `None` means not recorded yet."""

    sources: frozenset[Status | None]
    target: Status
    reasons: frozenset[Reason]
    who: str


def _edge(sources: Iterable[Status | None], target: Status, reasons: Iterable[Reason], who: str) -> Edge:
    return Edge(frozenset(sources), target, frozenset(reasons), who)


EDGES: tuple[Edge, ...] = (
    _edge([None], S.PENDING, [R.ACCEPTED], "intake"),
    _edge([S.PENDING], S.QUEUED, [R.OFFERED], "relay"),
    _edge([S.PENDING, S.QUEUED, S.WAITING, S.RETRY_SCHEDULED], S.PROCESSING, [R.CLAIMED], "worker"),
    _edge([S.PROCESSING], S.QUEUED, [R.GIVEN_BACK, R.LOST], "worker"),
    _edge([S.QUEUED, S.WAITING, S.RETRY_SCHEDULED], S.QUEUED, [R.RESENT], "resender"),
    _edge([S.PROCESSING], S.PENDING, [R.ADVANCED], "worker"),
    _edge([S.PROCESSING], S.COMPLETED, [R.COMPLETED], "worker"),
    _edge([S.PROCESSING], S.WAITING, [R.NOT_YET, R.HANDED_OVER], "worker"),
    _edge([S.PROCESSING, S.WAITING], S.RETRY_SCHEDULED, [R.RETRY], "worker"),
    _edge([S.PROCESSING, S.WAITING], S.MAX_RETRIES_EXCEEDED, [R.EXHAUSTED], "worker"),
    _edge([S.PROCESSING], S.REJECTED, [R.REJECTED], "worker"),
    _edge(LIVE, S.PENDING, [R.CONFIRMED, R.SKIPPED], "outside or operator"),
    _edge(LIVE, S.COMPLETED, [R.CONFIRMED, R.SKIPPED], "outside or operator"),
    _edge(LIVE, S.WAITING, [R.NOT_YET, R.HANDED_OVER], "outside"),
    _edge(LIVE, S.RETRY_SCHEDULED, [R.RETRY], "outside"),
    _edge(LIVE, S.MAX_RETRIES_EXCEEDED, [R.EXHAUSTED], "outside"),
    _edge(LIVE, S.REJECTED, [R.REJECTED], "outside"),
    _edge(LIVE, S.CANCELLED, [R.CANCELLED], "operator"),
    _edge(FAILED, S.CANCELLED, [R.CANCELLED], "operator"),
    _edge(LIVE, S.PENDING, [R.MOVED, R.OPERATOR_RETRY], "operator"),
    _edge(FAILED, S.PENDING, [R.CONFIRMED], "outside or operator"),
    _edge(FAILED, S.COMPLETED, [R.CONFIRMED], "outside or operator"),
    _edge([S.CANCELLED], S.PENDING, [R.CONFIRMED], "operator"),
    _edge([S.CANCELLED], S.COMPLETED, [R.CONFIRMED], "operator"),
    _edge(FAILED | {S.CANCELLED}, S.PENDING, [R.OPERATOR_RETRY, R.SKIPPED], "operator"),
    _edge(FAILED | {S.CANCELLED}, S.COMPLETED, [R.SKIPPED], "operator"),
    _edge([S.COMPLETED], S.PENDING, [R.BACK_FILL, R.RERUN], "operator"),
    _edge(Status, S.PENDING, [R.REPLACED], "operator"),
    _edge([S.PENDING, S.QUEUED], S.PENDING, [R.RESCHEDULED], "operator"),
)

# Where the second half of a double edge begins: two edges in one write make one line, with the first edge's reason.
_SECOND = {(S.PENDING, S.QUEUED), (S.QUEUED, S.PROCESSING), (S.PENDING, S.PROCESSING)}


def allowed(before: Status | None, after: Status, reason: Reason) -> bool:
    """Whether one write may lead from `before` to `after` with this reason."""
    if reason in NOTES:
        return before is after or (reason is R.OVERDUE and allowed(before, after, R.CLAIMED))
    for edge in EDGES:
        if before in edge.sources and reason in edge.reasons and (edge.target is after or (edge.target, after) in _SECOND):
            return True
    return False
