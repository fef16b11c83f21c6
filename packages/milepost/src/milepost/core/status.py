"""Statuses, reasons and allowed edges: the one table that the code, the tests and the diagram in
the docs share."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple, Self


class Word(StrEnum):
    """A word of the ledger, with its meaning for people."""

    # The hash of plain text: an Enum's is written in Python, and statuses are dictionary keys for
    # every item.
    __hash__ = str.__hash__
    _value_: str
    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:
        word = str.__new__(cls, value)
        word._value_, word.meaning = value, meaning
        return word


class Status(Word):
    PENDING = "PENDING", "recorded at its stage; not yet offered"
    QUEUED = "QUEUED", "offered to its stage"
    PROCESSING = "PROCESSING", "a worker holds the lease"
    WAITING = "WAITING", "checked and not there yet, or handed over"
    RETRY_SCHEDULED = "RETRY_SCHEDULED", "failed; next attempt at its due time"
    COMPLETED = "COMPLETED", "completed the last stage"
    MAX_RETRIES_EXCEEDED = "MAX_RETRIES_EXCEEDED", "failed after too many attempts"
    REJECTED = "REJECTED", "failed permanently"
    CANCELLED = "CANCELLED", "taken off the route by an operator"


class Reason(Word):
    ACCEPTED = "accepted", "the item was recorded at its first stage"
    OFFERED = "offered", "its stage was offered the work"
    CLAIMED = "claimed", "a worker claimed it (makes no line)"
    ADVANCED = "advanced", "the stage is done; the item moves to the next"
    COMPLETED = "completed", "the last stage is done"
    NOT_YET = "not-yet", "checked, and it is not there yet"
    CHECKED = "checked", "a fixity check was successful; it is checked again later"
    HANDED_OVER = "handed-over", "the work was given to a partner whose answer comes later"
    RETRY = "retry", "an attempt failed and counts; another follows"
    EXHAUSTED = "exhausted", "an attempt failed, and no attempts are left"
    REJECTED = "rejected", "failed permanently"
    LOST = "lost", "a worker's lease expired"
    GIVEN_BACK = "given-back", "a worker gave it back unfinished; not counted"
    RESENT = "resent", "its stage was offered again"
    CONFIRMED = "confirmed", "a partner or an operator confirmed the stage"
    SKIPPED = "skipped", "an operator skipped the stage"
    CANCELLED = "cancelled", "an operator took it off the route"
    OPERATOR_RETRY = "operator-retry", "an operator started it again"
    MOVED = "moved", "its stage was removed; `routes apply` moved it to another"
    BACK_FILL = "back-fill", "it had completed, and was sent to an added stage"
    RERUN = "rerun", "it had completed, and an operator ran it again from a stage"
    REPLACED = "replaced", "an operator gave it other content, and it started again"
    RESCHEDULED = "rescheduled", "an operator moved the time before which it does not start"
    # Lines that change no status: facts to keep with the item.
    OVERDUE = "overdue", "it is overdue at its stage; reported once"
    KEPT = "kept", "an answer came early and is kept until the item is ready for it"
    NOTED = "noted", "a fact was recorded that changes nothing"
    LATE = "late", "an outcome came after its lease had expired, and was refused"
    UNDECIDED = "undecided", "a process with an older route left its outcome to a newer one"


S, R = Status, Reason

TERMINAL = frozenset({S.COMPLETED, S.MAX_RETRIES_EXCEEDED, S.REJECTED, S.CANCELLED})
FAILED = frozenset({S.MAX_RETRIES_EXCEEDED, S.REJECTED})
LIVE = frozenset(Status) - TERMINAL
NOTES = frozenset({R.OVERDUE, R.KEPT, R.NOTED, R.LATE, R.UNDECIDED})
ACTS = frozenset(
    {
        R.SKIPPED,
        R.CANCELLED,
        R.OPERATOR_RETRY,
        R.MOVED,
        R.BACK_FILL,
        R.RERUN,
        R.REPLACED,
        R.RESCHEDULED,
    }
)
"""Reasons of lines that only an operator's act makes."""


class Edge(NamedTuple):
    """From any of `sources` to `target`; `None` means not recorded yet."""

    sources: frozenset[Status | None]
    target: Status
    reasons: frozenset[Reason]
    who: str


def _edge(
    sources: Iterable[Status | None], target: Status, reasons: Iterable[Reason], who: str
) -> Edge:
    return Edge(frozenset(sources), target, frozenset(reasons), who)


EDGES: tuple[Edge, ...] = (
    _edge([None], S.PENDING, [R.ACCEPTED], "intake"),
    _edge([S.PENDING], S.QUEUED, [R.OFFERED], "relay"),
    _edge([S.PENDING, S.QUEUED, S.WAITING, S.RETRY_SCHEDULED], S.PROCESSING, [R.CLAIMED], "worker"),
    _edge([S.PROCESSING], S.QUEUED, [R.GIVEN_BACK, R.LOST], "worker"),
    _edge([S.QUEUED, S.WAITING, S.RETRY_SCHEDULED], S.QUEUED, [R.RESENT], "resender"),
    _edge([S.PROCESSING], S.PENDING, [R.ADVANCED], "worker"),
    _edge([S.PROCESSING], S.COMPLETED, [R.COMPLETED], "worker"),
    _edge([S.PROCESSING], S.WAITING, [R.NOT_YET, R.CHECKED, R.HANDED_OVER], "worker"),
    _edge([S.PROCESSING, S.WAITING], S.RETRY_SCHEDULED, [R.RETRY], "worker"),
    _edge([S.PROCESSING, S.WAITING], S.MAX_RETRIES_EXCEEDED, [R.EXHAUSTED], "worker"),
    _edge([S.PROCESSING], S.REJECTED, [R.REJECTED], "worker"),
    _edge(LIVE, S.PENDING, [R.CONFIRMED, R.SKIPPED], "outside or operator"),
    _edge(LIVE, S.COMPLETED, [R.CONFIRMED, R.SKIPPED], "outside or operator"),
    _edge(LIVE, S.WAITING, [R.NOT_YET, R.CHECKED, R.HANDED_OVER], "outside"),
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

# Where the second half of a double edge begins: two edges in one write make one line, with the
# first edge's reason.
_SECOND = {(S.PENDING, S.QUEUED), (S.QUEUED, S.PROCESSING), (S.PENDING, S.PROCESSING)}


def allowed(before: Status | None, after: Status, reason: Reason) -> bool:
    """Whether one write may lead from `before` to `after` with this reason."""
    if reason in NOTES:
        return before is after or (reason is R.OVERDUE and allowed(before, after, R.CLAIMED))
    for edge in EDGES:
        if (
            before in edge.sources
            and reason in edge.reasons
            and (edge.target is after or (edge.target, after) in _SECOND)
        ):
            return True
    return False
