"""Operations on messages: accept, read, list, cancel before the first try, replay one. The API, the
pages and the commands share them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, tzinfo
from shlex import quote
from typing import Any

import msgspec
from msgspec import Struct

import milepost as mp
import milepost.application as mpa
from milepost_client import KEY, Message, MessageRefused, check_message
from milepost_notifications.destinations import SIGNED
from milepost_notifications.operate.record import blocks_of, identity_of, record_of
from milepost_notifications.settings import App

CANCELLABLE = ("PENDING", "QUEUED", "WAITING")
"""Statuses in which a message that has had no try can be cancelled. It waits where its destination
is not configured, say."""
EDITABLE = ("method", "headers", "body")
"""Fields that a replay may change; the others are the message's identity."""


def read_message(data: bytes, largest_body: int) -> Message:
    """Check a request's body; raises MessageRefused for the first thing that is wrong, in this
    order: JSON, required fields, messageId, timestamp, senderId, targetUrl, method, headers,
    body."""
    try:
        given = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise MessageRefused("INVALID_JSON", "Request body is not valid JSON") from None
    if not isinstance(given, dict):
        raise MessageRefused("INVALID_JSON", "Request body must be a JSON object")
    twice = mpa.name_given_twice(data)
    if twice is not None:
        raise MessageRefused("INVALID_JSON", f"Request body gives the name {twice!r} twice")
    return check_message(given, largest_body, msgspec.json.encode)


def is_repeat(receipt: Any) -> bool:
    """Does the sender repeat what it sent before, by the receipt of the ledger? It may also be its
    first content, if an operator has sent the message with another since."""
    return bool(
        receipt.answer == "known" or (receipt.answer == "changed" and receipt.first_content)
    )


class MessageFilter(Struct, frozen=True, kw_only=True):
    """A filter of messages. All conditions must hold; times are of acceptance, such as
    `2027-01-31T08:00:00Z`, or `2h` (ago)."""

    sender: str | None = None
    destination: str | None = None
    status: tuple[str, ...] = ()
    message_id: str | None = None
    cause: str | None = None
    """A group of failures, as `dead-letters` names it."""
    created_from: str | None = None
    created_before: str | None = None
    zone: tzinfo = UTC
    """Of times that name none."""

    def words(self) -> dict[str, Any]:
        """The same as arguments of `Operations.items`."""
        parts = [
            f"{field}={value}"
            for field, value in (("messageId", self.message_id), ("senderId", self.sender))
            if value
        ]
        return {
            "statuses": self.status,
            "lane": self.destination,
            "parts": parts,
            "group": self.cause,
            "created_from": self.created_from,
            "created_before": self.created_before,
            "zone": self.zone,
        }


def named_zone(name: str | None) -> tzinfo | None:
    """The time zone of this name; None: no name is given."""
    return None if name is None else mpa.zone_of(name, "zone")


class MessagePage(Struct, frozen=True):
    """A page of messages without their content, those accepted last first, or the first first."""

    messages: list[dict[str, Any]]
    next: str | None
    """Give it as `after` to get the next page; null: this was the last one."""
    more: bool
    """There is a next page."""
    ordered: bool = True
    """False: more messages match than the ledger can put in order of time; they come in its own
    order."""


def find_messages(app: App, wanted: MessageFilter, limit: int) -> list[dict[str, Any]]:
    """The first messages that match, without their content, in the ledger's own order."""
    return [
        message_view(one) for one in app.items(app.settings.route, limit=limit, **wanted.words())
    ]


def message_page(
    app: App,
    wanted: MessageFilter,
    *,
    limit: int,
    after: str | None = None,
    oldest_first: bool = False,
    scan: bool = True,
) -> MessagePage:
    """A page of the messages that match. Without `scan`, CostlyQuery where no index serves the
    search."""
    found = app.item_page(
        app.settings.route,
        limit=limit,
        after=after,
        oldest_first=oldest_first,
        scan=scan,
        **wanted.words(),
    )
    return MessagePage(
        [message_view(one) for one in found.items],
        found.next,
        found.next is not None,
        found.ordered,
    )


