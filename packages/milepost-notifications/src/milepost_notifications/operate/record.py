"""Record of a message as the API gives it, and its timeline for a page, both made from the item and
its history. Pure.

In the record, `attempts` and `totalAttempts` are the item's own counts of failed tries, as in its
row on AWS. `tries` counts the finished HTTP tries of the present series, the successful one too: a
replay starts a new series, and the earlier tries stay in `retryHistory`. `lostTries` counts those
of the series that were broken off because their worker was lost; the number of a try that a partner
gets (`X-Delivery-Attempt`) counts the failed and the lost ones before it. `totalTries` and
`totalLostTries` count those of all series. `dlqBound` and `willMoveToDLQ` are always false, and
`dlqArn` is null: there is no dead-letter queue, a dead letter stays in the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

import milepost.application as mpa
from milepost_client import KEY
from milepost_notifications.outcomes import (
    NETWORK_ERROR,
    failure_line,
    response_ms,
    status_line,
    status_text,
)

FAILED = ("MAX_RETRIES_EXCEEDED", "REJECTED")
WORKER_LOST = "WORKER_LOST"
"""Category of the end of a message that has lost too many workers."""
_ANEW = frozenset({"operator-retry", "replaced", "rerun"})
"""Reasons of the lines with which an operator starts a new series of tries."""
_ELEVEN = {
    "attemptNumber": "attempt_number",
    "timestamp": "timestamp",
    "errorCategory": "error_category",
    "errorDetails": "error_details",
    "responseTime": "response_time",
    "httpStatus": "http_status",
    "retryDelaySeconds": "retry_delay_seconds",
    "exponentialDelay": "exponential_delay",
    "jitterApplied": "jitter_applied",
    "nextRetryTimestamp": "next_retry_timestamp",
    "correlationId": "correlation_id",
}
"""The eleven fields of an entry of `retryHistory`, and their names in a history line."""


def record_of(shown: Mapping[str, Any], most_attempts: int) -> dict[str, Any]:
    """The record of an item, given as `Operations.show` returns it. `most_attempts` are the tries
    that its destination allows."""
    if shown["input"] is None:
        return _sealed(shown)
    message, history = _content(shown), shown["history"]
    tries = [line for line in history if _is_try(line)]
    series = [line for line in _present_series(history) if _is_try(line)]
    failures = [line for line in history if line.get("attempt_number") is not None]
    exceeded = shown["status"] == "MAX_RETRIES_EXCEEDED"
    ended_badly = shown["status"] in FAILED
    claims = [line["claimed_at"] for line in history if line.get("claimed_at")]
    return {
        **{field: message[field] for field in KEY},
        "method": message["method"],
        "headers": mpa.redacted(message["headers"])
        if isinstance(message["headers"], Mapping)
        else {},
        "body": message["body"],
        "key": shown["key"],
        "destination": shown["lane"],
        "requestId": shown["correlation_id"],
        "status": shown["status"],
        "attempts": shown["attempts"],
        "totalAttempts": shown["total_attempts"],
        "tries": len(series),
        "totalTries": len(tries),
        "lostTries": sum(map(_is_loss, _present_series(history))),
        "totalLostTries": sum(map(_is_loss, history)),
        "createdAt": shown["created_at"],
        "deliverAt": shown["not_before"],
        "lastUpdatedAt": shown["updated_at"],
        "processingStartedAt": shown["held_since"] or (claims[-1] if claims else None),
        "lastDeliveryAttempt": tries[-1]["at"] if tries else None,
        "deliveredAt": shown["ended_at"]
        if shown["status"] == "COMPLETED" and _output(shown) is not None
        else None,
        "nextRetryAt": shown["due_at"] if shown["status"] == "RETRY_SCHEDULED" else None,
        **blocks_of(shown),
        "retryHistory": [retry_entry(line) for line in failures],
        "maxRetriesExceeded": exceeded,
        "maxRetriesExceededAt": shown["ended_at"] if exceeded else None,
        "deliveryResult": _delivery_result(shown, failures),
        "finalFailureReason": (shown["error"] or {}).get("message") if ended_badly else None,
        "finalFailureDetails": _final_failure(shown, failures, most_attempts)
        if ended_badly
        else None,
        "dlqBound": False,
    }


def blocks_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that say what keeps a message from being sent: in a word, the pauses, and the
    breaker; without its last failure, which may quote a partner's answer to another sender."""
    breaker = row["breaker"]
    held = (
        None
        if breaker is None
        else {name: value for name, value in breaker.items() if name != "error"}
    )
    return {"blocked": row["blocked"], "pauses": row["pauses"], "breaker": held}


