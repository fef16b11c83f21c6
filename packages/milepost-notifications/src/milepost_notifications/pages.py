"""Pages of notifications: destinations with their state, messages with every try, dead letters, and
the figures of senders."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

import milepost as mp
import milepost.application as mpa
from milepost_notifications.application import application
from milepost_notifications.destinations import STAGE
from milepost_notifications.operate.collector import figures_of
from milepost_notifications.operate.dead_letters import (
    dead_letter_numbers,
    dead_letters,
    replay_all,
)
from milepost_notifications.operate.messages import (
    CANCELLABLE,
    MessageFilter,
    cancel_message,
    give_up_message,
    message_page,
    named_zone,
    next_try,
    read_record,
    replay_message,
    send_now,
    waits_for_time,
)
from milepost_notifications.operate.record import timeline_of
from milepost_notifications.operate.registry import (
    begin_outage,
    destination_views,
    lanes_of,
    pause_destination,
    resume_destination,
)
from milepost_notifications.operate.senders import (
    check_destination,
    seen_sender,
    sender_views,
    shown_destination,
    shown_destinations,
)
from milepost_notifications.settings import App

HOME = "/notifications"
DESTINATION = f"{HOME}/destinations/{{name}}"
LISTED = 100
NEWEST = 10
"""Messages that the page of a destination shows of each list."""
WAITING = ("PENDING", "QUEUED", "RETRY_SCHEDULED", "WAITING")
REASONS = ("paused", "breaker", "fault")
"""Fields of a destination that say why it holds messages back."""
HELD = 20
"""Destinations whose reasons a list shows."""
LARGEST_BODY = 20_000
"""Characters of a body that a page shows."""
COLOURS = {
    "healthy": "done",
    "draining": "done",
    "failing": "fail",
    "open": "fail",
    "misconfigured": "fail",
}


class ReasonForm(Struct, frozen=True):
    """Why, and how fast."""

    reason: str
    drain: str = ""


class OutageForm(Struct, frozen=True):
    """`zone`: the time zone of the browser, which its script gives."""

    reason: str
    until: str
    drain: str = ""
    zone: str = ""


class MessageForm(Struct, frozen=True):
    """An act on one message; a changed body replaces its own."""

    key: str
    reason: str
    body: str = ""
    change: str = ""


class Listing(Struct, frozen=True):
    """Filter of a page's messages; an empty field is no condition."""

    sender: str = ""
    destination: str = ""
    status: str = ""
    cause: str = ""
    created_from: str = field(default="", name="from")
    created_before: str = field(default="", name="before")
    zone: str = ""
    """The time zone of the browser, which its script gives."""
    oldest_first: bool = False
    after: str = ""

    def filter(self, only: str | None = None) -> MessageFilter:
        return MessageFilter(
            sender=only or self.sender or None,
            destination=self.destination or None,
            status=(self.status,) if self.status else (),
            cause=self.cause or None,
            created_from=self.created_from or None,
            created_before=self.created_before or None,
            zone=named_zone(self.zone or None) or UTC,
        )

    @property
    def fields(self) -> dict[str, str]:
        """The conditions that are given, by their names in an address."""
        named = {
            "sender": self.sender,
            "destination": self.destination,
            "status": self.status,
            "cause": self.cause,
        }
        times = {"from": self.created_from, "before": self.created_before}
        zone = {"zone": self.zone} if any(times.values()) else {}
        return {name: text for name, text in {**named, **times, **zone}.items() if text}

    def address(self, **changed: str) -> str:
        """The address of the same list in its order, with these fields beside it."""
        order = {"oldest_first": "true"} if self.oldest_first else {}
        return f"?{urlencode({**self.fields, **order, **changed})}"


class ReplayForm(Listing, frozen=True, kw_only=True):
    """A bulk replay of what a page listed."""

    reason: str
    pace: str = ""


