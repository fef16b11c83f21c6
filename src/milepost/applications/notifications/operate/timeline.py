"""Timeline of a message for a page: what happened, in words, with the answer to each try. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

import milepost as mp
from milepost.applications.notifications.outcomes import status_line, status_text

LARGEST = 4_000
"""Characters of an answer's body that a page shows."""
WORDS = {
    "accepted": "Accepted",
    "offered": "Offered to a worker",
    "completed": "Delivered",
    "cancelled": "Cancelled",
    "operator-retry": "Sent again",
    "rerun": "Sent again",
    "replaced": "Sent again with other content",
    "rescheduled": "Set for another time",
    "lost": "Its worker was lost; the partner may have the message",
    "given-back": "Given back by a worker that stopped",
    "resent": "Offered again",
    "not-yet": "Looked at; not sent yet",
    "noted": "Noted",
}
KINDS = {"completed": "done", "retry": "fail", "exhausted": "fail", "rejected": "fail", "lost": "fail"}


class AnswerView(Struct, frozen=True):
    """A partner's answer, with secrets in its headers redacted."""

    status: int | None
    text: str | None
    headers: list[tuple[str, str]]
    body: str
    cut: bool


class MessageMoment(Struct, frozen=True):
    """One entry: when, what, by whom and why."""

    at: str
    kind: str
    """The class of its dot: `done`, `fail` or none."""
    what: str
    by: str | None = None
    why: str | None = None
    took_ms: int | None = None
    next_at: str | None = None
    answer: AnswerView | None = None


def timeline_of(shown: Mapping[str, Any]) -> list[MessageMoment]:
    """The entries of an item, given as `Operations.show` returns it, the first one first."""
    results = shown.get("results") or {}
    lines = shown["history"]
    last_done = max((number for number, line in enumerate(lines) if line["reason"] == "completed"), default=None)
    return [_moment(line, results.get("deliver") if number == last_done else None) for number, line in enumerate(lines)]


def _moment(line: Mapping[str, Any], result: Mapping[str, Any] | None) -> MessageMoment:
    reason = line["reason"]
    # Of what a worker reports, its name says nothing to a reader.
    by = None if line.get("claimed_at") else line.get("by")
    why, kind = line.get("why"), KINDS.get(reason, "")
    if line.get("attempt_number") is None:
        took = None if result is None else result.get("responseTime")
        return MessageMoment(line["at"], kind, WORDS.get(reason, reason), by, why, took, answer=None if result is None else _answer(result))
    details = line["error_details"]
    ending = {"exhausted": "; that was the last try", "rejected": "; it is not tried again"}.get(reason, "")
    status = line["http_status"]
    said = status_line(status) if status is not None else f"{line['error_category']}: {_message(details)}"
    return MessageMoment(
        line["at"],
        kind,
        f"Try {line['attempt_number']}: {said}{ending}",
        by,
        why,
        details.get("responseTime", line["response_time"]),
        line["next_retry_timestamp"],
        _answer(details) if details.get("response") else None,
    )


def _message(details: Mapping[str, Any]) -> str:
    return str(details.get("message") or "no answer")


def _answer(facts: Mapping[str, Any]) -> AnswerView | None:
    response = facts.get("response")
    if not isinstance(response, Mapping):
        return None
    headers = mp.redacted(dict(response.get("headers") or {}))
    body = str(response.get("body") or "")
    status = facts.get("statusCode")
    return AnswerView(
        status, status_text(status), sorted(headers.items()), body[:LARGEST], bool(response.get("cut")) or len(body) > LARGEST
    )
