"""Accept: POST /message takes a message, records it durably, and answers in the JSON form of this
endpoint."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

import milepost as mp
import milepost.application as mpa
from milepost_client import Message, MessageRefused
from milepost_notifications.operate.messages import is_repeat, read_message
from milepost_notifications.operate.registry import iso, keep_fresh
from milepost_notifications.operate.senders import check_sender, own_sender
from milepost_notifications.settings import App, NotificationsSettings

ENVELOPE_BYTES = 131_072
"""Bytes that a request may have beside its body: ids, URL and headers."""
ESCAPED = 6
"""Bytes that one byte of a body may take in JSON."""
MALFORMED = (400, 413)
"""Statuses of requests that count as malformed for their sender."""
SYSTEM_TEXT = "An internal error occurred. Please try again later."

_CODES = {
    400: "VALIDATION_ERROR", 401: "UNAUTHORIZED", 403: "FORBIDDEN", 404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 408: "REQUEST_TIMEOUT",
    409: "IDEMPOTENCY_CONFLICT", 413: "PAYLOAD_TOO_LARGE", 415: "UNSUPPORTED_MEDIA_TYPE", 422: "VALIDATION_ERROR", 429: "RATE_LIMITED",
}  # fmt: skip


class StoredMessage(Struct, frozen=True, rename="camel"):
    """The stored form of a new message."""

    message_id: str
    sender_id: str
    status: str
    attempts: int
    ttl: int
    created_at: str


class MessageAccepted(Struct, frozen=True, rename="camel"):
    """A message that is recorded, and will be delivered."""

    message: str
    request_id: str
    timestamp: str
    duplicate_detected: bool
    stored: bool
    queued: bool
    status_updated: bool
    message_id: str
    stored_message: StoredMessage


class MessageDuplicate(Struct, frozen=True, rename="camel"):
    """A message that was accepted before; nothing has changed."""

    message: str
    request_id: str
    timestamp: str
    duplicate_detected: bool
    message_id: str
    sender_id: str
    status: str


class MessageError(Struct, frozen=True, rename="camel"):
    """A message that was not accepted. `error` is a stable code; `requestId` is the correlation
    id."""

    error: str
    message: str
    timestamp: str
    request_id: str


def largest_request(settings: NotificationsSettings) -> int:
    """The most bytes of a request: its body may be escaped character by character."""
    return settings.largest_body * ESCAPED + ENVELOPE_BYTES


def answer_of_problem(problem: mpa.Problem, settings: NotificationsSettings) -> mpa.Answer:
    """An error of the server itself (no key, a wrong method, a ledger that cannot be reached) in
    the JSON form of POST /message, without inner details."""
    if problem.status >= 500:
        return _error("SYSTEM_ERROR", SYSTEM_TEXT, problem.status)
    if problem.status == 413:
        text = f"The request is too large: it may have {largest_request(settings):,} bytes, of which the field body at most {settings.largest_body:,}"
        return _error(_CODES[problem.status], text, problem.status)
    text = f"{problem.detail}; expected: {problem.expected}" if problem.expected else problem.detail
    return _error(_CODES.get(problem.status, "VALIDATION_ERROR"), text, problem.status)


async def accept(app: App, call: mpa.Call) -> mpa.Answer:
    """The message is on disk when this is answered with 200, and will be delivered. One that was
    accepted before is a duplicate; one with the same messageId, timestamp, senderId and targetUrl
    but another method, headers or body is a conflict."""
    try:
        message = read_message(call.body, app.settings.largest_body)
        check_sender(call.caller, message.sender_id)
        app.state.sender_limits.check(message.sender_id)
        if app.state.destinations.stale:
            await asyncio.to_thread(keep_fresh, app)
        check_target(app, message)
        answer = await _submitted(app, call, message)
    except MessageRefused as refused:
        if refused.status in MALFORMED:
            app.state.collector.malformed(own_sender(call.caller) or refused.sender)
        answer = _error(refused.code, refused.text, refused.status, refused.retry_after)
    if app.state.collector.overdue:
        await asyncio.to_thread(app.state.collector.add_malformed, app)
    return answer


def check_target(app: App, message: Message) -> None:
    """Refuse a target at an address that may not be called, and one that belongs to no destination
    where such targets are refused."""
    reason = app.state.destinations.refusal(message.content["targetUrl"])
    if reason is not None:
        text = f"Invalid targetUrl: requests to its address are refused ({reason}); to allow them, its network must be in allow_cidrs"
        raise MessageRefused("VALIDATION_ERROR", text, sender=message.sender_id)
    if app.state.destinations.of(message.content["targetUrl"]) is None:
        text = (
            "Invalid targetUrl: it belongs to no destination, and unregistered targets are refused"
        )
        raise MessageRefused("VALIDATION_ERROR", text, sender=message.sender_id)


async def _submitted(app: App, call: mpa.Call, message: Message) -> mpa.Answer:
    settings = app.settings
    receipt = await app.submit_async(
        settings.route, message.content, by=call.caller.name, not_before=message.deliver_at
    )
    if receipt.answer == "malformed":
        raise MessageRefused(
            "VALIDATION_ERROR", f"Invalid {receipt.field or 'message'}: {receipt.error}"
        )
    if receipt.answer == "changed" and not is_repeat(receipt):
        text = (
            "A message with this messageId, timestamp, senderId and targetUrl was accepted with another method, headers or body;"
            " send the new one with a messageId of its own"
        )
        raise MessageRefused("IDEMPOTENCY_CONFLICT", text, status=409)
    request_id, now = mpa.correlation_id() or "", iso(app.now())
    status = "" if receipt.status is None else receipt.status.value
    if is_repeat(receipt):
        return mpa.Answer(
            MessageDuplicate(
                "Duplicate message detected",
                request_id,
                now,
                True,
                message.message_id,
                message.sender_id,
                status,
            )
        )
    created = datetime.fromtimestamp((receipt.created_at or 0) / 1000, UTC)
    ttl = int(created.timestamp()) + mpa.span_ms(settings.retention, "retention") // 1000
    queued = status != mp.Status.PENDING.value
    stored = StoredMessage(message.message_id, message.sender_id, status, 0, ttl, iso(created))
    return mpa.Answer(
        MessageAccepted(
            "Message accepted",
            request_id,
            now,
            False,
            True,
            queued,
            queued,
            message.message_id,
            stored,
        )
    )


def _error(code: str, text: str, status: int, retry_after: int | None = None) -> mpa.Answer:
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return mpa.Answer(
        MessageError(code, text, iso(datetime.now(UTC)), mpa.correlation_id() or ""),
        status,
        headers,
    )


ANSWERS: dict[int, Any] = {
    200: MessageAccepted | MessageDuplicate,
    **dict.fromkeys((400, 403, 409, 413, 429, 503), MessageError),
}