@application.page(HOME, title="Notifications")
def home(app: App, call: mpa.Call) -> mpa.Page:
    dead, pipeline = dead_letter_numbers(app)
    return mpa.Page(
        "notifications.html",
        {
            "destinations": [
                _destination(one) for one in shown_destinations(call.caller, destination_views(app))
            ],
            "senders": [
                {
                    **one,
                    "p50": seconds(one["first_try_p50_s"]),
                    "p95": seconds(one["first_try_p95_s"]),
                }
                for one in sender_views(figures_of(app), seen_sender(call.caller))
            ],
            "dead": dead,
            "pipeline": pipeline,
            "forecast": _forecast(app, call),
        },
    )


@application.page(DESTINATION)
def destination(
    app: App, call: mpa.Call, wrong: str = "", form: OutageForm | None = None
) -> mpa.Page:
    """The page of a destination; with the form of an outage as it was sent, if something in it is
    wrong."""
    name = call.path["name"]
    if name not in {one["name"] for one in destination_views(app)}:
        raise mp.NotFound(f"there is no destination {name!r}")
    check_destination(call.caller, name)
    [found] = destination_views(app, [name])
    found, only = shown_destination(call.caller, found), seen_sender(call.caller)
    waiting = _affordable(app, MessageFilter(sender=only, destination=name, status=("live",)))
    failed = _affordable(app, MessageFilter(sender=only, destination=name, status=("failed",)))
    values: dict[str, Any] = {
        "here": HOME,
        "one": _destination(found),
        "lists": [("Waiting", "live", waiting), ("Dead letters", "failed", failed)],
    }
    values |= {"forecast": _forecast(app, call, name), "wrong": _sentence(wrong), "form": form}
    return mpa.Page("destination.html", values, 400 if wrong else 200)


def _forecast(app: App, call: mpa.Call, destination: str | None = None) -> list[dict[str, Any]]:
    """The sentences of the forecast of all messages, or of those to a destination. It counts those
    of all senders: a caller who sees the messages of one sender gets none."""
    if seen_sender(call.caller) is not None:
        return []
    if destination is None:
        found = app.forecast(app.settings.route)
    else:
        found = app.forecast(app.settings.route, stage=STAGE, lane=destination)
    return [] if found is None else list(found["sentences"])


@application.page(f"{DESTINATION}/pause", scope="operate", form=ReasonForm)
def pause(app: App, call: mpa.Call) -> mpa.Redirect:
    pause_destination(app, call.path["name"], by=call.caller.name, reason=call.body.reason)
    return _to_destination(call)


@application.page(f"{DESTINATION}/outage", scope="operate", form=OutageForm)
def outage(app: App, call: mpa.Call) -> mpa.Page | mpa.Redirect:
    body: OutageForm = call.body
    try:
        by, drain, zone = call.caller.name, body.drain or None, named_zone(body.zone or None)
        begin_outage(
            app,
            call.path["name"],
            until=body.until,
            drain=drain,
            by=by,
            reason=body.reason,
            zone=zone,
        )
    except mp.NotFound:
        raise
    except (mp.UsageError, mp.ActRefused) as error:
        return destination(app, call, str(error), body)
    return _to_destination(call)


@application.page(f"{DESTINATION}/resume", scope="operate", form=ReasonForm)
def resume(app: App, call: mpa.Call) -> mpa.Redirect:
    resume_destination(
        app,
        call.path["name"],
        by=call.caller.name,
        reason=call.body.reason,
        drain=call.body.drain or None,
    )
    return _to_destination(call)