def message_view(row: Mapping[str, Any]) -> dict[str, Any]:
    """One message for a table, from an item as `Operations.items` gives it."""
    identity = identity_of(row["key"])
    return {
        **identity,
        "targetUrl": mp.url_in_key(identity["targetUrl"]),
        "destination": row["lane"],
        "status": row["status"],
        "nextRetryAt": row["due_at"] if row["status"] == "RETRY_SCHEDULED" else None,
        "deliverAt": row["not_before"],
        **blocks_of(row),
        "error": row["error"],
        "createdAt": row["created_at"],
        "lastUpdatedAt": row["updated_at"],
        "requestId": row["correlation_id"],
        "key": row["key"],
    }


def next_try(view: Mapping[str, Any]) -> str | None:
    """When a message of a list is tried next, if that is for later: its next try after one that
    failed, or its `deliverAt`."""
    if waits_for_time(view["status"], view["deliverAt"]):
        return str(view["deliverAt"])
    return None if view["nextRetryAt"] is None else str(view["nextRetryAt"])


def read_record(app: App, key: str) -> dict[str, Any] | None:
    """The record of a message; None: there is none with this key."""
    shown = app.show(app.settings.route, key)
    if shown is None:
        return None
    limits = app.state.destinations.limits_of(shown.get("lane") or "")
    return record_of(shown, limits.retry.attempts)


def find_key(app: App, key_or_id: str, sender: str | None = None) -> str:
    """The key of the one message that has this key, or this messageId. Raises UsageError if there
    is none, or more than one."""
    shown = app.show(app.settings.route, key_or_id)
    if shown is not None:
        return str(shown["key"])
    found = find_messages(app, MessageFilter(message_id=key_or_id, sender=sender), 3)
    if not found:
        raise mp.NotFound(
            f"there is no message {key_or_id!r}; 'milepost notifications list' shows those there are"
        )
    if len(found) > 1:
        raise mp.UsageError(
            f"several messages have the messageId {key_or_id!r}; give the whole key, such as {found[0]['key']!r}"
        )
    return str(found[0]["key"])


def cancel_message(app: App, key: str, *, by: str, reason: str) -> None:
    """Cancel a message that has had no try. Raises ActRefused if a try has begun, or it has
    ended."""
    route = app.settings.route
    shown = app.show(route, key)
    if shown is None:
        raise mp.NotFound(f"there is no message {key!r}")
    if not is_live(shown["status"]):
        raise mp.ActRefused(
            f"{key}: it has ended ({shown['status']}); it can no longer be cancelled"
        )
    if (
        shown["status"] not in CANCELLABLE
        or shown["total_attempts"]
        or shown["losses"]
        or shown["unknown"]
    ):
        why = f"its first try has begun ({shown['status']}), and the partner may have it"
        raise mp.ActRefused(
            f"{key}: {why}; it can no longer be taken back. To give up its further tries: {command(app, 'cancel', key)}"
        )
    # Only while it waits: an act by filter leaves alone an item that has changed since the act
    # began, such as one claimed meanwhile.
    key = shown["key"]
    report = app.act(
        "cancel",
        route,
        statuses=CANCELLABLE,
        prefix=key,
        parts=_parts_of(app, key),
        by=by,
        reason=reason,
    )
    if report.done != 1:
        raise mp.ActRefused(
            f"{key}: its first try has begun meanwhile; it can no longer be cancelled"
        )


def _parts_of(app: App, key: str) -> list[str]:
    """The parts of a message's key as conditions of a filter that begins with the key: other keys
    may begin so too. One that was accepted before URLs were hidden in keys has another last part
    than a filter; then no other key may begin so."""
    parts = [f"{field}={value}" for field, value in zip(KEY, mpa.key_parts(key), strict=True)]
    if mp.url_in_key(mpa.key_parts(key)[-1]) == mpa.key_parts(key)[-1]:
        return parts
    if len(app.items(app.settings.route, prefix=key, limit=2)) > 1:
        raise mp.ActRefused(
            f"{key}: the key of another message begins so; to give up this one: {command(app, 'cancel', key)}"
        )
    return parts[:-1]