def _content(shown: Mapping[str, Any]) -> dict[str, Any]:
    """The content with all fields: a message of a list, or of a row that another program has put,
    need not have all of them."""
    given = shown["input"] if isinstance(shown["input"], Mapping) else {}
    return {"method": "POST", "headers": {}, "body": None, **identity_of(shown["key"]), **given}


def identity_of(key: str) -> dict[str, str]:
    """The fields of a message that are in its key; those that a key of another form lacks are
    empty."""
    return dict.fromkeys(KEY, "") | dict(zip(KEY, mpa.key_parts(key), strict=False))


def retry_entry(line: Mapping[str, Any]) -> dict[str, Any]:
    """A failed try in the eleven fields of `retryHistory`; headers of the partner's answer are
    redacted."""
    return {
        name: mpa.redacted(line.get(field)) if name == "errorDetails" else line.get(field)
        for name, field in _ELEVEN.items()
    }


def _is_try(line: Mapping[str, Any]) -> bool:
    """Did a finished HTTP request make this line?"""
    if line.get("attempt_number") is not None:
        return (
            line["http_status"] is not None or line["error_details"].get("family") == NETWORK_ERROR
        )
    return line["reason"] == "completed" and line.get("claimed_at") is not None


def _is_loss(line: Mapping[str, Any]) -> bool:
    """Was a try broken off here, since its worker was lost?"""
    return bool(line["reason"] == "lost" or line.get("error_category") == WORKER_LOST)