@application.page(f"{HOME}/messages", query=Listing)
def messages(app: App, call: mpa.Call) -> mpa.Page:
    """An invalid field is shown with a sentence that says what is wrong."""
    asked: Listing = call.query
    wrong, found, only = "", None, seen_sender(call.caller)
    try:
        wanted = asked.filter(only)
        found = message_page(
            app,
            wanted,
            limit=LISTED,
            after=asked.after or None,
            oldest_first=asked.oldest_first,
            scan=False,
        )
    except mp.CostlyQuery:
        pass  # the page says so
    except mp.UsageError as error:
        wrong = str(error)
    lanes = (
        {}
        if found is None
        else dict.fromkeys(one["destination"] for one in found.messages if one["status"] in WAITING)
    )
    return mpa.Page(
        "messages.html",
        {
            "here": HOME,
            "asked": asked,
            "found": found,
            "rows": [] if found is None else _rows(found.messages),
            "wrong": _sentence(wrong),
            "held": _held_destinations(
                app, call, [asked.destination] if asked.destination else list(lanes)
            ),
            "statuses": list(mp.Status),
            "known": sorted(app.state.destinations.all),
            "next": None
            if found is None or found.next is None
            else asked.address(after=found.next),
            "first": asked.address() if asked.after else None,
            "turned": replace(asked, oldest_first=not asked.oldest_first).address(),
        },
    )


@application.page(f"{HOME}/messages/{{key:path}}")
def message(app: App, call: mpa.Call) -> mpa.Page:
    key, only = call.path["key"], seen_sender(call.caller)
    shown, record = app.show(app.settings.route, key), read_record(app, key)
    if shown is None or record is None or (only is not None and record["senderId"] != only):
        raise mp.NotFound(f"there is no message {key!r}")
    body = record.get("body")
    if body is not None and not isinstance(
        body, str
    ):  # of a message that did not come by POST /message
        body = msgspec.json.encode(body).decode()
    may_cancel = (
        record["status"] in CANCELLABLE
        and not record.get("totalAttempts")
        and not record.get("totalLostTries")
    )
    return mpa.Page(
        "message.html",
        {
            "here": HOME,
            "route": app.settings.route,
            "record": record,
            "removed": record.get("removed", False),
            "held": _held(app, call, record),
            "headers": sorted(record.get("headers", {}).items()),
            "body": None if body is None else body[:LARGEST_BODY],
            "cut": body is not None and len(body) > LARGEST_BODY,
            "timeline": timeline_of(shown),
            "may_cancel": may_cancel,
            "may_send_now": record["status"] == "RETRY_SCHEDULED"
            or waits_for_time(record["status"], record.get("deliverAt")),
            "may_give_up": record["status"] in WAITING and not may_cancel,
            "may_replay": record["status"]
            in ("MAX_RETRIES_EXCEEDED", "REJECTED", "CANCELLED", "COMPLETED")
            and not record.get("removed"),
        },
    )


@application.page(f"{HOME}/cancel", scope="operate", form=MessageForm)
def cancel(app: App, call: mpa.Call) -> mpa.Redirect:
    cancel_message(app, call.body.key, by=call.caller.name, reason=call.body.reason)
    return _to_message(call.body.key)


@application.page(f"{HOME}/send-now", scope="operate", form=MessageForm)
def send_at_once(app: App, call: mpa.Call) -> mpa.Redirect:
    send_now(app, call.body.key, by=call.caller.name, reason=call.body.reason)
    return _to_message(call.body.key)


@application.page(f"{HOME}/give-up", scope="operate", form=MessageForm)
def give_up(app: App, call: mpa.Call) -> mpa.Redirect:
    give_up_message(app, call.body.key, by=call.caller.name, reason=call.body.reason)
    return _to_message(call.body.key)


@application.page(f"{HOME}/replay-one", scope="operate", form=MessageForm)
def replay(app: App, call: mpa.Call) -> mpa.Redirect:
    body: MessageForm = call.body
    changes = {"body": body.body.replace("\r\n", "\n")} if body.change else None
    replay_message(app, body.key, by=call.caller.name, reason=body.reason, changes=changes)
    return _to_message(body.key)


@application.page(f"{HOME}/dead-letters")
def dead_letter_page(app: App, call: mpa.Call) -> mpa.Page:
    return mpa.Page("dead_letters.html", {"here": HOME, "letters": dead_letters(app, call.caller)})


