"""Conversation with the service, without I/O: what is sent, what each answer means, and when a
request is repeated.

`MessageClient` and `AsyncMessageClient` carry out the same steps, one with threads and one on an
event loop.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

import milepost_net as net
from milepost_client.message import Message, MessageRefused, check_message, plain_json

T = TypeVar("T")

LONGEST_TEXT = 500

Body = str | Mapping[str, Any] | list[Any] | None
"""The body of a request to a partner: text as it is, or an object that is sent as JSON."""


class ClientUsageError(ValueError):
    """An argument is wrong, such as the URL of the service or a time without a zone; nothing was
    sent."""


class MessageNotAccepted(Exception):
    """The service did not accept a message, and a repeat may succeed: no connection, no answer, or
    an answer of 5xx or 429, also after several tries. `unknown`: it may have accepted it all the
    same. Send it again with the same id and timestamp: it is delivered once."""

    def __init__(
        self, text: str, *, tries: int, status: int | None = None, unknown: bool = False
    ) -> None:
        super().__init__(text)
        self.tries, self.status, self.unknown = tries, status, unknown


class MessageUnknown(Exception):
    """The service has no such message, or this key may not see it."""


@dataclass(frozen=True)
class RetryPolicy:
    """How a client repeats a request: at most `attempts` tries within `within` seconds, with pauses
    that grow from `base` to `cap` seconds and are spread by ± `jitter`. A pause is never shorter
    than the answer's Retry-After."""

    attempts: int = 5
    base: float = 0.5
    cap: float = 30.0
    jitter: float = 0.25
    within: float = 120.0

    def __post_init__(self) -> None:
        if (
            self.attempts < 1
            or self.base < 0
            or self.cap < self.base
            or not 0 <= self.jitter <= 1
            or self.within < 0
        ):
            raise ClientUsageError(
                "RetryPolicy: give attempts of at least 1, 0 ≤ base ≤ cap, 0 ≤ jitter ≤ 1, and within of at least 0"
            )

    def pause(self, tries: int, chance: float, floor: float | None = None) -> float:
        """Seconds after this many failed tries, at least `floor`. `chance` is between 0 and 1."""
        usual = min(self.cap, self.base * 2.0 ** min(tries - 1, 60))
        return max(usual * (1 + self.jitter * (2 * chance - 1)), floor or 0.0)


@dataclass(frozen=True)
class MessageReceipt:
    """A message that the service has accepted: it is on disk, and will be delivered."""

    message_id: str
    timestamp: str
    sender_id: str
    target_url: str
    key: str
    """Names the message when it is read back."""
    status: str
    duplicate: bool
    """The service had it already: from an earlier call, or from a try of this one whose answer was
    lost."""
    request_id: str
    """The correlation id, by which the message is found in records, logs and the partner's
    request."""
    tries: int = 1


@dataclass(frozen=True)
class MessageState:
    """The state of a message. `record` has everything that the service knows of it."""

    key: str
    status: str
    attempts: int
    """Failed tries that the schedule has counted since the message was last sent again: 0 if it was
    delivered at once."""
    next_retry_at: str | None
    delivered_at: str | None
    failure: str | None
    """Why it ended without being delivered."""
    request_id: str
    record: Mapping[str, Any] = field(repr=False, default_factory=dict)
    tries: int = 0
    """Finished HTTP tries since it was last sent again, the successful one too."""

    @property
    def delivered(self) -> bool:
        """Has the partner accepted it?"""
        return self.status == "COMPLETED"

    @property
    def ended(self) -> bool:
        """Is nothing going to happen any more, unless an operator acts?"""
        return self.status in ("COMPLETED", "MAX_RETRIES_EXCEEDED", "REJECTED", "CANCELLED")