def _present_series(history: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The lines since an operator last sent the message again."""
    for number in range(len(history) - 1, -1, -1):
        if history[number]["reason"] in _ANEW:
            return history[number:]
    return history


def _delivery_result(
    shown: Mapping[str, Any], failures: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    done = _output(shown) if shown["status"] == "COMPLETED" else None
    if done is not None:
        return {
            "success": True,
            "retryEligible": False,
            "category": "SUCCESS",
            "statusCode": done.get("statusCode"),
            "statusText": status_text(done.get("statusCode")),
            "responseTime": done.get("responseTime"),
            "errorDetails": None,
            "timestamp": shown["ended_at"],
            "correlationId": shown["correlation_id"],
            "httpResponseReceivedAt": done.get("httpResponseReceivedAt"),
        }
    if not failures:
        return None
    last = failures[-1]
    details = last["error_details"]
    return {
        "success": False,
        "retryEligible": last["next_retry_timestamp"] is not None,
        "category": last["error_category"],
        "statusCode": last["http_status"],
        "statusText": status_text(last["http_status"]),
        "responseTime": details.get("responseTime", last["response_time"]),
        "errorDetails": mpa.redacted(details),
        "timestamp": last["at"],
        "correlationId": shown["correlation_id"],
        "httpResponseReceivedAt": details.get("httpResponseReceivedAt") or None,
    }


def _output(shown: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The facts that the delivery has recorded; None: there are none. An operator may have
    confirmed it with any value instead, which has none."""
    output = (shown.get("results") or {}).get("deliver")
    return output if output is None or isinstance(output, Mapping) else {}


def _final_failure(
    shown: Mapping[str, Any], failures: Sequence[Mapping[str, Any]], most_attempts: int
) -> dict[str, Any]:
    last: Mapping[str, Any] = failures[-1] if failures else {}
    message = _content(shown)
    return {
        "totalAttempts": shown["total_attempts"],
        "maxRetries": most_attempts,
        "lastErrorCategory": last.get("error_category") or (shown["error"] or {}).get("category"),
        "lastHttpStatus": last.get("http_status"),
        "lastResponseTime": last.get("error_details", {}).get(
            "responseTime", last.get("response_time")
        ),
        "lastErrorDetails": mpa.redacted(last.get("error_details")),
        "targetUrl": message["targetUrl"],
        "senderId": message["senderId"],
        "messageTimestamp": message["timestamp"],
        "messageAgeMs": _ms_between(shown["created_at"], shown["ended_at"]),
        "exhaustedAt": shown["ended_at"],
        "willMoveToDLQ": False,
        "dlqArn": None,
    }


def _sealed(shown: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose row has left: its key and its end are known."""
    return {
        **identity_of(shown["key"]),
        "key": shown["key"],
        "status": shown["status"],
        "lastUpdatedAt": shown["updated_at"],
        "retryHistory": [],
        "removed": True,
    }


def _ms_between(begin: str, end: str) -> int:
    return round(
        (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds() * 1000
    )


# The timeline -------------------------------------------------------------------------------------
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
    "lost": "A try was broken off: its worker was lost; the partner may have the message",
    "given-back": "Given back by a worker that stopped",
    "resent": "Offered again",
    "not-yet": "Looked at; not sent yet",
    "noted": "Noted",
}
KINDS = {
    "completed": "done",
    "retry": "fail",
    "exhausted": "fail",
    "rejected": "fail",
    "lost": "fail",
}


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
    took_ms: float | None = None
    next_at: str | None = None
    answer: AnswerView | None = None


def timeline_of(shown: Mapping[str, Any]) -> list[MessageMoment]:
    """The entries of an item, given as `Operations.show` returns it, the first one first."""
    output, lines = _output(shown), shown["history"]
    last_done = max(
        (number for number, line in enumerate(lines) if line["reason"] == "completed"), default=None
    )
    return [
        _moment(line, output if number == last_done else None) for number, line in enumerate(lines)
    ]


def _moment(line: Mapping[str, Any], result: Mapping[str, Any] | None) -> MessageMoment:
    reason = line["reason"]
    # Of what a worker reports, its name says nothing to a reader.
    by = None if line.get("claimed_at") else line.get("by")
    why, kind = line.get("why"), KINDS.get(reason, "")
    if line.get("attempt_number") is None:
        took = None if result is None else response_ms(result)
        return MessageMoment(
            line["at"],
            kind,
            WORDS.get(reason, reason),
            by,
            why,
            took,
            answer=None if result is None else _answer(result),
        )
    details = line["error_details"]
    took = response_ms(details)
    ending = {"exhausted": "; that was the last try", "rejected": "; it is not tried again"}.get(
        reason, ""
    )
    status = line["http_status"]
    if status is None:
        said = f"{line['error_category']}: {details.get('message') or 'no answer'}"
    else:
        said = (
            f"{status_line(status)}: {details['message']}"
            if details.get("kind")
            else failure_line(status)
        )
    number = line["attempt_number"]
    return MessageMoment(
        line["at"],
        kind,
        f"Try {number}: {said}{ending}"
        if _is_try(line)
        else f"Attempt {number} without a finished request: {said}{ending}",
        by,
        why,
        line["response_time"] if took is None else took,
        line["next_retry_timestamp"],
        _answer(details) if details.get("response") else None,
    )


def _answer(facts: Mapping[str, Any]) -> AnswerView | None:
    response = facts.get("response")
    if not isinstance(response, Mapping):
        return None
    headers = response.get("headers")
    headers = mpa.redacted(dict(headers)) if isinstance(headers, Mapping) else {}
    body = str(response.get("body") or "")
    status = facts.get("statusCode")
    return AnswerView(
        status,
        status_text(status),
        sorted(headers.items()),
        body[:LARGEST],
        bool(response.get("cut")) or len(body) > LARGEST,
    )
