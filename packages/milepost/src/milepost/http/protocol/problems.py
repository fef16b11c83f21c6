"""Errors over HTTP (RFC 9457): a problem with a stable code, what is wrong, in which field, and
what would be right."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from milepost.core.errors import (
    ActConflict,
    ActRefused,
    CostlyQuery,
    LedgerBusy,
    LedgerError,
    MalformedInput,
    MilepostError,
    NotAllowed,
    NotFound,
    RouteChanged,
    UsageError,
)

TYPE = "application/problem+json"


class Problem(Struct, frozen=True, omit_defaults=True):
    """An error of a call. `code` never changes its meaning; `field` names the wrong field or
    parameter."""

    status: int
    code: str
    title: str
    detail: str
    field: str | None = None
    expected: str | None = None
    extra: dict[str, Any] = {}

    def content(self) -> dict[str, Any]:
        view = {
            "type": f"urn:milepost:{self.code}",
            "title": self.title,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
        }
        hints = {"field": self.field, "expected": self.expected}
        return view | {name: text for name, text in hints.items() if text is not None} | self.extra


class ProblemError(Exception):
    """Raised anywhere in a call to answer it with this problem."""

    def __init__(self, problem: Problem, headers: dict[str, str] | None = None) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.headers = headers or {}


TITLES: dict[str, tuple[int, str]] = {
    "malformed": (400, "The request cannot be read"),
    "wrong-value": (400, "A value is wrong"),
    "costly": (400, "No index serves this query, and the table is large"),
    "no-key": (401, "The key is missing or unknown"),
    "not-allowed": (403, "The key does not allow this"),
    "not-local": (403, "Without keys only this machine may call"),
    "bad-origin": (403, "The request does not come from a page of this server"),
    "not-found": (404, "Not found"),
    "unknown-path": (404, "No such path"),
    "unknown-route": (404, "No such route"),
    "unknown-stage": (404, "No such stage"),
    "unknown-item": (404, "No such item"),
    "unknown-act": (404, "No such act"),
    "unknown-list": (404, "No such list"),
    "unknown-subscriber": (404, "No such subscriber"),
    "wrong-method": (405, "The path does not support this method"),
    "too-slow": (408, "The request was too slow"),
    "conflict": (409, "It conflicts with what is recorded"),
    "ended": (409, "The item has ended"),
    "refused": (409, "It is not possible in the present state"),
    "lease-lost": (409, "The lease is not valid any more"),
    "route-changed": (409, "The route has changed"),
    "too-large": (413, "The body is too large"),
    "wrong-type": (415, "The body has the wrong type"),
    "malformed-item": (422, "The item cannot be accepted"),
    "too-many": (429, "Too many requests"),
    "head-too-large": (431, "The head of the request is too large"),
    "failed": (500, "Internal error"),
    "lacking": (501, "This ledger cannot do that"),
    "busy": (503, "The ledger is busy"),
    "unavailable": (503, "The ledger cannot be used now"),
    "not-ready": (503, "Not ready"),
}
"""Every code, with its status and title."""


_CODES: tuple[tuple[type[MilepostError], str], ...] = (
    (RouteChanged, "route-changed"),
    (ActRefused, "refused"),
    (ActConflict, "conflict"),
    (LedgerBusy, "busy"),
    (LedgerError, "unavailable"),
    (CostlyQuery, "costly"),
    (NotFound, "not-found"),
    (NotAllowed, "not-allowed"),
    (UsageError, "wrong-value"),
)
"""Codes of Milepost's own errors: the first kind that an error is of counts."""


def problem(
    code: str, detail: str, *, field: str | None = None, expected: str | None = None, **extra: Any
) -> Problem:
    status, title = TITLES[code]
    return Problem(status, code, title, detail, field, expected, extra)


def problem_error(
    code: str, detail: str, *, field: str | None = None, expected: str | None = None, **extra: Any
) -> ProblemError:
    return ProblemError(problem(code, detail, field=field, expected=expected, **extra))


def problem_of(error: MilepostError) -> Problem:
    """The problem for one of Milepost's own errors."""
    if isinstance(error, MalformedInput):
        return problem(
            "malformed-item", str(error), field=error.field or None, expected=error.expected or None
        )
    return problem(
        next((code for kind, code in _CODES if isinstance(error, kind)), "failed"), str(error)
    )