@application.page(f"{HOME}/replay", scope="operate", query=Listing)
def replay_preview(app: App, call: mpa.Call) -> mpa.Page:
    asked: Listing = call.query
    report = replay_all(app, asked.filter(), by=call.caller.name, reason="preview", dry_run=True)
    held = _held_destinations(app, call, list(report.destinations))
    return mpa.Page("replay.html", {"here": HOME, "asked": asked, "report": report, "held": held})


@application.page(f"{HOME}/replay", scope="operate", form=ReplayForm)
def replay_chosen(app: App, call: mpa.Call) -> mpa.Redirect:
    body: ReplayForm = call.body
    replay_all(app, body.filter(), by=call.caller.name, reason=body.reason, pace=body.pace or None)
    still = {name: text for name, text in body.fields.items() if name in ("sender", "destination")}
    return mpa.Redirect(f"{HOME}/messages?{urlencode({**still, 'status': 'live'})}")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _affordable(app: App, wanted: MessageFilter) -> list[dict[str, Any]] | None:
    """The latest messages that match; None: no index of the ledger serves this search, and a page
    does not read every row."""
    try:
        return _rows(message_page(app, wanted, limit=NEWEST, scan=False).messages)
    except mp.CostlyQuery:
        return None


def _rows(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages for a table, with the time of the next try, and why they are paused."""
    return [
        {
            **one,
            "next_try": next_try(one),
            "blocked_because": "; ".join(pause["reason"] for pause in one["pauses"]),
        }
        for one in messages
    ]


def _held_destinations(app: App, call: mpa.Call, lanes: list[str]) -> list[dict[str, Any]]:
    """The destinations among these that hold their messages back."""
    found = destination_views(app, lanes[:HELD]) if lanes else []
    return [
        one for one in shown_destinations(call.caller, found) if any(one[name] for name in REASONS)
    ]


def _destination(view: Mapping[str, Any]) -> dict[str, Any]:
    """A destination with the words and the colour that a page shows."""
    tries = view["tries"]
    rate = tries["success_rate"]
    return {
        **view,
        "colour": COLOURS.get(view["state"], "work"),
        "word": {
            "open": "breaker open",
            "half-open": "breaker half-open",
            "misconfigured": "not configured",
        }.get(view["state"], view["state"]),
        "success": "–" if rate is None else f"{rate:.0%}" if rate in (0, 1) else f"{rate:.1%}",
        "p50": seconds(tries["p50_s"]),
        "p95": seconds(tries["p95_s"]),
        "backlog": f"{view['waiting']:,}{'+' if view['waiting_more'] else ''}",
    }


def seconds(value: float | None) -> str:
    """A time for a table, which is the upper bound of a histogram's bucket; a dash: there is
    none."""
    return (
        "–"
        if value is None
        else f"≤\u00a0{value * 1000:g}\u00a0ms"
        if value < 1
        else f"≤\u00a0{value:g}\u00a0s"
    )


def _held(app: App, call: mpa.Call, record: Mapping[str, Any]) -> dict[str, Any]:
    """The reasons why the destination holds a message back, as the caller may see them: its pause,
    its breaker, or a secret that is missing."""
    lane = record.get("destination")
    if lane is None or record["status"] not in WAITING:
        return dict.fromkeys(REASONS)
    lanes = [lane, *lanes_of(app, record["senderId"], record["targetUrl"])[1:]]
    views = [shown_destination(call.caller, view) for view in destination_views(app, lanes)]
    return {name: next((view[name] for view in views if view[name]), None) for name in REASONS}


def _to_destination(call: mpa.Call) -> mpa.Redirect:
    return mpa.Redirect(f"{HOME}/destinations/{quote(call.path['name'], safe='')}")


def _to_message(key: str) -> mpa.Redirect:
    return mpa.Redirect(f"{HOME}/messages/{quote(key, safe='')}")