def replay_message(
    app: App, key: str, *, by: str, reason: str, changes: Mapping[str, Any] | None = None
) -> None:
    """Send a message again that has failed, was cancelled or was delivered: with a new series of
    tries, and the earlier history kept. `changes` replace its method, headers or body. Raises
    ActRefused or UsageError if that cannot be done."""
    route = app.settings.route
    shown = app.show(route, key)
    if shown is None or shown["input"] is None:
        raise mp.NotFound(f"there is no message {key!r}, or its content has left the ledger")
    if changes:
        content = edited(shown["input"], changes, app.settings.largest_body)
        app.replace(route, content, by=by, reason=reason, rerun=shown["status"] == "COMPLETED")
        return
    if shown["status"] == "COMPLETED":
        app.rerun(route, key, by=by, reason=reason)
        return
    if is_live(shown["status"]):
        raise mp.ActRefused(f"{key}: it has not ended ({shown['status']}); {what_next(app, shown)}")
    _act(app, "retry", key, by, reason)


def send_now(app: App, key: str, *, by: str, reason: str) -> None:
    """Send a message at once that waits for its next try, or for its `deliverAt`. Raises ActRefused
    if it waits for neither."""
    route = app.settings.route
    shown = app.show(route, key)
    if shown is None:
        raise mp.NotFound(f"there is no message {key!r}")
    if waits_for_time(shown["status"], shown["not_before"]):
        app.reschedule(route, key, app.now(), by=by, reason=reason)
    elif shown["status"] == "RETRY_SCHEDULED":
        _act(
            app, "resend", key, by, reason
        )  # the next try of its series; a retry would begin a new one
    else:
        raise mp.ActRefused(f"{key}: it does not wait for a time ({shown['status']})")


def give_up_message(app: App, key: str, *, by: str, reason: str) -> None:
    """Give up a message that has had tries: it is not tried again. Raises ActRefused if it has
    ended."""
    if app.show(app.settings.route, key) is None:
        raise mp.NotFound(f"there is no message {key!r}")
    _act(app, "cancel", key, by, reason)


def _act(app: App, verb: str, key: str, by: str, reason: str) -> None:
    for _, why in app.act(verb, app.settings.route, keys=[key], by=by, reason=reason).refused:
        raise mp.ActRefused(f"{key}: {why}")


def is_live(status: str) -> bool:
    """Has a message with this status not ended?"""
    return status in ("PENDING", "QUEUED", "PROCESSING", "WAITING", "RETRY_SCHEDULED")


def waits_for_time(status: str, deliver_at: str | None) -> bool:
    """Does a message wait for the time that its sender gave?"""
    return status == "PENDING" and deliver_at is not None


def what_next(app: App, shown: Mapping[str, Any]) -> str:
    """When a message that has not ended is sent next, and the commands that change that."""
    key = shown["key"]
    if waits_for_time(shown["status"], shown["not_before"]):
        return f"it is sent at {shown['not_before']}. To send it now: {command(app, 'reschedule', key, ' --at now')}"
    if shown["status"] == "RETRY_SCHEDULED":
        now, never = command(app, "resend", key), command(app, "cancel", key)
        return f"its next try is at {shown['due_at']}. To try it now: {now}; to give it up: {never}"
    return "it is sent by itself"


def command(app: App, verb: str, key: str, options: str = "") -> str:
    """The general command that does this act to a message."""
    return f"milepost {verb} {quote(app.settings.route)} {quote(key)}{options} {SIGNED}"


def edited(
    content: Mapping[str, Any], changes: Mapping[str, Any], largest_body: int
) -> dict[str, Any]:
    """The content of a message with these changes, checked as at acceptance. Pure."""
    fixed = [name for name in changes if name not in EDITABLE]
    if fixed:
        raise mp.UsageError(
            f"{', '.join(fixed)}: a replay may change {', '.join(EDITABLE)}; for another target, send a new message"
        )
    merged = {**content, **changes}
    headers = content.get("headers") or {}
    if "body" in changes and "headers" not in changes and isinstance(headers, Mapping):
        # The old body's type need not be that of the new one.
        merged["headers"] = {
            name: value for name, value in headers.items() if name.lower() != "content-type"
        }
    try:
        return read_message(msgspec.json.encode(merged), largest_body).content
    except MessageRefused as refused:
        raise mp.UsageError(refused.text) from None