@dataclass(frozen=True)
class HttpCall:
    """A request to the service."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None = None


@dataclass(frozen=True)
class RetryPause:
    """A wait, in seconds."""

    seconds: float


Step = HttpCall | RetryPause
Result = net.Response | net.NetError | None
"""The answer to a call, or why there is none; None after a pause."""
Conversation = Generator[Step, Result, T]


@dataclass(frozen=True)
class _Again:
    """A try that may be repeated: why it failed, and after how many seconds at the earliest."""

    why: str
    status: int | None = None
    after: float | None = None
    unknown: bool = False


@dataclass(frozen=True)
class GivenMessage:
    """A message as a program gives it to `send`."""

    target_url: str
    body: Body
    sender_id: str | None
    message_id: str | None
    timestamp: str | datetime | None
    method: str
    headers: Mapping[str, str] | None
    deliver_at: str | datetime | None


def checked_message(given: GivenMessage, largest_body: int, now: datetime) -> tuple[Message, bytes]:
    """The message, checked as the service checks it, and the bytes to send: the same for every try.
    Raises MessageRefused."""
    if given.message_id is not None and given.timestamp is None:
        raise ClientUsageError(
            "send(message_id=…) needs timestamp=… too: the service recognises a repeat by both"
        )
    if not given.sender_id:
        raise ClientUsageError("there is no sender: give MessageClient(sender=…), or sender_id=…")
    fields: dict[str, Any] = {
        "messageId": given.message_id or str(uuid4()),
        "timestamp": _time(now if given.timestamp is None else given.timestamp),
        "senderId": given.sender_id,
        "targetUrl": given.target_url,
        "method": given.method,
        "headers": _plain(given.headers or {}),
        "body": _plain(given.body),
        "deliverAt": None if given.deliver_at is None else _time(given.deliver_at),
    }
    message = check_message(fields, largest_body)
    sent = {name: value for name, value in fields.items() if value is not None}
    sent |= {
        name: message.content[name]
        for name in ("messageId", "timestamp", "senderId", "targetUrl", "method")
    }
    try:
        return message, plain_json(sent)
    except ValueError:
        raise MessageRefused(
            "VALIDATION_ERROR",
            "Invalid body: it is no text that can be sent",
            sender=given.sender_id,
        ) from None


def sending(
    message: Message,
    data: bytes,
    correlation_id: str | None,
    policy: RetryPolicy,
    clock: Callable[[], float],
    chance: Callable[[], float],
) -> Conversation[MessageReceipt]:
    """Hand over a message. Every try is the same request, so that the service accepts one message
    however many tries arrive."""
    headers = {"Content-Type": "application/json"}
    if correlation_id is not None:
        try:
            headers |= net.checked_headers({"X-Correlation-ID": correlation_id})
        except net.InvalidRequest as error:
            raise MessageRefused(
                "VALIDATION_ERROR", f"Invalid correlation_id: {error}", sender=message.sender_id
            ) from None
    answer, tries = yield from _repeated(
        HttpCall("POST", "/message", headers, data), policy, clock, chance, _accepted
    )
    stored = answer.get("storedMessage") or {}
    return MessageReceipt(
        message.message_id,
        message.content["timestamp"],
        message.sender_id,
        message.content["targetUrl"],
        message.key,
        str(answer.get("status") or stored.get("status") or ""),
        answer.get("duplicateDetected") is True,
        str(answer.get("requestId") or ""),
        tries,
    )


def reading(
    key: str, policy: RetryPolicy, clock: Callable[[], float], chance: Callable[[], float]
) -> Conversation[MessageState]:
    """Read a message back. Raises MessageUnknown if there is none with this key."""
    call = HttpCall(
        "GET",
        f"/api/v1/notifications/messages/{quote(key, safe='')}",
        {"Accept": "application/json"},
    )
    record, _ = yield from _repeated(call, policy, clock, chance, _found)
    return MessageState(
        str(record.get("key") or key),
        str(record["status"]),
        int(record.get("attempts") or 0),
        record.get("nextRetryAt"),
        record.get("deliveredAt"),
        record.get("finalFailureReason"),
        str(record.get("requestId") or ""),
        record,
        # An older service counts all finished tries as `attempts`.
        int(record.get("tries", record.get("attempts")) or 0),
    )


def _repeated(
    call: HttpCall,
    policy: RetryPolicy,
    clock: Callable[[], float],
    chance: Callable[[], float],
    judge: Callable[[net.Response], dict[str, Any] | _Again],
) -> Conversation[tuple[dict[str, Any], int]]:
    """Make a call until it has an answer that counts, or the policy ends it."""
    ends_at, tries, unknown = clock() + policy.within, 0, False
    while True:
        result = yield call
        tries += 1
        judged = (
            _no_answer(result) if isinstance(result, net.NetError) else judge(_response(result))
        )
        if isinstance(judged, dict):
            return judged, tries
        unknown = unknown or judged.unknown
        pause = policy.pause(tries, chance(), judged.after)
        if tries >= policy.attempts or clock() + pause > ends_at:
            after = "" if tries == 1 else f" after {tries} tries"
            maybe = (
                "; it may have been accepted all the same"
                if unknown and call.method == "POST"
                else ""
            )
            raise MessageNotAccepted(
                f"{judged.why}{after}{maybe}", tries=tries, status=judged.status, unknown=unknown
            )
        yield RetryPause(pause)


def _response(result: Result) -> net.Response:
    assert isinstance(result, net.Response)
    return result


def _no_answer(error: net.NetError) -> _Again:
    if error.permanent:
        raise error
    return _Again(
        f"the service did not answer: {error}", error.http_status, error.retry_after, error.unknown
    )


def _accepted(response: net.Response) -> dict[str, Any] | _Again:
    """The answer to a message; raises MessageRefused if it is refused for good."""
    answer = _object(response)
    if response.not_now:
        # After 5xx it may have been written; what is refused by 408, 425 or 429 was not looked at.
        return _Again(
            f"the service answered {_said(response, answer)}",
            response.status,
            response.retry_after,
            response.status >= 500,
        )
    if not response.ok:
        code = str(answer.get("error") or f"HTTP_{response.status}")
        raise MessageRefused(
            code,
            str(answer.get("message") or _said(response, answer))[:LONGEST_TEXT],
            status=response.status,
        )
    if not isinstance(answer.get("messageId"), str) or not isinstance(
        answer.get("duplicateDetected"), bool
    ):
        return _Again(
            "the answer is not that of POST /message; is the URL right?",
            response.status,
            unknown=True,
        )
    return answer


def _found(response: net.Response) -> dict[str, Any] | _Again:
    """The record of a message."""
    answer = _object(response)
    if response.status == 404:
        raise MessageUnknown(str(answer.get("detail") or "there is no such message")[:LONGEST_TEXT])
    if response.ok and isinstance(answer.get("status"), str):
        return answer
    if response.ok or response.not_now:
        return _Again(
            f"the service answered {_said(response, answer)}", response.status, response.retry_after
        )
    said = str(answer.get("detail") or answer.get("message") or _said(response, answer))
    if answer.get("expected"):
        said += f"; expected: {answer['expected']}"
    raise MessageRefused(
        str(answer.get("error") or f"HTTP_{response.status}"),
        said[:LONGEST_TEXT],
        status=response.status,
    )


def _object(response: net.Response) -> dict[str, Any]:
    """The answer's JSON object; empty if it is none, such as the page of a proxy."""
    try:
        found = response.json()
    except (ValueError, json.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _said(response: net.Response, answer: Mapping[str, Any]) -> str:
    text = str(answer.get("message") or "")[:LONGEST_TEXT]
    return f"{response.status} ({text})" if text else str(response.status)


def _plain(value: Any) -> Any:
    """Any mapping as a dict; what is none is refused by the message rules."""
    return dict(value) if isinstance(value, Mapping) else value


def _time(value: str | datetime) -> str:
    if isinstance(value, str):
        return value
    if value.tzinfo is None:
        raise ClientUsageError("a time without a zone; give datetime.now(timezone.utc) or so")
    return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
